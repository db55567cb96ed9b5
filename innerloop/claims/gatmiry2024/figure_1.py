"""Figure 1: what the looped weight becomes when prompts have few examples, d = 5, Σ* = I.

Printed    "A converges to something very close to I even for smaller values of n and even n < d"
           (caption); "the loss converges for all values of n > 1" (section 5.2)
Missing    the number of loops, the distance, the values of n, batch and steps (`conventions`)
Tested     trained as in `trained` with n = 2 to 20 and 2 to 5 loops, five random starts
Ours       the loss converges: it ends at most 5 % above the least loss of a multiple of I
Result     With 2 and 3 loops A ends within a tenth of a multiple of I for all of these n. With 4
           loops and n = 20 the distance is 0.22 to 0.39, because a part of A becomes
           antisymmetric; the loss is then below that of every multiple of I, so that these are not
           failed trainings. The distance to I is 0.25 to 0.85 in every run with n up to 20: the
           multiple of I of least loss is far from I for small n (0.19 at n = 2, 0.38 at n = 5 and
           0.72 at n = 20 with 3 loops)
Beyond     with 50 or 100 examples a tenth of A or more is antisymmetric from 3 loops on
           (theorem-A.8). n = 1 is no exception in theory: with three loops the best multiple of I
           is 0.11 I, and its loss is 82 % of that of predicting 0
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Check, Evidence, Part
from innerloop.claims.figures import Figure, draw_lines
from innerloop.claims.gatmiry2024 import conventions, trained
from innerloop.claims.gatmiry2024.conventions import DISTANCES, LOOPS
from innerloop.claims.gatmiry2024.trained import Run, Value, banded_rows, least_loss
from innerloop.claims.readings import decide_together
from innerloop.claims.trials import Inequality

D, MOST = 5, 20
"""The dimension, and the largest n of the public code."""


def judge_runs(runs: list[Run]) -> Evidence:
    few = [run for run in runs if run.n <= MOST]
    groups = {f"{L} loops": [run for run in few if run.loops == L] for L in _list_loops(runs)}
    return Evidence(
        parts=[
            _judge_losses(groups),
            conventions.judge_distance("$A$ ends near the identity for $n = 2$ to 20", groups),
        ],
        beyond=_check_turn([run for run in runs if run.n > MOST and run.loops >= 3]),
        table=[trained.describe_run(run) for run in runs],
        figures=_draw_figures(runs),
    )


def _judge_losses(groups: dict[str, list[Run]]) -> Part:
    """Judge whether the loss ends near the least one of a multiple of I, by number of loops."""
    readings = {}
    for name, runs in groups.items():
        trial = Inequality(f"{name}: the loss is at most 1.05 times the least of a multiple of $I$")
        for run in runs:
            for loss in run.losses[-1].tolist():
                trial.add(loss, 1.05 * least_loss(D, run.n, run.loops), run.case)
        readings[name] = trial.check()
    printed = decide_together("the loss converges for $n = 2$ to 20", readings)
    return Part(
        printed=replace(printed, ours="converges: at most 5 % above the least of a multiple of I"),
        reading=conventions.READING,
        other_readings=readings,
        trainings=min(run.seeds for runs in groups.values() for run in runs),
    )


def _check_turn(runs: list[Run]) -> list[Check]:
    """Check that A is not symmetric where prompts are longer than those of the code."""
    trial = Inequality(
        "with 50 examples or more and 3 loops or more, a tenth of $A$ or more is antisymmetric",
        larger_first=True,
    )
    for run in runs:
        for share in run.antisymmetric_share()[-1].tolist():
            trial.add(0.1, share, run.case)
    return [trial.check()] if runs else []


@claim(
    "gatmiry2024.figure-1",
    "Trained at $d = 5$, the loss of a looped model converges for every $n > 1$ and $A$ "
    "comes very close to the identity, even for $n < d$.",
    where="Section 5.2, Figure 1",
    kind="figure",
    hypotheses={
        "$Σ* = I$": "Section 5",
        "$n = 2, …, 20$": "$n$ near $d$ or below (section 5.2), $n > 1$; the range of their code",
        "2 to 5 loops": conventions.HYPOTHESES["2 to 5 loops"],
    },
    missing="The text and the caption print neither the number of loops nor how the distance to "
    "the identity is measured, and neither the batch nor the number of steps.",
    quick={"loops": [3, 5], "examples": [2, 4, 20], "seeds": 3, "steps": 250, "batch": 256}
    | {"tested": 2000},
    full={
        "loops": list(LOOPS),
        "examples": [2, 4, 6, 8, 10, 14, 20, 50, 100],
        "seeds": 5,
        "steps": 400,
        "batch": 320,
        "tested": conventions.PROMPTS,
    },
    tiny={"loops": [2], "examples": [5, 20], "seeds": 1, "steps": 150, "batch": 192}
    | {"tested": 1000},
    judge=judge_runs,
    falsified={
        "losses that end a tenth higher": lambda runs: [
            run._replace(losses=1.1 * run.losses) for run in runs
        ],
        "weights a fifth of which is antisymmetric": lambda runs: [
            trained.turn_weights(run) for run in runs
        ],
    },
)
def figure_1(
    generator: torch.Generator, *, loops: list[int], examples: list[int], **sizes: Any
) -> list[Run]:
    return [trained.train_loops(generator, D, n, L, **sizes) for L in loops for n in examples]


def _list_loops(runs: list[Run]) -> list[int]:
    return sorted({run.loops for run in runs})


def _draw_figures(runs: list[Run]) -> list[Figure]:
    losses: list[dict[str, Value]] = []
    ends: list[dict[str, Value]] = []
    for run in runs:
        name, panel = f"{run.loops} loops", f"n = {run.n}"
        ratios = run.losses / least_loss(D, run.n, run.loops)
        losses += banded_rows(run.steps, ratios, loops=name, n=panel)
        for measure, distance in DISTANCES.items():
            (row,) = banded_rows(run.steps[-1:], distance(run)[-1:], loops=name)
            ends.append({**row, "n": run.n, "distance": measure.replace("$", "")})
    seeds = runs[0].seeds
    shared = {
        "by": "loops",
        "band": ("low", "high"),
        "caption": f"Mean over {seeds} random starts, with the least and the largest value.",
    }
    return [
        draw_lines(
            f"The loss in training, d = {D}",
            losses,
            "step: step of Adam",
            "value: loss over the least of a multiple of I",
            log="y",
            panel="n",
            rules={"least loss of a multiple of I": 1.0},
            **shared,
        ),
        draw_lines(
            f"The weight after training, d = {D}",
            ends,
            "n: number n of examples",
            "value: distance of A",
            log="x",
            panel="distance",
            rules={"a tenth": conventions.NEAR},
            **shared,
        ),
    ]
