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
"""Pivots of a Cholesky factor that differ by more than this: the rows are solved instead."""


ROUNDING_SHARE = 1e-7
"""Terms that cancel leave this share of their rounding, where the tolerance is 1e-8."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LeastSquares(Solver):
    """Ordinary least squares."""

    measure: ClassVar[str] = "norm of the gradient of ½ mean residual²"

    fit_intercept: bool = True

    def solve(self, samples: Samples, tolerance: float) -> Answers:
        rows, scale = _prepare(samples, self.fit_intercept)
        nothing = rows.x.new_zeros(len(rows.x))
        return _solve(rows, scale, nothing, tolerance)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ridge(PenalisedSolver):
    """Ridge regression; a penalty of 0 is least squares."""

    measure: ClassVar[str] = "norm of the gradient of ½ mean residual² + α/(2n) ‖w‖²"
    default_penalty: ClassVar[float] = 1.0

    def solve_path(
        self, samples: Samples, penalties: Float[Tensor, "problems path"], tolerance: float
    ) -> Answers:
        rows, scale = _prepare(samples, self.fit_intercept)
        shares = penalties / samples.totals.unsqueeze(-1)
        found = [_solve(rows, scale, share, tolerance) for share in shares.unbind(dim=-1)]
        return {name: torch.stack([each[name] for each in found], dim=1) for name in found[0]}

    def default_path(self) -> list[float]:
        return [0.1, 1.0, 10.0]


def _prepare(samples: Samples, fit_intercept: bool) -> tuple[Centred, Vectors]:
    """Centre the rows; return them and the length of every column, 1 for those that are 0."""
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
    x = rows.x / scale.unsqueeze(1)  # features of any scale: each has length 1
    diagonal = penalty.unsqueeze(-1) / scale.square()
    gram = x.mT @ x
    gram.diagonal(dim1=-2, dim2=-1).add_(diagonal)
    factor, failed = torch.linalg.cholesky_ex(gram)
    pivots = factor.diagonal(dim1=-2, dim2=-1)
    # A large penalty on a small column makes its pivot large, and the system no worse.
    pivots = pivots / (1 + diagonal).sqrt()
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
        left = (~safe).nonzero().squeeze(-1)
        weights[left] = _solve_singular(rows.x[left], rows.y[left], penalty[left].sqrt())
        excess = _measure(rows.x, rows.y, scale, weights, penalty)[1]
        # gelsd drops columns that are far smaller than others: it gets columns of one length then.
        left = left[~(excess[left] <= tolerance)]
        if len(left):
            root = diagonal[left].sqrt()
            weights[left] = _solve_singular(x[left], rows.y[left], root) / scale[left]
    pull, excess = _measure(rows.x, rows.y, scale, weights, penalty)
    converged: Bool[Tensor, " problems"] = excess <= tolerance
    return {
        "coef": weights,
        "intercept": intercepts(weights, rows.x_mean, rows.y_mean),
        "optimality": pull,
        "converged": converged,
        "steps": torch.ones_like(converged, dtype=torch.int64),
    }


def _solve_singular(
    x: Float[Tensor, "problems n d"],
    y: Float[Tensor, "problems n"],
    root: Tensor,
) -> Vectors:
    """Solve by gelsd, with a diagonal below the rows; the least norm where many fit.

    `root` has one entry per problem, or one per problem and column.
    """
    d = x.shape[-1]
    more = torch.diag_embed(root.reshape(len(x), -1).expand(-1, d))
    below = torch.cat([x, more], dim=1).cpu()
    right = torch.cat([y, y.new_zeros(len(y), d)], dim=1).unsqueeze(-1).cpu()
    return torch.linalg.lstsq(below, right, driver="gelsd").solution.squeeze(-1).to(x.device)


def _measure(
    x: Float[Tensor, "problems n d"],
    y: Float[Tensor, "problems n"],
    scale: Vectors,
    weights: Vectors,
    penalty: Float[Tensor, " problems"],
) -> tuple[Tensor, Tensor]:
    """Return the norm of the gradient, and its largest entry as a share of the terms it sums.

    Each column counts by its own length, so that a small one is not lost beside a large one.
    """
    residual = y - (x @ weights.unsqueeze(-1)).squeeze(-1)
    shrinkage = penalty.unsqueeze(-1) * weights
    pull = (x.mT @ residual.unsqueeze(-1)).squeeze(-1) - shrinkage
    # Rounding grows with the labels and the terms that cancel.
    terms = norms(y) + (scale * weights).abs().amax(dim=-1) * ROUNDING_SHARE
    sizes = scale * terms.unsqueeze(-1) + shrinkage.abs()
    shares = torch.where(pull == 0, 0.0, pull.abs() / sizes)
    return norms(pull), shares.amax(dim=-1)
