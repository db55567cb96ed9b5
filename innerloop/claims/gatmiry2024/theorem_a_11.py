"""Theorem A.11: gradient dominance with power (2L − 1)/L, with the appendix' threshold.

Printed    Σ* = I: any A with L(A, 0) ≥ 2(4δ)^{2L} has ‖∇_A L(A, 0)‖² ≥ (1/16) L(A, 0)^{(2L−1)/L}
Tested     both forms of L(A, 0), see `landscape`: symmetric A (diagonals, by rotation) from the
           threshold out to a million times it, dense A, and a search for the least ratio, d ≤ 3,
           L ≤ 3, n from d + 1 to 10^12; multiples of the identity in fractions, for d of any size
Correction the d of the proof's Hölder inequality is missing. At A = 0 the loss is d and the
           gradient −2L I, so that 4L²d ≥ d^{(2L−1)/L}/16 ends at d^{(L−1)/L} = 64L²: L = 2,
           d = 65 537, n = 2^28. And n > d alone leaves minimisers above the threshold, where the
           gradient is 0: L = 1, d = 2^18, n = d + 1, A = n/(n + d + 1) I has the loss d/2. For
           n ≥ d² ‖∇L‖² ≥ (1/16) d^{−(L−1)/L} L(A, 0)^{(2L−1)/L} holds
Note       the threshold is 2(4δ)^{2L} = 16L·16^L d/√n; Theorem 3.4 prints 2(2δ)^{2L} = 16L·4^L d/√n
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
Power = Callable[[int], float]
SIZES = [[1, 1], [2, 1], [1, 2], [2, 2], [2, 3]]


def hoelder(d: int, L: int) -> float:
    return d ** (-(L - 1) / L)


def stated(L: int) -> float:
    return (2 * L - 1) / L


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


@dataclass(frozen=True, eq=False)
class Dominance:
    """The printed form and the corrected one, from the loss 2(base·δ)^{2L} on."""

    printed: Inequality
    corrected: Inequality
    base: float
    factor: Factor
    power: Power

    def threshold(self, d: int, n: int, L: int) -> float:
        return 2 * (self.base * delta(L, d, n)) ** (2 * L)

    def add(self, value: float, slope: float, d: int, n: int, L: int, about: str) -> None:
        if value < self.threshold(d, n, L) * (1 - 1e-12):
            raise ValueError(f"below the threshold: {about}")
        self.printed.add(value ** stated(L) / 16, slope, size=(d, L, n), about=about)
        if n >= d * d:
            bound = self.factor(d, L) * value ** self.power(L) / 16
            self.corrected.add(bound, slope, size=(d, L, n), about=about)


def tested(
    generator: torch.Generator,
    base: float,
    sizes: list[list[int]],
    extra: int,
    searches: int,
    factor: Factor,
    power: Power,
) -> Evidence:
    """Both forms of L(A, 0), on matrices of all kinds above the threshold."""
    parts = []
    for name, loss in FORMS.items():
        printed = Inequality(f"‖∇L‖² ≥ L^{{(2L−1)/L}}/16, L {name}")
        right = Inequality(f"n ≥ d²: ‖∇L‖² ≥ d^{{−(L−1)/L}} L^{{(2L−1)/L}}/16, L {name}")
        both = Dominance(printed, right, base, factor, power)
        for d, L in sizes:
            for n in (d + 1, d * d + 1, 10**4, 10**12):
                law, threshold = Looped(d, n, L), both.threshold(d, n, L)
                about = f"d = {d}, L = {L}, n = {n}"
                for times in (1, 100, 1e6):
                    B = outwards(generator, law, loss, threshold * times, extra)
                    for value, slope in zip(*squared(law, B, loss), strict=True):
                        both.add(float(value), float(slope), d, n, L, about)
        if loss is Looped.loss:
            _searched(generator, searches, both)
        _isotropic(both)
        parts.append(Part(printed=printed.check(), corrected=right.check(), matters="result"))
    return Evidence(parts=parts, numbers=_first())


def _isotropic(both: Dominance) -> None:
    """A = aI, where L and ∇L are fractions: ∇L = (dL/da)/d · I."""
    many = int(1024 * both.base**4)
    least = Fraction(many + 1, 2 * many + 2)  # n/(n + d + 1), the minimum of one loop
    cases = [(many, many + 1, 1, least), (many, many**2, 1, Fraction(0))]
    for d, L, a in ((65_537, 2, 0), (65_537, 2, 3), (10_120, 5, 0), (10**6, 3, -1), (50, 4, 0)):
        cases.append((d, max(d * d, (16 * L * 16**L) ** 2 * 4), L, Fraction(a)))
    for d, n, L, a in cases:
        value = float(isotropic_loss(d, n, L, a))
        slope = float(isotropic_loss(d, n, L, a, 1)) ** 2 / d
        about = f"A = {a}·I, d = {d}, L = {L}, n = {n}, loss {value:.6g}, ‖∇L‖² = {slope:.7g}"
        both.add(value, slope, d, n, L, about)


def _searched(generator: torch.Generator, searches: int, both: Dominance) -> None:
    """The least log ratio over all B above the threshold, d = L = 2."""
    law = Looped(2, 10**8, 2)
    threshold = both.threshold(2, law.n, 2)

    def margin(point: Tensor) -> Tensor:
        at = point.reshape(2, 2)
        value = law.loss(at)
        (slope,) = torch.autograd.grad(value, at, create_graph=True)
        short = torch.relu((threshold / value).log())
        return ((slope**2).sum() / value**1.5).log() + 1e3 * short**2

    starts = normal(generator, searches, 4) * 3
    point, _, evaluations = search(margin, starts, iterations=100)
    value, slope = squared(law, point.reshape(2, 2), Looped.loss)
    for trial in (both.printed, both.corrected):
        trial.looked = f"L-BFGS over all A at d = L = 2, {evaluations} evaluations"
    if value >= threshold:
        about = f"d = 2, L = 2, n = {law.n}, where a search ended, A = {point.tolist()}"
        both.add(float(value), float(slope), 2, law.n, 2, about)


def _first() -> dict[str, float | int | str | bool | None]:
    """The largest d for which A = 0 satisfies the printed form."""
    return {
        f"largest d for which A = 0 satisfies it, L = {L}": int((64 * L * L) ** (L / (L - 1)))
        for L in (2, 3, 4, 5, 6)
    }


FALSIFIED = {
    "a thousand times the factor": {"factor": lambda d, L: 1000 * hoelder(d, L)},
    "the power 2": {"power": lambda L: 2.0},
}


@claim(
    "gatmiry2024.theorem-A.11",
    "From a loss of 2(4δ)^{2L} on, the squared gradient is at least a sixteenth of the loss to the "
    "power (2L − 1)/L.",
    where="Appendix A.1, Theorem A.11",
    kind="inequality",
    quick={"sizes": SIZES, "extra": 6, "searches": 3},
    full={"sizes": [*SIZES, [3, 2]], "extra": 60, "searches": 20},
    tiny={"sizes": [[1, 1], [2, 2]], "extra": 1, "searches": 1},
    falsified=FALSIFIED,
)
def theorem_a_11(
    generator: torch.Generator,
    *,
    sizes: list[list[int]],
    extra: int,
    searches: int,
    factor: Factor = hoelder,
    power: Power = stated,
) -> Evidence:
    return tested(generator, 4.0, sizes, extra, searches, factor, power)
