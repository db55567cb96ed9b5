"""Lasso, elastic net and non-negative least squares, by scikit-learn's and SciPy's conventions.

Lasso        1/(2n) ‖y − Xw − b‖² + α‖w‖₁                    sklearn Lasso
Elastic net  1/(2n) ‖y − Xw − b‖² + αρ‖w‖₁ + ½α(1 − ρ)‖w‖²   sklearn ElasticNet, ρ = l1_ratio
NNLS         ‖y − Xw‖², w ≥ 0, without intercept by default  scipy.optimize.nnls

Sample weights mean the same as in scikit-learn: n is the sum of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.solving.base import Answers, PenalisedSolver, Solver, check_positive
from innerloop.solving.coordinate_descent import Descent
from innerloop.solving.data import Samples
from innerloop.solving.quadratic import Quadratic, intercepts, reduce_samples


@dataclass(frozen=True, kw_only=True, eq=False)
class Lasso(PenalisedSolver):
    """Solver of the lasso; `max_steps` is the largest number of sweeps over all weights."""

    measure: ClassVar[str] = "duality gap"
    default_penalty: ClassVar[float] = 1.0

    max_steps: int = 10_000

    @property
    def sparse_share(self) -> float:
        """The share ρ of the penalty that belongs to ‖w‖₁."""
        return 1.0

    def solve_path(
        self, samples: Samples, penalties: Float[Tensor, "problems path"], tolerance: float
    ) -> Answers:
        quadratic = reduce_samples(samples, self.fit_intercept)
        weights, solutions = torch.zeros_like(quadratic.moment), []
        # Solve from the largest penalty down; each solution is the start of the next one.
        order = penalties.argsort(dim=-1, descending=True)
        for penalty in penalties.gather(-1, order).unbind(dim=-1):
            weights, measures, converged, sweeps = self._solve_one(
                quadratic, penalty, weights, tolerance
            )
            solutions.append({"coef": weights, "optimality": measures, "converged": converged})
            solutions[-1]["steps"] = sweeps
        places = order.argsort(dim=-1)
        joined = {
            name: torch.stack([solution[name] for solution in solutions], dim=1)
            for name in solutions[0]
        }
        rows = torch.arange(len(places), device=places.device).unsqueeze(-1)
        answers = {name: values[rows, places] for name, values in joined.items()}
        means = quadratic.x_mean, quadratic.y_mean
        return {"intercept": intercepts(answers["coef"], *means), **answers}

    def _solve_one(
        self, quadratic: Quadratic, penalty: Tensor, start: Tensor, tolerance: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        share = self.sparse_share
        gram = quadratic.gram
        if share < 1:
            gram = gram.clone()
            gram.diagonal(dim1=-2, dim2=-1).add_(((1 - share) * penalty).unsqueeze(-1))
        descent = Descent(gram, quadratic.moment, quadratic.square, share * penalty)
        return descent.solve(start, tolerance, self.max_steps)

    def largest_penalty(self, samples: Samples) -> Float[Tensor, " problems"]:
        if self.sparse_share == 0:
            raise InputError("l1_ratio=0 has no largest penalty: pass a list of penalties as path=")
        moment = reduce_samples(samples, self.fit_intercept).moment
        return moment.abs().amax(dim=-1) / self.sparse_share


@dataclass(frozen=True, kw_only=True, eq=False)
class ElasticNet(Lasso):
    """Solver of the elastic net; with `l1_ratio=1` it is the lasso."""

    l1_ratio: float = 0.5

    def __post_init__(self) -> None:
        check_positive("l1_ratio", self.l1_ratio)
        if self.l1_ratio > 1:
            raise InputError(f"l1_ratio must be at most 1, got {self.l1_ratio}")

    @property
    def sparse_share(self) -> float:
        return float(self.l1_ratio)


@dataclass(frozen=True, kw_only=True, eq=False)
class NonNegativeLeastSquares(Solver):
    """Solver of least squares with weights that must not be negative."""

    measure: ClassVar[str] = "largest violation of the optimality conditions, x of mean square 1"

    fit_intercept: bool = False
    max_steps: int = 10_000

    def solve(self, samples: Samples, tolerance: float) -> Answers:
        quadratic = reduce_samples(samples, self.fit_intercept)
        no_penalty = torch.zeros_like(quadratic.square)
        # Scale features to length 1. This does not change which weights are positive.
        lengths = quadratic.gram.diagonal(dim1=-2, dim2=-1).sqrt()
        lengths = torch.where(lengths > 0, lengths, 1.0)
        gram = quadratic.gram / lengths.unsqueeze(-1) / lengths.unsqueeze(-2)
        descent = Descent(gram, quadratic.moment / lengths, quadratic.square, no_penalty, True)
        start = torch.zeros_like(quadratic.moment)
        weights, measures, converged, sweeps = descent.solve(start, tolerance, self.max_steps)
        weights = weights / lengths
        return {
            "coef": weights,
            "intercept": intercepts(weights, quadratic.x_mean, quadratic.y_mean),
            "optimality": measures,
            "converged": converged,
            "steps": sweeps,
        }
