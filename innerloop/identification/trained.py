"""Trained models to identify, read out after every layer as their recipe declares.

Clusters of a trained network have names of its own, as its loss is the least over all names: they
are matched with those of algorithms, once per prompt for all layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from innerloop.devices import move
from innerloop.identification.families.clustering import match_clusters
from innerloop.identification.families.games import draw_instances
from innerloop.identification.models import Model, Predictions, place_module
from innerloop.problems.base import Distribution
from innerloop.problems.gaussian_mixture import ClusteringProblem
from innerloop.recipes.base import Recipe, TrainedRun, load
from innerloop.recipes.clusters import ClustersRecipe


@dataclass(frozen=True, eq=False)
class TrainedModel(Model):
    """A trained module and its recipe, which declares its problems."""

    recipe: Recipe
    model: nn.Module

    @classmethod
    def read(cls, path: Path, definition: Any = None) -> TrainedModel:
        """Read a model file of `train`; `definition` is its recipe where that is not registered."""
        recipe, model, _ = load(path, definition)
        return cls(recipe, model.eval())

    @classmethod
    def from_run(cls, run: TrainedRun) -> TrainedModel:
        """Take the model that `train` returned."""
        return cls(run.recipe, run.model.eval())

    @property
    def layers(self) -> list[str]:
        problem = draw_instances(
            self.recipe.build_distribution(), 1, torch.Generator().manual_seed(0)
        )
        count, blocks = len(self.predict(problem)), getattr(self.recipe, "blocks", None)
        names = [f"layer {k}" for k in range(1, count + 1)]
        if count != (blocks or count) + 1:
            return names
        return ["embedding", *names[:-2], f"{names[-2]}, after the last norm"]

    def predict(self, problem: Any) -> Predictions:
        weight = next(self.model.parameters())
        problem = problem.to(weight.dtype)
        with torch.no_grad():
            answers = self.recipe.predict_layers(self.model, move(problem, weight.device)).cpu()
        if isinstance(self.recipe, ClustersRecipe) and isinstance(problem, ClusteringProblem):
            return match_clusters(problem, answers)
        return answers

    def place(self, device: torch.device) -> TrainedModel:
        return replace(self, model=place_module(self.model, device))

    def distribution(self) -> Distribution:
        return self.recipe.build_distribution()
