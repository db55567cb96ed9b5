"""The grid of identification: all layers × all steps × all candidates at once, next to a loop.

A 12-layer transformer (Newton's iteration, d = 5) answers 1,000 prompts of 40 examples, every
candidate runs 64 steps on them (one that has none, its solution), and every layer is compared with
every step. Ours runs all prompts in a batch and makes all comparisons at once; the loop takes one
prompt after the other, and one step after the other. Both use the same algorithms with the same
fitted hyper-parameters, in float64 on one thread, and must give the same table, but where a
candidate diverges. The loop is measured on the first prompts only, and its time scaled to all:
each prompt is the same work.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from common import median_seconds, record
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.constructions.newton import LinearNewton
from innerloop.identify.hyper import ran, said
from innerloop.identify.identification import identify
from innerloop.identify.instances import changed, drawn, first
from innerloop.identify.measures import squared_distance
from innerloop.identify.models import ConstructionModel, predicted

D, N, LAYERS, STEPS, PROMPTS = 5, 40, 12, 64, 1000
LOOPED, ROUNDS, CLAIMED = 10, 3, 20
DIVERGED = 10.0
"""Squared distances from which on a candidate has diverged."""

Fitted = list[tuple[Algorithm[Any, Any], int]]
"""Every candidate as fitted, and how many steps it runs."""


def at_once(model: ConstructionModel, problem: Any, candidates: Fitted) -> list[Tensor]:
    """E (m − c)² for every layer and step, candidate by candidate."""
    layers = predicted(model, problem)
    with torch.no_grad():
        return [squared_distance(layers, ran(c, problem, steps)) for c, steps in candidates]


def one_by_one(model: ConstructionModel, problem: Any, candidates: Fitted) -> list[Tensor]:
    """The same by a loop over prompts, candidates and steps."""
    count = len(problem.x)
    tables = [torch.zeros(LAYERS, steps + 1, dtype=torch.float64) for _, steps in candidates]
    for prompt in range(count):
        alone = changed(problem, lambda tensor, k=prompt: tensor[k : k + 1])
        layers = predicted(model, alone)
        with torch.no_grad():
            for (algorithm, steps), table in zip(candidates, tables, strict=True):
                for step, state in enumerate(algorithm.states(alone, steps)):
                    prediction = said(algorithm, alone, state)
                    apart = (layers - prediction).square().sum(dim=(1, 2))
                    table[:, step] += apart / count
    return tables


def apart(ours: Tensor, theirs: Tensor) -> float:
    """How far two tables differ; of a candidate that diverges, as many steps as there are layers:
    from there on it blows up rounding."""
    stays = bool((theirs < DIVERGED).all())
    kept = slice(None) if stays else slice(LAYERS + 1)
    return float(((ours - theirs).abs() / (1 + theirs))[:, kept].max())


def main() -> None:
    start = time.perf_counter()
    torch.set_num_threads(1)
    construction = LinearNewton(d=D, n=N, steps=LAYERS)
    model = ConstructionModel(construction, construction.transformer)
    found = identify(model, prompts=256)
    fitting = time.perf_counter() - start
    print(f"verdict: {found.verdict}, in {fitting:.0f} s")
    candidates = [
        (match.algorithms[-1], 0 if match.candidate.schedule == "exact" else STEPS)
        for match in found.matches
    ]
    problem = drawn(model.distribution(), PROMPTS, torch.Generator().manual_seed(1))
    few = first(problem, LOOPED)
    pairs = zip(at_once(model, few, candidates), one_by_one(model, few, candidates), strict=True)
    differ = max(apart(ours, theirs) for ours, theirs in pairs)
    ours = median_seconds(lambda: at_once(model, problem, candidates), ROUNDS)
    looped = median_seconds(lambda: one_by_one(model, few, candidates), 1)
    theirs = looped * PROMPTS / LOOPED
    ratio = theirs / ours
    print(f"{len(candidates)} candidates, {LAYERS} layers, {STEPS} steps, {PROMPTS} prompts of {N}")
    print(f"at once {ours:.2f} s; loop {theirs:.0f} s ({LOOPED} prompts took {looped:.2f} s)")
    print(f"{ratio:.0f} times faster; claimed: at least {CLAIMED}; tables differ by {differ:.0e}")
    settings = {
        **{"d": D, "n": N, "layers": LAYERS, "steps": STEPS, "prompts": PROMPTS},
        **{"candidates": [match.candidate.label for match in found.matches]},
        **{"prompts_looped": LOOPED, "rounds": ROUNDS},
    }
    times = {"at_once": ours, "loop_scaled": theirs, "loop_measured": looped, "ratio": ratio}
    record("identify", start, settings, {**times, "identify_seconds": fitting, "differ": differ})
    if ratio < CLAIMED or differ > 1e-6 or found.algorithm != "newton":
        sys.exit("the claim does not hold in this run")


if __name__ == "__main__":
    main()
