"""`innerloop check`: test statements of the literature."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from innerloop.commands.options import (
    AsJson,
    Device,
    EngineName,
    Fresh,
    PresetName,
    Results,
    Seed,
    Workers,
)
from innerloop.errors import InputError
from innerloop.output import print_error, print_json
from innerloop.results import find_results
from innerloop.terminal import print_outcomes, progress_bar

if TYPE_CHECKING:
    from innerloop.ledger.checking import CheckOptions
    from innerloop.ledger.run import Outcome


def check(
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID",
            help="Ids of claims, or prefixes of ids; all claims by default. module:attribute "
            "imports your own claim, which runs its code.",
        ),
    ] = None,
    preset: PresetName = "quick",
    workers: Workers = None,
    engine: EngineName = "local",
    fresh: Fresh = False,
    seed: Seed = 0,
    device: Device = "cpu",
    results: Results = None,
    as_json: AsJson = False,
) -> None:
    """Test statements of papers; exit 1 if a check raised an error.

    Stored results are used if they exist, also those of a larger preset.
    `--fresh` ignores them and runs everything at the requested preset.
    """
    options = {"preset": preset, "workers": workers, "engine": engine, "fresh": fresh, "seed": seed}
    options["device"] = device
    chosen = choose_options(results, **options)
    checked, unwritten = check_with_progress(ids or [], chosen)
    outcomes = [outcome.as_dict() for outcome in checked]
    print_json(outcomes) if as_json else print_outcomes(outcomes)
    finish_check(checked, unwritten)
    if missing := [outcome for outcome in checked if outcome.state == "unavailable"]:
        raise InputError(f"{missing[0].id} cannot be checked here: {missing[0].error}")


def choose_options(results: Path | None, **options: Any) -> CheckOptions:
    """Collect the options of a check; raise an error for unknown values before loading claims."""
    from innerloop.ledger.checking import CheckOptions
    from innerloop.ledger.engines import parse_engine

    chosen = CheckOptions(results=find_results(results), **options)
    chosen.check_preset()
    parse_engine(chosen.engine, chosen.workers)
    return chosen


def check_with_progress(words: list[str], chosen: CheckOptions) -> tuple[list[Outcome], list[str]]:
    """Check claims with a progress bar; after an interrupt, print how to continue."""
    from innerloop.ledger.checking import check_claims

    with progress_bar("checking") as progress:
        try:
            return check_claims(words, chosen, progress=progress, notice=progress.notice)
        except KeyboardInterrupt:
            print_error(
                "interrupted; finished results are stored; run the same command to continue"
            )
            raise SystemExit(130) from None


def finish_check(outcomes: list[Outcome], unwritten: list[str]) -> None:
    """Exit with code 1 if a check raised an error.

    Exit with code 2 if the worker processes died, or results could not be written.
    """
    if broken := [outcome.id for outcome in outcomes if outcome.state == "broken"]:
        print_error(f"these checks raised an error: {', '.join(broken)}")
        raise typer.Exit(1)
    if lost := next((outcome for outcome in outcomes if outcome.lost), None):
        raise InputError(lost.error)
    if unwritten:
        raise InputError(f"{len(unwritten)} results could not be stored: {unwritten[0]}")
