"""The step of Newton's iteration and of gradient descent that each layer resembles most.

Printed    the best-matching steps: a linear trend with Newton's iterations, an exponential one with
           gradient descent's steps. The paper's GPT-2 has 12 layers, 8 heads, width 256; d = 20,
           n = 40
Tested     a GPT-2 trained here (6 layers, width 64, d = 5, n = 10 = 2d as there), read out after
           each layer. Likeness is the paper's: the cosine of errors over the positions of a prompt
           (its heat maps, which the slide shows); the cosine of the weights that predictions at
           fresh queries induce is shown beside it. Whether a line or an exponential, each fitted by
           least squares on the steps, explains more of the best steps' variance, over the layers
           down to the first within twice the last one's error, where training ends, and before any
           that least squares, the limit of both, matches as well. Layers whose best step is 0
           count. At `full` three trainings, which must agree
Ours       a trend is fitted to five layers or more, else it is undecided: a line and an exponential
           through three points are hardly told apart; it holds where 19 of 20 draws of prompts say
           so, and fails where 19 of 20 say the opposite
Note       2^k steps of gradient descent are enough for k iterations of Newton's, so that either
           trend nearly is the other; likeness itself does not tell the two apart: at their best
           steps both are as like the layers
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Check, Evidence, Figure, Part
from innerloop.claims.figures import draw_lines
from innerloop.claims.recorded import name_seeds
from innerloop.claims.yang2025.networks import (
    LEARNED_SHARE,
    PAPER_SIZES,
    SHORT_TRAINING,
    SMALL_SIZES,
    ProbedNetwork,
    change_each,
    first_below,
    gradient_descent,
    judge_each,
    layer_error_shares,
    load_networks,
    newton_iteration,
    predict_positions,
    predict_queries,
)
from innerloop.identification import measures
from innerloop.identification.hyper import predict_steps
from innerloop.identification.models import predict_layers
from innerloop.identification.relation import fit_step_growth

NEWTON, DESCENT = "Newton's iteration", "gradient descent"
TREND = {NEWTON: "linear", DESCENT: "exponential"}
DRAWS, SURE = 40, 0.95
ALIKE = 1e-3
"""A layer that the iteration's limit matches as well as any step, to this, matches no step."""
Likeness = Callable[[Tensor], Tensor]
"""Map a choice of prompts to similarities, layers × steps."""


LEAST_LAYERS = 5
"""Layers that a trend is fitted to, at least."""
Data = dict[str, Any]


class BestMatch(NamedTuple):
    """The most similar step of each layer, in all prompts and in draws of them."""

    steps: list[int]
    again: list[list[int]]
    fitted_layers: int
    """Number of layers that the trend is fitted to."""
    similarity: list[float]
    table: Tensor

    def fit(self) -> dict[str, Any] | None:
        return fit_growth(self.steps[: self.fitted_layers])

    def count_agreeing(self, trend: str) -> float:
        """The share of the draws in which the stated trend fits better."""
        fits = [fit_growth(steps[: self.fitted_layers]) for steps in self.again]
        agreeing = [f is not None and f["better"] == trend and f[trend]["slope"] > 0 for f in fits]
        return sum(agreeing) / len(agreeing)


def fit_growth(steps: list[int]) -> dict[str, Any] | None:
    return fit_step_growth(range(1, len(steps) + 1), steps)


def judge_matches(data: Data) -> Evidence:
    found: dict[tuple[str, str], BestMatch] = data["found"]
    return Evidence(
        parts=[
            Part(
                printed=check_trend(name, "errors", found[name, "errors"], data["last"]),
                reading="likeness of errors, as in the paper's heat maps that the slide shows",
                other_readings={
                    "likeness of the weights that predictions induce": check_trend(
                        name, "weights", found[name, "weights"], data["last"]
                    )
                },
                trainings=1,
            )
            for name in TREND
        ],
        numbers={
            f"least similarity of {measure}, {name}": min(best.similarity)
            for (name, measure), best in found.items()
        },
        table=[
            {"layer": k + 1, **{f"{name}, by {m}": b.steps[k] for (name, m), b in found.items()}}
            for k in range(min(len(best.steps) for best in found.values()))
        ],
        figures=[
            *_trend(found, data["description"]),
            *(_heat(found[name, "errors"], name) for name in TREND),
        ],
    )


def check_trend(name: str, measure: str, best: BestMatch, last: float) -> Check:
    trend, fit, share = TREND[name], best.fit(), best.count_agreeing(TREND[name])
    told = f"best steps {', '.join(map(str, best.steps))}, the first {best.fitted_layers} fitted"
    if fit is not None:
        line, curve = fit["linear"], fit["exponential"]
        told += f"; $R²$ {line['r2']:.3f} of a line ({line['slope']:.2f} steps a layer), "
        told += f"{curve['r2']:.3f} of an exponential"
    told += f"; {trend} in {share:.0%} of {len(best.again)} draws of prompts"
    passed = True if share >= SURE else (False if share <= 1 - SURE else None)
    if last > LEARNED_SHARE:
        passed = None
        told = f"{SHORT_TRAINING}: its error is {last:.2g} of the labels' power; {told}"
    elif best.fitted_layers < LEAST_LAYERS:
        passed, told = None, f"fewer than {LEAST_LAYERS} layers to fit; {told}"
    return Check(
        statement=f"the steps of {name} that match best by {measure}: {trend} in layers",
        passed=passed,
        summary=told,
        counterexample=told if passed is False else "",
        ours=f"{LEAST_LAYERS} layers or more, and 19 of 20 draws of prompts",
    )


def replace_steps(name: str, steps: list[int]) -> Callable[[list[Data]], list[Data]]:
    """Make a form of a trained network whose layers match these steps of one iteration."""

    def falsify(data: Data) -> Data:
        found = {
            key: best._replace(steps=steps, again=[steps] * DRAWS, fitted_layers=len(steps))
            if key[0] == name
            else best
            for key, best in data["found"].items()
        }
        return {**data, "found": found, "last": 0.01}

    return change_each(falsify)


@claim(
    "yang2025.fu.best-match",
    "The best-matching steps of a transformer's layers grow linearly for Newton's iteration and "
    "exponentially for gradient descent.",
    where="First paper (Fu et al. 2023): key result 4",
    kind="rate",
    hypotheses={
        "$w* ~ N(0, I)$, $x ~ N(0, Σ)$, $y = w*ᵀx$ without noise": "the linear regression task",
        "$d = 5$, $n = 10$, 6 layers of width 64, at `full` too": "ours: the slides give no sizes",
    },
    decided_by="trainings that agree on how the steps of gradient descent grow, or one as long as "
    "the paper's, 500,000 steps",
    quick={
        "machines": ["gpt2"],
        "sizes": SMALL_SIZES,
        "prompts": 400,
        "examples": 200,
        "most": 1000,
    },
    full={"machines": name_seeds("gpt2", 3), "sizes": SMALL_SIZES, "prompts": 1500}
    | {"examples": 500, "most": 1000},
    paper={"machines": [None] * 3, "sizes": {**PAPER_SIZES, "heads": 8}, "prompts": 4000}
    | {"examples": 1000, "most": 2000},
    tiny={"machines": [None], "sizes": SMALL_SIZES, "prompts": 60, "examples": 60, "most": 40},
    judge=judge_each(judge_matches),
    falsified={
        "Newton's steps that double with every layer": replace_steps(NEWTON, [1, 2, 4, 8, 16, 32]),
        "gradient descent's steps that grow by three a layer": replace_steps(
            DESCENT, [3, 6, 9, 12, 15, 18]
        ),
    },
)
def fu_best_match(
    generator: torch.Generator,
    *,
    machines: Sequence[str | None],
    sizes: Mapping[str, Any],
    prompts: int,
    examples: int,
    most: int,
) -> list[Data]:
    networks = load_networks(machines, sizes, prompts)
    return [match_steps(generator, layers, examples, most) for layers in networks]


def match_steps(
    generator: torch.Generator, layers: ProbedNetwork, examples: int, most: int
) -> Data:
    problem = layers.draw_problems(examples, generator)
    errors = layer_error_shares(layers, problem).mean(dim=-1).tolist()
    kept = (first_below(errors, 2 * errors[-1]) or 0) + 1
    queries = torch.randn(examples, 2 * problem.d, problem.d, generator=generator).to(problem.x)
    target = torch.cat([each.targets for each in problem.prefixes()], dim=-1)

    def answers(answer: Callable[[Any], Tensor]) -> tuple[Tensor, Tensor]:
        return predict_positions(answer, problem), predict_queries(answer, problem, queries)

    said = answers(lambda given: predict_layers(layers.model, given))
    draws = torch.randint(examples, (DRAWS, examples), generator=generator)
    found: dict[tuple[str, str], BestMatch] = {}
    for name, iteration, steps in (
        (NEWTON, newton_iteration, 24),
        (DESCENT, gradient_descent, most),
    ):
        own = answers(lambda given, i=iteration, k=steps: predict_steps(i(given), given, k))
        likeness = {
            "errors": _error_likeness(said, own, target),
            "weights": _weight_likeness(said, own, queries),
        }
        for measure, like in likeness.items():
            found[name, measure] = find_best(like, draws, kept)
    return {"found": found, "last": errors[-1], "description": layers.description}


def _error_likeness(
    said: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor], target: Tensor
) -> Likeness:
    return lambda pick: measures.error_similarity(said[0][:, pick], own[0][:, pick], target[pick])


def _weight_likeness(
    said: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor], queries: Tensor
) -> Likeness:
    model, candidate = (measures.induced_weights(each[1], queries) for each in (said, own))
    return lambda pick: measures.sensitivity_cosine(model[:, pick], candidate[:, pick])


def find_best(like: Likeness, draws: Tensor, kept: int) -> BestMatch:
    table = like(torch.arange(draws.shape[1]))
    steps, similarity = table.argmax(dim=1).tolist(), table.amax(dim=1).tolist()
    limit = table[:, -1].tolist()
    told = [best - end > ALIKE for best, end in zip(similarity, limit, strict=True)]
    kept = min(kept, told.index(False) if False in told else len(told))
    again = [like(pick).argmax(dim=1).tolist() for pick in draws]
    return BestMatch(steps, again, kept, similarity, table)


def _trend(found: Mapping[tuple[str, str], BestMatch], told: str) -> list[Figure]:
    """Plot the fitted trend; nothing where no layer is like any step but the first."""
    rows = []
    for (name, measure), best in found.items():
        fit = best.fit()
        for k, step in enumerate(best.steps, 1):
            if step > 0:
                rows.append({"layer": k, "step": step, "what": f"best by {measure}", "of": name})
            if fit is not None and measure == "errors" and k <= best.fitted_layers:
                law = fit[TREND[name]]
                line = law["intercept"] + law["slope"] * k
                stated = line if TREND[name] == "linear" else math.exp(line)
                if stated > 0:
                    rows.append({"layer": k, "step": stated, "what": "trend stated", "of": name})
    if not rows:
        return []
    title = f"Best-matching steps; a GPT-2 of {told}"
    return [draw_lines(title, rows, "layer", "step", "what: which", log="y", panel="of")]


def _heat(best: BestMatch, name: str) -> Figure:
    steps = sorted({0, 1, *(round(1.3**k) for k in range(40)), *best.steps})
    return Figure(
        title=f"Similarity of errors: layers and steps of {name}",
        rows=[
            {"layer": str(layer), "step": str(k), "similarity": float(row[k])}
            for layer, row in enumerate(best.table, 1)
            for k in steps
            if k < len(row) and k <= 2 * max(best.steps) + 1
        ],
        mark="heat",
        x=Axis(field="step", title="step", scale="category"),
        y=Axis(field="layer", title="layer", scale="category"),
        colour=Axis(field="similarity", title="E cos of errors"),
        caption=f"Best: {', '.join(map(str, best.steps))}.",
    )
