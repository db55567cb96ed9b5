"""Gradient descent on a ReLU network: problem, algorithm and weights, held against autograd."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from innerloop.algorithms.network_gradient_descent import Loss, NetworkGradientDescent
from innerloop.errors import InputError
from innerloop.problems.network_regression import NetworkProblem, NetworkRegression

SHAPES = [
    {"layers": 2, "width": 4, "d": 3, "n": 7},
    {"layers": 3, "width": 3, "d": 2, "n": 9, "outputs": 2},
    {"layers": 4, "width": 5, "d": 4, "n": 5},
    {"layers": 2, "width": 1, "d": 1, "n": 1},
]


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


LOSSES: list[Loss] = ["squared", "huber"]


def sampled(*batch: int, seed: int = 0, **setting: object) -> NetworkProblem:
    distribution = NetworkRegression.made({"noise": 0.3, **setting})
    return distribution.sample(*batch, generator=torch.Generator().manual_seed(seed))


def output(weights: list[Tensor], rows: Tensor) -> Tensor:
    """The network in torch's own words, for one instance."""
    for matrix in weights:
        rows = functional.relu(functional.linear(rows, matrix))
    return rows


def trained(
    problem: NetworkProblem, index: tuple[int, ...], loss: Loss, steps: int, size: float, box: float
) -> list[list[Tensor]]:
    """Weights of one instance after 0, 1, … steps: torch's network, losses, autograd and SGD."""
    weights = [v[index].clone().requires_grad_() for v in problem.start]
    optimiser = torch.optim.SGD(weights, lr=size)
    measure = {"squared": functional.mse_loss, "huber": functional.huber_loss}[loss]
    # torch's mean runs over examples and outputs, and its squared loss has no ½.
    scale = problem.y.shape[-1] / (2 if loss == "squared" else 1)
    found = [[v.detach().clone() for v in weights]]
    for _ in range(steps):
        optimiser.zero_grad()
        (scale * measure(output(weights, problem.x[index]), problem.y[index])).backward()
        optimiser.step()
        with torch.no_grad():
            for v in weights:
                v.clamp_(-box, box)
        found.append([v.detach().clone() for v in weights])
    return found


def each(problem: NetworkProblem) -> list[tuple[int, ...]]:
    return list(torch.cartesian_prod(*map(torch.arange, problem.x.shape[:-2])).tolist())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("box", [0.7, 100.0])
def test_the_algorithm_is_torchs_training_step_by_step(shape: dict, loss: Loss, box: float) -> None:
    problem = sampled(2, 3, **shape)
    algorithm = NetworkGradientDescent(number(0.2)[None], number(box), loss)
    states = list(algorithm.states(problem, 5))
    for index in each(problem):
        expected = trained(problem, tuple(index), loss, 5, 0.2, box)
        for state, weights in zip(states, expected, strict=True):
            for found, reference in zip(state, weights, strict=True):
                torch.testing.assert_close(found[tuple(index)], reference, rtol=1e-12, atol=1e-13)
        query = problem.x_query[tuple(index)]
        answer = algorithm.predict(problem, states[-1])[tuple(index)]
        torch.testing.assert_close(answer, output(expected[-1], query))


def test_the_losses_differ_and_the_box_binds() -> None:
    """What the comparison with torch rests on: neither setting is without effect."""
    problem = sampled(8, **SHAPES[0])
    sizes = number(0.2)[None]
    far, near = number(100.0), number(0.7)
    squared, huber = (NetworkGradientDescent(sizes, far, loss) for loss in LOSSES)
    gradients = [algorithm.gradient(problem, problem.start) for algorithm in (squared, huber)]
    assert max(float((a - b).abs().max()) for a, b in zip(*gradients, strict=True)) > 0.1
    *_, last = NetworkGradientDescent(sizes, near).states(problem, 3)
    assert all(float(v.abs().max()) == pytest.approx(0.7) for v in last)


def test_gradient_descent_lowers_the_risk() -> None:
    problem = sampled(32, d=3, n=40, width=6, noise=0.0)
    algorithm = NetworkGradientDescent(number(0.05)[None], number(10.0))
    risks = [
        torch.stack(
            [
                (output([v[i] for v in state], problem.x[i]) - problem.y[i]).square().mean()
                for i in range(32)
            ]
        ).mean()
        for state in algorithm.states(problem, 60)
    ]
    assert risks[-1] < 0.5 * risks[0]
    assert all(b <= a for a, b in itertools.pairwise(risks))


def test_labels_are_the_teachers() -> None:
    problem = sampled(3, noise=0.0, outputs=2)
    assert problem.teacher is not None
    for i in range(3):
        teacher = [v[i] for v in problem.teacher]
        torch.testing.assert_close(problem.y[i], output(teacher, problem.x[i]))
        torch.testing.assert_close(problem.targets[i], output(teacher, problem.x_query[i]))
    noisy, quiet = sampled(400, n=50, noise=0.5), sampled(400, n=50, noise=0.0)
    assert noisy.teacher is not None
    clean = torch.stack(
        [output([v[i] for v in noisy.teacher], noisy.x[i]) for i in range(len(noisy.x))]
    )
    assert float((noisy.y - clean).std()) == pytest.approx(0.5, rel=0.05)
    assert bool((quiet.y >= 0).all()), "the output has a ReLU"


def test_start_and_teacher_are_independent_and_scaled_by_their_columns() -> None:
    problem = sampled(4000, d=5, width=3)
    assert problem.teacher is not None
    for start, teacher in zip(problem.start, problem.teacher, strict=True):
        for network in (start, teacher):
            variance = float(network.square().mean())
            assert variance == pytest.approx(2 / network.shape[-1], rel=0.05)
        assert abs(float((start * teacher).mean())) < 0.05


def test_problems_from_lists() -> None:
    x, y, query = [[1.0, 2.0], [0.0, 1.0], [1.0, 1.0]], [1.0, 0.0, 2.0], [1.0, 0.0]
    start = [[[1.0, 0.0], [0.5, 1.0]], [[1.0, -1.0]]]
    problem = NetworkProblem.of(x, y, query, start)
    assert problem.y.shape == (3, 1)
    assert problem.shapes == [(2, 2), (1, 2)]
    assert problem.to(torch.float32).start[0].dtype == torch.float32
    with pytest.raises(InputError, match="targets need the teacher"):
        _ = problem.targets
    with pytest.raises(InputError, match="start must be a list of matrices, got str"):
        NetworkProblem.of(x, y, query, "none")
    with pytest.raises(InputError, match="expected numbers"):
        NetworkProblem.of([["a"]], y, query, start)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"start": (torch.ones(2, 2),)}, r"weights from d to m.*start\[0\] \(2, 2\)"),
        ({"start": ()}, "weights from d to m"),
        ({"start": (torch.ones(2), torch.ones(1))}, "weights from d to m"),
        ({"start": ([[1.0]],)}, r"start\[0\] must be a tensor, got list: NetworkProblem\.of"),
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
def test_mismatched_or_bad_data_are_named(change: dict, says: str) -> None:
    # The shapes in the annotations would refuse some of these first; users run without them.
    start = (torch.ones(2, 2), torch.ones(1, 2))
    whole = {"x": torch.ones(3, 2), "y": torch.ones(3, 1), "x_query": torch.ones(2)}
    problem = object.__new__(NetworkProblem)
    for name, value in ({"start": start, "teacher": None} | whole | change).items():
        object.__setattr__(problem, name, value)
    with pytest.raises(InputError, match=says):
        problem.__post_init__()
