"""Gradient flow on an exact loss, dθ/dt = −∇L(θ), as an ordinary differential equation.

Setting    L(A, u) is the in-context loss of a looped block, with x ~ N(0, Σ*), w* ~ N(0, Σ*⁻¹). In
           whitened weights B = Σ*^½ A Σ*^½ and v = Σ*^½ u, it is `LoopedLoss.loss(B, v)`, and
           ∇_A L = Σ*^½ ∇_B L Σ*^½
Integrator SciPy's, with adaptive steps; autograd computes the gradients. Members of a batch do not
           interact, so a single integration handles all of them
Isotropic  with Σ* = I, an A of the form aI keeps this form, and da/dt = −(1/d) dL/da. L is then a
           polynomial with exact rational coefficients, for d of any size
Source     gatmiry2024, Theorem 3.3
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import factorial
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.polynomial import Polynomial
from scipy.integrate import solve_ivp
from torch import Tensor

from innerloop.errors import InputError
from innerloop.theory.looped import LoopedLoss, isotropic_loss

Loss = Callable[[Tensor], Tensor]
"""A differentiable loss; leading dimensions that argument and result share are a batch."""
MAX_EVALUATIONS = 50_000
"""Largest number of gradients; a flow that needs more diverges, or the method is unsuitable."""
Method = Literal["RK45", "DOP853", "Radau", "BDF", "LSODA"]


@dataclass(frozen=True, eq=False)
class Trajectory:
    """The points of a gradient flow at the requested times, and the losses there."""

    times: Float[Tensor, " times"]
    points: Float[Tensor, "times ..."]
    losses: Float[Tensor, "times ..."]
    evaluations: int
    """Number of gradient evaluations."""

    def as_rows(self) -> list[dict[str, float | int]]:
        """Return a tidy table: one row per time and member of the batch."""
        table = self.losses.reshape(len(self.times), -1)
        return [
            {"time": float(time), "member": k, "loss": float(loss)}
            for time, losses in zip(self.times, table, strict=True)
            for k, loss in enumerate(losses)
        ]


def gradient_flow(
    loss: Loss,
    start: Float[Tensor, "*shape"],
    times: Float[Tensor, " times"],
    *,
    rtol: float = 1e-8,
    atol: float = 1e-10,
    method: Method = "LSODA",
) -> Trajectory:
    """Integrate the gradient flow of a loss.

    Args:
        loss: The differentiable loss.
        start: The point at time 0.
        times: The times of the returned points, increasing and at least 0.
        rtol: Bound of the relative error of a step.
        atol: Bound of the absolute error of a step.
        method: A method of `scipy.integrate.solve_ivp`. `LSODA` uses an implicit method where
            the flow is stiff: if the loss is much steeper in one direction than in another.
    """
    shape = start.shape

    def slope(point: np.ndarray) -> np.ndarray:
        weights = torch.from_numpy(point.copy()).reshape(shape).requires_grad_()
        (gradient,) = torch.autograd.grad(loss(weights).sum(), weights)
        return gradient.flatten().numpy()

    path, evaluations = _integrate(
        slope, start.detach().double().flatten().numpy(), times, rtol, atol, method
    )
    points = torch.from_numpy(path).reshape(len(times), *shape)
    losses = torch.stack([loss(point).detach() for point in points])
    return Trajectory(times, points, losses, evaluations)


def _integrate(
    slope: Callable[[np.ndarray], np.ndarray],
    start: np.ndarray,
    times: Tensor,
    rtol: float,
    atol: float,
    method: Method,
) -> tuple[np.ndarray, int]:
    """Return the points at the times, in rows, and the number of gradient evaluations."""
    requested = times.detach().double().numpy()
    if len(requested) == 0 or requested[0] < 0 or (np.diff(requested) <= 0).any():
        raise InputError(
            f"expected increasing times, the first at least 0, got {requested.tolist()}"
        )
    if not np.isfinite(start).all():
        raise InputError("expected a start with finite entries, got NaN or infinity")
    until, evaluations, latest = float(requested[-1]), 0, 0.0

    def make_error(reason: str) -> InputError:
        return InputError(
            f"the gradient flow stopped at t = {latest:.4g} of {until:.4g}: {reason}; start closer "
            "to the minimum, or choose a shorter time or another method"
        )

    def descend(time: float, point: np.ndarray) -> np.ndarray:
        nonlocal evaluations, latest
        evaluations, latest = evaluations + 1, time
        gradient = slope(point)
        if not np.isfinite(gradient).all():
            raise make_error("the gradient is not finite")
        if evaluations > MAX_EVALUATIONS:
            raise make_error(f"more than {MAX_EVALUATIONS} gradients")
        return -gradient

    solution = solve_ivp(descend, (0.0, until), start, method, requested, rtol=rtol, atol=atol)
    if not solution.success:
        raise make_error(solution.message)
    return solution.y.T.copy(), evaluations


def unwhitened_loss(law: LoopedLoss, covariance: Float[Tensor, "d d"]) -> Loss:
    """Return the loss as a function of weights that are not whitened.

    Its argument is A, of shape (…, d, d), or A with uᵀ as a last row, of shape (…, d + 1, d).
    """
    d = law.d
    if covariance.shape != (d, d):
        raise InputError(f"expected a {d}×{d} covariance, got {tuple(covariance.shape)}")
    values, U = torch.linalg.eigh(covariance.double())
    if not bool((values > 0).all()) or not torch.allclose(covariance, covariance.mT):
        raise InputError("expected a symmetric covariance with positive eigenvalues")
    root = U * values.sqrt() @ U.mT

    def loss(weights: Tensor) -> Tensor:
        if weights.shape[-2:] not in ((d, d), (d + 1, d)):
            raise InputError(
                f"expected A of {d}×{d}, optionally with u as one more row, got "
                f"{tuple(weights.shape)}"
            )
        B = root @ weights[..., :d, :] @ root
        v = weights[..., d, :] @ root if weights.shape[-2] > d else None
        return law.loss(B, v)

    return loss


def isotropic_flow(
    d: int, n: int, loops: int, start: float, times: Float[Tensor, " times"]
) -> Trajectory:
    """Integrate the flow of a scalar a, where A = aI, Σ* = I and u = 0, in any dimension d."""
    if d < 1 or n < 1 or loops < 1:
        raise InputError(f"expected d, n and loops ≥ 1, got {d}, {n} and {loops}")
    # Expand around a = 1, where the loss is small: no digits are lost however large n is.
    loss_share = Polynomial(
        [
            float(isotropic_loss(d, n, loops, Fraction(1), k) * (-1) ** k / (factorial(k) * d))
            for k in range(2 * loops + 1)
        ]
    )
    slope = loss_share.deriv()
    # Integrate c = 1 − a, which follows the gradient flow of L/d as a does.
    first = np.array([1.0 - start])
    path, evaluations = _integrate(slope, first, times, 1e-8, 1e-10, "LSODA")
    losses = torch.from_numpy(d * loss_share(path[:, 0]))
    return Trajectory(times, 1 - torch.from_numpy(path[:, 0]), losses, evaluations)
