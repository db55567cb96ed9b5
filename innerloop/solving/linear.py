"""Least squares and ridge in closed form, by scikit-learn's conventions.

Least squares is LinearRegression: ‖y − Xw − b‖², of least norm where many w fit. Ridge is Ridge:
‖y − Xw − b‖² + α‖w‖². Both solve the normal equations and correct the answer once with the
residual's own gradient; where the equations are too ill-conditioned for that, as collinear features
and n < d make them, LAPACK's gelsd solves the rows themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from innerloop.solving.base import Answers, PenalisedSolver, Solver
from innerloop.solving.data import Samples
from innerloop.solving.quadratic import Centred, Vectors, centre, intercepts, norms

SAFE_RATIO = 1e-4
"""Pivots of a Cholesky factor that differ by more than this: the rows are solved instead."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LeastSquares(Solver):
    """Ordinary least squares."""

    measure: ClassVar[str] = "norm of the gradient of ½ mean residual²"

    fit_intercept: bool = True

    def solve(self, samples: Samples, tolerance: float) -> Answers:
        rows = centre(samples, self.fit_intercept)
        found = _solve_rows(rows, rows.x.new_zeros(len(rows.x)))
        return _report(rows, found, rows.x.new_zeros(len(rows.x)), tolerance)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ridge(PenalisedSolver):
    """Ridge regression; a penalty of 0 is least squares."""

    measure: ClassVar[str] = "norm of the gradient of ½ mean residual² + α/(2n) ‖w‖²"
    default_penalty: ClassVar[float] = 1.0

    def solve_path(
        self, samples: Samples, penalties: Float[Tensor, "problems path"], tolerance: float
    ) -> Answers:
        rows = centre(samples, self.fit_intercept)
        shares = penalties / samples.totals.unsqueeze(-1)
        found = [
            _report(rows, _solve_rows(rows, share), share, tolerance)
            for share in shares.unbind(dim=-1)
        ]
        return {name: torch.stack([each[name] for each in found], dim=1) for name in found[0]}

    def default_path(self) -> list[float]:
        return [0.1, 1.0, 10.0]


def _solve_rows(rows: Centred, penalty: Float[Tensor, " problems"]) -> Vectors:
    """Minimise ½‖y − Xw‖² + ½ penalty ‖w‖² for every problem."""
    scale = rows.x.square().sum(dim=1).sqrt()  # features of any scale: each has length 1
    scale = torch.where(scale > 0, scale, 1.0)
    x = rows.x / scale.unsqueeze(1)
    diagonal = penalty.unsqueeze(-1) / scale.square()
    gram = x.mT @ x
    gram.diagonal(dim1=-2, dim2=-1).add_(diagonal)
    factor, failed = torch.linalg.cholesky_ex(gram)
    pivots = factor.diagonal(dim1=-2, dim2=-1)
    safe = (failed == 0) & (pivots.amin(dim=-1) > SAFE_RATIO * pivots.amax(dim=-1))
    weights = torch.zeros_like(diagonal)
    if bool(safe.any()):
        every = bool(safe.all())
        x_, y, own, factor_ = (
            part if every else part[safe] for part in (x, rows.y, diagonal, factor)
        )
        solved = torch.zeros_like(own)
        for _ in range(2):  # the second time corrects what the first one's rounding left
            residual = y - (x_ @ solved.unsqueeze(-1)).squeeze(-1)
            pull = (x_.mT @ residual.unsqueeze(-1)).squeeze(-1) - own * solved
            solved = solved + torch.cholesky_solve(pull.unsqueeze(-1), factor_).squeeze(-1)
        weights[safe] = solved / (scale if every else scale[safe])
    if not bool(safe.all()):
        weights[~safe] = _solve_singular(rows.x[~safe], rows.y[~safe], penalty[~safe])
    return weights


def _solve_singular(
    x: Float[Tensor, "problems n d"],
    y: Float[Tensor, "problems n"],
    penalty: Float[Tensor, " problems"],
) -> Vectors:
    """Solve by gelsd, with rows √penalty·I below the data's; the least norm where many fit."""
    d = x.shape[-1]
    more = penalty.sqrt()[:, None, None] * torch.eye(d, dtype=x.dtype, device=x.device)
    below = torch.cat([x, more], dim=1).cpu()
    right = torch.cat([y, y.new_zeros(len(y), d)], dim=1).unsqueeze(-1).cpu()
    return torch.linalg.lstsq(below, right, driver="gelsd").solution.squeeze(-1).to(x.device)


def _report(
    rows: Centred, weights: Vectors, penalty: Float[Tensor, " problems"], tolerance: float
) -> Answers:
    residual = rows.y - (rows.x @ weights.unsqueeze(-1)).squeeze(-1)
    pull = (rows.x.mT @ residual.unsqueeze(-1)).squeeze(-1) - penalty.unsqueeze(-1) * weights
    # Rounding grows with the rows, the labels and the terms that cancel.
    sizes = torch.linalg.vector_norm(rows.x, dim=(1, 2)) * norms(rows.y) + penalty * norms(weights)
    converged: Bool[Tensor, " problems"] = norms(pull) <= tolerance * sizes
    return {
        "coef": weights,
        "intercept": intercepts(weights, rows.x_mean, rows.y_mean),
        "optimality": norms(pull),
        "converged": converged,
        "steps": torch.ones_like(converged, dtype=torch.int64),
    }
