"""Theorem 3.3: gradient flow reaches every level of the loss, in a time that the level sets.

Printed    Σ* = I, dA/dt = −∇_A L(A, 0): for ξ ≥ 2(4δ)^{2L} and t ≥ (1/ξ)^{(L−1)/L}
           (16L/(L−1))^{(L−1)/(2L−1)}, (1) L(A(t)) ≤ ξ, (2) A(t) is within a factor
           1 ± 8(1 + 4d^{1/(2L)})ξ^{1/(2L)} of A^opt
Tested     the flow integrated on the exact loss (`innerloop.theory.flow`), from matrices 10⁴ times
           above the level, d ≤ 2, and from −10·I for d up to 10⁶, at exactly the stated time
Correction (1) d/ξ in place of 1/ξ, and n ≥ d²: with all eigenvalues alike the time is
           (d/ξ)^{(L−1)/L}/(4L(L−1)) as n grows, more than is stated from d = 646 on at L = 2. For
           one loop the print divides by 0, and its limit t ≥ 1 cannot be: the loss falls as e^{−4t}
           from wherever it begins; t ≥ 16 log(L(A(0))/ξ) is what gradient dominance gives.
           (2) holds for symmetric A(0), which stays so; from A(0) = b(I + tN), N nilpotent, whose
           loss is below ξ already, the flow hardly moves
Beyond     (2) says something below only where 8(1 + 4d^{1/(2L)})ξ^{1/(2L)} < 1
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Evidence, Figure, Part
from innerloop.claims.gatmiry2024.flows import (
    FALSIFIED,
    MORE_SIZES,
    SIZES,
    FlowEnd,
    Time,
    check_arrivals,
    corrected_time,
    least_level,
    stated_time,
)
from innerloop.claims.gatmiry2024.landscape import farthest_within, identity
from innerloop.claims.trials import Inequality
from innerloop.theory.flow import gradient_flow, isotropic_flow, unwhitened_loss
from innerloop.theory.looped import LoopedLoss

Spread = Callable[[int, int, float], float]


def spread_bound(d: int, L: int, xi: float) -> float:
    return 8 * (1 + 4 * d ** (1 / (2 * L))) * xi ** (1 / (2 * L))


@claim(
    "gatmiry2024.theorem-3.3",
    "Gradient flow on the loss of L loops is below ξ after a time of order ξ^{−(L−1)/L}, and then "
    "close to the minimiser.",
    where="Section 3.7, Theorem 3.3",
    kind="inequality",
    quick={"sizes": SIZES, "extra": 1, "dimensions": [10, 646]},
    full={"sizes": MORE_SIZES, "extra": 6, "dimensions": [10, 645, 646, 10**4, 10**6]},
    tiny={"sizes": [[2, 2]], "extra": 0, "dimensions": [646]},
    falsified={
        **FALSIFIED,
        "a thousandth of the spread": {"wide": lambda d, L, xi: spread_bound(d, L, xi) / 1000},
    },
)
def theorem_3_3(
    generator: torch.Generator,
    *,
    sizes: list[list[int]],
    extra: int,
    dimensions: list[int],
    time: Time = corrected_time,
    wide: Spread = spread_bound,
) -> Evidence:
    parts, ended = check_arrivals(generator, sizes, extra, dimensions, time)
    return Evidence(parts=[*parts, _close([*ended, _nilpotent()], wide)], figures=[_figure()])


def _close(ended: list[FlowEnd], wide: Spread) -> Part:
    """Check (2) for any A(0), and for symmetric ones."""
    printed = Inequality("(2): A within 1 ± 8(1 + 4d^{1/(2L)})ξ^{1/(2L)} of A^opt, any A(0)")
    right = Inequality("(2), A(0) symmetric")
    for end in ended:
        d, L, b = end.law.d, end.law.loops, 1 - end.law.minimum_deviation()
        far = torch.linalg.eigvalsh((end.B + end.B.mT) / 2 / b - identity(d)).abs().max()
        told = ", ".join(f"{entry:.4g}" for entry in end.B.flatten().tolist())
        about = f"d = {d}, L = {L}, n = {end.law.n}, ξ = {end.xi:.4g}, A(t) = ({told}) row by row"
        size = (d, L, end.law.n)
        printed.add(far, spread_bound(d, L, end.xi), size=size, about=about)
        if end.symmetric:
            right.add(far, wide(d, L, end.xi), size=size, about=about)
    return Part(printed=printed.check(), corrected=right.check())


def _nilpotent() -> FlowEnd:
    """Start as far along b(I + tN), N = e₁e₂ᵀ, as the loss stays below ξ."""
    law = LoopedLoss(2, 10**12, 2)
    b, xi = 1 - law.minimum_deviation(), least_level(2, law.n, 2)
    N = torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)

    def inside(t: Tensor) -> Tensor:
        return law.loss(b * (identity(2) + t[:, None, None] * N)) <= xi

    start = b * (identity(2) + farthest_within(inside, 1.0, 1)[:, None, None] * N)
    until = torch.tensor([stated_time(2, 2, xi, xi)], dtype=torch.float64)
    found = gradient_flow(unwhitened_loss(law, identity(2)), start[0], until, rtol=1e-6)
    return FlowEnd(law, xi, False, found.points[0])


def _figure() -> Figure:
    """Plot two loops from −10·I, in dimensions below and above the guarantee."""
    rows = []
    times = torch.logspace(-3, 2, 26, dtype=torch.float64)
    K = 32 ** (1 / 3)
    for d in (10, 10**4):
        found = isotropic_flow(d, 10**30, 2, -10.0, times)
        for time, loss in zip(times.tolist(), found.losses.tolist(), strict=True):
            for name, value in (
                ("flow", loss),
                ("printed guarantee", (K / time) ** 2),
                ("corrected guarantee", d * (K / time) ** 2),
            ):
                rows.append({"time": time, "loss": value, "what": name, "d": f"d = {d}"})
    return Figure(
        title="The loss of two loops along gradient flow from A = −10·I, and what is guaranteed",
        rows=rows,
        x=Axis(field="time", title="time t of the flow", scale="log"),
        y=Axis(field="loss", title="expected squared error", scale="log"),
        colour=Axis(field="what", title="", scale="category"),
        panel="d",
        caption="n = 10³⁰, so that the least loss is out of sight. A guarantee is the ξ that the "
        "theorem's time reaches.",
    )
