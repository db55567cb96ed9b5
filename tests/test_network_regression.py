"""Regression by a network: how problems are sampled and which are refused."""

from __future__ import annotations

import pytest
import torch
from test_network import run_network, sample_problem

from innerloop.errors import InputError
from innerloop.problems.network_regression import NetworkProblem


def test_labels_are_outputs_of_the_teacher_plus_noise() -> None:
    problem = sample_problem(3, noise=0.0, outputs=2)
    assert problem.teacher is not None
    for i in range(3):
        teacher = [v[i] for v in problem.teacher]
        torch.testing.assert_close(problem.y[i], run_network(teacher, problem.x[i]))
        torch.testing.assert_close(problem.targets[i], run_network(teacher, problem.x_query[i]))
    noisy, quiet = sample_problem(400, n=50, noise=0.5), sample_problem(400, n=50, noise=0.0)
    assert noisy.teacher is not None
    clean = torch.stack(
        [run_network([v[i] for v in noisy.teacher], noisy.x[i]) for i in range(len(noisy.x))]
    )
    assert float((noisy.y - clean).std()) == pytest.approx(0.5, rel=0.05)
    assert bool((quiet.y >= 0).all()), "the output has a ReLU"


def test_start_and_teacher_are_independent_and_scaled_by_their_columns() -> None:
    problem = sample_problem(4000, d=5, width=3)
    assert problem.teacher is not None
    for start, teacher in zip(problem.start, problem.teacher, strict=True):
        for network in (start, teacher):
            variance = float(network.square().mean())
            assert variance == pytest.approx(2 / network.shape[-1], rel=0.05)
        assert abs(float((start * teacher).mean())) < 0.05


def test_problems_from_lists() -> None:
    x, y, query = [[1.0, 2.0], [0.0, 1.0], [1.0, 1.0]], [1.0, 0.0, 2.0], [1.0, 0.0]
    start = [[[1.0, 0.0], [0.5, 1.0]], [[1.0, -1.0]]]
    problem = NetworkProblem.from_arrays(x, y, query, start)
    assert problem.y.shape == (3, 1)
    assert problem.shapes == [(2, 2), (1, 2)]
    assert problem.to(torch.float32).start[0].dtype == torch.float32
    with pytest.raises(InputError, match="expected a problem with a teacher"):
        _ = problem.targets
    with pytest.raises(InputError, match="start must be a list of matrices, got str"):
        NetworkProblem.from_arrays(x, y, query, "none")
    with pytest.raises(InputError, match="x must hold real numbers, got text"):
        NetworkProblem.from_arrays([["a"]], y, query, start)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start": (torch.ones(2, 2),)}, r"weights from d to m.*start\[0\] \(2, 2\)"),
        ({"start": ()}, "weights from d to m"),
        ({"start": (torch.ones(2), torch.ones(1))}, "weights from d to m"),
        (
            {"start": ([[1.0]],)},
            r"start\[0\] must be a tensor, got list: NetworkProblem\.from",
        ),
        ({"start": (torch.ones(2, 2), torch.full((1, 2), torch.inf))}, r"start\[1\] must be fin"),
        ({"teacher": (torch.ones(2, 2),)}, r"weights from d to m.*teacher\[0\]"),
        ({"y": torch.ones(2, 1)}, r"expected x \(\*batch, n, d\).*y \(2, 1\)"),
        ({"y": torch.ones(3, 2)}, "weights from d to m"),
        ({"y": torch.full((3, 1), torch.nan)}, "y must be finite"),
        ({"y": torch.ones(3, 1).double()}, r"x is torch\.float32 but y is torch\.float64"),
        ({"x_query": torch.ones(1, 2)}, r"x_query \(\*batch, d\).*x_query \(1, 2\)"),
        ({"x": torch.ones(0, 2), "y": torch.ones(0, 1)}, "at least one instance, example"),
    ],
)
def test_mismatched_or_bad_data_are_named(change: dict, message: str) -> None:
    # Bypass the constructor: the type checker of the tests would refuse some shapes first.
    start = (torch.ones(2, 2), torch.ones(1, 2))
    data = {"x": torch.ones(3, 2), "y": torch.ones(3, 1), "x_query": torch.ones(2)}
    problem = object.__new__(NetworkProblem)
    for name, value in ({"start": start, "teacher": None} | data | change).items():
        object.__setattr__(problem, name, value)
    with pytest.raises(InputError, match=message):
        problem.__post_init__()
