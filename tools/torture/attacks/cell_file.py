"""Damaged results of a check (cells): `check` computes them again, and the report stays
consistent.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.ledger.run import Outcome
from innerloop.ledger.store import _compute_digest  # pyright: ignore[reportPrivateUsage]
from innerloop.output import print_json
from innerloop.report.claims import collect_figures, render_claims
from innerloop.report.findings import render_findings
from innerloop.report.page import draw_figure
from innerloop.terminal import print_outcomes
from tools.torture.attack import Attack, Defect, Verdict
from tools.torture.corruption import damage_bytes, damage_tree, spell_json
from tools.torture.victims import check_here, read_cells


class Original(NamedTuple):
    """The cells of a run, and their results."""

    folder: Path
    results: dict[str, Any]
    evidence: dict[str, Any]


def prepare(folder: Path) -> Original:
    """Check the victims' claims once."""
    outcomes = check_here(folder / "cells", [])
    return Original(folder / "cells", read_cells(folder / "cells"), list_evidence(outcomes))


def list_evidence(outcomes: list[Outcome]) -> dict[str, Any]:
    """List the evidence of each claim."""
    return {o.id: o.evidence.as_dict() if o.evidence else o.error for o in outcomes}


def attempt_plain(original: Original, chance: random.Random, folder: Path) -> Verdict:
    """Damage the bytes of one stored result, check again, and see that it is computed again."""
    path = copy_cells(original, chance, folder)
    path.write_bytes(damage_bytes(path.read_bytes(), chance))
    notices: list[str] = []
    if list_evidence(check_here(folder / "cells", notices)) != original.evidence:
        raise Defect("a damaged cell changed a result")
    if read_cells(folder / "cells") != original.results:
        raise Defect("a damaged cell was not made again")
    return "refused" if any("damaged" in notice for notice in notices) else "survived"


def attempt_resealed(original: Original, chance: random.Random, folder: Path) -> Verdict:
    """Change the content of one stored result and recompute its checksum; then check and report."""
    path = copy_cells(original, chance, folder)
    file = json.loads(path.read_bytes())
    file["content"] = damage_tree(file["content"], chance)
    with contextlib.suppress(ValueError):
        file["sha256"] = _compute_digest(file["content"])
    path.write_text(spell_json(file, chance), "utf-8")
    notices: list[str] = []
    outcomes = check_here(folder / "cells", notices)
    show_outcomes([outcome.as_dict() for outcome in outcomes])
    return "refused" if notices else "survived"


def copy_cells(original: Original, chance: random.Random, folder: Path) -> Path:
    """Copy the stored results to a folder; return the path of the one to damage."""
    shutil.copytree(original.folder, folder / "cells")
    return folder / "cells" / chance.choice(sorted(original.results))


def show_outcomes(outcomes: list[dict[str, Any]]) -> None:
    """Print outcomes as `check` does, and draw them as the report does."""
    with contextlib.redirect_stdout(io.StringIO()):
        print_json(outcomes)
        print_outcomes(outcomes)
    render_claims(outcomes, {}, {})
    render_findings(outcomes)
    for figure in collect_figures(outcomes).values():
        draw_figure(figure)


ATTACKS = (
    Attack("cell-plain", 10_000, prepare, attempt_plain, sample=12),
    Attack("cell-resealed", 10_000, prepare, attempt_resealed, sample=15),
)
