"""Problems that tell two candidates apart are found where those at hand do not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.algorithms.newton import Newton
from innerloop.algorithms.preconditioned_gradient_descent import PreconditionedGradientDescent
from innerloop.constructions.newton import NewtonConstruction
from innerloop.identification.discriminating import Rival, discriminate, propose_problems
from innerloop.identification.models import ConstructionModel
from innerloop.problems.linear_regression import LinearRegression

N, STEPS = 100, [1, 2, 3]
GIVEN = LinearRegression(d=3, n=N)
START = 0.3
"""α λ² of Newton's start, for λ = n: its error is (1 − START) to the power 2^k after step k."""
NEWTON = Newton(torch.tensor(START / N**2, dtype=torch.float64))
SIZES = [1 - (1 - START) ** 2, 1 - (1 - START) ** 2, 1 - (1 - START) ** 4]
DESCENT = GradientDescent(torch.tensor(SIZES, dtype=torch.float64))


def make_rivals() -> tuple[Rival, Rival]:
    """Make two candidates that shrink an error alike while all eigenvalues of XᵀX are n."""
    return Rival("newton", [NEWTON] * 3, STEPS), Rival("gradient-descent", [DESCENT] * 3, STEPS)


def test_ill_conditioned_problems_tell_gradient_descent_from_newton() -> None:
    descent = GradientDescent(torch.tensor([1.0], dtype=torch.float64))
    newton = Newton(torch.tensor(0.9 / N**2, dtype=torch.float64))
    pair = Rival("gradient-descent", [descent] * 2, [9, 10]), Rival("newton", [newton] * 2, [9, 10])
    found = propose_problems(*pair, replace(GIVEN, weights="inverse"), most=200, prompts=8)
    by_setting = {tuple(sorted(each.changed.items())): each.difference for each in found.proposals}
    assert found.given < 1e-6
    assert by_setting[("kappa", 100.0),] > 0.01
    ranks = [each.difference * 0.95 ** len(each.changed) for each in found.proposals]
    assert ranks == sorted(ranks, reverse=True)


def test_the_model_decides_on_the_problems_that_are_proposed() -> None:
    first, second = make_rivals()
    construction = NewtonConstruction(d=3, n=N, steps=3, alpha=START / N**2)
    model = ConstructionModel(construction, construction.transformer)
    found = discriminate(model, second, first, GIVEN, prompts=8)
    assert found.winner == "newton"
    assert found.shares is not None
    assert found.shares[1] > 0.999
    assert found.shares[0] < 0.9
    assert found.text.endswith(": newton")
    assert "expected difference" in found.text
    assert found.as_dict()["proposals"][0]["changed"]


def test_problems_that_the_model_refuses_are_not_proposed() -> None:
    construction = NewtonConstruction(d=3, n=N, steps=3)
    model = ConstructionModel(construction, construction.transformer)
    found = propose_problems(*make_rivals(), GIVEN, model, prompts=4)
    assert found.proposals
    assert all(each.distribution.n <= N for each in found.proposals)  # pyright: ignore[reportAttributeAccessIssue]


def test_equal_candidates_cannot_be_told_apart() -> None:
    matrices = DESCENT.step_sizes[:, None, None] * torch.eye(3, dtype=torch.float64)
    same = Rival("preconditioned", [PreconditionedGradientDescent(matrices)] * 3, STEPS)
    found = propose_problems(make_rivals()[1], same, GIVEN, prompts=4)
    assert all(each.difference < 1e-20 for each in found.proposals)
    assert found.given == pytest.approx(0, abs=1e-20)
