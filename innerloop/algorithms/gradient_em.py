"""EM for a mixture of linear regressions whose M step is T gradient steps, β_k for every component.

    E   γ_ik ∝ π_k exp(−(y_i − ⟨x_i, β_k⟩)² / 2ϑ²),   Σ_k γ_ik = 1
    M   β_k ← β_k + α (1/n) Σ_i γ_ik (y_i − ⟨x_i, β_k⟩) x_i        T times, γ held

Nothing is divided by Σ_i γ_ik: a component that no example wants stays where it is. The prediction
is the oracle's, Σ_k π_k ⟨x, β_k⟩, with the vectors found so far. T → ∞ is EM itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.algorithms.regression import Predictions, number, steepest
from innerloop.problems.mixture_of_regressions import MixtureProblem

Rows = Float[Tensor, "*batch n d"]
Labels = Float[Tensor, "*batch n"]
Betas = Float[Tensor, "*batch components d"]
Shares = Float[Tensor, "*batch n components"]


@dataclass(frozen=True, eq=False)
class GradientEM(Algorithm[MixtureProblem, Betas]):
    """The state is the K vectors β_k; π and ϑ are known, α = `step_size`, T = `inner`."""

    source: ClassVar[str] = "Yang 2025, fourth paper (Jin et al. 2024)"
    proportions: Float[Tensor, "*batch components"]
    noise: Float[Tensor, "*batch"]
    step_size: Float[Tensor, "*batch"]
    inner: int

    @classmethod
    def guesses(cls, problem: MixtureProblem) -> list[GradientEM]:
        equal = torch.full((problem.components,), 1 / problem.components, dtype=torch.float64)
        return [cls(equal, *rest) for rest in settings(problem)]

    def init(self, problem: MixtureProblem) -> Betas:
        return problem.start

    def step(self, problem: MixtureProblem, state: Betas, k: int) -> Betas:
        *_, last = self.iterates(problem.x, problem.y, state)
        return last

    def predict(self, problem: MixtureProblem, state: Betas) -> Predictions:
        shares = self.proportions.to(state).unsqueeze(-1)
        return (problem.x_query @ state.mT @ shares).squeeze(-1)

    def responsibilities(self, x: Rows, y: Labels, betas: Betas) -> Shares:
        """γ, the share that each component has in each example."""
        noise = self.noise.to(x)[..., None, None]
        logits = -residuals(x, y, betas).square() / (2 * noise**2)
        prior = self.proportions.to(x).log().unsqueeze(-2)
        return torch.softmax(prior + logits, dim=-1)

    def iterates(self, x: Rows, y: Labels, betas: Betas) -> Iterator[Betas]:
        """The vectors after 0, 1, …, T gradient steps on the examples shared out by γ."""
        shares = self.responsibilities(x, y, betas)
        yield betas
        for _ in range(self.inner):
            pull = (shares * residuals(x, y, betas)).mT @ x / x.shape[-2]
            betas = betas + self.step_size.to(x)[..., None, None] * pull
            yield betas


def settings(problem: MixtureProblem) -> list[tuple[Tensor, Tensor, int]]:
    """Noise, step size and T worth a try."""
    label, top = float(problem.y.square().mean().sqrt()), steepest(problem.examples)
    return [
        (number(share * label), number(size / top), inner)
        for inner in range(1, 7)
        for share in (0.2, 0.5)
        for size in (0.25, 0.75)
    ]


def residuals(x: Rows, y: Labels, betas: Betas) -> Shares:
    """y_i − ⟨x_i, β_k⟩."""
    return y.unsqueeze(-1) - x @ betas.mT
