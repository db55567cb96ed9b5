"""Train a recipe. A recipe is one file that defines a model, its problems and its training.

The parameters of the recipe and those of the training loop are set in the same way, for example `-s
d=3 -s steps=500`. A run is a folder with these files: `run.json` (a readable description),
`checkpoint.safetensors` (to resume from), `history.csv`, and, after the end, `model.safetensors`.
The model file also records the recipe, its settings, the seed, and the threads, versions and code
with which it was trained. The file `.lock` prevents two trainings in one folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from innerloop.devices import choose_device, default_to_cpu, require_precision
from innerloop.errors import FileError, InputError
from innerloop.limits import check_count, check_seed
from innerloop.links import remove_file, resolve_links
from innerloop.progress import Progress, ignore_progress
from innerloop.recipes.continuing import read_request
from innerloop.recipes.definition import Recipe
from innerloop.recipes.model_file import FORMAT, VERSION, format_command, load, save_model
from innerloop.recipes.run_file import RunFile
from innerloop.training.boards import Board, check_tensorboard
from innerloop.training.environment import (
    Environment,
    check_threads,
    describe_environment,
    use_threads,
)
from innerloop.training.folder import CHECKPOINT, HISTORY, MODEL, open_folder
from innerloop.training.history import GrowingHistory, write_history
from innerloop.training.loop import (
    SECONDS_BETWEEN_CHECKPOINTS,
    DivergedError,
    Training,
    fit,
    replay_opening,
    warn_caller,
)
from innerloop.training.opening import Opening
from innerloop.training.parallel import join_group
from innerloop.training.restoring import is_number, shorten

__all__ = [
    "FORMAT",
    "VERSION",
    "Recipe",
    "TrainedRun",
    "describe_run",
    "format_command",
    "get_recipe",
    "list_seeds",
    "load",
    "replay",
    "train",
    "train_seeds",
]

MAX_SEEDS = 100_000


@dataclass(frozen=True)
class TrainedRun:
    """A finished training run and its model."""

    recipe: Recipe
    model: nn.Module
    seed: int
    history: list[dict[str, float]]
    seconds: float
    stop_reason: str
    folder: Path | None = None
    remark: str = ""
    """A warning about the result, such as a loss no better than that of always predicting zero."""

    @property
    def final(self) -> dict[str, float]:
        """The last row of the history."""
        return self.history[-1]

    @property
    def step(self) -> int:
        return int(self.final["step"])

    def as_dict(self) -> dict[str, Any]:
        """Return settings and results as JSON values."""
        return {
            "recipe": self.recipe.name,
            "settings": self.recipe.values(),
            "seed": self.seed,
            "steps": self.step,
            "ended": self.stop_reason,
            "seconds": round(self.seconds, 3),
            "final": self.final,
            "folder": None if self.folder is None else str(self.folder),
            "remark": self.remark,
        }


def train(
    recipe: str | Recipe | type[Recipe],
    /,
    *,
    seed: int = 0,
    folder: str | Path | None = None,
    resume: bool = False,
    every: float = SECONDS_BETWEEN_CHECKPOINTS,
    threads: int = 1,
    device: str | torch.device | None = None,
    progress: Progress | None = None,
    notice: Callable[[str], None] | None = None,
    watch: Callable[[int, nn.Module], None] | None = None,
    tensorboard: bool = False,
    **settings: Any,
) -> TrainedRun:
    """Train a recipe and return the run.

    Args:
        recipe: The name of a recipe, `module:attribute` or `file.py:attribute` (which is imported),
            a subclass of `Recipe`, or an object of one.
        seed: Seed of the initial weights and of the prompts.
        folder: Folder to which checkpoint, history and weights are written. With None, the run is
            kept in memory only.
        resume: Continue the run in `folder`, or start one if there is none. Settings that are not
            passed are those of the run. `steps` may be larger than before.
        every: Seconds between checkpoints.
        threads: Number of threads. The default does not depend on the machine, because the number
            of threads changes the last digits of the weights.
        device: "cpu", "cuda", "mps" or "auto". Random numbers are always drawn on the CPU.
        progress: Function that is called with the completed share of the work, from 0 to 1.
        notice: Function that is called with every message, a line of text. By default, messages
            are Python warnings.
        watch: Function that is called with the number of steps so far and the model, before the
            first step and after every step.
        tensorboard: Also write the history for TensorBoard, to a folder in `folder`.
        **settings: Parameters of the recipe, such as `d` and `steps`; `innerloop show NAME` lists
            them.

    Returns:
        The finished run with its model and history.

    Raises:
        InputError: There is no such recipe or setting, or the loss is no longer a number.

    Example:
        >>> import innerloop
        >>> run = innerloop.train("linear-attention", d=2, blocks=1, steps=20, batch=100)
        >>> run.final["step"], run.final["loss"] < run.history[0]["loss"]
        (20, True)
    """
    return train_in(
        None if folder is None else resolve_links(Path(folder)),
        recipe,
        settings,
        seed=seed,
        resume=resume,
        every=every,
        threads=threads,
        device=device,
        progress=progress,
        notice=notice,
        watch=watch,
        tensorboard=tensorboard,
    )


def train_in(
    place: Path | None,
    recipe: str | Recipe | type[Recipe],
    settings: Mapping[str, Any],
    *,
    seed: int = 0,
    resume: bool = False,
    every: float = SECONDS_BETWEEN_CHECKPOINTS,
    threads: int = 1,
    device: str | torch.device | None = None,
    progress: Progress | None = None,
    notice: Callable[[str], None] | None = None,
    watch: Callable[[int, nn.Module], None] | None = None,
    tensorboard: bool = False,
) -> TrainedRun:
    """Train like `train`, in the folder `place`; a symbolic link in its path raises an error."""
    if isinstance(recipe, Recipe) and settings:
        raise InputError(
            "settings can be passed only with a recipe's name: set them on the recipe object"
        )
    seed, threads, notice = check_seed(seed), check_threads(threads), notice or warn_caller
    if tensorboard:
        check_tensorboard()
        if place is None:
            raise InputError("tensorboard needs a folder to write into: give the run a folder")
    if not (is_number(every) and every >= 0):
        raise InputError(f"every must be a number of seconds, at least 0, got {shorten(every)}")
    group = join_group(choose_device(device))
    where, notice = group.device, notice if group.leads else _ignore_notice
    with use_threads(threads):
        begun = place / CHECKPOINT if place is not None and resume else None
        request = read_request(recipe, settings, begun)
        made = request.recipe
        with default_to_cpu():
            objective = (
                made.build_objective()
            )  # raises InputError for settings that contradict each other
        alone = group.leads and place is not None
        run = open_folder(place, resume, notice) if alone and place is not None else nullcontext()
        with run as opened:
            path = opened if alone or begun is None else begun
            generator = torch.Generator().manual_seed(seed)
            with request.limit_memory(), default_to_cpu():
                model = made.build_model(generator)
            require_precision(where, list(model.parameters()))
            model = model.to(where)
            training = Training(model, objective, made, seed, watch=watch, group=group)
            options = {"every": every, "progress": progress, "notice": notice}
            board = Board(place, notice) if alone and place is not None and tensorboard else None
            options["steps"] = request.steps
            _fit_and_write(training, path, threads, options, board)
    return TrainedRun(
        get_recipe(training),
        training.model,
        seed,
        training.history,
        training.seconds,
        training.stop_reason,
        place,
        training.describe_plateau(),
    )


def _ignore_notice(text: str) -> None:
    """Drop a notice, because the leading process prints it."""


def get_recipe(training: Training) -> Recipe:
    """Return the recipe of a training with its latest number of steps."""
    assert isinstance(training.settings, Recipe)
    return training.settings


def _fit_and_write(
    training: Training,
    path: Path | None,
    threads: int,
    options: dict[str, Any],
    board: Board | None = None,
) -> None:
    """Train with checkpoints at `path`, and write settings, history and model beside it."""
    recipe = get_recipe(training)
    group = training.group
    environment = describe_environment(threads, type(recipe), training.device, group.size)
    about = _identify_run(training)
    group.require_same(about)
    if path is None or not group.leads:
        quiet = options if group.leads else {**options, "progress": None}
        fit(training, path=path, about=about, environment=environment, **quiet)
        return
    table, notice = path.with_name(HISTORY), options["notice"]
    file, rows = RunFile(path.parent, notice), GrowingHistory(table, notice)

    def record(history: list[dict[str, float]]) -> None:
        if file.content is None:
            if not training.stop_reason:
                _remove_old_model(path.with_name(MODEL), notice)
            file.write(describe_run(training, environment))
        rows.update(history)
        if board is not None:
            board.update(history)

    try:
        fit(training, path=path, about=about, environment=environment, record=record, **options)
    except DivergedError as error:
        try:
            write_history(table, training.history)
        except FileError as trouble:
            notice(str(trouble))
        file.finish("diverged", str(error))
        raise
    finally:
        if board is not None:
            board.close()
    write_history(table, training.history)
    save_model(training, _identify_run(training), environment, path.with_name(MODEL))
    file.finish(training.stop_reason, training.describe_plateau())


def _remove_old_model(path: Path, notice: Callable[[str], None]) -> None:
    """Remove the model file of a run that continues; its checkpoint holds the complete state."""
    try:
        remove_file(path)
    except OSError as error:
        notice(f"cannot remove the older model {path}: {error.strerror or error}")


def _identify_run(training: Training) -> dict[str, Any]:
    """Return the recipe, settings and seed of a run, which must not change when it is continued."""
    recipe = get_recipe(training)
    return {"recipe": recipe.name, "settings": recipe.values(), "seed": training.seed}


def describe_run(training: Training, environment: Environment) -> dict[str, Any]:
    """Describe a run for people: settings, conditions, and the command that repeats it."""
    command = format_command(get_recipe(training), training.seed, environment)
    return {**_identify_run(training), "command": command, **environment}


def replay(recipe: Recipe, seed: int = 0, threads: int = 1) -> Opening:
    """Repeat the first five steps of a training as `train` runs them; return their losses."""
    with use_threads(check_threads(threads)):
        model = recipe.build_model(torch.Generator().manual_seed(check_seed(seed)))
        return replay_opening(Training(model, recipe.build_objective(), recipe, seed))


def train_seeds(
    recipe: str | Recipe | type[Recipe],
    seeds: Sequence[int],
    folder: Path,
    *,
    settings: Mapping[str, Any] | None = None,
    resume: bool = False,
    threads: int = 1,
    device: str | torch.device | None = None,
    progress: Progress = ignore_progress,
    notice: Callable[[str], None] | None = None,
    tensorboard: bool = False,
) -> list[TrainedRun]:
    """Train a recipe once per seed, each time in a different subfolder of `folder`.

    With `resume`, interrupted runs are continued. A symbolic link in the path of a folder raises an
    error. The other arguments are those of `train`.
    """
    if not seeds:
        raise InputError("expected at least one seed, got none")
    check_seed(max(seeds))
    runs = []
    for done, seed in enumerate(seeds):

        def report(share: float, doing: str = "", done: int = done, seed: int = seed) -> None:
            progress((done + share) / len(seeds), f"seed {seed}, {doing}")

        options = {"resume": resume, "threads": threads, "progress": report, "notice": notice}
        options |= {"device": device, "tensorboard": tensorboard, "seed": seed}
        runs.append(train_in(folder / f"seed-{seed}", recipe, settings or {}, **options))
    return runs


def list_seeds(first: int, count: int) -> range:
    """Return `count` consecutive seeds from `first`; raise `InputError` if one is invalid."""
    first = check_seed(first)
    count = check_count("seeds", count, 1, MAX_SEEDS)
    check_seed(first + count - 1)
    return range(first, first + count)
