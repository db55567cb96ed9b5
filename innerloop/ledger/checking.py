"""Check the claims that a command selects, with the options of the command line.

A word selects the registered claim with that id, or all claims whose ids start with it.
`module:attribute` and `file.py:attribute` select a claim that the caller wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from innerloop.claims.base import PRESETS, Preset
from innerloop.claims.loading import find_claim, load_claims, select_claims
from innerloop.devices import choose_device
from innerloop.errors import InputError, unknown_name_error
from innerloop.ledger.engines import parse_engine
from innerloop.ledger.run import Outcome, Run
from innerloop.ledger.store import Store
from innerloop.links import resolve_links
from innerloop.progress import Progress
from innerloop.results import find_recorded


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Options of a check: preset, seed, engine, folder, and whether to ignore stored results."""

    preset: str = "quick"
    seed: int = 0
    workers: int | None = None
    engine: str = "local"
    fresh: bool = False
    device: str = "cpu"
    results: Path

    def check_preset(self) -> Preset:
        """Return the preset, or raise an error that lists the presets."""
        for preset in PRESETS:
            if preset == self.preset:
                return preset
        raise unknown_name_error("preset", self.preset, PRESETS)


def check_claims(
    words: Sequence[str],
    options: CheckOptions,
    *,
    progress: Progress,
    notice: Callable[[str], None],
) -> tuple[list[Outcome], list[str]]:
    """Check the selected claims; return their outcomes, and errors of storing results.

    If the result of a larger preset is stored, it is used instead of the requested preset's.
    """
    preset = options.check_preset()
    if options.seed < 0:
        raise InputError(f"seed must be at least 0, got {options.seed}")
    device = choose_device(options.device).type if options.device != "cpu" else "cpu"
    if device != "cpu":
        notice(f"trainings and models run on {device}: their results are shown, but not stored")
    cells = options.results / "cells"
    for folder in (options.results, cells):
        if folder.exists() and not folder.is_dir():
            raise InputError(f"cannot store results in {folder}: it is not a folder")
    user_claims = {
        claim.id: claim for claim in map(find_claim, (word for word in words if ":" in word))
    }
    registered = [word for word in words if ":" not in word]
    ids = select_claims(registered) if registered or not user_claims else []
    run = Run(
        Store(resolve_links(cells), notice, recorded=resolve_links(find_recorded() / "cells")),
        parse_engine(options.engine, options.workers),
        seed=options.seed,
        fresh=options.fresh or device != "cpu",
        device=device,
        progress=progress,
        notice=notice,
        claims={**load_claims(), **user_claims},
    )
    ids += [id for id in user_claims if id not in ids]
    return run.check(ids, preset, fuller=True), run.write_errors
