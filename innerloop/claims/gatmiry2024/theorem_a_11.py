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
from innerloop.claims.gatmiry2024.landscape import (
    FORMS,
    Loss,
    delta,
    draw_directions,
    farthest_within,
    identity,
)
from innerloop.claims.prompts import draw_normal
from innerloop.claims.searching import search_minimum
from innerloop.claims.trials import Inequality
from innerloop.theory.looped import LoopedLoss, isotropic_loss

Factor = Callable[[int, int], float]
"""Map d and L to the factor that a correction puts beside 1/16."""
Power = Callable[[int], float]
SIZES = [[1, 1], [2, 1], [1, 2], [2, 2], [2, 3]]


def hoelder_factor(d: int, L: int) -> float:
    return d ** (-(L - 1) / L)


def stated_power(L: int) -> float:
    return (2 * L - 1) / L


def loss_and_squared_gradient(law: LoopedLoss, B: Tensor, loss: Loss) -> tuple[Tensor, Tensor]:
    """Loss L and squared gradient norm ‖∇L‖² of every matrix of a batch."""
    at = B.detach().clone().requires_grad_()
    value = loss(law, at)
    (slope,) = torch.autograd.grad(value.sum(), at)
    return value.detach(), (slope**2).sum((-2, -1))


def draw_at_level(
    generator: torch.Generator, law: LoopedLoss, loss: Loss, level: float, extra: int
) -> Tensor:
    """Draw symmetric matrices (for the loss itself, any) whose loss is `level` or slightly more."""
    along = draw_directions(generator, law.d, extra)
    if loss is LoopedLoss.loss:
        drawn = draw_normal(generator, extra + 1, law.d, law.d)
        along = torch.cat([along, drawn / torch.linalg.matrix_norm(drawn, 2)[:, None, None]])
    start = (1 - law.minimum_deviation()) * identity(law.d)

    def inside(t: Tensor) -> Tensor:
        return loss(law, start + t[:, None, None] * along) < level

    t = farthest_within(inside, level ** (1 / (2 * law.loops)), len(along)) * (1 + 1e-6)
    return start + t[:, None, None] * along


@dataclass(frozen=True, eq=False)
class Dominance:
    """Trials of the printed and the corrected form, for losses of at least 2(base·δ)^{2L}."""

    printed: Inequality
    corrected: Inequality
    base: float
    factor: Factor
    power: Power

    def threshold(self, d: int, n: int, L: int) -> float:
        return 2 * (self.base * delta(L, d, n)) ** (2 * L)

    def add(self, value: float, slope: float, d: int, n: int, L: int, about: str) -> None:
        if value < self.threshold(d, n, L) * (1 - 1e-12):
            raise ValueError(f"the loss is below the theorem's threshold: {about}")
        self.printed.add(value ** stated_power(L) / 16, slope, size=(d, L, n), about=about)
        if n >= d * d:
            bound = self.factor(d, L) * value ** self.power(L) / 16
            self.corrected.add(bound, slope, size=(d, L, n), about=about)


def check_dominance(
    generator: torch.Generator,
    base: float,
    sizes: list[list[int]],
    extra: int,
    searches: int,
    factor: Factor,
    power: Power,
) -> Evidence:
    """Check both forms of L(A, 0) on matrices of all kinds above the threshold."""
    parts = []
    for name, loss in FORMS.items():
        printed = Inequality(f"‖∇L‖² ≥ L^{{(2L−1)/L}}/16, L {name}")
        right = Inequality(f"n ≥ d²: ‖∇L‖² ≥ d^{{−(L−1)/L}} L^{{(2L−1)/L}}/16, L {name}")
        both = Dominance(printed, right, base, factor, power)
        for d, L in sizes:
            for n in (d + 1, d * d + 1, 10**4, 10**12):
                law, threshold = LoopedLoss(d, n, L), both.threshold(d, n, L)
                about = f"d = {d}, L = {L}, n = {n}"
                for times in (1, 100, 1e6):
                    B = draw_at_level(generator, law, loss, threshold * times, extra)
                    for value, slope in zip(*loss_and_squared_gradient(law, B, loss), strict=True):
                        both.add(float(value), float(slope), d, n, L, about)
        if loss is LoopedLoss.loss:
            _search_violations(generator, searches, both)
        _isotropic(both)
        parts.append(Part(printed=printed.check(), corrected=right.check(), matters="result"))
    return Evidence(parts=parts, numbers=_largest_dimensions())


def _isotropic(both: Dominance) -> None:
    """Check A = aI, where L and ∇L are fractions: ∇L = (dL/da)/d · I."""
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


def _search_violations(generator: torch.Generator, searches: int, both: Dominance) -> None:
    """Search the least log ratio over all B above the threshold, d = L = 2."""
    law = LoopedLoss(2, 10**8, 2)
    threshold = both.threshold(2, law.n, 2)

    def margin(point: Tensor) -> Tensor:
        at = point.reshape(2, 2)
        value = law.loss(at)
        (slope,) = torch.autograd.grad(value, at, create_graph=True)
        short = torch.relu((threshold / value).log())
        return ((slope**2).sum() / value**1.5).log() + 1e3 * short**2

    starts = draw_normal(generator, searches, 4) * 3
    point, _, evaluations = search_minimum(margin, starts, iterations=100)
    value, slope = loss_and_squared_gradient(law, point.reshape(2, 2), LoopedLoss.loss)
    for trial in (both.printed, both.corrected):
        trial.search_note = f"L-BFGS over all A at d = L = 2, {evaluations} evaluations"
    if value >= threshold:
        about = f"d = 2, L = 2, n = {law.n}, where a search ended, A = {point.tolist()}"
        both.add(float(value), float(slope), 2, law.n, 2, about)


def _largest_dimensions() -> dict[str, float | int | str | bool | None]:
    """The largest d at which A = 0 satisfies the printed form."""
    return {
        f"largest d for which A = 0 satisfies it, L = {L}": int((64 * L * L) ** (L / (L - 1)))
        for L in (2, 3, 4, 5, 6)
    }


FALSIFIED = {
    "a thousand times the factor": {"factor": lambda d, L: 1000 * hoelder_factor(d, L)},
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
    factor: Factor = hoelder_factor,
    power: Power = stated_power,
) -> Evidence:
    return check_dominance(generator, 4.0, sizes, extra, searches, factor, power)
