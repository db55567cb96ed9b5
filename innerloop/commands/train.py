"""`innerloop train`: a model by a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from innerloop.commands.options import AsJson, Results, Seed, Settings, parse_parameters
from innerloop.errors import InputError
from innerloop.output import print_error, print_json, print_text
from innerloop.results import find_results
from innerloop.terminal import print_runs, progress_bar


def train(
    name: Annotated[str, typer.Argument(help="A recipe; see `innerloop list recipes`.")],
    settings: Settings = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The folder of the run; else below the results."),
    ] = None,
    seed: Seed = 0,
    seeds: Annotated[int, typer.Option(help="Runs, each with a seed one higher.")] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what was stopped; else begin.")
    ] = False,
    threads: Annotated[
        int, typer.Option(help="Threads to train with; another number gives other weights.")
    ] = 1,
    results: Results = None,
    as_json: AsJson = False,
) -> None:
    """Train a model by a recipe; stopped or killed, `--resume` goes on as if nothing happened."""
    from innerloop.recipes.base import Recipe, list_seeds, train_seeds
    from innerloop.recipes.runs import note_run
    from innerloop.registry import make_member
    from innerloop.training.environment import check_threads

    seed_range, threads = list_seeds(seed, seeds), check_threads(threads)
    values = parse_parameters("recipes", Recipe, name, settings)
    recipe = make_member("recipes", Recipe, name, values)
    runs = find_results(results) / "runs"
    folder = recipe.name_folder(runs) if output is None else output
    with progress_bar("training") as progress:
        try:
            note_run(runs, folder)
        except InputError as error:
            progress.notice(f"a report will not know of this run: {error}")
        try:
            trained = train_seeds(
                recipe,
                seed_range,
                folder,
                resume=resume,
                threads=threads,
                progress=progress,
                notice=progress.notice,
            )
        except KeyboardInterrupt:
            print_error(f"stopped, saved in {folder}; --resume goes on")
            raise SystemExit(130) from None
    if as_json:
        return print_json([run.as_dict() for run in trained])
    print_runs(name, [run.as_dict() for run in trained])
    return print_text(f"written to {folder}")
