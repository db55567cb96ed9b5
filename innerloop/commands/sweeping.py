"""`innerloop train --grid`: train a sweep and print its table and its best run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from innerloop.errors import InputError
from innerloop.output import print_error, print_json, print_text
from innerloop.terminal import format_value, print_table, progress_bar

_COMMA = re.compile(r",(?![^\[]*\])")
"""A comma outside of brackets, because a value may be a list."""


def parse_grid(kind: type[Any], words: Sequence[str]) -> dict[str, list[Any]]:
    """Parse `key=value,value` words to lists of parameter values of a recipe."""
    from innerloop.parameters import parse_settings

    grid: dict[str, list[Any]] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise InputError(
                f"expected key=value,value, got {word!r}; for instance --grid blocks=1,2"
            )
        parsed = [parse_settings(kind, [f"{name}={each}"]) for each in _COMMA.split(text)]
        (key,) = parsed[0]
        if key in grid:
            raise InputError(f"--grid {key} is repeated; list all its values in one --grid")
        grid[key] = [values[key] for values in parsed]
    return grid


def name_sweep(root: Path, recipe: Any, grid: dict[str, list[Any]]) -> Path:
    """Name the folder of a sweep after its recipe, its fixed settings and the varied names."""
    folder = recipe.name_folder(root)
    return folder.with_name(f"{folder.name}-sweep-{'-'.join(grid)}"[:200])


def run_sweep(name: str, folder: Path, as_json: bool, **options: Any) -> None:
    """Run a sweep with a progress bar and print its table; exit 1 if a run failed."""
    from innerloop.ledger.sweeping import sweep

    with progress_bar("training") as progress:
        try:
            options |= {"progress": progress, "notice": progress.notice}
            result = sweep(name, folder=folder, **options)
        except KeyboardInterrupt:
            print_error(
                f"interrupted; the sweep is saved in {folder}; run the same command to continue"
            )
            raise SystemExit(130) from None
    if as_json:
        print_json(result.as_dict())
    else:
        rows = result.summarise()
        lines = [["" if v is None else format_value(v) for v in row.values()] for row in rows]
        print_table(f"{name}, {len(result.rows)} runs", list(rows[0]), lines)
        if best := result.best:
            print_text(f"best run: {best['folder']}, loss {best['loss']:.4g}")
        print_text(f"written to {folder}; a row per run in {folder / 'sweep.csv'}")
    if result.failures:
        first, reason = next(iter(result.failures.items()))
        print_error(f"{len(result.failures)} runs failed, for example {first}: {reason}")
        raise typer.Exit(1)
