"""A transformer with trainable weights learns linear regression in context.

Model      a transformer on registers x and y: linear, ReLU or softmax attention, with or without an
           MLP; the prediction at the query is −y, as in ahn2023
Start      random weights, the weights of preconditioned gradient descent, or weights near these
Loss       (prediction − ⟨w, x⟩)² at the query
"""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from innerloop.constructions.preconditioned_gradient_descent import (
    PreconditionedGradientDescentConstruction,
)
from innerloop.errors import InputError
from innerloop.parameters import parameter
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.recipes.base import Recipe
from innerloop.training.objective import SquaredError
from innerloop.training.start import perturb
from innerloop.transformer import Transformer


class LinearRegressionRecipe(Recipe):
    """A transformer that is trained on complete prompts, not on their Gram matrices."""

    source: ClassVar[str] = "Ahn et al. 2023, section 3; von Oswald et al. 2023"
    small: ClassVar = {"d": 2, "n": 4, "blocks": 2, "batch": 8}

    d: int = parameter(5, "features", least=1, most=64)
    n: int = parameter(20, "context examples", least=1, most=10_000)
    kappa: float = parameter(1.0, "condition number of Σ, rotated for every prompt", least=1)
    blocks: int = parameter(3, "layers", least=1, most=64)
    heads: int = parameter(1, "heads in a layer", least=1, most=64)
    hidden: int = parameter(0, "hidden units of each MLP; 0 means no MLP", least=0, most=4096)
    kind: Literal["linear", "relu", "softmax"] = parameter("linear", "kind of attention")
    batch: int = parameter(256, "prompts in a batch", least=1, most=1_000_000)
    start: Literal["random", "construction", "near"] = parameter("random", "initial weights")
    scale: float | None = parameter(None, "scale of random weights; none means 0.3", least=0)
    noise: float | None = parameter(
        None, "near: scale of the noise added; none means 0.05", least=0
    )
    steps: int = parameter(2000, "steps of the optimiser", least=1)
    learning_rate: float = parameter(3e-3, "peak of the schedule", least=0)
    schedule: Literal["constant", "cosine", "linear", "halving"] = parameter(
        "cosine", "of the learning rate"
    )
    clip: float | None = parameter(1.0, "clip the norm of the whole gradient to this", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        plain = self.kind == "linear" and self.heads == 1 and not self.hidden
        if self.start != "random" and not plain:
            raise InputError(
                f"start={self.start} needs linear attention with one head and no MLP, like the "
                "construction: set kind=linear, heads=1, hidden=0"
            )
        for name, start in (("scale", "random"), ("noise", "near")):
            if getattr(self, name) is not None and self.start != start:
                raise InputError(f"start={self.start} does not use {name}: leave it out")

    @cached_property
    def _construction(self) -> PreconditionedGradientDescentConstruction:
        return PreconditionedGradientDescentConstruction(
            d=self.d, n=self.n, steps=self.blocks, preconditioners="identity", step_size=0.5
        )

    def build_model(self, generator: torch.Generator) -> Transformer:
        if self.start == "random":
            return Transformer.with_random_weights(
                self._construction.layout,
                layers=self.blocks,
                heads=self.heads,
                hidden=self.hidden,
                kind=self.kind,
                scale=0.3 if self.scale is None else self.scale,
                generator=generator,
            ).float()
        transformer = self._construction.transformer.to_dense()
        if self.start == "near":
            perturb(transformer, 0.05 if self.noise is None else self.noise, generator)
        return transformer.float()

    def build_distribution(self) -> LinearRegression:
        return LinearRegression(d=self.d, n=self.n, kappa=self.kappa)

    def build_objective(self) -> SquaredError:
        return SquaredError(self.build_distribution(), self.batch, self._predict)

    def _predict(self, model: nn.Module, problem: RegressionProblem) -> Tensor:
        construction = self._construction
        stream = model(construction.prompt(problem), construction.context_length(problem))
        return construction.decode(problem, stream)

    def predict_layers(self, model: nn.Module, problem: RegressionProblem) -> Tensor:
        assert isinstance(model, Transformer)
        construction = self._construction
        trace = model.trace(construction.prompt(problem), construction.context_length(problem))
        return torch.stack([construction.decode(problem, s.stream) for s in list(trace)[1:]])
