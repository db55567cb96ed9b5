"""Trained models to identify, read out after every layer as their recipe declares.

Clusters of a trained network have names of its own, as the loss of each layer is the least over all
names: they are matched with those of algorithms, once per prompt and layer. Two clouds are told by
their labels: the size of a score is that of log odds, and of no algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from innerloop.algorithms.restarted_em import (
    NAMING_STEPS,
    RestartedEM,
    count_lloyd,
    match_names,
)
from innerloop.devices import move
from innerloop.identification.families.games import draw_instances
from innerloop.identification.models import Model, Predictions, place_module
from innerloop.problems.base import Distribution
from innerloop.problems.gaussian_mixture import ClusteringProblem
from innerloop.recipes.base import Recipe, TrainedRun, load
from innerloop.recipes.binary_mixture import BinaryMixtureRecipe
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
            noise = float(getattr(self.recipe, "noise", 1.0))
            return name_clusters_of_layers(problem, noise, answers)
        if isinstance(self.recipe, BinaryMixtureRecipe):
            return answers[..., 1:]
        return answers

    def place(self, device: torch.device) -> TrainedModel:
        return replace(self, model=place_module(self.model, device))

    def distribution(self) -> Distribution:
        return self.recipe.build_distribution()


def name_clusters_of_layers(
    problem: ClusteringProblem, noise: float, shares: Predictions
) -> Predictions:
    """Permute the clusters of each layer to match those of Lloyd's algorithm, or of EM from
    many starts.

    For each prompt, the reference is the one of the two that agrees more with the layer. If Lloyd's
    algorithm ends in a poor optimum, its clusters have no counterparts among those of a better
    network.
    """
    algorithm = RestartedEM(torch.tensor(noise, dtype=torch.float64))
    *_, last = algorithm.states(problem, NAMING_STEPS)
    by_steps = count_lloyd(problem).to(shares) / (NAMING_STEPS + 1)
    references = [by_steps, algorithm.predict(problem, last)]
    layers = []
    for layer in shares:
        named = [match_names(layer, reference) for reference in references]
        by_lloyd, by_em = (
            (found * reference.to(found)).sum(dim=(-2, -1))
            for found, reference in zip(named, references, strict=True)
        )
        layers.append(torch.where((by_lloyd >= by_em)[:, None, None], *named))
    return torch.stack(layers)
