"""Gradient descent on smooth networks by ReLU attention: against NumPy, and broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from innerloop.claims.yang2025.smooth_descent import ACTIVATIONS, SmoothNetworkDescent, draw_through
from innerloop.constructions.base import iterate_streams
from innerloop.problems.network_regression import NetworkProblem

FUNCTIONS: dict[str, Any] = {
    "tanh": (np.tanh, lambda a: 1 / np.cosh(a) ** 2),
    "sigmoid": (lambda a: 1 / (1 + np.exp(-a)), lambda a: 1 / (2 + 2 * np.cosh(a))),
    "softplus": (lambda a: np.log1p(np.exp(a)), lambda a: 1 / (1 + np.exp(-a))),
}


CASES = [("tanh", "squared"), ("sigmoid", "log cosh"), ("softplus", "squared")]


def take_step(built: SmoothNetworkDescent, problem: NetworkProblem, k: int) -> list[np.ndarray]:
    """Gradient descent with back-propagation written out in NumPy, for instance k."""
    value, slope = FUNCTIONS[built.activation]
    x, y, weights = (
        problem.x[k].numpy(),
        problem.y[k].numpy(),
        [v[k].numpy() for v in problem.start],
    )
    passed, inputs = [x], []
    for V in weights:
        inputs.append(passed[-1] @ V.T)
        passed.append(value(inputs[-1]))
    rest = passed[-1] - y
    signal = (np.tanh(rest) if built.loss == "log cosh" else rest) * slope(inputs[-1])
    moved = []
    for j in reversed(range(len(weights))):
        gradient = signal.T @ passed[j] / len(x)
        moved.insert(0, np.clip(weights[j] - built.step_size * gradient, -built.box, built.box))
        if j:
            signal = signal @ weights[j] * slope(inputs[j - 1])
    return moved


def make_corners(built: SmoothNetworkDescent) -> NetworkProblem:
    """Examples, labels and weights at the ends of what the build allows, and drawn ones."""
    generator = torch.Generator().manual_seed(2)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(8, *shape, generator=generator, dtype=torch.float64)

    x = torch.nn.functional.normalize(draw(built.n, built.d), dim=-1)
    y = torch.nn.functional.normalize(draw(built.n, built.outputs), dim=-1)
    start = [built.box * draw(*shape).sign() for shape in built.shapes]
    start = [torch.cat([v[:4], v[4:] * torch.rand(4, 1, 1, dtype=v.dtype)]) for v in start]
    return NetworkProblem(x, y, x[:, 0], tuple(start))


def measure_errors(built: SmoothNetworkDescent, problem: NetworkProblem) -> list[float]:
    """Norms of the errors of one step, which is not projected: the box is wide enough."""
    _, stream = iterate_streams(built, built.transformer, problem)
    names = [f"V{j}" for j in range(1, built.layers + 1)]
    errors = []
    for k in range(len(problem.x)):
        wanted = take_step(built, problem, k)
        found = [built.layout.read(stream, name)[k, 0].numpy() for name in names]
        squares = sum(float(((a - b) ** 2).sum()) for a, b in zip(found, wanted, strict=True))
        errors.append(squares**0.5)
    return errors


@pytest.mark.parametrize(("activation", "loss"), CASES)
def test_steps_are_numpys_within_the_bound(activation: str, loss: str) -> None:
    sizes: Any = {"layers": 3, "width": 2, "d": 3, "n": 4, "outputs": 2, "steps": 1, "knots": 6}
    built = SmoothNetworkDescent(**sizes, activation=activation, loss=loss, box=0.7, step_size=0.2)
    errors = measure_errors(built, make_corners(built))
    assert max(errors) <= built.step_size * built.gradient_error
    finer = replace(built, knots=18)
    fine = measure_errors(finer, make_corners(finer))
    assert max(fine) <= finer.step_size * finer.gradient_error
    assert max(fine) < max(errors) / 6, "errors fall like knots⁻²"
    layers = built.transformer.count()["layers"]
    assert layers == 2 * 3 + (2 if loss == "log cosh" else 1)


def test_a_changed_weight_breaks_the_bound() -> None:
    built = SmoothNetworkDescent(layers=2, width=2, d=2, n=3, steps=1, knots=40, box=0.5)
    problem = make_corners(built)
    assert max(measure_errors(built, problem)) <= built.step_size * built.gradient_error
    for block in built.transformer.blocks():
        attention = block.attention
        assert attention is not None
        before = attention.value.detach().clone()
        attention.value.data *= 1.1
        assert max(measure_errors(built, problem)) > built.step_size * built.gradient_error
        attention.value.data.copy_(before)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_declared_slopes_are_those_of_autograd(name: str) -> None:
    r = ACTIVATIONS[name]
    t = torch.linspace(-8, 8, 4001, dtype=torch.float64, requires_grad=True)
    found = r.value(t)
    for declared in (r.first, r.second, r.third):
        (found,) = torch.autograd.grad(found.sum(), t, create_graph=True)
        assert float(found.detach().abs().max()) == pytest.approx(declared, rel=1e-3)
    (slope,) = torch.autograd.grad(r.value(t).sum(), t)
    torch.testing.assert_close(r.slope(t), slope, atol=1e-12, rtol=0)


def test_lines_meet_the_function_at_the_knots() -> None:
    lines = draw_through(torch.tanh, 2.0, 5)
    at = torch.linspace(-2, 2, 6, dtype=torch.float64)
    hinges = (at.unsqueeze(-1) - torch.tensor(lines.knots, dtype=torch.float64)).relu()
    found = lines.first + hinges @ torch.tensor(lines.jumps, dtype=torch.float64)
    torch.testing.assert_close(found, torch.tanh(at))
