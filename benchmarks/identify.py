"""Compare the batched comparison of layers with candidates to a loop.

A 12-layer transformer (Newton's iteration, d = 5) predicts on 1,000 prompts of 40 examples. Every
candidate runs 64 steps on the same prompts (or computes its exact solution), and every layer is
compared with every step. innerloop runs all prompts in a batch and makes all comparisons at once.
The loop processes one prompt and one step after another. Both use the same algorithms with the same
fitted hyper-parameters, in float64 on one thread. Their results must agree unless a candidate
diverges. The loop is measured on the first prompts only, and its time is scaled to all prompts,
because the work per prompt is constant.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from common import median_seconds, record
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.constructions.newton import NewtonConstruction
from innerloop.identification.hyper import predict_state, predict_steps
from innerloop.identification.identification import identify
from innerloop.identification.instances import draw_prompts
from innerloop.identification.measures import squared_distance
from innerloop.identification.models import ConstructionModel, predict_layers
from innerloop.recipes.sparse import select_instances

D, N, LAYERS, STEPS, PROMPTS = 5, 40, 12, 64, 1000
LOOPED, ROUNDS, CLAIMED = 10, 3, 20
DIVERGENCE_LIMIT = 10.0
"""The squared distance above which a candidate counts as diverged."""

FittedCandidates = list[tuple[Algorithm[Any, Any], int]]
"""Every fitted candidate with its number of steps."""


def compare_batched(
    model: ConstructionModel, problem: Any, candidates: FittedCandidates
) -> list[Tensor]:
    """Compute the mean squared distance of each layer's predictions to each step's, per
    candidate."""
    layers = predict_layers(model, problem)
    with torch.no_grad():
        return [
            squared_distance(layers, predict_steps(c, problem, steps)) for c, steps in candidates
        ]


def compare_looped(
    model: ConstructionModel, problem: Any, candidates: FittedCandidates
) -> list[Tensor]:
    """Compute the tables of `compare_batched` by a loop over prompts, candidates and steps.

    For each candidate, a table contains the mean squared distance between the predictions of each
    layer and those after each step. This is the slow baseline of the benchmark.
    """
    count = len(problem.x)
    tables = [torch.zeros(LAYERS, steps + 1, dtype=torch.float64) for _, steps in candidates]
    for prompt in range(count):
        single = select_instances(problem, slice(prompt, prompt + 1))
        layers = predict_layers(model, single)
        with torch.no_grad():
            for (algorithm, steps), table in zip(candidates, tables, strict=True):
                for step, state in enumerate(algorithm.states(single, steps)):
                    prediction = predict_state(algorithm, single, state)
                    distance = (layers - prediction).square().sum(dim=(1, 2))
                    table[:, step] += distance / count
    return tables


def table_difference(ours: Tensor, theirs: Tensor) -> float:
    """Return the largest relative difference of two tables.

    If a candidate diverges, only its first steps are compared, as many as there are layers, because
    later steps amplify rounding errors.
    """
    converges = bool((theirs < DIVERGENCE_LIMIT).all())
    steps = slice(None) if converges else slice(LAYERS + 1)
    return float(((ours - theirs).abs() / (1 + theirs))[:, steps].max())


def main() -> None:
    start = time.perf_counter()
    torch.set_num_threads(1)
    construction = NewtonConstruction(d=D, n=N, steps=LAYERS)
    model = ConstructionModel(construction, construction.transformer)
    identification = identify(model, prompts=256)
    identify_seconds = time.perf_counter() - start
    print(f"verdict: {identification.verdict}, in {identify_seconds:.0f} s")
    candidates = [
        (match.algorithms[-1], 0 if match.candidate.schedule == "exact" else STEPS)
        for match in identification.matches
    ]
    problem = draw_prompts(model.distribution(), PROMPTS, torch.Generator().manual_seed(1))
    few = select_instances(problem, slice(LOOPED))
    pairs = zip(
        compare_batched(model, few, candidates), compare_looped(model, few, candidates), strict=True
    )
    difference = max(table_difference(ours, theirs) for ours, theirs in pairs)
    ours = median_seconds(lambda: compare_batched(model, problem, candidates), ROUNDS)
    looped = median_seconds(lambda: compare_looped(model, few, candidates), 1)
    theirs = looped * PROMPTS / LOOPED
    ratio = theirs / ours
    print(f"{len(candidates)} candidates, {LAYERS} layers, {STEPS} steps, {PROMPTS} prompts of {N}")
    print(f"at once {ours:.2f} s; loop {theirs:.0f} s ({LOOPED} prompts took {looped:.2f} s)")
    print(
        f"{ratio:.0f} times faster; claimed: at least {CLAIMED}; tables differ by {difference:.0e}"
    )
    settings = {
        **{"d": D, "n": N, "layers": LAYERS, "steps": STEPS, "prompts": PROMPTS},
        **{"candidates": [match.candidate.label for match in identification.matches]},
        **{"prompts_looped": LOOPED, "rounds": ROUNDS},
    }
    times = {"at_once": ours, "loop_scaled": theirs, "loop_measured": looped, "ratio": ratio}
    record(
        "identify",
        start,
        settings,
        {**times, "identify_seconds": identify_seconds, "differ": difference},
    )
    if ratio < CLAIMED or difference > 1e-6 or identification.algorithm != "newton":
        sys.exit("the claim does not hold in this run")


if __name__ == "__main__":
    main()
