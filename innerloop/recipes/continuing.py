"""Going on with a run: its settings are those of its checkpoint, and only `steps` may grow."""

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
"""Memory that building a file's model may take: this much, and this many times its weights."""


class Request(NamedTuple):
    """What is to be trained: a recipe as its run was begun, and the steps that it is given now."""

    recipe: Recipe
    steps: int | None = None
    held: int | None = None
    """Bytes of the checkpoint that decides the settings; None where the caller does."""

    def limit_memory(self) -> AbstractContextManager[None]:
        """Bound what building the model may take, where a file decides how large it is."""
        return nullcontext() if self.held is None else limit_file_model(self.held)


def limit_file_model(held: int) -> AbstractContextManager[None]:
    """Bound the memory of building a model whose file holds this many bytes."""
    return limit_allocations(SPARE_BYTES + BYTES_PER_BYTE * held)


def read_request(recipe: Any, settings: Mapping[str, Any], path: Path | None) -> Request:
    """Read what is to be trained; `path` is the checkpoint to go on from, if there is one.

    Settings that are not given are those of the checkpoint. Whether given ones agree with it is
    checked when it is restored, except for `steps`: more of them are given to the run.
    """
    if path is None or not path.exists():
        return Request(make_member("recipes", Recipe, recipe, settings))
    if isinstance(recipe, str) and ":" in recipe:
        recipe = load_object(recipe)
    about, _ = checkpoint.read(path)
    kind, saved = find_class("recipes", Recipe, recipe), about.get("settings")
    if not isinstance(saved, dict) or about.get("recipe") != get_name(kind):
        return Request(make_member("recipes", Recipe, recipe, settings))  # restoring refuses it
    values = {**recipe.values(), **settings} if isinstance(recipe, Recipe) else dict(settings)
    planned = saved.get("steps", kind.__dataclass_fields__["steps"].default)
    steps = values.pop("steps", None)
    try:
        made = kind.from_values({**saved, **values, "steps": planned})
    except InputError as error:
        _ = kind.from_values({**values})  # where the caller's own are wrong, that is the error
        raise FileError(f"{path} does not hold a training of {get_name(kind)}: {error}") from None
    if steps is not None:
        steps = replace(made, steps=steps).steps
        if steps < made.steps:
            raise FileError(
                f"{path} belongs to a training of steps={made.steps}, got {steps}: a run may be "
                "given more steps, not fewer"
            )
    return Request(made, steps, path.stat().st_size)
