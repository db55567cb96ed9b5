"""The base class of recipes that train linear attention on Gram matrices."""

from __future__ import annotations

from abc import ABC
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from innerloop.errors import InputError
from innerloop.parameters import parameter
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.recipes.base import Recipe
from innerloop.transformer import Transformer


class GramRecipe(Recipe, ABC):
    """Linear attention on noiseless regression, trained on the Gram matrices of prompts."""

    small: ClassVar[dict[str, Any]] = {"d": 2, "n": 4, "batch": 16}

    d: int = parameter(5, "features", least=1, most=64)
    n: int = parameter(20, "context examples", least=1, most=100_000)
    covariance: Tensor | None = parameter(None, "Σ of the covariates, d×d; none means the identity")
    truth: Literal["identity", "inverse"] = parameter(
        "identity", "covariance of the true weights: I or Σ⁻¹"
    )
    batch: int = parameter(5_000, "prompts in a batch", least=1, most=10_000_000)
    draws: Literal["torch", "numpy"] = parameter(
        "torch", "library that draws prompts: numpy is faster and draws other numbers"
    )
    kernel: Literal["torch", "c"] = parameter(
        "torch", "code of the loss: torch, or compiled C, which is faster and rounds differently"
    )
    scale: float = parameter(0.1, "standard deviation of the initial weights", least=0)
    steps: int = parameter(400, "steps of the optimiser", least=1)
    learning_rate: float = parameter(0.03, "peak of the schedule", least=0)
    schedule: Literal["constant", "cosine", "linear", "halving"] = parameter(
        "cosine", "of the learning rate"
    )
    clip: float | None = parameter(0.1, "clip the norm of the whole gradient to this", least=0)
    evaluate_every: int = parameter(50, "steps between evaluations", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.build_objective()  # raises InputError for a Σ that is not positive definite

    def objective_settings(self) -> dict[str, Any]:
        """Return the settings that the objective shares with the recipe."""
        names = ("d", "n", "covariance", "truth", "batch", "draws", "kernel")
        return {name: getattr(self, name) for name in names}

    def build_distribution(self) -> LinearRegression:
        return LinearRegression(d=self.d, n=self.n, covariance=self.covariance, weights=self.truth)

    def predict_layers(self, model: nn.Module, problem: RegressionProblem) -> Tensor:
        """Return −y at the queries after every layer, which is the prediction in ahn2023."""
        transformer = getattr(model, "transformer", None)
        if transformer is None:
            raise InputError(f"{self.name} expects a stack of linear attention, got {type(model)}")
        machine: Transformer = transformer()
        prompt = problem.to_encoder_format()
        tokens = machine.layout.make_tokens(x=prompt["x"], y=prompt["y"])
        trace = machine.trace(tokens, problem.n)
        return torch.stack([-snapshot["y"][..., problem.n :] for snapshot in list(trace)[1:]])
