"""Inspection of the result of `identify`: search the model's layers for the state of its candidate.

A verdict that answers, state and intervention support is stronger than one from answers alone.
"""

from __future__ import annotations

from typing import Any

from innerloop.identification.conclusion import Identification
from innerloop.identification.discriminating import Discrimination, Rival, discriminate
from innerloop.identification.hooked import HookedModel
from innerloop.identification.identification import as_model
from innerloop.identification.inside.hooks import as_stream_model
from innerloop.identification.inside.looking import look_inside
from innerloop.identification.inside.report import Inside
from innerloop.identification.scores import Match
from innerloop.problems.base import Distribution


def inspect_identification(
    found: Identification,
    model: Any,
    distribution: Distribution,
    *,
    prompts: int = 256,
    seed: int = 0,
) -> Inside:
    """Look inside a model for the state of the candidate that its verdict names, or that is
    nearest.

    An answer before the first layer has no layer to inspect, and neither has a module's own
    prediction after its last layer.
    """
    match = find_named_match(found)
    seen = as_stream_model(model)
    last = len(match.steps) - (isinstance(model, HookedModel) and model.answers_itself)
    own = slice(last - len(seen.layers), last)
    return look_inside(
        seen,
        match.algorithms[own],
        distribution,
        steps=match.steps[own],
        view=match.candidate.view,
        prompts=prompts,
        seed=seed,
    )


def find_named_match(found: Identification) -> Match:
    """Return the candidate of the verdict, or the last layer's nearest candidate if none fits."""
    for match in found.matches:
        if (match.candidate.name, match.candidate.schedule) == (found.algorithm, found.schedule):
            return match
    nearest = found.layers[-1].nearest
    return next(match for match in found.matches if match.candidate.label == nearest)


def discriminate_ties(
    found: Identification,
    model: Any,
    distribution: Distribution,
    *,
    prompts: int = 64,
    seed: int = 0,
) -> list[Discrimination]:
    """Compare the named candidate with each candidate that no layer's answers distinguish from
    it.
    """
    named, tied = find_named_match(found), set[str]()
    for layer in found.layers:
        tied |= {layer.nearest, *layer.indistinguishable, *layer.also_fits}
    others = [
        match
        for match in found.matches
        if match.candidate.label in tied - {named.candidate.label}
        and not match.candidate.contains(named.candidate)
    ]
    first, seen = Rival.from_match(named), as_model(model)
    return [
        discriminate(seen, first, Rival.from_match(other), distribution, prompts=prompts, seed=seed)
        for other in others
    ]
