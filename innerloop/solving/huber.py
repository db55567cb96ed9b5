"""Solve Huber regression with an unknown scale, with the conventions of scikit-learn.

    minimise over w, b, σ > 0:   nσ + Σᵢ σ H((yᵢ − ⟨w, xᵢ⟩ − b)/σ) + α‖w‖²
    H(z) = z² for |z| ≤ ε, 2ε|z| − ε² beyond

The objective is that of HuberRegressor, and convex in (w, b, σ) together. It is minimised by
damped Newton steps on a batch. A row with |residual| ≤ εσ contributes residual²/σ, whose Hessian is
2/σ u uᵀ with u = (x, 1, residual/σ). The contributions of the other rows are linear. Each Newton
step is halved until the objective falls enough.
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
"""The largest number of times that a Newton step is halved."""
LEAST_SHARE = 1e-12
"""The least σ, as a share of the labels' standard deviation; an exact fit would make σ = 0."""
Points = Float[Tensor, "problems size"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Huber(PenalisedSolver):
    """Solver of Huber regression; residuals up to `epsilon` times the scale are squared."""

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
    """A batch with columns and labels of standard deviation 1, and the means and scales to undo it.

    With an intercept, the last column of `x` holds ones. A point is (w, b, σ) of every problem.
    """

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
        """Centre and scale the rows and labels of a batch, and convert the penalty."""
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
        # Labels that are all the same have no spread: divide by their absolute value instead.
        y_size = samples.labels.abs().amax(dim=-1)
        y_scale = torch.where(y_scale > 0, y_scale, torch.where(y_size > 0, y_size, 1.0))
        x, y = x / x_scale.unsqueeze(1), y / y_scale.unsqueeze(-1)
        # The factor of v² in α‖w‖² / (n · y_scale), for w = v · y_scale / x_scale.
        shares = (penalty * y_scale / samples.totals).unsqueeze(-1) / x_scale.square()
        if fit_intercept:
            x = torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)
            shares = torch.cat([shares, torch.zeros_like(shares[:, :1])], dim=-1)
        weight = samples.weights / samples.totals.unsqueeze(-1)
        return cls(x, y, weight, shares, x_mean, x_scale, y_mean, y_scale, fit_intercept)

    def restore(self, point: Points) -> tuple[Tensor, Tensor, Tensor]:
        """Return weights, intercept and scale for the original data."""
        weights = point[:, : self.x_scale.shape[1]] * self.y_scale.unsqueeze(-1) / self.x_scale
        offset = point[:, -2] * self.y_scale if self.fit_intercept else 0.0
        intercept = self.y_mean + offset - (weights * self.x_mean).sum(dim=-1)
        return weights, intercept, point[:, -1] * self.y_scale

    def minimise(
        self, epsilon: float, tolerance: float, max_steps: int
    ) -> tuple[Points, Tensor, Tensor]:
        """Take Newton steps from zero weights until the gradient is small.

        Return the last point, its optimality measure and the number of steps.
        """
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
        """Return the objective divided by n and the labels' scale."""
        residual, scale = self._residuals(point), point[:, -1:]
        size = residual.abs()
        inside = size <= epsilon * scale
        rows = torch.where(
            inside, residual.square() / scale, 2 * epsilon * size - epsilon**2 * scale
        )
        penalty = (self.penalty * point[:, :-1].square()).sum(dim=-1)
        return point[:, -1] + (self.weight * rows).sum(dim=-1) + penalty

    def _differentiate(self, point: Points, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return the loss, its gradient and its Hessian."""
        residual, scale = self._residuals(point), point[:, -1:]
        inside = residual.abs() <= epsilon * scale
        share = residual / scale
        slopes = torch.where(inside, 2 * share, 2 * epsilon * residual.sign()) * self.weight
        by_weights = -(self.x.mT @ slopes.unsqueeze(-1)).squeeze(-1)
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
        """Halve each problem's step until its loss falls enough (Armijo's rule), and take it.

        "Enough" is 1e-4 of the fall that the gradient predicts. A problem whose loss does not fall
        stays where it is.
        """
        slope = (gradient * step).sum(dim=-1)
        # A step reduces σ to no less than a tenth. Clamping σ instead would change the direction.
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
    """Return −H⁻¹g, or −g if that is not a direction of descent.

    A small number is added to the diagonal of H, which is singular if too few rows are within ε.
    """
    curvatures = hessian.diagonal(dim1=-2, dim2=-1)
    damping = 1e-10 * curvatures.amax(dim=-1).clamp_min(1e-8)
    damped = hessian + damping[:, None, None] * torch.eye(
        hessian.shape[-1], dtype=hessian.dtype, device=hessian.device
    )
    solved, _ = torch.linalg.solve_ex(damped, -gradient)
    falls = (solved * gradient).sum(dim=-1) < 0
    return torch.where(falls.unsqueeze(-1) & solved.isfinite(), solved, -gradient)


def _clamp_scale(point: Points) -> Points:
    """Return the points with σ, their last entry, raised to its least value."""
    return torch.cat([point[:, :-1], point[:, -1:].clamp_min(LEAST_SHARE)], dim=-1)


def _measure(point: Points, loss: Tensor, gradient: Points) -> Float[Tensor, " problems"]:
    """Return the norm of the gradient, or the loss if that is smaller.

    The loss is never negative, so it exceeds its minimum by at most its own value. If σ has its
    least value and a step against the gradient would reduce it, the entry of σ is left out.
    """
    at_end = (point[:, -1] <= LEAST_SHARE) & (gradient[:, -1] > 0)
    by_scale = torch.where(at_end, 0.0, gradient[:, -1])
    size = (gradient[:, :-1].square().sum(dim=-1) + by_scale.square()).sqrt()
    return torch.minimum(size, loss)
