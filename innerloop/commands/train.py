"""`innerloop train`: train a model by a recipe."""

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
            help="A recipe (see `innerloop list recipes`); with --resume, also the folder of a run."
        ),
    ],
    settings: Settings = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Folder of the run; by default a folder in the results."
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of the run; 0 by default, or with --resume all seeds that were started."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of runs, with consecutive seeds.")] = 1,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue an interrupted run with its settings, or start it if there is none. You "
            "may set a larger number of steps.",
        ),
    ] = False,
    threads: Annotated[int, typer.Option(help="Number of threads; the weights depend on it.")] = 1,
    device: Device = "cpu",
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE,VALUE",
            help="Train with each of these values; repeat the option to train all combinations. "
            "The same command continues an interrupted sweep.",
        ),
    ] = None,
    workers: Workers = None,
    engine: EngineName = "local",
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard events.")
    ] = False,
    results: Results = None,
    as_json: AsJson = False,
) -> None:
    """Train the model of a recipe.

    `--resume` continues an interrupted run. The result is the same as without
    the interruption.
    """
    from innerloop.devices import choose_device
    from innerloop.links import refuse_links, resolve_links
    from innerloop.recipes.base import Recipe, list_seeds, train_seeds
    from innerloop.recipes.finding import list_begun_seeds
    from innerloop.registry import make_member
    from innerloop.training.environment import check_threads
    from innerloop.training.parallel import count_processes, is_leading

    chosen, threads = list_seeds(seed or 0, seeds), check_threads(threads)
    run_seed: int | None = None
    choose_device(device)  # an unavailable device raises an error before a folder is made
    runs = resolve_links(find_results(results) / "runs")
    output = None if output is None else resolve_links(output)
    if grid and count_processes() > 1:
        raise InputError("a sweep starts its own workers: run it without torchrun")
    if grid and (resume or tensorboard):
        raise InputError(
            "--resume and --tensorboard apply to single runs; repeat the command of a sweep to "
            "continue it"
        )
    if grid and threads != 1:
        raise InputError("each run of a sweep uses one thread: leave --threads out")
    if grid:
        values = parse_parameters("recipes", Recipe, name, settings)
        recipe = make_member("recipes", Recipe, name, values)
        points = parse_grid(type(recipe), grid)
        folder = output or refuse_links(name_sweep(runs, recipe, points))
        _note(runs, folder, print_error)
        options = {"seed": seed or 0, "seeds": seeds, "workers": workers, "engine": engine}
        return run_sweep(name, folder, as_json, grid=points, device=device, **options, **values)
    if workers is not None or engine != "local":
        raise InputError(
            "--workers and --engine apply to sweeps: name the varied parameters with --grid"
        )
    if resume:
        name, output, run_seed = _find_run(name, output)
        chosen = chosen if run_seed is None else _choose_seed(run_seed, seed, seeds)
    values = parse_parameters("recipes", Recipe, name, settings)
    folder = _choose_folder(runs, name, values, output, resume)
    if resume and run_seed is None and seed is None and seeds == 1:
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
                print_error(f"interrupted; the run is saved in {folder}; add --resume to continue")
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
    """Choose the folder of a run.

    Invalid settings of a new run raise an error before the folder is made. A resumed run may leave
    out settings, which are then read from the run.
    """
    from innerloop.recipes.definition import Recipe
    from innerloop.recipes.finding import find_folder
    from innerloop.registry import make_member

    if resume:
        return output or find_folder(runs, name, values)
    recipe = make_member("recipes", Recipe, name, values)
    return output or recipe.name_folder(runs)


def _note(runs: Path, folder: Path, notice: Callable[[str], None]) -> None:
    """Record the folder of a run that is outside of the results, so that reports include it."""
    from innerloop.recipes.runs import note_run

    try:
        note_run(runs, folder)
    except InputError as error:
        notice(f"reports will not include this run: {error}")


def _find_run(name: str, output: Path | None) -> tuple[str, Path | None, int | None]:
    """Find the recipe, the folder and the seed of a run; `name` may be the folder of the run."""
    from innerloop.links import resolve_links
    from innerloop.recipes.finding import holds_run, read_recipe_name, split_seed
    from innerloop.recipes.sweeps import is_sweep

    # A name with a colon is a recipe of the user, not a folder.
    place = resolve_links(Path(name)) if output is None and ":" not in name else output
    if place is not None and is_sweep(place):
        raise InputError(
            f"{place} contains a sweep; to continue it, repeat the command that started it"
        )
    if output is None and place is not None and holds_run(place):
        name, output = read_recipe_name(place), place
    return (name, None, None) if output is None else (name, *split_seed(output))


def _choose_seed(run_seed: int, seed: int | None, seeds: int) -> list[int]:
    """Return the seed of the named run; raise an error if another seed is requested."""
    if seed not in (None, run_seed) or seeds != 1:
        raise InputError(
            f"the folder contains the run with seed {run_seed}: leave --seed and --seeds out"
        )
    return [run_seed]
