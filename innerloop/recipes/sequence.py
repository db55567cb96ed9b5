"""What trainings of a network that reads a prompt token by token have in common.

Tokens   prompt (4.2) of R. Liu et al. 2025 without the register β: x, y (0 on odd tokens), odd
Answers  at every x, from the examples before it
Loss     (ŷ − y)² at the query alone, or at every prefix
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from innerloop.models.gpt2 import GPT2
from innerloop.parameters import parameter
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.recipes.base import Recipe
from innerloop.recipes.sparse import Labels
from innerloop.transformer import Layout


@dataclass(frozen=True, kw_only=True, eq=False)
class SequenceRecipe(Recipe, ABC):
    """A network, `network`, for prompts of d features; its problems are another class's."""

    d: int = parameter(5, "features", least=1, most=512)
    n: int = parameter(10, "context examples", least=1, most=10_000)
    blocks: int = parameter(6, "layers", least=1, most=48)
    width: int = parameter(64, "of the network", least=1, most=2048)
    prefixes: bool = parameter(True, "loss at every prefix, not at the query alone")
    batch: int = parameter(64, "prompts in a batch", least=1, most=100_000)
    learning_rate: float = parameter(1e-3, "the largest on the schedule", least=0)
    warmup: int = parameter(200, "steps in which the learning rate rises from 0", least=0)
    schedule: Literal["constant", "cosine", "linear", "halving"] = parameter(
        "cosine", "of the learning rate"
    )
    clip: float | None = parameter(1.0, "largest norm of the whole gradient", least=0)
    steps: int = parameter(20_000, "steps of the optimiser", least=1)

    @abstractmethod
    def network(self, inputs: int) -> nn.Module:
        """The network with fresh weights, for tokens of so many numbers."""

    def model(self, generator: torch.Generator) -> nn.Module:
        # Libraries draw from the global generator, which is left as it was.
        with torch.random.fork_rng():
            torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
            return self.network(self._layout.width)

    def objective(self) -> Labels:
        return Labels(self.problems(), self.batch, self.answers, self.prefixes)

    def tokens(self, problem: RegressionProblem) -> Tensor:
        """The prompts that the network reads."""
        return self._layout.tokens(**problem.paired_decoder_format())

    def answers(self, model: nn.Module, problem: RegressionProblem) -> Tensor:
        """Labels of all examples and the query, each from those before it."""
        return model(self.tokens(problem))[..., 0::2]

    def layers(self, model: Any, problem: RegressionProblem) -> Tensor:
        return model.layers(self.tokens(problem))[..., -1:]

    @property
    def _layout(self) -> Layout:
        return Layout(x=self.d, y=(), odd=())


@dataclass(frozen=True, kw_only=True, eq=False)
class GPT2Recipe(SequenceRecipe, ABC):
    """The `transformers` library's GPT-2."""

    heads: int = parameter(4, "heads in a layer", least=1, most=64)
    longest: int | None = parameter(None, "examples there are positions for; none is n", least=1)

    def network(self, inputs: int) -> GPT2:
        return GPT2(
            inputs,
            width=self.width,
            layers=self.blocks,
            heads=self.heads,
            tokens=2 * (self.longest or self.n) + 1,
            query=self.query,
        )

    @property
    def query(self) -> int | None:
        """The features of a query read-out; the read-out is linear if none."""
        return None


@dataclass(frozen=True, kw_only=True, eq=False)
class RegressionRecipe(SequenceRecipe, ABC):
    """Linear regression without noise, w ~ N(0, I); Σ has a condition number, and where that is not
    1 its eigenvectors are drawn for every prompt, as Fu et al. draw Σ."""

    kappa: float = parameter(1.0, "condition number of Σ, rotated for every prompt", least=1)

    def problems(self) -> LinearRegression:
        return LinearRegression(d=self.d, n=self.n, kappa=self.kappa)
