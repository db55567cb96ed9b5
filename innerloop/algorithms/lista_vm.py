"""LISTA-VM, a learned ISTA for varying measurements, on every prefix of the examples.

    β_m ← S_θ( β_m − 1/(2m+1) · M X_mᵀ (X_m β_m − y_m) )        X_m, y_m: the first m examples

for m = 0 … n at once, with M and θ per step. Prefix m predicts the label of the next
example (the query comes after the last) by the query read-out ⟨x_{m+1}, β_m⟩, or by the linear
read-out (2/p)/(2m+1) Σ_{l ≤ m} σ(⟨x_{m+1}, β_l⟩ − B') + B'. With θ = 0 it is gradient descent on
each prefix.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm, hyperparameter, select_entry
from innerloop.algorithms.ista import soft_threshold
from innerloop.algorithms.regression import largest_curvature
from innerloop.errors import OutOfRangeError
from innerloop.problems.linear_regression import RegressionProblem

Prefixes = Float[Tensor, "*batch prefixes d"]


@dataclass(frozen=True, eq=False)
class ListaVM(Algorithm[RegressionProblem, Prefixes]):
    """LISTA-VM whose step k uses M = `matrices[k]` and θ = `thresholds[k]`.

    If there are fewer of them than steps, they are repeated. With a `support`, all entries of β
    after the first `support` entries are 0. `linear` contains B' and p of the linear read-out;
    without it, the query read-out is used.
    """

    source: ClassVar[str] = "R. Liu et al. 2025, eq. (4.4); Appendix D.2 with a support"
    problem_type: ClassVar = RegressionProblem
    matrices: Float[Tensor, "steps *batch d d"] = field(metadata=hyperparameter(per_step=True))
    thresholds: Float[Tensor, " steps *batch"] = field(metadata=hyperparameter(per_step=True))
    support: int | None = None
    linear: Float[Tensor, "*batch 2"] | None = field(default=None, metadata=hyperparameter())

    @classmethod
    def guesses(cls, problem: RegressionProblem) -> list[ListaVM]:
        """Return starts for both read-outs, three step sizes and two thresholds.

        The thresholds are proportional to the expected size of a weight.
        """
        identity = torch.eye(problem.d, dtype=torch.float64).unsqueeze(0)
        top, label = largest_curvature(problem), float(problem.y.square().mean().sqrt())
        entry = label / float(problem.x.square().sum(dim=-1).mean().sqrt())
        lines = (None, torch.tensor([-4 * label, 1.0], dtype=torch.float64))
        return [
            cls(2 * size / top * identity, identity.new_tensor([share * entry]), None, line)
            for line in lines
            for size in (0.05, 0.2, 0.8)
            for share in (0.03, 0.2)
        ]

    def init(self, problem: RegressionProblem) -> Prefixes:
        if problem.queries != 1:
            raise OutOfRangeError(
                f"expected one query in a decoder's prompt, got {problem.queries}: set queries=1"
            )
        return problem.x.new_zeros(*problem.x.shape[:-2], problem.n + 1, problem.d)

    def step(self, problem: RegressionProblem, state: Prefixes, k: int) -> Prefixes:
        x, y, n = problem.x, problem.y, problem.n
        inside = torch.ones(n + 1, n, dtype=x.dtype, device=x.device).tril(-1)
        residual = (state @ x.mT - y.unsqueeze(-2)) * inside
        tokens = 2 * torch.arange(n + 1, dtype=x.dtype, device=x.device).unsqueeze(-1) + 1
        moved = state - residual @ x @ select_entry(self.matrices, k, x).mT / tokens
        shrunk = soft_threshold(moved, select_entry(self.thresholds, k, x)[..., None, None])
        return shrunk if self.support is None else shrunk * self.mask(problem.d).to(x)

    def predict(
        self, problem: RegressionProblem, state: Prefixes
    ) -> Float[Tensor, "*batch prefixes"]:
        rows = torch.cat([problem.x, problem.x_query], dim=-2)
        if self.linear is None:
            return (rows * state).sum(dim=-1)
        threshold, share = self.linear.to(rows).unsqueeze(-2).unbind(dim=-1)
        total = (rows @ state.mT - threshold.unsqueeze(-1)).relu().tril().sum(dim=-1)
        return 2 / share * total / (2 * torch.arange(problem.n + 1).to(rows) + 1) + threshold

    def mask(self, d: int) -> Tensor:
        """Return a vector of d entries: 1 on the support, 0 elsewhere."""
        return (torch.arange(d) < (d if self.support is None else self.support)).double()
