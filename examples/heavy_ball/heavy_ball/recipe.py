"""Train free weights, which start at those of the heavy ball, on linear regression in context."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from heavy_ball.construction import HeavyBallConstruction
from innerloop import LinearRegression, Recipe, Transformer, parameter
from innerloop.training.objective import SquaredError


class HeavyBallRecipe(Recipe):
    """Train every weight; the blocks start as steps of the algorithm."""

    source = "this package"
    small = {"d": 2, "n": 4, "blocks": 2, "batch": 8}

    d: int = parameter(3, "features", least=1, most=64)
    n: int = parameter(12, "context examples", least=1, most=10_000)
    blocks: int = parameter(3, "layers", least=1, most=64)
    batch: int = parameter(256, "prompts in a batch", least=1, most=1_000_000)
    steps: int = parameter(200, "steps of the optimiser", least=1)

    @cached_property
    def construction(self) -> HeavyBallConstruction:
        return HeavyBallConstruction(d=self.d, n=self.n, steps=self.blocks)

    def build_model(self, generator: torch.Generator) -> Transformer:
        return self.construction.transformer.to_dense().float()

    def build_distribution(self) -> LinearRegression:
        return LinearRegression(d=self.d, n=self.n)

    def build_objective(self) -> SquaredError:
        return SquaredError(self.build_distribution(), self.batch, self._predict)

    def _predict(self, model: nn.Module, problem: Any) -> Tensor:
        stream = model(self.construction.prompt(problem), problem.n)
        return self.construction.decode(problem, stream)

    def predict_layers(self, model: nn.Module, problem: Any) -> Tensor:
        assert isinstance(model, Transformer)
        trace = model.trace(self.construction.prompt(problem), problem.n)
        return torch.stack([self.construction.decode(problem, s.stream) for s in list(trace)[1:]])
