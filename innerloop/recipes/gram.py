"""What recipes on Gram matrices share: the law of the prompts, the start, the layers' answers."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from innerloop.errors import InputError
from innerloop.parameters import parameter
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.recipes.base import Recipe


@dataclass(frozen=True, kw_only=True, eq=False)
class GramRecipe(Recipe, ABC):
    """Linear attention on noiseless regression; every prompt is its Gram matrix."""

    small: ClassVar[dict[str, Any]] = {"d": 2, "n": 4, "batch": 16}

    d: int = parameter(5, "features", least=1, most=64)
    n: int = parameter(20, "context examples", least=1, most=100_000)
    covariance: Tensor | None = parameter(None, "Σ of the covariates, d×d; none is the identity")
    truth: Literal["identity", "inverse"] = parameter(
        "identity", "covariance of the weights to be found: I or Σ⁻¹"
    )
    batch: int = parameter(5_000, "prompts in a batch", least=1, most=10_000_000)
    scale: float = parameter(0.1, "size of the random weights at the start; 0: all are 0", least=0)
    steps: int = parameter(400, "steps of the optimiser", least=1)
    learning_rate: float = parameter(0.03, "the largest on the schedule", least=0)
    schedule: Literal["constant", "cosine", "linear", "halving"] = parameter(
        "cosine", "of the learning rate"
    )
    clip: float | None = parameter(0.1, "largest norm of the whole gradient", least=0)
    evaluate_every: int = parameter(50, "steps between evaluations", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.objective()  # refuses a Σ that is none

    def law(self) -> dict[str, Any]:
        """The settings that the objective shares with the recipe."""
        names = ("d", "n", "covariance", "truth", "batch")
        return {name: getattr(self, name) for name in names}

    def problems(self) -> LinearRegression:
        return LinearRegression(d=self.d, n=self.n, covariance=self.covariance, weights=self.truth)

    def layers(self, model: nn.Module, problem: RegressionProblem) -> Tensor:
        """−y at the queries after every layer, as ahn2023 reads it."""
        transformer = getattr(model, "transformer", None)
        if transformer is None:
            raise InputError(f"{self.name} reads stacks of linear attention, got {type(model)}")
        made, prompt = transformer(), problem.encoder_format()
        tokens = made.layout.tokens(x=prompt["x"], y=prompt["y"])
        trace = made.trace(tokens, problem.n)
        return torch.stack([-snapshot["y"][..., problem.n :] for snapshot in list(trace)[1:]])
