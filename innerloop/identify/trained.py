"""A model that `train` saved, read out after every layer in the way its recipe says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from innerloop.identify.models import Model, Predictions
from innerloop.problems.base import Distribution
from innerloop.recipes.base import Recipe, load


@dataclass(frozen=True, eq=False)
class TrainedModel(Model):
    """What was trained, and the recipe that knows its problems."""

    recipe: Recipe
    model: nn.Module

    @classmethod
    def read(cls, path: Path) -> TrainedModel:
        recipe, model, _ = load(path)
        return cls(recipe, model.eval())

    @property
    def layers(self) -> list[str]:
        problem = self.recipe.problems().sample(1, generator=torch.Generator().manual_seed(0))
        return [f"layer {k}" for k in range(1, len(self.predict(problem)) + 1)]

    def predict(self, problem: Any) -> Predictions:
        problem = problem.to(next(self.model.parameters()).dtype)
        with torch.no_grad():
            return self.recipe.layers(self.model, problem)

    def distribution(self) -> Distribution:
        return self.recipe.problems()
