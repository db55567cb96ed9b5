"""Figure 4: the weight in training for several numbers of loops, d = 10, Σ* = I.

Printed    "The iterate A converges to identity for all number of loops. The converge is slower for
           large number of loops"; "just training with 1 loop does not converge in this setup"
Tested     trained as in `trained`, n = 20 (not told), several random starts; converged to I:
           ‖A − I‖_F at most a tenth of ‖I‖_F. How fast: the exact flow from 0, until within 1 % of
           its limit
Correction up to a turn A converges to bI, and b < 1 falls with the number of loops: 0.645, 0.628,
           0.594, 0.528 for 1, 2, 4, 8 at n = 20. One loop goes to n/(n + d + 1) I, as a convex
           quadratic must; what stays is its loss, (d + 1)/(n + d + 1). More loops are slower where
           prompts are long: at n = 100 they take 2.1, 4.0, 19, 430 for 1, 2, 4, 8, at n = 20 they
           take 1.5, 1.3, 1.3, 1.4
Beyond     with eight loops nearly half of A becomes antisymmetric, and its loss falls below that of
           every multiple of I
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Evidence, Figure, Part
from innerloop.claims.gatmiry2024.trained import (
    Run,
    Value,
    banded_rows,
    best_multiple,
    least_loss,
    level_rows,
    measure_losses,
    train_loops,
)
from innerloop.claims.trials import Inequality
from innerloop.theory.flow import isotropic_flow

D, N = 10, 20
Target = Callable[[int, int, int], float]


@claim(
    "gatmiry2024.figure-4",
    "Trained at d = 10, A converges to the identity for all numbers of loops but one, slower for "
    "more loops.",
    where="Section 5, Figure 4",
    kind="figure",
    quick={"loops": [1, 2, 4], "seeds": 2, "steps": 300, "batch": 64},
    full={"loops": [1, 2, 4, 8], "seeds": 5, "steps": 600, "batch": 128},
    tiny={"loops": [1, 2], "seeds": 1, "steps": 100, "batch": 48},
    falsified={
        "a limit half as high again": {"target": lambda d, n, L: 1.5 * best_multiple(d, n, L)},
        "faster for more loops": {"sign": -1.0},
    },
)
def figure_4(
    generator: torch.Generator,
    *,
    loops: list[int],
    seeds: int,
    steps: int,
    batch: int,
    target: Target = best_multiple,
    sign: float = 1.0,
) -> Evidence:
    identity = Inequality("‖A − I‖_F ≤ ‖I‖_F/10 at the end")
    limit = Inequality("the symmetric part of A is within ‖bI‖_F/4 of bI, b the minimiser")
    never = Inequality("one loop: A stays a tenth or more away from its limit")
    single = Inequality("one loop: A comes within a tenth of n/(n + d + 1) I")
    rows, table = [], []
    for L in loops:
        run = train_loops(generator, D, N, L, seeds=seeds, steps=steps, batch=batch)
        b, stated = best_multiple(D, N, L), target(D, N, L)
        about = f"d = {D}, n = {N}, L = {L}, b = {b:.4f}"
        for seed in range(seeds):
            identity.add(run.distance_to_multiple(1.0)[-1, seed], 0.1, size=(L,), about=about)
            end = float(run.symmetric_distance(stated)[-1, seed]) / stated
            limit.add(end, 0.25, size=(L,), about=about)
            if L == 1:
                never.add(0.1, run.symmetric_distance(b)[-1, seed] / b, size=(L,), about=about)
                single.add(end, 0.1, size=(L,), about=about)
        panel = {"loops": f"{L} loop{'s' if L > 1 else ''}"}
        rows += banded_rows(run.steps, run.distance_to_multiple(1.0), what="from I", **panel)
        rows += level_rows(run.steps, 1 - b, what="from I, theory", **panel)
        rows += banded_rows(run.steps, run.distance_to_multiple(b) / b, what="from bI", **panel)
        table.append(_row(L, run, measure_losses(generator, run, 500)[-1]))
    parts = [
        Part(printed=identity.check(), corrected=limit.check(), matters="result"),
        _check_slower(loops, sign),
        Part(printed=never.check(), corrected=single.check()),
    ]
    return Evidence(parts=parts, table=table, figures=[_figure(rows, seeds)])


def _settling_time(n: int, L: int) -> float:
    """Time at which the exact flow from A = 0 is within 1 % of its limit."""
    times = torch.logspace(-2, 4, 601, dtype=torch.float64)
    far = (isotropic_flow(D, n, L, 0.0, times).points - best_multiple(D, n, L)).abs()
    return float(times[int((far > 0.01 * best_multiple(D, n, L)).sum())])


def _check_slower(loops: list[int], sign: float) -> Part:
    printed = Inequality("more loops take longer to within 1 % of the limit, exact flow from 0")
    right = Inequality("more loops take longer, exact flow from 0, n ≥ 40")
    for n in (N, 40, 100):
        for few, many in pairwise(loops):
            about = f"d = {D}, n = {n}, time of {few} loops against that of {many}"
            short, long = _settling_time(n, few), _settling_time(n, many)
            printed.add(short, long, size=(n, few), about=about)
            if n >= 40:
                right.add(sign * short, sign * long, size=(n, few), about=about)
    return Part(printed=printed.check(), corrected=right.check())


def _row(L: int, run: Run, loss: Tensor) -> dict[str, Value]:
    return {
        "loops": L,
        "b, theory": best_multiple(D, N, L),
        "mean diagonal of A": float(run.final[:, 0].diagonal(dim1=-2, dim2=-1).mean()),
        "antisymmetric share of A": float(run.antisymmetric_share()[-1].mean()),
        "loss": float(loss.mean()),
        "least loss of a multiple of I": least_loss(D, N, L),
        "time of the flow, n = 20": _settling_time(N, L),
        "time of the flow, n = 100": _settling_time(100, L),
    }


def _figure(rows: list[dict[str, Value]], seeds: int) -> Figure:
    return Figure(
        title=f"The weight in training, d = {D}, n = {N}",
        rows=rows,
        x=Axis(field="step", title="step of Adam"),
        y=Axis(field="value", title="distance of A, relative to I or to bI"),
        colour=Axis(field="what", title="", scale="category"),
        panel="loops",
        band=("low", "high"),
        caption=f"Mean over {seeds} random starts, from least to largest.",
    )
