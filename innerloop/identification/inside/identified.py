"""What `identify` has found, looked for inside the model: its candidate, as fitted, layer by layer.

A verdict that answers, state and intervention share is worth more than one from answers alone.
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
    """Look inside a model for the candidate that its verdict names, or that is nearest.

    Where the model also answers before its first layer, that answer has no layer to look into, and
    neither has the own prediction of a module after its last layer.
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
    """Return the candidate of the verdict; where none fits, the last layer's nearest."""
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
    """Tell the named candidate from each that no layer's answers could tell it from."""
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
