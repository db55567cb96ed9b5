"""Solve least squares and ridge regression in closed form, with scikit-learn's conventions.

Least squares minimises ‖y − Xw − b‖² as LinearRegression does; if several w are minimal, it
returns the one of least norm. Ridge regression minimises ‖y − Xw − b‖² + α‖w‖². Both solve the
normal equations and correct the solution once by iterative refinement. If the equations are too
ill-conditioned, for instance with collinear features or n < d, LAPACK's gelsd solves the
least-squares problem of the rows instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from innerloop.solving.base import Answers, PenalisedSolver, Solver
from innerloop.solving.data import Samples
from innerloop.solving.quadratic import (
    Centred,
    Vectors,
    centre,
    find_doubtful,
    intercepts,
    norms,
    recentre,
)

SAFE_RATIO = 1e-4
"""If the least pivot of the Cholesky factor is below this share of the largest, gelsd is used."""


ROUNDING_SHARE = 1e-7
"""The gradient may have rounding errors in proportion to this share of the largest term w_j x_ij.

Large terms that cancel in a prediction leave their rounding errors. The share suits the tolerance
1e-8.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class LeastSquares(Solver):
    """Solver of ordinary least squares."""

    measure: ClassVar[str] = "norm of the gradient of ½ mean residual²"

    fit_intercept: bool = True

    def solve(self, samples: Samples, tolerance: float) -> Answers:
        rows, scale = _prepare(samples, self.fit_intercept)
        no_penalty = rows.x.new_zeros(len(rows.x))
        return _solve(rows, scale, no_penalty, tolerance)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ridge(PenalisedSolver):
    """Solver of ridge regression; with a penalty of 0 it is least squares."""

    measure: ClassVar[str] = "norm of the gradient of ½ mean residual² + α/(2n) ‖w‖²"
    default_penalty: ClassVar[float] = 1.0

    def solve_path(
        self, samples: Samples, penalties: Float[Tensor, "problems path"], tolerance: float
    ) -> Answers:
        rows, scale = _prepare(samples, self.fit_intercept)
        shares = penalties / samples.totals.unsqueeze(-1)
        solutions = [_solve(rows, scale, share, tolerance) for share in shares.unbind(dim=-1)]
        return {
            name: torch.stack([solution[name] for solution in solutions], dim=1)
            for name in solutions[0]
        }

    def default_path(self) -> list[float]:
        return [0.1, 1.0, 10.0]


def _prepare(samples: Samples, fit_intercept: bool) -> tuple[Centred, Vectors]:
    """Return centred rows and the length of every column, or 1 for a column of zeros."""
    rows = centre(samples, fit_intercept)
    squares = rows.x.square().sum(dim=1)
    doubtful = find_doubtful(squares, rows.x_mean)
    if len(doubtful):
        recentre(samples, rows, doubtful, fit_intercept)
        squares[doubtful] = rows.x[doubtful].square().sum(dim=1)
    return rows, torch.where(squares > 0, squares, 1.0).sqrt()


def _solve(
    rows: Centred, scale: Vectors, penalty: Float[Tensor, " problems"], tolerance: float
) -> Answers:
    """Minimise ½‖y − Xw‖² + ½ penalty ‖w‖² for every problem."""
    x = rows.x / scale.unsqueeze(1)  # every column has length 1
    diagonal = penalty.unsqueeze(-1) / scale.square()
    gram = x.mT @ x
    gram.diagonal(dim1=-2, dim2=-1).add_(diagonal)
    factor, failed = torch.linalg.cholesky_ex(gram)
    pivots = factor.diagonal(dim1=-2, dim2=-1)
    # A large penalty on a small column makes its pivot large, but does not worsen the conditioning.
    pivots = pivots / (1 + diagonal).sqrt()
    safe = (failed == 0) & (pivots.amin(dim=-1) > SAFE_RATIO * pivots.amax(dim=-1))
    weights = torch.zeros_like(diagonal)
    if bool(safe.any()):
        every = bool(safe.all())
        x_, y, diagonal_, factor_ = (
            part if every else part[safe] for part in (x, rows.y, diagonal, factor)
        )
        solved = torch.zeros_like(diagonal_)
        for _ in range(2):  # the second solve corrects the rounding errors of the first
            residual = y - (x_ @ solved.unsqueeze(-1)).squeeze(-1)
            gradient = (x_.mT @ residual.unsqueeze(-1)).squeeze(-1) - diagonal_ * solved
            solved = solved + torch.cholesky_solve(gradient.unsqueeze(-1), factor_).squeeze(-1)
        weights[safe] = solved / (scale if every else scale[safe])
    if not bool(safe.all()):
        unsafe = (~safe).nonzero().squeeze(-1)
        weights[unsafe] = _solve_singular(rows.x[unsafe], rows.y[unsafe], penalty[unsafe].sqrt())
        relative = _measure(rows.x, rows.y, scale, weights, penalty)[1]
        # gelsd ignores columns that are far smaller than others. If that happened, solve again
        # with columns of length 1.
        unsafe = unsafe[~(relative[unsafe] <= tolerance)]
        if len(unsafe):
            root = diagonal[unsafe].sqrt()
            weights[unsafe] = _solve_singular(x[unsafe], rows.y[unsafe], root) / scale[unsafe]
    gradient, relative = _measure(rows.x, rows.y, scale, weights, penalty)
    converged: Bool[Tensor, " problems"] = relative <= tolerance
    return {
        "coef": weights,
        "intercept": intercepts(weights, rows.x_mean, rows.y_mean),
        "optimality": gradient,
        "converged": converged,
        "steps": torch.ones_like(converged, dtype=torch.int64),
    }


def _solve_singular(
    x: Float[Tensor, "problems n d"],
    y: Float[Tensor, "problems n"],
    root: Tensor,
) -> Vectors:
    """Minimise ‖y − Xw‖² + ‖root · w‖² by gelsd; if several w are minimal, return the shortest.

    `root` has one entry per problem, or one per problem and column. It is appended to the rows as a
    diagonal matrix, with labels of 0.
    """
    d = x.shape[-1]
    penalty_rows = torch.diag_embed(root.reshape(len(x), -1).expand(-1, d))
    augmented = torch.cat([x, penalty_rows], dim=1).cpu()
    padded_labels = torch.cat([y, y.new_zeros(len(y), d)], dim=1).unsqueeze(-1).cpu()
    return (
        torch.linalg.lstsq(augmented, padded_labels, driver="gelsd")
        .solution.squeeze(-1)
        .to(x.device)
    )


def _measure(
    x: Float[Tensor, "problems n d"],
    y: Float[Tensor, "problems n"],
    scale: Vectors,
    weights: Vectors,
    penalty: Float[Tensor, " problems"],
) -> tuple[Tensor, Tensor]:
    """Return the norm of the gradient, and its largest entry relative to the terms of its sum.

    Each entry is divided by the length of its column, so that small columns count as much as large.
    """
    residual = y - (x @ weights.unsqueeze(-1)).squeeze(-1)
    shrinkage = penalty.unsqueeze(-1) * weights
    gradient = (x.mT @ residual.unsqueeze(-1)).squeeze(-1) - shrinkage
    # Rounding errors grow with the labels, and with the terms of the prediction that cancel.
    terms = norms(y) + (scale * weights).abs().amax(dim=-1) * ROUNDING_SHARE
    sizes = scale * terms.unsqueeze(-1) + shrinkage.abs()
    shares = torch.where(gradient == 0, 0.0, gradient.abs() / sizes)
    return norms(gradient), shares.amax(dim=-1)
