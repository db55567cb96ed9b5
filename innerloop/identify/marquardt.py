"""Least squares that are not linear, by the method of Levenberg and Marquardt.

    (JᵀJ + μ diag JᵀJ) δ = Jᵀr,   θ ← θ − δ,   μ smaller when ‖r‖ fell, larger when it did not

Poor fits are not polished: it ends as soon as a step gains little.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

ITERATIONS, REFUSALS = 10, 6
"""Steps that are taken at most, and how often one may be shortened."""
PERFECT, SETTLED = 1e-13, 0.02
"""A cost so small is as good as 0; the method ends when the cost falls by less than this share."""


def least_squares(
    residual: Callable[[Tensor, bool], tuple[Tensor, Tensor | None] | None],
    start: Float[Tensor, " numbers"],
    iterations: int = ITERATIONS,
) -> Float[Tensor, " numbers"]:
    """Minimise ‖r(θ)‖² from `start`.

    `residual(θ, slopes)` gives r and, if asked, J; None where θ is not allowed.
    """
    numbers, damping = start, 1e-4
    found = residual(numbers, True)
    for _ in range(iterations):
        if found is None or not bool(torch.isfinite(found[0]).all()):
            return numbers
        r, jacobian = found
        assert jacobian is not None
        cost, normal, pull = float(r @ r), jacobian.mT @ jacobian, jacobian.mT @ r
        if cost < PERFECT or not bool(torch.isfinite(normal).all()):
            return numbers
        diagonal = normal.diagonal()
        diagonal = diagonal.clamp_min(1e-14 * float(diagonal.max()) + 1e-300)
        for _ in range(REFUSALS):
            step = torch.linalg.solve(normal + torch.diag(damping * diagonal), pull)
            trial = residual(numbers - step, False)
            reached = torch.inf if trial is None else float(trial[0] @ trial[0])
            if reached < cost:
                break
            damping *= 10
        else:
            return numbers
        numbers, damping = numbers - step, max(damping / 10, 1e-12)
        if cost - reached < SETTLED * cost:
            return numbers
        found = residual(numbers, True)
    return numbers
