"""Theorem A.11: gradient dominance with power (2L − 1)/L, with the appendix' threshold.

Printed    Σ* = I: any A with L(A, 0) ≥ 2(4δ)^{2L} has ‖∇_A L(A, 0)‖² ≥ (1/16) L(A, 0)^{(2L−1)/L}
Tested     both forms of L(A, 0), see `landscape`: symmetric A (diagonals, by rotation) from the
           threshold out to a million times it, dense A, and a search for the least ratio, d ≤ 3,
           L ≤ 3, n from d + 1 to 10^12; multiples of the identity in fractions, for d of any size
Correction the d of the proof's Hölder inequality is missing. At A = 0 the loss is d and the
           gradient −2L I, so that 4L²d ≥ d^{(2L−1)/L}/16 ends at d^{(L−1)/L} = 64L²: L = 2,
           d = 65 537, n = 2^28; ‖∇L‖² ≥ (1/16) d^{−(L−1)/L} L(A, 0)^{(2L−1)/L} holds
Note       the threshold is 16L·16^L d/√n; Theorem 3.4 prints 16L·4^L d/√n. With one loop nothing is
           missing
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.gatmiry2024.landscape import FORMS, Loss, delta, directions, identity, reach
from innerloop.claims.prompts import normal
from innerloop.claims.trials import Inequality, search
from innerloop.theory.looped import Looped, isotropic_loss

Factor = Callable[[int, int], float]
"""What a correction puts beside 1/16, from d and L."""
SIZES = [[1, 1], [2, 1], [1, 2], [2, 2], [2, 3]]


def hoelder(d: int, L: int) -> float:
    return d ** (-(L - 1) / L)


def squared(law: Looped, B: Tensor, loss: Loss) -> tuple[Tensor, Tensor]:
    """L and ‖∇L‖² of every matrix of a batch."""
    at = B.detach().clone().requires_grad_()
    value = loss(law, at)
    (slope,) = torch.autograd.grad(value.sum(), at)
    return value.detach(), (slope**2).sum((-2, -1))


def outwards(
    generator: torch.Generator, law: Looped, loss: Loss, level: float, extra: int
) -> Tensor:
    """Symmetric matrices and, for the loss itself, any, whose loss is `level` or a little more."""
    along = directions(generator, law.d, extra)
    if loss is Looped.loss:
        drawn = normal(generator, extra + 1, law.d, law.d)
        along = torch.cat([along, drawn / torch.linalg.matrix_norm(drawn, 2)[:, None, None]])
    start = (1 - law.scalar()) * identity(law.d)

    def inside(t: Tensor) -> Tensor:
        return loss(law, start + t[:, None, None] * along) < level

    t = reach(inside, level ** (1 / (2 * law.loops)), len(along)) * (1 + 1e-6)
    return start + t[:, None, None] * along


@claim(
    "gatmiry2024.theorem-A.11",
    "From a loss of 2(4δ)^{2L} on, the squared gradient is at least a sixteenth of the loss to the "
    "power (2L − 1)/L.",
    where="Appendix A.1, Theorem A.11",
    kind="inequality",
    quick={"sizes": SIZES, "extra": 6, "searches": 3},
    full={"sizes": [*SIZES, [3, 2]], "extra": 60, "searches": 20},
    tiny={"sizes": [[1, 1], [2, 2]], "extra": 1, "searches": 1},
    falsified={
        "a thousand times the factor": {"factor": lambda d, L: 1000 * hoelder(d, L)},
        "the power 2": {"power": lambda L: 2.0},
    },
)
def theorem_a_11(
    generator: torch.Generator,
    *,
    sizes: list[list[int]],
    extra: int,
    searches: int,
    factor: Factor = hoelder,
    power: Callable[[int], float] = lambda L: (2 * L - 1) / L,
) -> Evidence:
    parts = []
    for name, loss in FORMS.items():
        printed = Inequality(f"‖∇L‖² ≥ L^{{(2L−1)/L}}/16, L {name}")
        right = Inequality(f"‖∇L‖² ≥ d^{{−(L−1)/L}} L^{{(2L−1)/L}}/16, L {name}")
        both: list[tuple[Inequality, Factor]] = [(printed, lambda d, L: 1.0), (right, factor)]
        for d, L in sizes:
            for n in (d + 1, 10**4, 10**12):
                law = Looped(d, n, L)
                threshold = 2 * (4 * delta(L, d, n)) ** (2 * L)
                about = f"d = {d}, L = {L}, n = {n}"
                for times in (1, 100, 1e6):
                    B = outwards(generator, law, loss, threshold * times, extra)
                    for value, slope in zip(*squared(law, B, loss), strict=True):
                        for trial, of in both:
                            left = of(d, L) * value ** power(L) / 16
                            trial.add(left, slope, size=(d, L, n), about=about)
        if loss is Looped.loss:
            _searched(generator, searches, both, power)
        _isotropic(both, power)
        parts.append(Part(printed=printed.check(), corrected=right.check()))
    return Evidence(parts=parts, numbers=_first())


def _isotropic(both: list[tuple[Inequality, Factor]], power: Callable[[int], float]) -> None:
    """A = aI, where L and ∇L are fractions: ∇L = (dL/da)/d · I."""
    for d, L, a in ((65_537, 2, 0), (65_537, 2, 3), (10_120, 5, 0), (10**6, 3, -1), (50, 4, 0)):
        n = (16 * L * 16**L) ** 2 * 4
        value = float(isotropic_loss(d, n, L, Fraction(a)))
        slope = float(isotropic_loss(d, n, L, Fraction(a), 1)) ** 2 / d
        if value < 2 * (4 * delta(L, d, n)) ** (2 * L):
            raise ValueError(f"below the threshold: d = {d}, L = {L}, n = {n}")
        about = f"A = {a}·I, d = {d}, L = {L}, n = {n}, loss {value:.6g}, ‖∇L‖² = {slope:.7g}"
        for trial, of in both:
            left = of(d, L) * value ** power(L) / 16
            trial.add(left, slope, size=(d, L, n), about=about)


def _searched(
    generator: torch.Generator,
    searches: int,
    both: list[tuple[Inequality, Factor]],
    power: Callable[[int], float],
) -> None:
    """The least log ratio over all B above the threshold, d = L = 2."""
    law = Looped(2, 10**8, 2)
    threshold = 2 * (4 * delta(2, 2, law.n)) ** 4

    def margin(point: Tensor) -> Tensor:
        at = point.reshape(2, 2)
        value = law.loss(at)
        (slope,) = torch.autograd.grad(value, at, create_graph=True)
        short = torch.relu((threshold / value).log())
        return ((slope**2).sum() / value**1.5).log() + 1e3 * short**2

    starts = normal(generator, searches, 4) * 3
    point, _, evaluations = search(margin, starts, iterations=100)
    value, slope = squared(law, point.reshape(2, 2), Looped.loss)
    for trial, of in both:
        trial.looked = f"L-BFGS over all A at d = L = 2, {evaluations} evaluations"
        if value >= threshold:
            about = f"d = 2, L = 2, n = {law.n}, where a search ended, A = {point.tolist()}"
            left = of(2, 2) * value ** power(2) / 16
            trial.add(left, slope, size=(2, 2, law.n), about=about)


def _first() -> dict[str, float | int | str | bool | None]:
    """The largest d for which A = 0 satisfies the printed form."""
    return {
        f"largest d for which A = 0 satisfies it, L = {L}": int((64 * L * L) ** (L / (L - 1)))
        for L in (2, 3, 4, 5, 6)
    }
