"""Figure 1: what the looped weight becomes when prompts have few examples, d = 5, Σ* = I.

Printed    "A converges to something very close to I even for smaller values of n and even n < d"
           (caption); "the loss converges for all values of n > 1" (section 5.2)
Tested     trained as in `trained`, at n from 2 on, several random starts; very close: ‖A − I‖_F
           at most a tenth of ‖I‖_F; converges: within 5 % of the least loss of a multiple of I
Correction up to a turn A converges to bI, b < 1 the exact minimiser among these, which is far from
           I for small n: 0.19 at n = 2, 0.38 at n = 5, 0.72 at n = 20 (three loops)
Beyond     with many examples training finds that the minimiser is not symmetric (theorem-A.8): at
           n = 50 the antisymmetric part grows to a quarter of A, and the loss falls 7 % below that
           of every multiple of I. n = 1 is no exception in theory: at three loops b = 0.11, and the
           least loss is 82 % of that of predicting 0, where no predictor gets below 80 %
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Evidence, Figure, Part, Rows
from innerloop.claims.gatmiry2024.trained import (
    RECORDS,
    banded_rows,
    best_multiple,
    least_loss,
    level_rows,
    measure_losses,
    train_loops,
)
from innerloop.claims.trials import Inequality

Target = Callable[[int, int, int], float]
"""Map d, n and L to the multiple of I that A converges to."""
D = 5


@claim(
    "gatmiry2024.figure-1",
    "Trained at d = 5, the loss of a looped model converges for every n > 1 and A comes very close "
    "to the identity, even for n < d.",
    where="Section 5.2, Figure 1",
    kind="figure",
    quick={"loops": 3, "examples": [2, 3, 5, 20, 100], "seeds": 2, "steps": 250, "batch": 96},
    full={
        "loops": 3,
        "examples": [2, 3, 4, 5, 10, 20, 50, 100],
        "seeds": 5,
        "steps": 400,
        "batch": 160,
    },
    tiny={"loops": 2, "examples": [2, 20], "seeds": 1, "steps": 120, "batch": 64},
    falsified={
        "half of the least loss": {"share": 0.5},
        "a limit 30 % higher": {"target": lambda d, n, L: 1.3 * best_multiple(d, n, L)},
    },
)
def figure_1(
    generator: torch.Generator,
    *,
    loops: int,
    examples: list[int],
    seeds: int,
    steps: int,
    batch: int,
    share: float = 1.0,
    target: Target = best_multiple,
) -> Evidence:
    settled = Inequality("the loss converges, to within 5 % of the least of a multiple of I")
    close = Inequality("‖A − I‖_F ≤ ‖I‖_F/10 at the end")
    near = Inequality("the symmetric part of A is within ‖bI‖_F/5 of bI, b the minimiser")
    losses, distances, table = [], [], []
    for n in examples:
        run = train_loops(generator, D, n, loops, seeds=seeds, steps=steps, batch=batch)
        loss, b, low = (
            measure_losses(generator, run, 1000),
            best_multiple(D, n, loops),
            least_loss(D, n, loops),
        )
        about, size = f"d = {D}, n = {n}, L = {loops}, b = {b:.4f}", (n,)
        stated = target(D, n, loops)
        for seed in range(seeds):
            settled.add(loss[-1, seed], 1.05 * share * low, size=size, about=about)
            close.add(run.distance_to_multiple(1.0)[-1, seed], 0.1, size=size, about=about)
            near.add(run.symmetric_distance(stated)[-1, seed], stated / 5, size=size, about=about)
        panel = {"n": f"n = {n}"}
        losses += banded_rows(run.steps, loss, what="trained", **panel)
        losses += level_rows(run.steps, low, what="least loss of a multiple of I", **panel)
        if n < D:
            losses += level_rows(run.steps, (D - n) / D, what="best of all predictors", **panel)
        distances += banded_rows(run.steps, run.distance_to_multiple(1.0), what="from I", **panel)
        distances += level_rows(run.steps, 1 - b, what="from I, theory", **panel)
        distances += banded_rows(
            run.steps,
            run.nearest_multiple_distance(),
            what="from the nearest multiple of I",
            **panel,
        )
        diagonal = run.final[:, 0].diagonal(dim1=-2, dim2=-1).mean()
        table.append(
            {
                "n": n,
                "b, theory": b,
                "mean diagonal of A": float(diagonal),
                "distance from the nearest multiple of I": float(
                    run.nearest_multiple_distance()[-1].mean()
                ),
                "antisymmetric share of A": float(run.antisymmetric_share()[-1].mean()),
                "loss": float(loss[-1].mean()),
                "least loss, theory": low,
            }
        )
    parts = [
        Part(printed=settled.check()),
        Part(printed=close.check(), corrected=near.check(), matters="result"),
    ]
    return Evidence(parts=parts, table=table, figures=_figures(losses, distances, loops, seeds))


def _figures(losses: Rows, distances: Rows, loops: int, seeds: int) -> list[Figure]:
    caption = f"Mean over {seeds} random starts, from least to largest; {RECORDS} records each."
    shown = partial(
        Figure,
        x=Axis(field="step", title="step of Adam"),
        colour=Axis(field="what", title="", scale="category"),
        panel="n",
        band=("low", "high"),
        caption=caption,
    )
    error = "squared error over that of predicting 0"
    return [
        shown(
            title=f"The loss in training, d = {D}, {loops} loops",
            rows=losses,
            y=Axis(field="value", title=error, scale="log"),
        ),
        shown(
            title=f"The weight in training, d = {D}, {loops} loops",
            rows=distances,
            y=Axis(field="value", title="relative distance of A"),
        ),
    ]
