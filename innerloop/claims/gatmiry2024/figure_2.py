"""Figure 2: loops compared with layers, d = 10, Σ* = I.

Printed    "a 1-layer model looped L times performs similarly to an L layer multilayer model";
           "increasing the number of loops leads to lower loss" (caption, section 5.1)
Missing    n, the numbers L, the scale on which losses are compared, batch and steps (`conventions`)
Tested     both trained as in `trained`, every random start against every other, and their exact
           minima (among multiples of I), where training to convergence ends; n = 20 and n = 100
Reading    losses are compared by their ratio. The ratio of the minima grows with n and L: with
           n = 20 it is 1.25, 1.60, 2.06 and 2.65 for L = 2 to 5, with n = 100 it is 1.66, 3.12, 6.0
           and 11.5. As trained, it also depends on the number of steps, because layers need more
           of them
Ours       similarly: within a factor of 2, in both directions, as "comparable" in
           liu2025.figure-1a. This threshold replaced a tenth of the loss of predicting 0, which is
           shown as another reading: from L = 3 on the losses themselves are that small
Beyond     four layers or more have a lower least loss than one loop more: 0.0532 for four layers
           and 0.0866 for five loops (n = 20). Each layer has a step of its own, which is the
           advantage of Chebyshev's iteration over plain gradient descent
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, product
from typing import Any, NamedTuple

import torch

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Check, Evidence, Part
from innerloop.claims.figures import Figure, draw_lines
from innerloop.claims.gatmiry2024 import conventions, trained
from innerloop.claims.gatmiry2024.conventions import LOOPS, SIZES
from innerloop.claims.gatmiry2024.trained import Run, Value, banded_rows, least_loss, level_rows
from innerloop.claims.readings import decide_together
from innerloop.claims.trials import Inequality

D = 10
OURS = (
    "similarly: within a factor of 2, in both directions; chosen after a tenth of the loss of "
    "predicting 0, which small losses cannot miss"
)
Measure = Callable[[float, float], tuple[float, str]]
"""How two losses are compared, with the computation as a text."""


class Comparison(NamedTuple):
    """Trained loops and as many layers for each n, and the exact minima of both."""

    runs: dict[str, list[Run]]
    """Trainings of "loops" and of "layers", in the same order."""
    minima: dict[int, list[tuple[float, float]]]
    """By n: the least loss of L loops and that of L layers, from L = 1 on."""


def judge_comparison(data: Comparison) -> Evidence:
    seeds = data.runs["loops"][0].seeds
    falling = {
        name: _check_falling(name, runs)
        for name, runs in conventions.group_by_size(data.runs["loops"]).items()
    }
    by_ratio = "losses of $L$ loops and $L$ layers are within a factor of 2"
    ratios = _compare_losses(data, _take_ratio, by_ratio, 2.0)
    by_difference = (
        "losses of $L$ loops and $L$ layers differ by at most a tenth of that of predicting 0"
    )
    differences = _compare_losses(data, _take_difference, by_difference, 0.1)
    return Evidence(
        parts=[
            Part(
                printed=decide_together("trained with one loop more, the loss is lower", falling),
                reading=conventions.READING,
                other_readings=falling,
                trainings=seeds,
            ),
            Part(
                printed=replace(decide_together(by_ratio, ratios), ours=OURS),
                reading=f"losses are compared by their ratio; {conventions.READING}",
                other_readings={
                    **ratios,
                    "by their difference": decide_together(by_difference, differences),
                },
                trainings=seeds,
            ),
        ],
        beyond=[_check_minima(), _check_ratio()],
        table=_tabulate_minima(data.minima),
        figures=[_draw_figure(data.runs, n) for n in data.minima],
    )


def _check_falling(name: str, runs: list[Run]) -> Check:
    """Check that from every start the loss of one loop more is lower."""
    trial = Inequality(f"{name}: with one loop more, from every start, the loss is lower")
    for few, many in pairwise(runs):
        trial.add(many.losses[-1].max(), few.losses[-1].min(), many.case)
    return trial.check()


def _take_ratio(one: float, other: float) -> tuple[float, str]:
    low, high = sorted((one, other))
    return high / low, f"{high:.4g}/{low:.4g}"


def _take_difference(one: float, other: float) -> tuple[float, str]:
    low, high = sorted((one, other))
    return high - low, f"{high:.4g} − {low:.4g}"


def _compare_losses(
    data: Comparison, measure: Measure, statement: str, most: float
) -> dict[str, Check]:
    """Compare loops and layers as trained and at their minima, for each n and L from 2 on."""
    trainings = {
        (looped.n, looped.loops): product(looped.losses[-1].tolist(), layered.losses[-1].tolist())
        for looped, layered in zip(data.runs["loops"], data.runs["layers"], strict=True)
    }
    steps = data.runs["loops"][0].steps[-1]
    checks = {}
    for n, losses in data.minima.items():
        for L, least in list(enumerate(losses, 1))[1:]:
            trial = Inequality(f"$n = {n}$, $L = {L}$: {statement}, as trained and at the minima")
            pairs = [("at the minima", least)]
            pairs += [(f"after {steps} steps", pair) for pair in trainings.get((n, L), ())]
            for note, pair in pairs:
                value, working = measure(*pair)
                trial.add(value, most, Case(L=L, d=D, n=n, note=note), working=(working, ""))
            checks[f"$n = {n}$, $L = {L}$"] = trial.check()
    return checks


def scale_layers(factor: float) -> Callable[[Comparison], Comparison]:
    """Make data in which the trained layers' losses, and their least, are multiplied."""

    def change(data: Comparison) -> Comparison:
        layers = [run._replace(losses=run.losses * factor) for run in data.runs["layers"]]
        minima = {n: [(a, factor * b) for a, b in both] for n, both in data.minima.items()}
        return Comparison({**data.runs, "layers": layers}, minima)

    return change


def reverse_loops(data: Comparison) -> Comparison:
    """Make data in which the losses of few and of many loops are exchanged."""
    loops = []
    for runs in conventions.group_by_size(data.runs["loops"]).values():
        ends = [run.losses for run in reversed(runs)]
        loops += [run._replace(losses=losses) for run, losses in zip(runs, ends, strict=True)]
    return data._replace(runs={**data.runs, "loops": loops})


@claim(
    "gatmiry2024.figure-2",
    "Trained at $d = 10$, one layer looped $L$ times does about as well as $L$ layers, and "
    "more loops reach a lower loss.",
    where="Section 5.1, Figure 2",
    kind="figure",
    hypotheses={"$Σ* = I$, $d = 10$": "Section 5", **conventions.HYPOTHESES},
    missing="The text and the caption print neither n nor the numbers L, nor the scale on which "
    "losses are compared, nor the batch and the number of steps.",
    quick={"most": 3, "seeds": 3, "steps": 250, "batch": 64},
    full={"most": LOOPS[-1], "seeds": 5, "steps": 500, "batch": 128},
    tiny={"most": 3, "seeds": 1, "steps": 30, "batch": 16},
    judge=judge_comparison,
    falsified={
        "the losses of few loops for many, and of many for few": reverse_loops,
        "layers with a hundred times the loss": scale_layers(100.0),
        "layers with a hundredth of the loss": scale_layers(1 / 100),
    },
)
def figure_2(generator: torch.Generator, *, most: int, **sizes: Any) -> Comparison:
    runs = {
        kind: [
            trained.train_loops(generator, D, n, L, layered=layered, **sizes)
            for n in SIZES
            for L in range(1, most + 1)
        ]
        for kind, layered in (("loops", False), ("layers", True))
    }
    minima = {
        n: [
            (least_loss(D, n, L), trained.least_layered_loss(D, n, L))
            for L in range(1, LOOPS[-1] + 1)
        ]
        for n in SIZES
    }
    return Comparison(runs, minima)


def _check_minima() -> Check:
    trial = Inequality("with one loop more, the least loss of a multiple of $I$ is lower")
    for d in (1, 5, 10):
        for n in (d, *SIZES):
            for L in range(1, LOOPS[-1] + 1):
                trial.add(least_loss(d, n, L + 1), least_loss(d, n, L), Case(L=L, d=d, n=n))
    return trial.check()


def _check_ratio() -> Check:
    trial = Inequality("the least loss of 4 or more layers is below that of one loop more")
    for n in SIZES:
        for L in range(4, LOOPS[-1] + 2):
            least = trained.least_layered_loss(D, n, L)
            trial.add(least, least_loss(D, n, L + 1), Case(L=L, d=D, n=n))
    return trial.check()


def _draw_figure(runs: dict[str, list[Run]], n: int) -> Figure:
    rows: list[dict[str, Value]] = []
    for kind, least in (("loops", least_loss), ("layers", trained.least_layered_loss)):
        for run in (run for run in runs[kind] if run.n == n):
            panel = {"L": f"L = {run.loops}"}
            rows += banded_rows(run.steps, run.losses, what=kind, **panel)
            level = least(D, n, run.loops)
            rows += level_rows(run.steps, level, what=f"{kind}, least of multiples of I", **panel)
    return draw_lines(
        f"Loops and layers in training, d = {D}, n = {n}",
        rows,
        "step: step of Adam",
        "value: squared error over that of predicting 0",
        by="what",
        log="y",
        panel="L",
        band=("low", "high"),
        caption=f"Mean over {runs['loops'][0].seeds} random starts, with the least and the largest "
        "value. The best of all predictors makes no error, as n > d.",
    )


def _tabulate_minima(minima: dict[int, list[tuple[float, float]]]) -> list[dict[str, Value]]:
    return [
        {"n": n, "L": L, "loops": loops, "layers": layers, "ratio": loops / layers}
        for n, both in minima.items()
        for L, (loops, layers) in enumerate(both, 1)
    ]
