"""The step of Newton's iteration and of gradient descent that each layer resembles most.

Printed    the best-matching steps: a linear trend with Newton's iterations, an exponential one with
           gradient descent's steps. The paper's GPT-2 has 12 layers, 8 heads, width 256; d = 20,
           n = 40
Tested     a GPT-2 trained here (6 layers, width 64, d = 5, n = 10 = 2d as there), read out after
           each layer. Likeness is the paper's: the cosine of errors over the positions of a prompt,
           and the cosine of the weights that predictions at fresh queries induce. Whether a line or
           an exponential explains more of the best steps' variance, over the layers down to the
           first within twice the last one's error, where training ends, and before any that least
           squares, the limit of both, matches as well; it holds where 19 of 20 draws of prompts
           say so
Note       2^k steps of gradient descent are enough for k iterations of Newton's, so that either
           trend nearly is the other; likeness itself does not tell the two apart: at their best
           steps both are as like the layers
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Check, Evidence, Figure, Part
from innerloop.claims.yang2025.networks import (
    LEARNED_SHARE,
    PAPER_SIZES,
    SHORT_TRAINING,
    SMALL_SIZES,
    ProbedNetwork,
    first_below,
    gradient_descent,
    layer_error_shares,
    load_network,
    newton_iteration,
    predict_positions,
    predict_queries,
    substitute_iteration,
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


class BestMatch(NamedTuple):
    """The most similar step of each layer, and how often the stated trend fits it better."""

    steps: list[int]
    fitted_layers: int
    """Number of layers that the trend is fitted to."""
    similarity: list[float]
    table: Tensor
    fit: dict[str, Any] | None
    share: float
    """Share of the bootstrap draws in which the stated trend fits better."""


@claim(
    "yang2025.fu.best-match",
    "The best-matching steps of a transformer's layers grow linearly for Newton's iteration and "
    "exponentially for gradient descent.",
    where="First paper (Fu et al. 2023): key result 4",
    kind="rate",
    quick={"machine": "gpt2", "sizes": SMALL_SIZES, "prompts": 400, "examples": 200, "most": 1000},
    full={"machine": "gpt2", "sizes": SMALL_SIZES, "prompts": 1500, "examples": 500, "most": 1000},
    paper={"machine": None, "sizes": {**PAPER_SIZES, "heads": 8}, "prompts": 4000}
    | {"examples": 1000, "most": 2000},
    tiny={"machine": None, "sizes": SMALL_SIZES, "prompts": 60, "examples": 60, "most": 40},
    falsified={
        "gradient descent's steps for layers": {
            "layered": substitute_iteration(gradient_descent, *range(1, 25))
        },
        "Newton's iterations 1, 2, 4, 8 for layers": {
            "layered": substitute_iteration(newton_iteration, 1, 2, 4, 8)
        },
    },
)
def fu_best_match(
    generator: torch.Generator,
    *,
    machine: str | None,
    sizes: Mapping[str, Any],
    prompts: int,
    examples: int,
    most: int,
    layered: Callable[..., ProbedNetwork] = load_network,
) -> Evidence:
    layers = layered("gpt2-regression", machine, sizes, prompts)
    problem = layers.draw_problems(examples, generator)
    errors = layer_error_shares(layers, problem).mean(dim=-1).tolist()
    last, kept = errors[-1], (first_below(errors, 2 * errors[-1]) or 0) + 1
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
            found[name, measure] = _best(like, draws, kept, TREND[name])
    short = (
        f"{SHORT_TRAINING}: its error is {last:.2g} of the labels' power"
        if last > LEARNED_SHARE
        else ""
    )
    return Evidence(
        parts=[_part(name, measure, best, short) for (name, measure), best in found.items()],
        numbers={
            f"least similarity of {measure}, {name}": min(best.similarity)
            for (name, measure), best in found.items()
        },
        table=[
            {"layer": k + 1, **{f"{name}, by {m}": b.steps[k] for (name, m), b in found.items()}}
            for k in range(len(said[0]))
        ],
        figures=[
            *_trend(found, layers.description),
            *(_heat(found[name, "errors"], name) for name in TREND),
        ],
    )


def _error_likeness(
    said: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor], target: Tensor
) -> Likeness:
    return lambda pick: measures.error_similarity(said[0][:, pick], own[0][:, pick], target[pick])


def _weight_likeness(
    said: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor], queries: Tensor
) -> Likeness:
    model, candidate = (measures.induced_weights(each[1], queries) for each in (said, own))
    return lambda pick: measures.sensitivity_cosine(model[:, pick], candidate[:, pick])


def _best(like: Likeness, draws: Tensor, kept: int, trend: str) -> BestMatch:
    table = like(torch.arange(draws.shape[1]))
    steps, similarity = table.argmax(dim=1).tolist(), table.amax(dim=1).tolist()
    limit = table[:, -1].tolist()
    told = [best - end > ALIKE for best, end in zip(similarity, limit, strict=True)]
    kept = min(kept, told.index(False) if False in told else len(told))
    again = [_fit(like(pick).argmax(dim=1).tolist()[:kept]) for pick in draws]
    agreeing = [fit is not None and _follows(fit, trend) for fit in again]
    return BestMatch(steps, kept, similarity, table, _fit(steps[:kept]), sum(agreeing) / len(draws))


def _fit(steps: list[int]) -> dict[str, Any] | None:
    return fit_step_growth(range(1, len(steps) + 1), steps)


def _follows(fit: dict[str, Any], trend: str) -> bool:
    return fit["better"] == trend and fit[trend]["slope"] > 0


def _part(name: str, measure: str, best: BestMatch, short: str) -> Part:
    trend = TREND[name]
    told = f"best steps {', '.join(map(str, best.steps))}, the first {best.fitted_layers} fitted"
    if best.fit is not None:
        line, curve = best.fit["linear"], best.fit["exponential"]
        told += f"; R² {line['r2']:.3f} of a line ({line['slope']:.2f} steps a layer), "
        told += f"{curve['r2']:.3f} of an exponential"
    told += f"; {trend} in {best.share:.0%} of {DRAWS} draws of prompts"
    passed = True if best.share >= SURE else (False if best.share <= 1 - SURE else None)
    if short or best.fit is None:
        passed, told = None, f"{short or 'too few layers to tell'}; {told}"
    check = Check(
        statement=f"the steps of {name} that match best by {measure}: {trend} in layers",
        passed=passed,
        summary=told,
        counterexample=told if passed is False else "",
    )
    return Part(printed=check, matters="result")


def _trend(found: Mapping[tuple[str, str], BestMatch], told: str) -> list[Figure]:
    """Plot the fitted trend; nothing where no layer is like any step but the first."""
    rows = []
    for (name, measure), best in found.items():
        fit = best.fit
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
    figure = Figure(
        title=f"Best-matching steps; a GPT-2 of {told}",
        rows=rows,
        x=Axis(field="layer", title="layer"),
        y=Axis(field="step", title="step", scale="log"),
        colour=Axis(field="what", title="which", scale="category"),
        panel="of",
    )
    return [figure]


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
