"""Huber regression with its scale, as scikit-learn's HuberRegressor: damped Newton steps, batched.

    minimise over w, b, σ > 0:   nσ + Σᵢ σ H((yᵢ − ⟨w, xᵢ⟩ − b)/σ) + α‖w‖²
    H(z) = z² for |z| ≤ ε, 2ε|z| − ε² beyond

The objective is convex in (w, b, σ) together. Rows within ε count as a square over σ, whose Hessian
is 2/σ u uᵀ with u = (x, 1, residual/σ); the others are linear. Each Newton step is halved until the
objective falls enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.solving.base import Answers, PenalisedSolver, check_positive
from innerloop.solving.data import Samples
from innerloop.solving.quadratic import centre_carefully, check_underflow, find_doubtful

HALVINGS = 30
"""A Newton step is halved at most this often."""
LEAST_SHARE = 1e-12
"""σ stays above this share of the labels' spread: exact fits have none."""
Points = Float[Tensor, "problems size"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Huber(PenalisedSolver):
    """Huber regression; `epsilon` is where residuals over the scale stop being squared."""

    measure: ClassVar[str] = "norm of the gradient of the mean loss, over the scale"
    default_penalty: ClassVar[float] = 1e-4

    epsilon: float = 1.35
    max_steps: int = 200

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon, 1.0)

    def solve_path(
        self, samples: Samples, penalties: Float[Tensor, "problems path"], tolerance: float
    ) -> Answers:
        if penalties.shape[1] != 1:
            raise InputError("huber takes one penalty: call it once for each")
        batch = _Standardised.from_samples(samples, self.fit_intercept, penalties[:, 0])
        point, gradients, steps = batch.minimise(self.epsilon, tolerance, self.max_steps)
        weights, intercept, scale = batch.restore(point)
        return {
            "coef": weights.unsqueeze(1),
            "intercept": intercept.unsqueeze(1),
            "scale": scale.unsqueeze(1),
            "optimality": gradients.unsqueeze(1),
            "converged": (gradients <= tolerance).unsqueeze(1),
            "steps": steps.unsqueeze(1),
        }


@dataclass(frozen=True, eq=False)
class _Standardised:
    """Rows of length about 1 with a last column of ones, labels of spread 1, and how they were."""

    x: Float[Tensor, "problems n free"]
    y: Float[Tensor, "problems n"]
    weight: Float[Tensor, "problems n"]
    penalty: Float[Tensor, "problems free"]
    x_mean: Float[Tensor, "problems d"]
    x_scale: Float[Tensor, "problems d"]
    y_mean: Float[Tensor, " problems"]
    y_scale: Float[Tensor, " problems"]
    fit_intercept: bool

    @classmethod
    def from_samples(cls, samples: Samples, fit_intercept: bool, penalty: Tensor) -> _Standardised:
        x, y = samples.x, samples.labels
        check_underflow(samples)
        x_mean, y_mean = torch.zeros_like(x[:, 0]), torch.zeros_like(y[:, 0])
        if fit_intercept:
            x_mean, y_mean = samples.average(x), samples.average(y)
        x, y = x - x_mean.unsqueeze(1), y - y_mean.unsqueeze(1)
        doubtful = find_doubtful(samples.average(x.square()), x_mean)
        if len(doubtful) and fit_intercept:
            x[doubtful], x_mean[doubtful] = centre_carefully(samples.select(doubtful))
        x_scale = samples.average(x.square()).sqrt()
        x_scale = torch.where(x_scale > 0, x_scale, 1.0)
        y_scale = samples.average(y.square()).sqrt()
        # Labels that are all the same have no spread: their size takes its place.
        y_size = samples.labels.abs().amax(dim=-1)
        y_scale = torch.where(y_scale > 0, y_scale, torch.where(y_size > 0, y_size, 1.0))
        x, y = x / x_scale.unsqueeze(1), y / y_scale.unsqueeze(-1)
        # α‖w‖² over the labels' scale, for w = v · y_scale / x_scale, per row.
        shares = (penalty * y_scale / samples.totals).unsqueeze(-1) / x_scale.square()
        if fit_intercept:
            x = torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)
            shares = torch.cat([shares, torch.zeros_like(shares[:, :1])], dim=-1)
        weight = samples.weights / samples.totals.unsqueeze(-1)
        return cls(x, y, weight, shares, x_mean, x_scale, y_mean, y_scale, fit_intercept)

    def restore(self, point: Points) -> tuple[Tensor, Tensor, Tensor]:
        """Return weights, intercept and scale for the data as they were."""
        weights = point[:, : self.x_scale.shape[1]] * self.y_scale.unsqueeze(-1) / self.x_scale
        own = point[:, -2] * self.y_scale if self.fit_intercept else 0.0
        intercept = self.y_mean + own - (weights * self.x_mean).sum(dim=-1)
        return weights, intercept, point[:, -1] * self.y_scale

    def minimise(
        self, epsilon: float, tolerance: float, max_steps: int
    ) -> tuple[Points, Tensor, Tensor]:
        """Take Newton steps from the zero weights until the gradient is small."""
        point = self.x.new_zeros(len(self.x), self.x.shape[2] + 1)
        point[:, -1] = 1.0
        steps = torch.zeros(len(point), dtype=torch.int64, device=point.device)
        loss, gradient, hessian = self._differentiate(point, epsilon)
        for _ in range(max_steps):
            active = _measure(point, loss, gradient) > tolerance
            if not bool(active.any()):
                break
            steps += active
            step = _newton_step(point, gradient, hessian)
            point = self._search(point, step, loss, gradient, epsilon, active)
            loss, gradient, hessian = self._differentiate(point, epsilon)
        return point, _measure(point, loss, gradient), steps

    def _residuals(self, point: Points) -> Float[Tensor, "problems n"]:
        return self.y - (self.x @ point[:, :-1].unsqueeze(-1)).squeeze(-1)

    def _loss(self, point: Points, epsilon: float) -> Float[Tensor, " problems"]:
        residual, scale = self._residuals(point), point[:, -1:]
        size = residual.abs()
        inside = size <= epsilon * scale
        rows = torch.where(
            inside, residual.square() / scale, 2 * epsilon * size - epsilon**2 * scale
        )
        penalty = (self.penalty * point[:, :-1].square()).sum(dim=-1)
        return point[:, -1] + (self.weight * rows).sum(dim=-1) + penalty

    def _differentiate(self, point: Points, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
        residual, scale = self._residuals(point), point[:, -1:]
        inside = residual.abs() <= epsilon * scale
        share = residual / scale
        pull = torch.where(inside, 2 * share, 2 * epsilon * residual.sign()) * self.weight
        by_weights = -(self.x.mT @ pull.unsqueeze(-1)).squeeze(-1)
        by_weights = by_weights + 2 * self.penalty * point[:, :-1]
        square = torch.where(inside, share.square(), epsilon**2) * self.weight
        gradient = torch.cat([by_weights, 1 - square.sum(dim=-1, keepdim=True)], dim=-1)
        u = torch.cat([self.x, share.unsqueeze(-1)], dim=-1)
        weights = (2 / scale * inside * self.weight).unsqueeze(-1)
        hessian = u.mT @ (weights * u)
        hessian.diagonal(dim1=-2, dim2=-1)[:, :-1].add_(2 * self.penalty)
        return self._loss(point, epsilon), gradient, hessian

    def _search(
        self,
        point: Points,
        step: Points,
        loss: Tensor,
        gradient: Points,
        epsilon: float,
        active: Tensor,
    ) -> Points:
        """Halve each problem's step until its loss falls by a share of what the slope promises."""
        slope = (gradient * step).sum(dim=-1)
        # σ falls to a tenth at most: a step that was cut off at 0 would point elsewhere.
        fall = (-step[:, -1] / (0.9 * point[:, -1])).clamp_min(1.0)
        length = active.to(point.dtype) / fall
        waiting = active.clone()
        for _ in range(HALVINGS):
            trial = _clamp_scale(point + length.unsqueeze(-1) * step)
            enough = self._loss(trial, epsilon) <= loss + 1e-4 * length * slope + 1e-15 * loss.abs()
            waiting = waiting & ~enough
            if not bool(waiting.any()):
                break
            length = torch.where(waiting, length / 2, length)
        return torch.where(
            waiting.unsqueeze(-1), point, _clamp_scale(point + length.unsqueeze(-1) * step)
        )


def _newton_step(point: Points, gradient: Points, hessian: Tensor) -> Points:
    """−H⁻¹g, with a little on the diagonal: rows beyond ε leave H singular."""
    own = hessian.diagonal(dim1=-2, dim2=-1)
    little = 1e-10 * own.amax(dim=-1).clamp_min(1e-8)
    damped = hessian + little[:, None, None] * torch.eye(
        hessian.shape[-1], dtype=hessian.dtype, device=hessian.device
    )
    solved, _ = torch.linalg.solve_ex(damped, -gradient)
    falls = (solved * gradient).sum(dim=-1) < 0
    return torch.where(falls.unsqueeze(-1) & solved.isfinite(), solved, -gradient)


def _clamp_scale(point: Points) -> Points:
    """Keep σ, the last entry, at its least value or above."""
    return torch.cat([point[:, :-1], point[:, -1:].clamp_min(LEAST_SHARE)], dim=-1)


def _measure(point: Points, loss: Tensor, gradient: Points) -> Float[Tensor, " problems"]:
    """The norm of the gradient without what pushes σ below its least value, or the loss if smaller.

    The loss cannot be negative: near 0, as exact fits make it, it is within itself of the least.
    """
    at_end = (point[:, -1] <= LEAST_SHARE) & (gradient[:, -1] > 0)
    own = torch.where(at_end, 0.0, gradient[:, -1])
    size = (gradient[:, :-1].square().sum(dim=-1) + own.square()).sqrt()
    return torch.minimum(size, loss)
