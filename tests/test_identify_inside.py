"""Disguised models are identified as the originals are, and verdicts are looked for inside."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from impostors import build_descent, build_side_by_side
from torch import Tensor

from innerloop.constructions.newton import NewtonConstruction
from innerloop.identification.hooked import HookedModel
from innerloop.identification.identification import identify
from innerloop.identification.inside.identified import discriminate_ties, inspect_identification
from innerloop.identification.inside.streams import BuiltStreams
from innerloop.identification.models import Predictions
from innerloop.problems.linear_regression import LinearRegression
from innerloop.transformer.disguises import (
    change_basis,
    draw_permutation,
    draw_rotation,
    split_heads,
)

CANDIDATES = ["gradient-descent", "newton"]
PROBLEMS = LinearRegression(d=3, n=12)
SMALL: dict[str, Any] = {"algorithms": CANDIDATES, "prompts": 16, "steps": 4}


def disguise(kind: str, dead: int = 4) -> BuiltStreams:
    construction = build_descent(3, 12, 2)
    generator = torch.Generator().manual_seed(1)
    draw = {"rotated": draw_rotation, "permuted": draw_permutation}[kind]
    basis = draw(construction.layout.width, generator, dead)
    split = split_heads(construction.transformer, generator)
    return BuiltStreams(construction, change_basis(split, basis), basis)


@pytest.mark.parametrize("kind", ["rotated", "permuted"])
def test_a_disguised_model_is_identified_and_looked_into_as_the_original_is(kind: str) -> None:
    model = disguise(kind)
    found = identify(model, PROBLEMS, **SMALL)
    assert found.algorithm == "gradient-descent"
    assert all(layer.fit == "match" for layer in found.layers)
    inside = inspect_identification(found, model, PROBLEMS, prompts=32)
    assert inside.agrees, inside.text


def test_fitted_read_outs_see_through_a_disguise() -> None:
    plain, model = build_descent(3, 12, 2), disguise("rotated", dead=0)
    basis = model.basis
    assert basis is not None
    names = [f"body.{k}.0" for k in range(2)]

    def write(problem: Any) -> Tensor:
        return plain.prompt(problem) @ basis.mT

    def read(module: Any, prompt: Any) -> list[Any]:
        hooked = HookedModel.fit(module, PROBLEMS, prompt, names, prompts=400)
        return [layer.as_dict() for layer in identify(hooked, PROBLEMS, **SMALL).layers]

    pairs = zip(read(plain.transformer, plain.prompt), read(model.transformer, write), strict=True)
    for before, after in pairs:
        assert before["nearest"] == after["nearest"]
        assert before["score"] == pytest.approx(after["score"], abs=1e-6)


def test_the_verdict_on_an_impostor_is_about_what_it_prints() -> None:
    model = build_side_by_side(steps=2)
    found = identify(model, PROBLEMS, **SMALL)
    assert found.algorithm == "gradient-descent"
    assert inspect_identification(found, model, PROBLEMS, prompts=32).agrees
    assert discriminate_ties(found, model, PROBLEMS) == []


class NearlyExact(BuiltStreams):
    """A construction whose predictions have small errors, so that no candidate fits exactly."""

    def predict(self, problem: Any) -> Predictions:
        answers = super().predict(problem)
        return answers * (1 + 2e-3 * torch.sin(1000 * answers))


def test_discriminate_ties_separates_candidates_on_other_problems() -> None:
    n = 4000
    construction = NewtonConstruction(d=1, n=n, steps=2, alpha=0.15 / n**2)
    model = NearlyExact(construction, construction.transformer)
    problems = LinearRegression(d=1, n=n)
    result = identify(model, problems, **SMALL)
    assert result.layers[-1].indistinguishable
    separated = discriminate_ties(result, model, problems, prompts=4)
    assert separated
    assert all(each.winner == "newton" for each in separated), [each.text for each in separated]
    exact = BuiltStreams(construction, construction.transformer)
    assert not identify(exact, problems, **SMALL).layers[-1].indistinguishable
