"""How errors grow: against hand-written derivatives, and against errors that were really made."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.algorithms.newton import Newton
from innerloop.constructions.growth import Growth
from innerloop.problems.linear_regression import LinearRegression


def test_growth_of_gradient_descent_is_the_sum_of_its_matrix_powers() -> None:
    drawn = LinearRegression(d=3, n=7).sample(4)
    problem = replace(drawn, y=drawn.y / 10)
    algorithm = GradientDescent(torch.tensor([0.3], dtype=torch.float64))
    matrix = torch.eye(3, dtype=torch.float64) - 0.3 * problem.x.mT @ problem.x / 7
    state = algorithm.init(problem)
    growth = Growth(state, torch.Size([4]))
    powers = [torch.eye(3, dtype=torch.float64).expand(4, 3, 3)]
    for k in range(5):
        after = algorithm.step(problem, state, k)
        growth.advance(lambda s, k=k: algorithm.step(problem, s, k), state, after)
        powers.append(matrix @ powers[-1])
        assert after.abs().max() < 1, "so that relative errors are absolute ones"
        worst = torch.cat(powers, dim=-1).abs().sum(dim=-1).max()
        torch.testing.assert_close(growth.grown, float(worst))
        state = after


def test_no_errors_of_that_size_go_further() -> None:
    """Random errors of η in every step of Newton's iteration stay within η times the growth."""
    problem = LinearRegression(d=3, n=9).sample(6)
    algorithm = Newton(torch.tensor(1e-3, dtype=torch.float64))
    state = free = algorithm.init(problem)
    growth, eta = Growth(state, torch.Size([6])), 1e-9
    for k in range(12):
        after = algorithm.step(problem, state, k)
        growth.advance(lambda s, k=k: algorithm.step(problem, s, k), state, after)
        kicked = algorithm.step(problem, free, k)
        free = kicked + eta * torch.randn_like(kicked).sign() * kicked.abs().clamp_min(1)
        off = ((free - after).abs() / after.abs().clamp_min(1)).max()
        assert 0.9 * eta < off <= 1.001 * eta * growth.grown
        state = after


def test_a_prediction_may_magnify_the_errors_and_add_its_own() -> None:
    growth = Growth(torch.zeros(2, 3, dtype=torch.float64), torch.Size([2]))
    found = growth.read(lambda state: 5 * state.sum(dim=-1), torch.zeros(2, 3, dtype=torch.float64))
    assert found == 1 + 15


def test_errors_are_relative_to_large_entries() -> None:
    """s ← 10 s from s = 1: every error is a share of s, and all shares stay as they are."""
    state = torch.ones(1, 1, dtype=torch.float64)
    growth = Growth(state, torch.Size([1]))
    for k in range(4):
        growth.advance(lambda s: 10 * s, state, after := 10 * state)
        assert growth.grown == pytest.approx(k + 2)
        state = after
