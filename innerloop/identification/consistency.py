"""A check that a model repeats its answers and treats prompts independently.

A comparison with candidates assumes that a prompt has one answer. That is false for a model that
answers at random, that changes between calls, or that lets the prompts of a batch influence each
other. `check_consistency` runs the model on some prompts again, in another order and in batches of
other sizes. If answers differ, the first batch is run twice more, which distinguishes the three
cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.identification.measures import FLOOR
from innerloop.identification.models import Model, Predictions, predict_layers

BATCH_SIZES = (1, 2, 4, 8, 16, 32)
"""Prompts in each of the batches that are asked again; no prompt is in two of them."""
TOLERANCE = 1e-4
"""Differences below this share of the answers' size are rounding, in float32 too."""
ROUNDINGS, MIN_VALUES = 16.0, 16
"""16-bit answers may differ by the first number of roundings. They are known by this many values
at least: labels of 0 and 1 have 16 bits too."""

PerLayer = Float[Tensor, " layers"]
RepeatedAnswers = Float[Tensor, "layers repeated outputs"]


@dataclass(frozen=True)
class Consistency:
    """What the check shows for each layer: a description of what is wrong, or None."""

    layers: list[str | None]
    notes: list[str] = field(default_factory=list)
    """What could not be checked."""


def check_consistency(model: Model, answered: Sequence[tuple[Any, Predictions]]) -> Consistency:
    """Run a model again on prompts that it has answered, and compare the answers.

    Args:
        model: The model.
        answered: Problems, each with the answers that the model gave to all of its prompts.

    Returns:
        A description per layer, or None if the layer's answers are the same again.
    """
    findings: list[str | None] = [None] * len(model.layers)
    failures: dict[int, str] = {}
    for problem, before in answered:
        differences = _ask_in_batches(model, problem, before, failures)
        limit = find_tolerance(before)
        if not any(bool((each > limit).any()) for each in differences.values()):
            continue
        described = _describe_differences(model, problem, before, differences, limit)
        findings = [first or new for first, new in zip(findings, described, strict=True)]
    return Consistency(findings, _describe_failures(failures))


def find_tolerance(answers: Predictions) -> float:
    """Return the largest difference that rounding explains, as a share of the answers' size."""
    for kind in (torch.bfloat16, torch.float16):
        exact = torch.equal(answers, answers.to(kind).to(answers))
        if exact and len(answers.unique()) > MIN_VALUES:
            return ROUNDINGS * torch.finfo(kind).eps
    return TOLERANCE


def _ask_in_batches(
    model: Model, problem: Any, before: Predictions, failures: dict[int, str]
) -> dict[int, PerLayer]:
    """Return how much answers differ in batches of each size; collect the sizes that fail."""
    order = torch.randperm(before.shape[1], generator=torch.Generator().manual_seed(0))
    differences: dict[int, PerLayer] = {}
    start = 0
    for size in BATCH_SIZES:
        places = order[start : start + size]
        start += size
        if not len(places):
            break
        try:
            after = predict_layers(model, problem[places])
        except InputError as error:  # a model that takes batches of one size
            failures.setdefault(len(places), str(error))
            continue
        differences[len(places)] = measure_difference(before, before[:, places], after, problem)
    return differences


def measure_difference(
    answers: Predictions, before: RepeatedAnswers, after: RepeatedAnswers, problem: Any
) -> PerLayer:
    """Return the difference of two answers to the same prompts, as a share of their size.

    A prompt's size is that of its own answer or of the mean answer, whichever is larger. The mean
    has a floor, because the answers of a layer that answers 0 differ by rounding only.
    """
    power = answers.square().sum(dim=-1).mean(dim=-1)
    labels = getattr(problem, "y", None)
    least = power.max() if labels is None else torch.maximum(power.max(), labels.square().mean())
    typical = torch.maximum(power, FLOOR * least).clamp_min(1e-300).unsqueeze(-1)
    sizes = torch.maximum(before.square().sum(dim=-1), typical)
    missed = (after - before).square().sum(dim=-1)
    return (missed.sum(dim=-1) / sizes.sum(dim=-1)).sqrt()


def _describe_differences(
    model: Model,
    problem: Any,
    before: Predictions,
    differences: dict[int, PerLayer],
    limit: float,
) -> list[str | None]:
    """Ask the same batch twice more, and describe each layer's difference."""
    again, last = predict_layers(model, problem), predict_layers(model, problem)
    changed = measure_difference(before, before, again, problem)
    varied = measure_difference(before, again, last, problem)
    findings: list[str | None] = []
    for k in range(len(before)):
        sizes = [size for size, each in differences.items() if float(each[k]) > limit]
        if float(varied[k]) > limit:
            findings.append(
                "gives random answers: the same prompts get another answer at every call, which "
                f"differs by {format_difference(float(varied[k]))}"
            )
        elif float(changed[k]) > limit:
            findings.append(
                "does not repeat itself: the same prompts get other answers in later calls, which "
                f"differ by {format_difference(float(changed[k]))}"
            )
        elif sizes:
            most = max(float(differences[size][k]) for size in sizes)
            findings.append(
                "does not treat prompts one by one: in batches of "
                f"{', '.join(map(str, sizes))} its answers differ by {format_difference(most)} "
                f"from those in a batch of {before.shape[1]}"
            )
        else:
            findings.append(None)
    return findings


def format_difference(share: float) -> str:
    """Format a difference as a percentage of the answers' size."""
    return f"{100 * share:.2g} %" if share < 10 else f"a factor of {share:.2g}"


def _describe_failures(failures: dict[int, str]) -> list[str]:
    if not failures:
        return []
    sizes, reason = ", ".join(map(str, failures)), next(iter(failures.values()))
    return [
        f"not checked whether prompts are treated one by one: batches of {sizes} fail: {reason}"
    ]
