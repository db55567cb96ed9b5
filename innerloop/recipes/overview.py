"""What a recipe consists of: behind `show`."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from innerloop.constructions.overview import parameters_of
from innerloop.recipes.base import Recipe
from innerloop.registry import find


def show(name: str, **settings: Any) -> dict[str, Any]:
    """A recipe's header, its parameters, and how many weights its model has."""
    kind = find("recipes", Recipe, name)
    recipe = kind.made(settings)
    model = recipe.model(torch.Generator().manual_seed(0))
    return {
        "name": recipe.name,
        "source": recipe.source,
        "header": inspect.getdoc(inspect.getmodule(kind)) or "",
        "settings": parameters_of(kind, recipe),
        "parameters": sum(w.numel() for w in model.parameters() if w.requires_grad),
    }
