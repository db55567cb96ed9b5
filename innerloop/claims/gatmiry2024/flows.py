"""Gradient flow compared with the time that Theorems 3.3 and A.12 state.

Cases      matrices of all kinds around the minimum, 10⁴ times above the level ξ, d ≤ 2, by the
           exact loss; multiples of the identity for d of any size, in one number
After a time that is stated the loss is no more than ξ: it falls, so that later times follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log

import torch
from torch import Tensor

from innerloop.claims.evidence import Part
from innerloop.claims.gatmiry2024.landscape import delta, draw_at_level, identity
from innerloop.claims.trials import Inequality
from innerloop.theory.flow import gradient_flow, isotropic_flow, unwhitened_loss
from innerloop.theory.looped import LoopedLoss

Time = Callable[[int, int, float, float], float]
"""Map d, L, ξ and the loss at the start to a time."""
SIZES = [[1, 2], [2, 2], [1, 3]]
MORE_SIZES = [[1, 2], [2, 2], [1, 3], [2, 3], [1, 4]]


def least_level(d: int, n: int, L: int) -> float:
    """The least level ξ the theorems allow: 2(4δ)^{2L}."""
    return 2 * (4 * delta(L, d, n)) ** (2 * L)


def stated_time(d: int, L: int, xi: float, start: float) -> float:
    """The printed time (1/ξ)^{(L−1)/L} (16L/(L−1))^{(L−1)/(2L−1)}.

    At L = 1 that is (16/0)⁰, in the limit 1.
    """
    if L == 1:
        return 1.0
    return xi ** (-(L - 1) / L) * (16 * L / (L - 1)) ** ((L - 1) / (2 * L - 1))


def corrected_time(d: int, L: int, xi: float, start: float) -> float:
    """The corrected time: d/ξ in place of 1/ξ, and 16 log(L(A(0))/ξ) for one loop."""
    return (
        16 * max(0.0, log(start / xi))
        if L == 1
        else d ** ((L - 1) / L) * stated_time(d, L, xi, 0.0)
    )


@dataclass(frozen=True, eq=False)
class Arrival:
    """Trials of the printed time and of the corrected one."""

    printed: Inequality
    corrected: Inequality
    time: Time

    def add(self, losses: list[float], xi: float, d: int, n: int, L: int, about: str) -> None:
        """Add the losses after the two times."""
        told = f"{about}, ξ = {xi:.4g}, the loss after that time against ξ"
        self.printed.add(losses[0], xi, size=(d, L, n), about=told)
        if n >= d * d:
            self.corrected.add(losses[1], xi, size=(d, L, n), about=told)


@dataclass(frozen=True, eq=False)
class FlowEnd:
    """State of a flow after the stated time."""

    law: LoopedLoss
    xi: float
    symmetric: bool
    B: Tensor


def flow_matrices(
    generator: torch.Generator, sizes: list[list[int]], extra: int, arrival: Arrival
) -> list[FlowEnd]:
    """Integrate flows of the transformer's loss, Σ* = I, from dense and symmetric matrices."""
    ended = []
    for d, L in sizes:
        for n in (d * d + 1, 10**12):
            law, xi = LoopedLoss(d, n, L), least_level(d, n, L)
            loss = unwhitened_loss(law, identity(d))
            starts = draw_at_level(generator, law, LoopedLoss.loss, 1e4 * xi, extra)
            first = float(loss(starts).min())
            both = [stated_time(d, L, xi, first), arrival.time(d, L, xi, first)]
            times = torch.tensor(sorted({0.0, *both}), dtype=torch.float64)
            found = gradient_flow(loss, starts, times, rtol=1e-6)
            at = [times.tolist().index(time) for time in both]
            for k in range(len(starts)):
                symmetric = bool(torch.allclose(starts[k], starts[k].mT))
                kind = "symmetric" if symmetric else "dense"
                about = f"d = {d}, L = {L}, n = {n}, A(0) {kind}"
                arrival.add([float(found.losses[i, k]) for i in at], xi, d, n, L, about)
                ended.append(FlowEnd(law, xi, symmetric, found.points[at[0], k]))
    return ended


def flow_multiples(arrival: Arrival, dimensions: list[int], loops: list[int], scale: float) -> None:
    """Flows from A(0) = −scale·I at ξ = 1 in many dimensions, with n as large as required."""
    for d in dimensions:
        for L in loops:
            n, first = (16 * L * 16**L * d) ** 2, d * (1 + scale) ** (2 * L)
            both = [stated_time(d, L, 1.0, first), arrival.time(d, L, 1.0, first)]
            times = torch.tensor(sorted({0.0, *both}), dtype=torch.float64)
            found = isotropic_flow(d, n, L, -scale, times)
            losses = [float(found.losses[times.tolist().index(time)]) for time in both]
            about = f"d = {d}, L = {L}, n = {n}, A(0) = −{scale:g}·I, t = {both[0]:.5g}"
            arrival.add(losses, 1.0, d, n, L, about)


def check_arrivals(
    generator: torch.Generator,
    sizes: list[list[int]],
    extra: int,
    dimensions: list[int],
    time: Time,
) -> tuple[list[Part], list[FlowEnd]]:
    """Check two or more loops, then one loop; also returns where the flows of matrices ended."""
    name = "(16L/(L−1))^{(L−1)/(2L−1)}"
    printed = Inequality(f"L ≥ 2: L(A(t)) ≤ ξ after t = (1/ξ)^{{(L−1)/L}}{name}")
    right = Inequality(f"L ≥ 2, n ≥ d²: L(A(t)) ≤ ξ after t = (d/ξ)^{{(L−1)/L}}{name}")
    many = Arrival(printed, right, time)
    ended = flow_matrices(generator, sizes, extra, many)
    flow_multiples(many, dimensions, sorted({L for _, L in sizes}), 10.0)
    printed = Inequality("L = 1: t = (1/ξ)⁰(16/0)⁰, in the limit 1")
    right = Inequality("L = 1, n ≥ d²: L(A(t)) ≤ ξ after t = 16 log(L(A(0))/ξ)")
    one = Arrival(printed, right, time)
    for scale in (1.0, 1e3):
        flow_multiples(one, [1, *dimensions], [1], scale)
    parts = [
        Part(printed=each.printed.check(), corrected=each.corrected.check(), matters="result")
        for each in (many, one)
    ]
    return parts, ended


FALSIFIED = {
    "a hundredth of the time": {
        "time": lambda d, L, xi, start: corrected_time(d, L, xi, start) / 100
    }
}
