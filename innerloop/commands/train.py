"""`innerloop train`: a model by a recipe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from innerloop.commands.options import (
    AsJson,
    Device,
    EngineName,
    Results,
    Settings,
    Workers,
    parse_parameters,
)
from innerloop.commands.sweeping import name_sweep, parse_grid, run_sweep
from innerloop.errors import InputError
from innerloop.output import print_error, print_json, print_text
from innerloop.results import find_results
from innerloop.terminal import print_runs, progress_bar


def train(
    name: Annotated[
        str,
        typer.Argument(
            help="A recipe; see `innerloop list recipes`. With --resume also the folder of a run."
        ),
    ],
    settings: Settings = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The folder of the run; else below the results."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the run; 0, or with --resume all that were begun.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs, each with a seed one higher.")] = 1,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with what was stopped, with its settings; more steps may be set. Else "
            "begin.",
        ),
    ] = False,
    threads: Annotated[
        int, typer.Option(help="Threads to train with; another number gives other weights.")
    ] = 1,
    device: Device = "cpu",
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE,VALUE",
            help="Train with each of these values; repeat for all combinations. The same command "
            "goes on with a sweep.",
        ),
    ] = None,
    workers: Workers = None,
    engine: EngineName = "local",
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write the history for TensorBoard.")
    ] = False,
    results: Results = None,
    as_json: AsJson = False,
) -> None:
    """Train a model by a recipe; stopped or killed, `--resume` goes on as if nothing happened."""
    from innerloop.devices import choose_device
    from innerloop.recipes.base import Recipe, list_seeds, train_seeds
    from innerloop.recipes.finding import list_begun_seeds
    from innerloop.registry import make_member
    from innerloop.training.environment import check_threads
    from innerloop.training.parallel import count_processes, is_leading

    chosen, threads = list_seeds(seed or 0, seeds), check_threads(threads)
    own: int | None = None
    choose_device(device)  # refused before anything is made
    runs = find_results(results) / "runs"
    if grid and count_processes() > 1:
        raise InputError("a sweep has workers of its own: start it without torchrun")
    if grid and (resume or tensorboard):
        raise InputError(
            "--resume and --tensorboard are for single runs: a sweep goes on by the same command"
        )
    if grid and threads != 1:
        raise InputError("runs of a sweep have one thread each: leave --threads out")
    if grid:
        values = parse_parameters("recipes", Recipe, name, settings)
        recipe = make_member("recipes", Recipe, name, values)
        points = parse_grid(type(recipe), grid)
        folder = output or name_sweep(runs, recipe, points)
        _note(runs, folder, print_error)
        options = {"seed": seed or 0, "seeds": seeds, "workers": workers, "engine": engine}
        return run_sweep(name, folder, as_json, grid=points, device=device, **options, **values)
    if workers is not None or engine != "local":
        raise InputError("--workers and --engine are for sweeps: name what varies with --grid")
    if resume:
        name, output, own = _find_run(name, output)
        chosen = chosen if own is None else _choose_seed(own, seed, seeds)
    values = parse_parameters("recipes", Recipe, name, settings)
    folder = _choose_folder(runs, name, values, output, resume)
    if resume and own is None and seed is None and seeds == 1:
        chosen = list_begun_seeds(folder) or chosen
    with progress_bar("training") as progress:
        if is_leading():
            _note(runs, folder, progress.notice)
        options: dict[str, Any] = {"resume": resume, "threads": threads, "settings": values}
        options |= {"tensorboard": tensorboard}
        options |= {"device": device, "progress": progress, "notice": progress.notice}
        try:
            trained = train_seeds(name, chosen, folder, **options)
        except KeyboardInterrupt:
            if is_leading():
                print_error(f"stopped, saved in {folder}; --resume goes on")
            raise SystemExit(130) from None
    if not is_leading():
        return None
    if as_json:
        return print_json([run.as_dict() for run in trained])
    print_runs(name, [run.as_dict() for run in trained])
    return print_text(f"written to {folder}")


def _choose_folder(
    runs: Path, name: str, values: dict[str, Any], output: Path | None, resume: bool
) -> Path:
    """Choose the folder of a run; settings of a new one are refused here, before it is made.

    Where a run goes on, its own settings complete those that are given.
    """
    from innerloop.recipes.definition import Recipe
    from innerloop.recipes.finding import find_folder
    from innerloop.registry import make_member

    if resume:
        return output or find_folder(runs, name, values)
    recipe = make_member("recipes", Recipe, name, values)
    return output or recipe.name_folder(runs)


def _note(runs: Path, folder: Path, notice: Callable[[str], None]) -> None:
    """Leave a note of a run in a folder of the user's choice; without it a report misses it."""
    from innerloop.recipes.runs import note_run

    try:
        note_run(runs, folder)
    except InputError as error:
        notice(f"a report will not know of this run: {error}")


def _find_run(name: str, output: Path | None) -> tuple[str, Path | None, int | None]:
    """Find the recipe, the folder and the seed that are meant: a name may be a run's folder."""
    from innerloop.recipes.finding import holds_run, read_recipe_name, split_seed
    from innerloop.recipes.sweeps import is_sweep

    place = Path(name) if output is None and ":" not in name else output
    if place is not None and is_sweep(place):
        raise InputError(
            f"{place} holds a sweep: the command that began it, with --grid, goes on with it"
        )
    if output is None and ":" not in name and holds_run(Path(name)):
        name, output = read_recipe_name(Path(name)), Path(name)
    return (name, None, None) if output is None else (name, *split_seed(output))


def _choose_seed(own: int, seed: int | None, seeds: int) -> list[int]:
    """Choose the seed of the one run that is named; refuse to be asked for another."""
    if seed not in (None, own) or seeds != 1:
        raise InputError(f"the folder is of the run with seed {own}: leave --seed and --seeds out")
    return [own]
