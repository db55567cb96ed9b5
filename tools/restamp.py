"""Mark stored cells as current if new code gives equal numbers at `quick`.

    innerloop check --fresh --results BEFORE        with the old code
    innerloop check --fresh --results AFTER         with the new code
    python tools/restamp.py BEFORE AFTER            stamps results/cells of the checkout

After a change that should alter no number, such as a renaming, every stored cell is stale. A cell
at a larger preset is marked as current only if its claim has exactly equal results at `quick`
before
and after the change. The other cells are listed and must be run again.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from innerloop.claims.base import PRESETS, Claim
from innerloop.claims.evidence import Evidence
from innerloop.claims.loading import load_claims
from innerloop.ledger.code import WEIGHTS, collect_dependencies
from innerloop.ledger.store import Cell, Store
from innerloop.ledger.tables import unpack_tables
from innerloop.mathtext import strip_dollars
from innerloop.results import find_results


def read_results(folder: Path, claim: str) -> dict[str, Any]:
    """Read the results of a claim's cells at `quick` by file name, without dollar signs.

    Evidence in an older format is converted to the current one.
    """
    measurements = {}
    for path in (folder / "cells" / "quick" / claim).glob("*.json"):
        data = unpack_tables(json.loads(path.read_bytes())["content"]["found"])
        is_evidence = isinstance(data, dict) and "parts" in data
        measurements[path.name] = Evidence.from_dict(data).as_dict() if is_evidence else data
    return strip_dollars(measurements)


def list_dependencies(folder: Path, claim: Claim) -> set[str]:
    """List the modules and kinds that the cells of a claim at `quick` depend on."""
    names: set[str] = set()
    for path in (folder / "cells" / "quick" / claim.id).glob("*.json"):
        names |= json.loads(path.read_bytes())["content"]["code"].keys() - {WEIGHTS}
    return names


def restamp(claim: Claim, store: Store, seed: int, lookups: set[str]) -> list[str]:
    """Mark the stored cells of a claim at the larger presets as computed by the current code."""
    stamped = []
    for preset in PRESETS[1:]:
        for settings in claim.presets[preset]:
            cell = Cell(claim.id, preset, seed, settings)
            if finished := store.read(cell):
                code = collect_dependencies(claim.location, lookups, settings)
                store.write(cell, replace(finished, code=code))
                stamped.append(f"{claim.id} at {preset}")
    return stamped


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("before", type=Path, help="results of the old code")
    parser.add_argument("after", type=Path, help="results of the new code")
    parser.add_argument("--results", type=Path, help="whose cells are stamped; the checkout's")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    store = Store(find_results(options.results) / "cells", print)
    differing = []
    for claim in load_claims().values():
        before, after = (read_results(path, claim.id) for path in (options.before, options.after))
        if after and before == after:
            for stamped in restamp(
                claim, store, options.seed, list_dependencies(options.after, claim)
            ):
                print(f"stamped {stamped}")
        elif any((store.folder / preset / claim.id).is_dir() for preset in PRESETS[1:]):
            differing.append(claim.id)
    for id in differing:
        print(f"run again: {id} (its numbers at quick differ, or are missing)")


if __name__ == "__main__":
    main()
