"""Nonlinear least squares by the Levenberg–Marquardt method.

    (JᵀJ + μ diag JᵀJ) δ = Jᵀr,   θ ← θ − δ,   μ smaller when ‖r‖ fell, larger when it did not

It ends as soon as a step gains little: poor fits are not worth polishing.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

MAX_ITERATIONS, MAX_REFUSALS = 10, 6
"""Largest number of steps, and how often each may be shortened."""
PERFECT_COST, MIN_GAIN = 1e-13, 0.02
"""A cost this small counts as 0; the method ends when the cost falls by less than this share."""


def minimise_squares(
    residual: Callable[[Tensor, bool], tuple[Tensor, Tensor | None] | None],
    start: Float[Tensor, " numbers"],
    iterations: int = MAX_ITERATIONS,
    gain: float = MIN_GAIN,
) -> Float[Tensor, " numbers"]:
    """Minimise ‖r(θ)‖² from `start`.

    `residual(θ, slopes)` returns r and, if `slopes`, J; None where θ is not allowed. It ends when
    the cost falls by less than the share `gain`.
    """
    numbers, damping = start, 1e-4
    for _ in range(iterations):
        found = residual(numbers, True)
        if found is None or not bool(torch.isfinite(found[0]).all()):
            return numbers
        r, jacobian = found
        assert jacobian is not None
        cost, normal, pull = float(r @ r), jacobian.mT @ jacobian, jacobian.mT @ r
        if cost < PERFECT_COST or not bool(torch.isfinite(normal).all()):
            return numbers
        diagonal = normal.diagonal()
        diagonal = diagonal.clamp_min(1e-14 * float(diagonal.max()) + 1e-300)
        for _ in range(MAX_REFUSALS):
            step = torch.linalg.solve(normal + torch.diag(damping * diagonal), pull)
            trial = residual(numbers - step, False)
            reached = torch.inf if trial is None else float(trial[0] @ trial[0])
            if reached < cost:
                break
            damping *= 10
        else:
            return numbers
        numbers, damping = numbers - step, max(damping / 10, 1e-12)
        if cost - reached < gain * cost or reached < PERFECT_COST:
            return numbers
    return numbers
