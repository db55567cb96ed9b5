"""A model that is a candidate with random parameters is identified with these parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_identify import make_layered
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.identification.hyper import pack_parameters
from innerloop.identification.identification import identify
from innerloop.problems.linear_regression import LinearRegression
from innerloop.problems.sparse_recovery import SparseRecovery
from innerloop.registry import load_members

ALGORITHMS = load_members("algorithms", Algorithm)
REGRESSION = LinearRegression(d=3, n=8, noise=0.3)
SPARSE = SparseRecovery(d=6, n=8, sparsity=2)
RIVALS = ["gradient-descent", "newton", "ridge"]
Draw = Callable[[float, float], Tensor]
MODELS: dict[str, Callable[[Draw], tuple[Any, ...]]] = {
    "heavy-ball": lambda at: (at(0.1, 0.4)[None], at(0.2, 0.6)[None]),
    "nesterov": lambda at: (at(0.1, 0.4)[None], at(0.2, 0.6)[None]),
    "chebyshev": lambda at: (at(0.1, 0.4), at(2.0, 4.0)),
    "conjugate-gradients": lambda at: (),
    "gradient-descent-with-weight-decay": lambda at: (at(0.1, 0.4)[None], at(0.2, 0.8)),
    "weighted-gradient-descent": lambda at: (
        at(0.1, 0.4) * (torch.arange(8) % 3 == 0).double()[None],
    ),
    "lms": lambda at: (at(0.03, 0.1),),
    "kaczmarz": lambda at: (at(0.3, 0.9),),
    "damped-newton": lambda at: (at(1e-3, 3e-3), at(0.3, 0.7)[None]),
    "higher-order-newton": lambda at: (at(5e-4, 1e-3), 3),
    "kernel-smoothing": lambda at: (at(0.3, 1.5),),
    "huber-descent": lambda at: (at(0.2, 0.5)[None], at(0.4, 1.0)),
    "projected-gradient-descent": lambda at: (
        at(0.3, 0.9)[None],
        torch.tensor(1e6, dtype=torch.float64),
        "logistic",
    ),
    "sign-descent": lambda at: (at(0.05, 0.2)[None],),
    "approximate-message-passing": lambda at: (at(0.8, 1.6)[None],),
    "iterative-hard-thresholding": lambda at: (at(0.2, 0.5)[None], 2),
    "orthogonal-matching-pursuit": lambda at: (),
    "coordinate-descent": lambda at: (at(0.2, 0.8),),
    "gaussian-prior": lambda at: (
        torch.diag(torch.stack([at(0.3, 3.0) for _ in range(3)])),
        at(0.2, 1.0),
    ),
    "sparse-prior": lambda at: (at(0.1, 0.4), at(0.1, 0.4), 2),
}
ON_SPARSE = {
    *("approximate-message-passing", "iterative-hard-thresholding", "coordinate-descent"),
    *("orthogonal-matching-pursuit", "sparse-prior"),
}
REDUNDANT = {"gaussian-prior"}
"""Whose numbers are not determined by what they predict: only L Lᵀ/σ² is."""


def make_drawer(name: str) -> Draw:
    generator = torch.Generator().manual_seed(sorted(MODELS).index(name))

    def draw_between(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand((), generator=generator, dtype=torch.float64)

    return draw_between


@pytest.mark.parametrize("name", MODELS)
def test_a_candidates_own_iteration_is_found_with_its_numbers(name: str) -> None:
    kind: Any = ALGORITHMS[name]
    truth = kind(*MODELS[name](make_drawer(name)))
    steps = [1, 2, 3] if kind.has_steps else [0]
    problems = SPARSE if name in ON_SPARSE else REGRESSION
    model = make_layered(truth, steps)
    found = identify(model, problems, algorithms=[name, *RIVALS], prompts=48, steps=6)
    assert found.algorithm == name, found.verdict
    assert [layer.algorithm for layer in found.layers] == [name] * len(steps)
    assert all(layer.score >= 0.999 for layer in found.layers)
    match = next(m for m in found.matches if m.candidate.name == name)
    if kind.has_steps:
        assert [layer.step for layer in found.layers] == steps
    if name not in REDUNDANT:
        fitted = pack_parameters(match.algorithms[0])
        torch.testing.assert_close(fitted, pack_parameters(truth), rtol=1e-3, atol=1e-5)


def test_every_new_candidate_for_regression_is_tried() -> None:
    problem = REGRESSION.sample(4, generator=torch.Generator().manual_seed(0))
    new = {name for name, kind in ALGORITHMS.items() if kind.problem_type is type(problem)} - OLDER
    assert new == set(MODELS)


OLDER = {
    *("averaging", "fista", "format-conversion", "gd-plus-plus", "gradient-descent", "ista"),
    *("lasso", "least-squares", "lista-vm", "nearest-neighbours", "newton", "ridge"),
    "preconditioned-gradient-descent",
}
"""Which tests/test_identify.py tries."""


def test_four_step_sizes_are_found_in_a_single_output() -> None:
    sizes = torch.tensor([0.15, 0.6, 0.3, 0.9], dtype=torch.float64)
    model = make_layered(GradientDescent(sizes), [4])
    names = ["gradient-descent", "newton", "ridge", "least-squares"]
    found = identify(model, LinearRegression(d=5, n=12, noise=0.2), algorithms=names, prompts=96)
    (layer,) = found.layers
    assert (layer.algorithm, layer.schedule) == ("gradient-descent", "per step")
    assert layer.step == 4
    assert layer.low >= 0.999
    match = next(m for m in found.matches if m.candidate.label == layer.nearest)
    assert match.parameter_count == 4
    fitted = pack_parameters(match.algorithms[0]).sort().values
    torch.testing.assert_close(fitted, sizes.sort().values, rtol=1e-3, atol=0)


def test_no_more_steps_than_needed_are_fitted_to_an_output() -> None:
    sizes = torch.tensor([0.2, 0.7], dtype=torch.float64)
    model = make_layered(GradientDescent(sizes), [2])
    found = identify(model, REGRESSION, algorithms=["gradient-descent"], prompts=48)
    assert [(layer.schedule, layer.step) for layer in found.layers] == [("per step", 2)]
