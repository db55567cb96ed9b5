"""Figure 2: loops against layers, d = 10, Σ* = I.

Printed    "a 1-layer model looped L times performs similarly to an L layer multilayer model";
           "increasing the number of loops leads to lower loss" (caption, section 5.1)
Tested     both trained as in `trained`, n = 20 as in the code, several random starts: every start
           against every start
Ours       similarly: within a factor of 2, either way, as "comparable" is in liu2025.figure-1a. A
           tenth of predicting 0, which stood here first, is as much as the losses themselves from
           L = 3 on, and so could not fail from below
Beyond     by the ratio of their exact minima (among multiples of I) L layers do better than L + 1
           loops from three layers on: 0.0913, where four loops have 0.1095 (n = 20). A step of each
           layer's own is what Chebyshev's iteration has over plain gradient descent, and the ratio
           grows with L and n. Layers take longer to train: after as many steps they are nearer to
           the loops than their minimum is
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Check, Evidence, Part
from innerloop.claims.figures import Figure, draw_lines
from innerloop.claims.gatmiry2024 import trained
from innerloop.claims.gatmiry2024.trained import Run, Value, banded_rows, least_loss, level_rows
from innerloop.claims.trials import Inequality

D, N = 10, 20
Runs = dict[str, list[Run]]
"""Loops, and as many layers, from one to the most."""


def judge_runs(runs: Runs) -> Evidence:
    loops, layers = ([run.losses[-1] for run in runs[kind]] for kind in ("loops", "layers"))
    falling = Inequality("trained with one loop more, from every start, the loss is lower")
    for L in range(1, len(loops)):
        case = Case(L=L, d=D, n=N, note="$L + 1$ loops against $L$")
        falling.add(float(loops[L].max()), float(loops[L - 1].min()), case)
    similar = Inequality("losses of $L$ trained loops and $L$ layers are within a factor of 2")
    for L, (one, other) in enumerate(zip(loops, layers, strict=True), 1):
        ratios = one[:, None] / other
        far = float(torch.maximum(ratios, 1 / ratios).max())
        similar.add(far, 2.0, Case(L=L, d=D, n=N, note=f"{one.mean():.4f}, {other.mean():.4f}"))
    ours = "similarly: within a factor of 2, either way"
    seeds = runs["loops"][0].seeds
    return Evidence(
        parts=[
            Part(printed=falling.check(), trainings=seeds),
            Part(printed=replace(similar.check(), ours=ours), trainings=seeds),
        ],
        beyond=[_check_minima(len(loops)), _check_ratio(len(loops))],
        table=_tabulate(len(loops)),
        figures=[_draw_figure(runs)],
    )


def scale_layers(by: float) -> Callable[[Runs], Runs]:
    """Make data in which the layers' losses are multiplied by a factor."""

    def change(runs: Runs) -> Runs:
        layers = [run._replace(losses=run.losses * by) for run in runs["layers"]]
        return {**runs, "layers": layers}

    return change


@claim(
    "gatmiry2024.figure-2",
    "Trained at $d = 10$, one layer looped $L$ times does about as well as $L$ layers, and "
    "more loops reach a lower loss.",
    where="Section 5.1, Figure 2",
    kind="figure",
    hypotheses={"$Σ* = I$, $d = 10$": "Section 5", "$n = 20$": "the code that they use"},
    quick={"most": 3, "seeds": 3, "steps": 250, "batch": 64},
    full={"most": 4, "seeds": 5, "steps": 500, "batch": 128},
    tiny={"most": 3, "seeds": 1, "steps": 30, "batch": 16},
    judge=judge_runs,
    falsified={
        "the losses of one loop for two, and of two for one": lambda runs: {
            **runs,
            "loops": [runs["loops"][k] for k in (1, 0, *range(2, len(runs["loops"])))],
        },
        "layers with three times the loss": scale_layers(3.0),
        "layers with a third of the loss": scale_layers(1 / 3),
    },
)
def figure_2(generator: torch.Generator, *, most: int, **sizes: Any) -> Runs:
    return {
        kind: [
            trained.train_loops(generator, D, N, L, layered=layered, **sizes)
            for L in range(1, most + 1)
        ]
        for kind, layered in (("loops", False), ("layers", True))
    }


def _check_minima(most: int) -> Check:
    trial = Inequality("one loop more, a lower least loss of a multiple of $I$")
    for d in (1, 5, 10):
        for n in (d, 20, 100):
            for L in range(1, 2 * most):
                trial.add(least_loss(d, n, L + 1), least_loss(d, n, L), Case(L=L, d=d, n=n))
    return trial.check()


def _check_ratio(most: int) -> Check:
    trial = Inequality("three layers or more have a lower least loss than one loop more has")
    for L in range(3, most + 1):
        trial.add(trained.least_layered_loss(D, N, L), least_loss(D, N, L + 1), Case(L=L, d=D, n=N))
    return trial.check()


def _draw_figure(runs: Runs) -> Figure:
    rows: list[dict[str, Value]] = []
    for kind, least in (("loops", least_loss), ("layers", trained.least_layered_loss)):
        for L, run in enumerate(runs[kind], 1):
            panel = {"L": f"L = {L}"}
            rows += banded_rows(run.steps, run.losses, what=kind, **panel)
            rows += level_rows(run.steps, least(D, N, L), what=f"{kind}, theory", **panel)
    return draw_lines(
        f"Loops and layers in training, d = {D}, n = {N}",
        rows,
        "step: step of Adam",
        "value: squared error over that of predicting 0",
        by="what",
        log="y",
        panel="L",
        band=("low", "high"),
        caption=f"Mean over {runs['loops'][0].seeds} random starts, from least to largest. Theory: "
        "least loss of multiples of the identity. The best of all predictors makes no error, as "
        "n > d.",
    )


def _tabulate(most: int) -> list[dict[str, Value]]:
    """Tabulate the exact minima for other n."""
    rows: list[dict[str, Value]] = []
    for n in (11, N, 40, 100):
        for L in range(1, most + 1):
            loops, layers = least_loss(D, n, L), trained.least_layered_loss(D, n, L)
            ratio = loops / layers
            rows.append({"n": n, "L": L, "loops": loops, "layers": layers, "ratio": ratio})
    return rows
