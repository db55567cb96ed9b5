"""A transformer learns to separate two Gaussian clouds, like spectral clustering.

Read-out  one score s for each point; its sign is the cloud, up to a common sign for all points
Answers   s and the label tanh s of each point, as in spectral clustering. Their common sign is that
          of the iteration from the starting vector, which the model does not see
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Int
from torch import Tensor, nn

from innerloop.constructions.base import Construction
from innerloop.constructions.spectral_clustering import SpectralClusteringConstruction
from innerloop.errors import InputError
from innerloop.parameters import parameter
from innerloop.problems.binary_mixture import BinaryMixture
from innerloop.problems.principal_components import PCAProblem
from innerloop.recipes.clusters import ClustersRecipe

CLOUDS = 2
KNOTS = 64
"""Number of knots of the construction whose weights are the initial weights."""


class BinaryMixtureRecipe(ClustersRecipe):
    """An encoder that assigns each data point to one of two clouds."""

    source: ClassVar[str] = "Yang 2025 (Learning spectral methods by transformers)"
    small: ClassVar = {"d": 2, "n": 4, "width": 8, "hidden": 4, "batch": 4}
    answer: ClassVar[str] = "score"

    d: int = parameter(5, "features", least=1, most=64)
    n: int = parameter(20, "points", least=2, most=10_000)
    separation: float = parameter(2.0, "‖μ‖, in standard deviations of the noise", least=0)
    offset: float = parameter(1.0, "standard deviation of each entry of the centre", least=0)

    def check(self, problem: PCAProblem) -> None:
        super().check(problem)
        if problem.n < CLOUDS:
            raise InputError(f"expected at least two points for two clouds, got {problem.n}")

    def build_distribution(self) -> BinaryMixture:
        return BinaryMixture(d=self.d, n=self.n, separation=self.separation, offset=self.offset)

    @property
    def registers(self) -> dict[str, Any]:
        return {"x": self.d, "one": ()}

    @property
    def outputs(self) -> int:
        return 1

    def fill_registers(self, problem: PCAProblem) -> Tensor:
        return self.layout.make_tokens(x=problem.x, one=1.0)

    def build_construction(self) -> Construction:
        return SpectralClusteringConstruction(d=self.d, n=self.n, steps=self.blocks, knots=KNOTS)

    def shape_answers(self, read: Tensor) -> Tensor:
        """Return the score and the label of each point.

        The probability of the first cloud is (1 + label)/2.
        """
        return torch.cat([read, read.tanh()], dim=-1)

    def predict_layers(self, model: nn.Module, problem: PCAProblem) -> Tensor:
        layers = super().predict_layers(model, problem)
        centred = problem.x - problem.x.mean(dim=-2, keepdim=True)
        direction = (layers[-1, ..., :1] * centred).sum(dim=-2)
        side = (direction * problem.start[..., 0, :]).sum(dim=-1)
        return layers * torch.where(side < 0, -1.0, 1.0).to(layers)[..., None, None]

    def make_logits(self, read: Tensor) -> Tensor:
        return torch.cat([read, -read], dim=-1)

    def name_clouds(self, problem: PCAProblem) -> Int[Tensor, "batch n"]:
        if problem.labels is None:
            raise InputError(
                "expected points with labels, which the loss compares, got points without"
            )
        return (problem.labels < 0).long()
