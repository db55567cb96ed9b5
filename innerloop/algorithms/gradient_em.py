"""EM for a mixture of linear regressions β_1 … β_K, whose M step is T gradient steps.

    E   γ_ik ∝ π_k exp(−(y_i − ⟨x_i, β_k⟩)² / 2ϑ²),   Σ_k γ_ik = 1
    M   β_k ← β_k + α (1/n) Σ_i γ_ik (y_i − ⟨x_i, β_k⟩) x_i        T times, γ fixed

No step divides by Σ_i γ_ik, so the vector of a component without examples does not change. The
prediction is that of the oracle, Σ_k π_k ⟨x, β_k⟩, with the current vectors. For T → ∞, it is EM.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm, hyperparameter
from innerloop.algorithms.regression import Predictions, largest_curvature, to_scalar_tensor
from innerloop.problems.mixture_of_regressions import MixtureProblem

Rows = Float[Tensor, "*batch n d"]
Labels = Float[Tensor, "*batch n"]
Betas = Float[Tensor, "*batch components d"]
Shares = Float[Tensor, "*batch n components"]


@dataclass(frozen=True, eq=False)
class GradientEM(Algorithm[MixtureProblem, Betas]):
    """EM with gradient steps; the state is the K vectors β_k.

    π and ϑ are known, α = `step_size`, and T = `inner`.
    """

    source: ClassVar[str] = "Yang 2025, fourth paper (Jin et al. 2024)"
    problem_type: ClassVar = MixtureProblem
    proportions: Float[Tensor, "*batch components"] = field(metadata=hyperparameter())
    noise: Float[Tensor, "*batch"] = field(metadata=hyperparameter())
    step_size: Float[Tensor, "*batch"] = field(metadata=hyperparameter())
    inner: int

    @classmethod
    def guesses(cls, problem: MixtureProblem) -> list[GradientEM]:
        equal = torch.full((problem.components,), 1 / problem.components, dtype=torch.float64)
        return [cls(equal, *rest) for rest in candidate_settings(problem)]

    def init(self, problem: MixtureProblem) -> Betas:
        return problem.start

    def step(self, problem: MixtureProblem, state: Betas, k: int) -> Betas:
        *_, last = self.iterates(problem.x, problem.y, state)
        return last

    def predict(self, problem: MixtureProblem, state: Betas) -> Predictions:
        shares = self.proportions.to(state).unsqueeze(-1)
        return (problem.x_query @ state.mT @ shares).squeeze(-1)

    def responsibilities(self, x: Rows, y: Labels, betas: Betas) -> Shares:
        """Return γ, the share of each component in each example."""
        noise = self.noise.to(x)[..., None, None]
        logits = -residuals(x, y, betas).square() / (2 * noise**2)
        prior = self.proportions.to(x).log().unsqueeze(-2)
        return torch.softmax(prior + logits, dim=-1)

    def iterates(self, x: Rows, y: Labels, betas: Betas) -> Iterator[Betas]:
        """Yield the vectors after 0, 1, …, T gradient steps on the examples weighted by γ."""
        shares = self.responsibilities(x, y, betas)
        yield betas
        for _ in range(self.inner):
            pull = (shares * residuals(x, y, betas)).mT @ x / x.shape[-2]
            betas = betas + self.step_size.to(x)[..., None, None] * pull
            yield betas


def candidate_settings(problem: MixtureProblem) -> list[tuple[Tensor, Tensor, int]]:
    """Return triples of noise, step size and T from which a fit starts."""
    label, top = float(problem.y.square().mean().sqrt()), largest_curvature(problem.examples)
    return [
        (to_scalar_tensor(share * label), to_scalar_tensor(size / top), inner)
        for inner in range(1, 7)
        for share in (0.2, 0.5)
        for size in (0.25, 0.75)
    ]


def residuals(x: Rows, y: Labels, betas: Betas) -> Shares:
    """Return y_i − ⟨x_i, β_k⟩ for each example and component."""
    return y.unsqueeze(-1) - x @ betas.mT
