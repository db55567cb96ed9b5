"""Base classes of recipes for networks that read a prompt token by token.

Tokens   prompt (4.2) of R. Liu et al. 2025 without the register β: x, y (0 on odd tokens), odd
Answers  a prediction at every x, from the examples before it
Loss     (ŷ − y)² at the query only, or at every prefix
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from innerloop.models.gpt2 import GPT2
from innerloop.parameters import parameter
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.recipes.base import Recipe
from innerloop.recipes.sparse import LabelObjective
from innerloop.transformer import Layout


class SequenceRecipe(Recipe, ABC):
    """A recipe for a network on prompts of d features; other base classes define the problems."""

    is_network: ClassVar[bool] = True

    d: int = parameter(5, "features", least=1, most=512)
    n: int = parameter(10, "context examples", least=1, most=10_000)
    blocks: int = parameter(6, "layers", least=1, most=48)
    width: int = parameter(64, "hidden width of the network", least=1, most=2048)
    prefixes: bool = parameter(True, "loss at every prefix, not at the query alone")
    batch: int = parameter(64, "prompts in a batch", least=1, most=100_000)
    learning_rate: float = parameter(1e-3, "peak of the schedule", least=0)
    warmup: int = parameter(200, "steps in which the learning rate rises from 0", least=0)
    schedule: Literal["constant", "cosine", "linear", "halving"] = parameter(
        "cosine", "of the learning rate"
    )
    clip: float | None = parameter(1.0, "clip the norm of the whole gradient to this", least=0)
    steps: int = parameter(20_000, "steps of the optimiser", least=1)

    @abstractmethod
    def build_network(self, inputs: int) -> nn.Module:
        """Build the network with random weights, for tokens of `inputs` numbers."""

    def build_model(self, generator: torch.Generator) -> nn.Module:
        # Libraries draw from the global generator, which is restored afterwards.
        with torch.random.fork_rng():
            torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
            return self.build_network(self._layout.width)

    def build_objective(self) -> LabelObjective:
        return LabelObjective(
            self.build_distribution(), self.batch, self.predict_prefixes, self.prefixes
        )

    def encode_tokens(self, problem: RegressionProblem) -> Tensor:
        """Encode problems as the tokens that the network reads."""
        return self._layout.make_tokens(**problem.to_paired_decoder_format())

    def predict_prefixes(self, model: nn.Module, problem: RegressionProblem) -> Tensor:
        """Predict the labels of all examples and the query, each from the examples before it."""
        return model(self.encode_tokens(problem))[..., 0::2]

    def predict_layers(self, model: Any, problem: RegressionProblem) -> Tensor:
        return model.predict_layers(self.encode_tokens(problem))[..., -1:]

    @property
    def _layout(self) -> Layout:
        return Layout(x=self.d, y=(), odd=())


class GPT2BackboneRecipe(SequenceRecipe, ABC):
    """A recipe whose network is the `transformers` library's GPT-2."""

    heads: int = parameter(4, "heads in a layer", least=1, most=64)
    longest: int | None = parameter(
        None, "number of examples with position embeddings; none means n", least=1, most=100_000
    )

    def build_network(self, inputs: int) -> GPT2:
        return GPT2(
            inputs,
            width=self.width,
            layers=self.blocks,
            heads=self.heads,
            tokens=2 * (self.longest or self.n) + 1,
            query=self.query_size,
        )

    @property
    def query_size(self) -> int | None:
        """The number of features of a query read-out; None for a linear read-out."""
        return None


class RegressionRecipe(SequenceRecipe, ABC):
    """A recipe for linear regression without noise, with w ~ N(0, I) and condition number κ of Σ.

    If κ > 1, the eigenvectors of Σ are drawn at random for every prompt, as in Fu et al. 2023.
    """

    kappa: float = parameter(1.0, "condition number of Σ, rotated for every prompt", least=1)

    def build_distribution(self) -> LinearRegression:
        return LinearRegression(d=self.d, n=self.n, kappa=self.kappa)
