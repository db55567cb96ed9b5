"""Theorem 4.4: a small loss puts A close to the minimiser.

Printed    for ε > 4δ, L(A, 0) ≤ ε^{2L}/2 implies (1 − cε)A^opt ≼ A ≼ (1 + cε)A^opt with
           c = 4 + 16d^{1/(2L)}; δ = (8Ld/√n)^{1/(2L)}
Tested     both forms of L(A, 0), see `landscape`, A^opt = bΣ*⁻¹: along diagonals of B = Σ*^½AΣ*^½
           (all symmetric A, by rotation), as far out as the loss stays below its level; n from
           d + 1 to 10^24, ε from 4δ up; L ≤ 3, d ≤ 3
Readings   A symmetric, which A^½ and ≼ ask for; or A any matrix, as (5) allows, ≼ the order of
           quadratic forms
Correction for A that is not symmetric it fails from two loops on: with N nilpotent (I − SB)^L stays
           small at B = b(I + tN) for t of order n^{1/4}; it holds for symmetric A
Beyond     the lower end says anything only where cε < 1: n > 2.6·10⁹ at L = d = 1, n > 4·10¹⁷ at
           L = 2, d = 1
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Check, Evidence, Part
from innerloop.claims.gatmiry2024.landscape import (
    FORMS,
    Loss,
    delta,
    draw_directions,
    farthest_within,
    identity,
)
from innerloop.claims.trials import Inequality
from innerloop.theory.looped import LoopedLoss

Level = Callable[[float, float, int], float]
"""Map ε, δ and L to the allowed loss."""
Spread = Callable[[float, float, float], float]
"""Map ε, δ and d^{1/(2L)} to the allowed distance of A from A^opt."""
SIZES = [[1, 1], [2, 1], [1, 2], [2, 2], [3, 1], [2, 3]]


def half_level(epsilon: float, d: float, L: int) -> float:
    return epsilon ** (2 * L) / 2


def spread_bound(epsilon: float, d: float, root: float) -> float:
    return (4 + 16 * root) * epsilon


def check_closeness(
    generator: torch.Generator,
    sizes: list[list[int]],
    extra: int,
    least: float,
    level: Level,
    wide: Spread,
) -> Evidence:
    """Check the closeness of A for ε of at least `least`·δ."""
    parts = []
    for name, loss in FORMS.items():
        parts.append(Part(printed=_symmetric(generator, sizes, extra, least, level, wide, name)))
        if loss is LoopedLoss.loss:
            turned = _nilpotent(sizes, least, level, wide)
            parts.append(Part(printed=turned, corrected=parts[0].printed, matters="result"))
    return Evidence(parts=parts, numbers=_least_examples(wide))


def _build_cases(
    sizes: list[list[int]], least: float, level: Level
) -> list[tuple[LoopedLoss, float, float, float]]:
    """Build laws with δ, ε and the level, where the level is positive."""
    found = []
    for d, L in sizes:
        for n in (d + 1, 200 * d, 10**8, 10**18, 10**24):
            small = delta(L, d, n)
            for times in (1.001, 3):
                epsilon = least * small * times
                if level(epsilon, small, L) > 0:
                    found.append((LoopedLoss(d, n, L), small, epsilon, level(epsilon, small, L)))
    return found


def _symmetric(
    generator: torch.Generator,
    sizes: list[list[int]],
    extra: int,
    least: float,
    level: Level,
    wide: Spread,
    name: str,
) -> Check:
    trial = Inequality(f"A symmetric, L(A, 0) {name}")
    loss: Loss = FORMS[name]
    tried = _build_cases(sizes, least, level)
    for law, small, epsilon, most in tried:
        d, L, c = law.d, law.loops, law.minimum_deviation()
        allowed = wide(epsilon, small, d ** (1 / (2 * L)))
        along, start = draw_directions(generator, d, extra), (1 - c) * identity(d)

        def inside(t: Tensor, *, law=law, start=start, along=along, most=most) -> Tensor:
            return loss(law, start + t[:, None, None] * along) <= most

        for t in farthest_within(inside, most ** (1 / (2 * L)), len(along)).tolist():
            about = f"d = {d}, L = {L}, n = {law.n:.4g}, ε = {epsilon:.3g}, t = {t:.3g}"
            trial.add(t / (1 - c), allowed, size=(d, L, law.n), about=about)
    trial.search_note = "each time as far along a diagonal as the loss allows"
    return trial.check()


def _nilpotent(sizes: list[list[int]], least: float, level: Level, wide: Spread) -> Check:
    """Check B = b(I + tN), N = e₁e₂ᵀ: the quadratic form of A lies within 1 ± t/2 of A^opt."""
    trial = Inequality("A any matrix, ≼ of quadratic forms, L(A, 0) the loss")
    N = torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    for law, small, epsilon, most in _build_cases([[2, max(2, L)] for _, L in sizes], least, level):
        b = 1 - law.minimum_deviation()

        def inside(t: Tensor, *, law=law, b=b, most=most) -> Tensor:
            return law.loss(b * (identity(2) + t[:, None, None] * N)) <= most

        t = float(farthest_within(inside, most ** (1 / (2 * law.loops)), 1))
        allowed = wide(epsilon, small, 2 ** (1 / (2 * law.loops)))
        about = f"d = 2, L = {law.loops}, n = {law.n:.4g}, ε = {epsilon:.3g}, Σ* = I, "
        about += f"A = {b:.4g}·[[1, {t:.4g}], [0, 1]], half of that entry against cε"
        trial.add(t / 2, allowed, size=(2, law.loops, law.n), about=about)
    return trial.check()


def _least_examples(wide: Spread) -> dict[str, float | int | str | bool | None]:
    """Smallest n at which the lower end is above 0 for some ε."""
    found: dict[str, float | int | str | bool | None] = {}
    for d, L in ((1, 1), (1, 2), (2, 2)):
        root = d ** (1 / (2 * L))
        # The spread is proportional to δ at ε = 4δ, and δ to n^{−1/(4L)}.
        exceeds = wide(4 * delta(L, d, 1), delta(L, d, 1), root)
        found[f"n above which 1 − cε > 0 at ε = 4δ, L = {L}, d = {d}"] = exceeds ** (4 * L)
    return found


@claim(
    "gatmiry2024.theorem-4.4",
    "A loss of at most ε^{2L}/2, ε > 4δ, puts A within a factor 1 ± (4 + 16d^{1/(2L)})ε of the "
    "minimiser.",
    where="Section 4, Theorem 4.4",
    kind="inequality",
    quick={"sizes": SIZES, "extra": 3},
    full={"sizes": SIZES, "extra": 60},
    tiny={"sizes": [[1, 1], [2, 2]], "extra": 0},
    falsified={"a hundredth of c": {"wide": lambda e, d, root: spread_bound(e, d, root) / 100}},
)
def theorem_4_4(
    generator: torch.Generator, *, sizes: list[list[int]], extra: int, wide: Spread = spread_bound
) -> Evidence:
    return check_closeness(generator, sizes, extra, 4.0, half_level, wide)
