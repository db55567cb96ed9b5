"""Screening: the candidates that win are those that win when every candidate is fitted in full."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_identify import make_layered
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.algorithms.heavy_ball import HeavyBall
from innerloop.algorithms.newton import Newton
from innerloop.algorithms.preconditioned_gradient_descent import PreconditionedGradientDescent
from innerloop.identification import large_fits, screening
from innerloop.identification.candidates import list_candidates
from innerloop.identification.fits import Fit, extend_steps
from innerloop.identification.fitting import FitTarget
from innerloop.identification.instances import draw_prompts, find_targets
from innerloop.identification.measures import scale
from innerloop.identification.rivals import is_left_behind, make_surrender
from innerloop.identification.scores import Match, ScoreTable
from innerloop.identification.screening import fit_candidates
from innerloop.identification.verdict import select_candidate
from innerloop.problems.linear_regression import LinearRegression

PROBLEMS = LinearRegression(d=3, n=8, noise=0.2)
NAMES = [
    *("gradient-descent", "heavy-ball", "ista", "kaczmarz", "kernel-smoothing", "newton"),
    *("preconditioned-gradient-descent", "ridge"),
]


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def draw_matrices(count: int) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    noise = torch.randn(count, 3, 3, generator=generator, dtype=torch.float64)
    return 0.3 * torch.eye(3, dtype=torch.float64) + 0.05 * noise


MODELS: dict[str, Algorithm[Any, Any]] = {
    "heavy-ball": HeavyBall(numbers(0.2), numbers(0.5)),
    "newton": Newton(torch.tensor(2e-3, dtype=torch.float64)),
    "preconditioned-gradient-descent (per step)": PreconditionedGradientDescent(draw_matrices(3)),
}


def find_winner(model: Any, exhaustive: bool) -> tuple[str, Tensor]:
    """Return the candidate that is named for the model, and the best score at each layer."""
    generator = torch.Generator().manual_seed(0)
    fitting, scoring = (draw_prompts(PROBLEMS, 64, generator) for _ in range(2))
    said, answers = model.predict(fitting), model.predict(scoring)
    wanted = FitTarget(fitting, said, scale(said, find_targets(fitting)))
    found = list_candidates(fitting, said[0], NAMES)
    matches: list[Match] = fit_candidates(found, wanted, scoring, 8, exhaustive=exhaustive)
    scored = ScoreTable.from_matches(answers, matches, find_targets(scoring), generator)
    best = select_candidate(matches, scored, [None] * len(answers))
    assert best is not None
    return matches[best].candidate.label, scored.scores.amax(dim=0)


@pytest.mark.parametrize("label", MODELS)
def test_the_winners_are_those_of_the_exhaustive_run(
    label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With matrices of 3 × 3 that count as large, and few candidates kept."""
    monkeypatch.setattr(large_fits, "MANY_UNKNOWNS", 8)
    monkeypatch.setattr(screening, "KEPT_OVERALL", 2)
    monkeypatch.setattr(screening, "KEPT_PER_LAYER", 1)
    truth = MODELS[label]
    model = make_layered(truth, [1, 2, 3] if truth.has_steps else [0])
    screened, score = find_winner(model, exhaustive=False)
    monkeypatch.setattr(large_fits, "MANY_UNKNOWNS", 100)
    full, best = find_winner(model, exhaustive=True)
    assert screened == full == label
    torch.testing.assert_close(score, best, rtol=0, atol=1e-4)


def test_a_fit_ends_where_it_falls_behind_twice() -> None:
    candidate, other = list_candidates(
        PROBLEMS.sample(4, generator=torch.Generator().manual_seed(0)),
        torch.zeros(4, 1),
        ["gradient-descent", "newton"],
    )[::2]
    wanted = FitTarget(None, torch.zeros(4, 2, 1), torch.ones(4))
    rival = Fit(other, wanted, [], [], torch.tensor([1e-9, 1e-9, 0.1, 0.1]))
    surrender = make_surrender([rival], candidate)
    assert [surrender(k, cost) for k, cost in enumerate([0.01, 1e-4, 0.4])] == [False] * 3
    assert not surrender(3, 0.6)
    assert surrender(3, 0.6)
    assert not make_surrender([], candidate)(0, 1e9)


def test_only_what_is_far_from_every_layer_is_left_behind() -> None:
    problem = PROBLEMS.sample(4, generator=torch.Generator().manual_seed(0))
    (candidate,) = list_candidates(problem, torch.zeros(4, 1), ["newton"])
    wanted = FitTarget(None, torch.zeros(2, 2, 1), torch.ones(2))

    def make_fit(*costs: float) -> Fit:
        return Fit(candidate, wanted, [], [], torch.tensor(costs))

    matched = [make_fit(1e-6, 0.5), make_fit(0.5, 1e-6)]
    assert is_left_behind(make_fit(0.3, 0.2), matched)
    assert not is_left_behind(make_fit(0.3, 0.05), matched)
    assert not is_left_behind(make_fit(0.3, 0.2), matched[:1])
    assert not is_left_behind(make_fit(0.3, 0.2), [])


def test_the_last_values_fill_the_steps_that_were_not_fitted() -> None:
    longer = extend_steps(GradientDescent(numbers(0.5, 0.2)), 4)
    assert isinstance(longer, GradientDescent)
    assert longer.step_sizes.tolist() == [0.5, 0.2, 0.2, 0.2]
