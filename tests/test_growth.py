"""Growth of errors over steps: against derivatives by hand and against simulated errors."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.algorithms.newton import Newton
from innerloop.certification.growth import ErrorGrowth
from innerloop.problems.linear_regression import LinearRegression


def test_growth_of_gradient_descent_is_the_sum_of_its_matrix_powers() -> None:
    sample = LinearRegression(d=3, n=7).sample(4)
    problem = replace(sample, y=sample.y / 10)
    algorithm = GradientDescent(torch.tensor([0.3], dtype=torch.float64))
    matrix = torch.eye(3, dtype=torch.float64) - 0.3 * problem.x.mT @ problem.x / 7
    state = algorithm.init(problem)
    growth = ErrorGrowth(state, torch.Size([4]))
    powers = [torch.eye(3, dtype=torch.float64).expand(4, 3, 3)]
    for k in range(5):
        after = algorithm.step(problem, state, k)
        growth.advance(lambda s, k=k: algorithm.step(problem, s, k), state, after)
        powers.append(matrix @ powers[-1])
        assert after.abs().max() < 1, "small states, so relative errors equal absolute ones"
        worst = torch.cat(powers, dim=-1).abs().sum(dim=-1).max()
        torch.testing.assert_close(growth.state_factor, float(worst))
        state = after


def test_simulated_errors_stay_within_the_growth() -> None:
    """Random errors of η in every step of Newton's iteration stay within η times the growth."""
    problem = LinearRegression(d=3, n=9).sample(6)
    algorithm = Newton(torch.tensor(1e-3, dtype=torch.float64))
    state = free = algorithm.init(problem)
    growth, eta = ErrorGrowth(state, torch.Size([6])), 1e-9
    for k in range(12):
        after = algorithm.step(problem, state, k)
        growth.advance(lambda s, k=k: algorithm.step(problem, s, k), state, after)
        exact = algorithm.step(problem, free, k)
        free = exact + eta * torch.randn_like(exact).sign() * exact.abs().clamp_min(1)
        error = ((free - after).abs() / after.abs().clamp_min(1)).max()
        assert 0.9 * eta < error <= 1.001 * eta * growth.state_factor
        state = after


def test_a_prediction_magnifies_errors_and_adds_its_own() -> None:
    growth = ErrorGrowth(torch.zeros(2, 3, dtype=torch.float64), torch.Size([2]))
    factor = growth.prediction_factor(
        lambda state: 5 * state.sum(dim=-1), torch.zeros(2, 3, dtype=torch.float64)
    )
    assert factor == 1 + 15


def test_errors_are_relative_to_large_entries() -> None:
    """For s ← 10 s from s = 1, relative errors do not grow: each step only adds its own."""
    state = torch.ones(1, 1, dtype=torch.float64)
    growth = ErrorGrowth(state, torch.Size([1]))
    for k in range(4):
        growth.advance(lambda s: 10 * s, state, after := 10 * state)
        assert growth.state_factor == pytest.approx(k + 2)
        state = after
