"""Sweeps: a recipe with every combination of some settings, and several seeds for each combination.

A sweep is a folder. `sweep.json` describes it, each run has a subfolder named by its settings and
seed, and `sweep.csv` has one row per run. The table is made only from the folders of the runs and
contains no times, so that it does not depend on how often the sweep was stopped.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.errors import FileError, InputError, MissingLibraryError
from innerloop.files import write_atomically
from innerloop.jsonfiles import read_object
from innerloop.links import make_folder, resolve_links
from innerloop.recipes.definition import Recipe
from innerloop.recipes.listing import describe_folder
from innerloop.recipes.runs import read_description
from innerloop.registry import make_member
from innerloop.training.folder import MODEL
from innerloop.training.history import format_csv
from innerloop.training.resuming import check_same_training

SWEEP_FILE, TABLE = "sweep.json", "sweep.csv"
UNLISTED = ("seconds", "learning_rate", "steps")
"""Columns of a history that a sweep's table leaves out: times and values of the schedule."""
MAX_RUNS = 100_000
MAX_NAME = 120
"""Largest length of the settings in a folder's name; longer settings are replaced by a hash."""


class PlannedRun(NamedTuple):
    """One run of a sweep, with its folder, settings and seed."""

    folder: Path
    point: dict[str, Any]
    seed: int


@dataclass(frozen=True)
class Sweep:
    """The plan of a sweep: a recipe's name, common settings, a grid of settings, and seeds."""

    folder: Path
    recipe: str
    settings: Mapping[str, Any]
    grid: Mapping[str, Sequence[Any]]
    seeds: Sequence[int]

    def __post_init__(self) -> None:
        for name, values in self.grid.items():
            if name in self.settings:
                raise InputError(f"{name} is set and in the grid: leave one of them out")
            if not values:
                raise InputError(f"the grid has no values of {name}")
            if len({json.dumps(value) for value in values}) < len(values):
                raise InputError(f"the grid has a value of {name} twice")
        count = math.prod(map(len, self.grid.values())) * len(self.seeds)
        if not 1 <= count <= MAX_RUNS:
            raise InputError(f"a sweep has 1 to {MAX_RUNS} runs, got {count}")

    @cached_property
    def points(self) -> list[dict[str, Any]]:
        """All combinations of the grid; the last setting varies fastest."""
        products = itertools.product(*self.grid.values())
        return [dict(zip(self.grid, values, strict=True)) for values in products]

    @cached_property
    def runs(self) -> list[PlannedRun]:
        """All runs of the sweep, in the order of its table."""
        return [
            PlannedRun(self.folder / name_point(point) / f"seed-{seed}", point, seed)
            for point in self.points
            for seed in self.seeds
        ]

    def make_recipe(self, point: Mapping[str, Any]) -> Recipe:
        """Make the recipe with the settings of a point of the grid."""
        return make_member("recipes", Recipe, self.recipe, {**self.settings, **point})

    def check_recipes(self) -> None:
        """Raise `InputError` for settings that the recipe does not have, before training starts."""
        for point in self.points:
            _ = self.make_recipe(point)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan of the sweep as JSON values."""
        grid = {name: list(values) for name, values in self.grid.items()}
        about = {"recipe": self.recipe, "settings": dict(self.settings)}
        return {**about, "grid": grid, "seeds": list(self.seeds)}

    def write(self) -> Sweep:
        """Write the plan of the sweep to its folder; return it with the values already there.

        Values and seeds may be added to an existing sweep; nothing else may change.
        """
        path = self.folder / SWEEP_FILE
        whole = self._add_to(path) if path.exists() else self
        try:
            make_folder(self.folder)
        except OSError as error:
            raise FileError(f"cannot make {self.folder}: {error.strerror or error}") from None
        write_atomically(path, f"{json.dumps(whole.as_dict(), indent=2)}\n".encode())
        return whole

    def _add_to(self, path: Path) -> Sweep:
        """Merge this sweep with the one in a file, without importing the file's recipe."""
        there, here = _read_values(path), self.as_dict()
        both = [{name: each[name] for name in ("settings", "recipe")} for each in (there, here)]
        check_same_training(path, *both)
        if list(there["grid"]) != list(self.grid):
            names = ", ".join(there["grid"])
            raise FileError(
                f"{path} is a sweep over {names}: pass the same settings, or another folder"
            )
        grid = {
            name: list({json.dumps(v): v for v in (*there["grid"][name], *values)}.values())
            for name, values in here["grid"].items()
        }
        return replace(self, grid=grid, seeds=sorted({*there["seeds"], *self.seeds}))

    def read_row(self, run: PlannedRun) -> dict[str, Any] | None:
        """Read the row of a run from its folder; None if the run has not ended."""
        state = describe_folder(run.folder) if run.folder.is_dir() else {"state": ""}
        own = {**run.point, "seed": run.seed}
        if state["state"] == "diverged":
            return {**own, "ended": "diverged", "step": state["step"]}
        if state["state"] != "finished":
            return None
        about = read_description(run.folder / MODEL)
        settings = self.make_recipe(run.point).values()
        expected = {"recipe": about["recipe"], "settings": settings, "seed": run.seed}
        check_same_training(
            run.folder / MODEL, {name: about.get(name) for name in expected}, expected
        )
        final = {k: v for k, v in about["final"].items() if k not in (*own, *UNLISTED)}
        return {**own, "ended": about["ended"], **final}


def name_point(point: Mapping[str, Any]) -> str:
    """Name the folder of a point of the grid: `learning_rate=0.001,blocks=2`, or a hash."""
    name = (
        ",".join(
            f"{key}={value if isinstance(value, str) else json.dumps(value)}"
            for key, value in point.items()
        )
        or "all"
    )
    if re.fullmatch(r"[\w.,=+-]+", name, re.ASCII) and len(name) <= MAX_NAME:
        return name
    return hashlib.sha256(json.dumps(dict(point)).encode()).hexdigest()[:16]


def is_sweep(folder: Path) -> bool:
    """Return whether a folder contains a sweep."""
    return (folder / SWEEP_FILE).is_file()


def read_sweep(folder: Path, definition: str | None = None) -> Sweep:
    """Read the plan of a sweep from its folder.

    Code is never imported because a file names it: a user-defined recipe must be passed as
    `definition`.
    """
    folder = resolve_links(folder)
    path = folder / SWEEP_FILE
    values = _read_values(path)
    name = values["recipe"]
    if ":" in name and definition is None:
        raise FileError(
            f"{path} is trained by {name!r}, a user-defined recipe: pass --definition {name} "
            "(it will be imported and run)"
        )
    try:
        return Sweep(folder, **{**values, "recipe": definition or name})
    except InputError as error:
        raise FileError(f"{path} is damaged: {error}") from None


def _read_values(path: Path) -> dict[str, Any]:
    """Read the values of a sweep's file and check their types, without building anything."""
    kinds = {"recipe": str, "settings": dict, "grid": dict, "seeds": list}
    try:
        about = read_object(path)
        for name, kind in kinds.items():
            if not isinstance(about.get(name), kind):
                raise FileError(f"its {name} must be of type {kind.__name__}")
        for name, values in about["grid"].items():
            if not isinstance(values, list):
                raise FileError(f"its values of {name!r:.60} must be a list, got {values!r:.60}")
        if not all(type(seed) is int and seed >= 0 for seed in about["seeds"]):
            raise FileError(f"its seeds must be whole numbers, got {about['seeds']!r:.60}")
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from None
    except FileError as error:
        raise FileError(f"{path} is damaged: {error}") from None
    return {name: about[name] for name in kinds}


@dataclass(frozen=True)
class SweepResult:
    """A sweep and the rows of its table, one per run."""

    sweep: Sweep
    ended: dict[Path, dict[str, Any]]
    """Rows of the runs that have ended, by folder."""
    failures: Mapping[str, str]
    """Reasons for which runs failed, by folder."""

    @classmethod
    def read(cls, sweep: Sweep) -> SweepResult:
        """Read the rows of all runs that have ended."""
        result = cls(sweep, {}, {})
        for run in sweep.runs:
            result.add_row(run)
        return result

    def add_row(self, run: PlannedRun) -> None:
        """Read the row of a run from its folder, if it has ended."""
        row = self.sweep.read_row(run)
        if row is not None:
            self.ended[run.folder] = row

    def has_row(self, run: PlannedRun) -> bool:
        return run.folder in self.ended

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of all runs that have ended, in the order of the sweep."""
        ended = (self.ended.get(run.folder) for run in self.sweep.runs)
        return [row for row in ended if row is not None]

    @property
    def best(self) -> dict[str, Any] | None:
        """The row with the lowest final loss, with its folder; None if no run has a final loss."""
        rows = [row for row in self.rows if "loss" in row]
        if not rows:
            return None
        row = min(rows, key=lambda row: row["loss"])
        point = {name: row[name] for name in self.sweep.grid}
        return {**row, "folder": str(self.sweep.folder / name_point(point) / f"seed-{row['seed']}")}

    def to_frame(self) -> Any:
        """Return a pandas data frame with one row per run."""
        try:
            import pandas  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise MissingLibraryError(
                "a data frame needs the pandas library: pip install pandas; without it, use "
                "`rows`, which has the same values"
            ) from None
        return pandas.DataFrame(self.rows)

    def summarise(self) -> list[dict[str, Any]]:
        """Return the number of ended runs, mean and best loss for each point of the grid."""
        summaries = []
        for point in self.sweep.points:
            own = [row for row in self.rows if all(row[k] == v for k, v in point.items())]
            losses = [row["loss"] for row in own if "loss" in row]
            mean = sum(losses) / len(losses) if losses else None
            diverged = sum(row["ended"] == "diverged" for row in own)
            measures = {"runs": len(own), "diverged": diverged, "mean loss": mean}
            summaries.append({**point, **measures, "best loss": min(losses, default=None)})
        return summaries

    def write_table(self) -> Path:
        """Write the rows as CSV into the folder of the sweep."""
        path = self.sweep.folder / TABLE
        rows = [
            {k: json.dumps(v) if isinstance(v, list) else v for k, v in r.items()}
            for r in self.rows
        ]
        write_atomically(path, format_csv(rows).encode())
        return path

    def as_dict(self) -> dict[str, Any]:
        """Return the sweep, its rows and its best run as JSON values."""
        about = {**self.sweep.as_dict(), "folder": str(self.sweep.folder), "rows": self.rows}
        return {**about, "best": self.best, "failures": dict(self.failures)}
