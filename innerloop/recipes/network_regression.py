"""A network learns in context to predict the outputs of random networks.

Problems  f is a random ReLU network of 3, 4 or 6 layers; examples have x ~ N(0, I), y = f(x)
Tokens    x₁, (x₁, y₁), x₂, …: even tokens contain x and y; the query comes last
Model     the `transformers` library's GPT-2, or a causal transformer of this package
Loss      (ŷ − f(x))² at every prefix
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.devices import default_to_cpu, move
from innerloop.parameters import parameter
from innerloop.problems.network_regression import NetworkProblem, NetworkRegression
from innerloop.recipes.backbone import AttentionKind, Network, build_backbone
from innerloop.recipes.base import Recipe

EXAMPLES = 1024
"""Number of prompts on which measures are computed."""


@dataclass(frozen=True)
class PrefixObjective:
    """The mean squared error of the labels over all prefixes; evaluations use the query only."""

    recipe: NetworkRegressionRecipe

    def draw(self, generator: torch.Generator) -> NetworkProblem:
        distribution = self.recipe.build_distribution()
        return distribution.sample(self.recipe.batch, generator=generator, dtype=torch.float32)

    def loss(self, model: nn.Module, batch: NetworkProblem) -> Tensor:
        return self._compute_errors(model, batch).mean()

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        errors = self._compute_errors(model, self._held_out)
        return {"loss": float(errors[:, -1].mean()), "prefixes": float(errors.mean())}

    def compute_blank_loss(self, model: nn.Module) -> float:
        return float(self._held_out.targets.square().mean())

    def _compute_errors(
        self, model: nn.Module, problem: NetworkProblem
    ) -> Float[Tensor, "batch prefixes"]:
        problem = move(problem, next(model.parameters()).device)
        truth = torch.cat([problem.y.squeeze(-1), problem.targets], dim=-1)
        return (self.recipe.predict_prefixes(model, problem) - truth).square()

    @cached_property
    def _held_out(self) -> NetworkProblem:
        generator = torch.Generator().manual_seed(2**31 - 1)
        distribution = self.recipe.build_distribution()
        with default_to_cpu():
            return distribution.sample(EXAMPLES, generator=generator, dtype=torch.float32)


class NetworkRegressionRecipe(Recipe):
    """A sequence model trained on functions of random networks."""

    source: ClassVar[str] = "Yang 2025, second paper, experiments (Wu et al. 2024)"
    small: ClassVar = {
        **{"d": 2, "n": 3, "layers": 2, "units": 2, "batch": 4},
        **{"blocks": 2, "heads": 2, "width": 8},
    }

    is_network: ClassVar[bool] = True

    d: int = parameter(4, "features", least=1, most=512)
    n: int = parameter(30, "context examples", least=1, most=10_000)
    layers: int = parameter(3, "layers of the random networks", least=1, most=100)
    units: int = parameter(4, "units of their hidden layers", least=1, most=4096)
    network: Network = parameter("gpt2", "GPT-2 of transformers, or this package's")
    attention: AttentionKind = parameter("softmax", "kind of attention")
    blocks: int = parameter(4, "layers of the model", least=1, most=48)
    heads: int = parameter(4, "heads in a layer", least=1, most=64)
    width: int = parameter(64, "width of the stream", least=1, most=2048)
    batch: int = parameter(64, "prompts in a batch", least=1, most=100_000)
    learning_rate: float = parameter(1e-3, "peak of the schedule", least=0)
    warmup: int = parameter(200, "steps in which the learning rate rises from 0", least=0)
    schedule: Literal["constant", "cosine", "linear", "halving"] = parameter(
        "cosine", "of the learning rate"
    )
    clip: float | None = parameter(1.0, "clip the norm of the whole gradient to this", least=0)
    steps: int = parameter(6000, "steps of the optimiser", least=1)

    def build_model(self, generator: torch.Generator) -> nn.Module:
        return build_backbone(
            self.network,
            self.d + 2,
            width=self.width,
            layers=self.blocks,
            heads=self.heads,
            tokens=2 * self.n + 1,
            outputs=1,
            attention=self.attention,
            generator=generator,
        )

    def build_objective(self) -> PrefixObjective:
        return PrefixObjective(self)

    def build_distribution(self) -> NetworkRegression:
        return NetworkRegression(d=self.d, n=self.n, layers=self.layers, width=self.units)

    def encode_tokens(self, problem: NetworkProblem) -> Float[Tensor, "batch tokens inputs"]:
        """Encode problems as tokens of x, y (0 if it is to be predicted) and a flag for such
        tokens."""
        inputs = torch.cat([problem.x, torch.zeros_like(problem.y), torch.ones_like(problem.y)], -1)
        labelled = torch.cat([problem.x, problem.y, torch.zeros_like(problem.y)], dim=-1)
        pairs = torch.stack([inputs, labelled], dim=-2).flatten(-3, -2)
        query = torch.cat(
            [problem.x_query, problem.y.new_tensor([0.0, 1.0]).expand(*problem.batch, 2)], dim=-1
        )
        return torch.cat([pairs, query.unsqueeze(-2)], dim=-2)

    def predict_prefixes(
        self, model: nn.Module, problem: NetworkProblem
    ) -> Float[Tensor, "batch prefixes"]:
        """Predict the labels of all examples and the query, each from the examples before it."""
        return model(self.encode_tokens(problem))[..., 0::2]

    def predict_layers(self, model: Any, problem: NetworkProblem) -> Tensor:
        return model.predict_layers(self.encode_tokens(problem.to(torch.float32)))[..., -1:]
