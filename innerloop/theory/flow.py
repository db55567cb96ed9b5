"""Gradient flow on an exact loss, dθ/dt = −∇L(θ), as an ordinary differential equation.

Setting    the in-context loss L(A, u) of a looped block, x ~ N(0, Σ*), w* ~ N(0, Σ*⁻¹): whitened,
           B = Σ*^½ A Σ*^½ and v = Σ*^½ u, it is `Looped.loss(B, v)`, and ∇_A L = Σ*^½ ∇_B L Σ*^½
Integrator scipy's, with adaptive steps; gradients by autograd. Losses of a batch do not meet, so
           that one integration serves all its members
Isotropic  Σ* = I: A = aI stays one, da/dt = −(1/d) dL/da, a polynomial known in fractions; so d is
           of any size
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
from innerloop.theory.looped import Looped, isotropic_loss

Loss = Callable[[Tensor], Tensor]
"""A differentiable loss; what its result keeps of the shape of its argument is a batch."""
MOST_EVALUATIONS = 50_000
"""A flow that takes more gradients has no end, or an integrator that does not suit it."""
Method = Literal["RK45", "DOP853", "Radau", "BDF", "LSODA"]


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Where the flow is at each of the times asked for, and the loss there."""

    times: Float[Tensor, " times"]
    points: Float[Tensor, "times ..."]
    losses: Float[Tensor, "times ..."]
    evaluations: int
    """Of the gradient."""

    def rows(self) -> list[dict[str, float | int]]:
        """Tidy: a row for each time and member of the batch."""
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
    """Integrate from `start` at time 0 through increasing times, to tolerances of a step's error.

    `LSODA` changes to an implicit method where the loss is far steeper one way than another.
    """
    shape = start.shape

    def slope(point: np.ndarray) -> np.ndarray:
        at = torch.from_numpy(point.copy()).reshape(shape).requires_grad_()
        (found,) = torch.autograd.grad(loss(at).sum(), at)
        return found.flatten().numpy()

    path, evaluations = _integrated(
        slope, start.detach().double().flatten().numpy(), times, rtol, atol, method
    )
    points = torch.from_numpy(path).reshape(len(times), *shape)
    losses = torch.stack([loss(point).detach() for point in points])
    return Trajectory(times, points, losses, evaluations)


def _integrated(
    slope: Callable[[np.ndarray], np.ndarray],
    start: np.ndarray,
    times: Tensor,
    rtol: float,
    atol: float,
    method: Method,
) -> tuple[np.ndarray, int]:
    """The points at the times, in rows, and how many gradients that took."""
    asked = times.detach().double().numpy()
    if len(asked) == 0 or asked[0] < 0 or (np.diff(asked) <= 0).any():
        raise InputError(f"expected increasing times from 0 on, got {asked.tolist()}")
    if not np.isfinite(start).all():
        raise InputError("expected a start of finite numbers")
    until, evaluations, latest = float(asked[-1]), 0, 0.0

    def stopped(why: str) -> InputError:
        return InputError(
            f"the gradient flow stopped at t = {latest:.4g} of {until:.4g}: {why}; start closer to "
            "the minimum, ask for less time or for another method"
        )

    def downhill(time: float, point: np.ndarray) -> np.ndarray:
        nonlocal evaluations, latest
        evaluations, latest = evaluations + 1, time
        found = slope(point)
        if not np.isfinite(found).all():
            raise stopped("the gradient is not finite")
        if evaluations > MOST_EVALUATIONS:
            raise stopped(f"more than {MOST_EVALUATIONS} gradients")
        return -found

    found = solve_ivp(downhill, (0.0, until), start, method, asked, rtol=rtol, atol=atol)
    if not found.success:
        raise stopped(found.message)
    return found.y.T.copy(), evaluations


def looped_loss(law: Looped, covariance: Float[Tensor, "d d"]) -> Loss:
    """L of weights in plain coordinates: A (…, d, d), or A above the row uᵀ (…, d + 1, d)."""
    d = law.d
    if covariance.shape != (d, d):
        raise InputError(f"expected a {d}×{d} covariance, got {tuple(covariance.shape)}")
    values, U = torch.linalg.eigh(covariance.double())
    if not bool((values > 0).all()) or not torch.allclose(covariance, covariance.mT):
        raise InputError("expected a symmetric covariance whose eigenvalues are positive")
    root = U * values.sqrt() @ U.mT

    def loss(weights: Tensor) -> Tensor:
        if weights.shape[-2:] not in ((d, d), (d + 1, d)):
            raise InputError(
                f"expected A of {d}×{d}, with u as one more row or without, got "
                f"{tuple(weights.shape)}"
            )
        B = root @ weights[..., :d, :] @ root
        v = weights[..., d, :] @ root if weights.shape[-2] > d else None
        return law.loss(B, v)

    return loss


def isotropic_flow(
    d: int, n: int, loops: int, start: float, times: Float[Tensor, " times"]
) -> Trajectory:
    """a and the loss along the flow of A = aI, Σ* = I, u = 0, in any dimension."""
    if d < 1 or n < 1 or loops < 1:
        raise InputError(f"expected d, n and loops ≥ 1, got {d}, {n} and {loops}")
    # By Taylor around a = 1, where the loss is small: no digits are lost however large n is.
    share = Polynomial(
        [
            float(isotropic_loss(d, n, loops, Fraction(1), k) * (-1) ** k / (factorial(k) * d))
            for k in range(2 * loops + 1)
        ]
    )
    slope = share.deriv()
    # In c = 1 − a, which follows the slope of L/d as a does.
    first = np.array([1.0 - start])
    path, evaluations = _integrated(slope, first, times, 1e-8, 1e-10, "LSODA")
    losses = torch.from_numpy(d * share(path[:, 0]))
    return Trajectory(times, 1 - torch.from_numpy(path[:, 0]), losses, evaluations)
