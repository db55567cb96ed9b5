"""Continue a run with the settings in its checkpoint; only `steps` may be increased."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.errors import FileError, InputError
from innerloop.locations import load_object
from innerloop.recipes.definition import Recipe
from innerloop.registry import find_class, get_name, make_member
from innerloop.training import checkpoint
from innerloop.training.memory import limit_allocations

SPARE_BYTES, BYTES_PER_BYTE = 2**26, 200
"""Limit of the memory for building a model from a file: a constant, plus a multiple of its size."""


class Request(NamedTuple):
    """A training to run: the recipe of the started run, and the number of steps requested now."""

    recipe: Recipe
    steps: int | None = None
    held: int | None = None
    """Size in bytes of the checkpoint that contains the settings; None without a checkpoint."""

    def limit_memory(self) -> AbstractContextManager[None]:
        """Limit the memory for building the model if a file determines its size."""
        return nullcontext() if self.held is None else limit_file_model(self.held)


def limit_file_model(held: int) -> AbstractContextManager[None]:
    """Limit the memory for building a model from a file of this many bytes."""
    return limit_allocations(SPARE_BYTES + BYTES_PER_BYTE * held)


def read_request(recipe: Any, settings: Mapping[str, Any], path: Path | None) -> Request:
    """Combine the caller's settings with those of the checkpoint at `path`, if it exists.

    The checkpoint provides every setting that the caller leaves out. The caller may increase
    `steps`; all other settings are compared with the checkpoint when it is restored.
    """

    if path is None or not path.exists():
        return Request(make_member("recipes", Recipe, recipe, settings))
    if isinstance(recipe, str) and ":" in recipe:
        recipe = load_object(recipe)
    about, _ = checkpoint.read(path)
    kind, saved = find_class("recipes", Recipe, recipe), about.get("settings")
    if not isinstance(saved, dict) or about.get("recipe") != get_name(kind):
        return Request(
            make_member("recipes", Recipe, recipe, settings)
        )  # restoring raises an error for it
    values = {**recipe.values(), **settings} if isinstance(recipe, Recipe) else dict(settings)
    planned = saved.get("steps", kind.__dataclass_fields__["steps"].default)
    steps = values.pop("steps", None)
    try:
        made = kind.from_values({**saved, **values, "steps": planned})
    except InputError as error:
        _ = kind.from_values({**values})  # raises first if the caller's own settings are wrong

        raise FileError(
            f"{path} does not contain a training of {get_name(kind)}: {error}"
        ) from None
    if steps is not None:
        steps = replace(made, steps=steps).steps
        if steps < made.steps:
            raise FileError(
                f"{path} belongs to a training of steps={made.steps}, got {steps}: the "
                "number of steps can be increased, not reduced"
            )
    return Request(made, steps, path.stat().st_size)
