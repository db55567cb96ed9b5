"""Gradient descent on a ReLU network: problem, algorithm and weights, held against autograd."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import innerloop
from innerloop.algorithms.network_gradient_descent import Loss, NetworkGradientDescent
from innerloop.certification.building import BuiltTransformer
from innerloop.certification.certificate import certify
from innerloop.constructions.base import iterate_streams
from innerloop.errors import InputError, OutOfRangeError
from innerloop.problems.linear_regression import LinearRegression
from innerloop.problems.network_regression import NetworkProblem, NetworkRegression
from innerloop.transformer import Transformer

pytestmark = pytest.mark.usefixtures("law_alone")
SHAPES = [
    {"layers": 2, "width": 4, "d": 3, "n": 7},
    {"layers": 3, "width": 3, "d": 2, "n": 9, "outputs": 2},
    {"layers": 4, "width": 5, "d": 4, "n": 5},
    {"layers": 2, "width": 1, "d": 1, "n": 1},
]


def make_scalar(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


LOSSES: list[Loss] = ["squared", "huber"]


def sample_problem(*batch: int, seed: int = 0, **setting: object) -> NetworkProblem:
    distribution = NetworkRegression.from_values({"noise": 0.3, **setting})
    return distribution.sample(*batch, generator=torch.Generator().manual_seed(seed))


def run_network(weights: list[Tensor], rows: Tensor) -> Tensor:
    """Evaluate the network of one instance with torch's own functions."""
    for matrix in weights:
        rows = functional.relu(functional.linear(rows, matrix))
    return rows


def train_with_torch(
    problem: NetworkProblem, index: tuple[int, ...], loss: Loss, steps: int, size: float, box: float
) -> list[list[Tensor]]:
    """Train one instance with torch's losses, autograd and SGD: weights after 0, 1, … steps."""
    weights = [v[index].clone().requires_grad_() for v in problem.start]
    optimiser = torch.optim.SGD(weights, lr=size)
    measure = {"squared": functional.mse_loss, "huber": functional.huber_loss}[loss]
    # torch's mean runs over examples and outputs, and its squared loss has no ½.
    scale = problem.y.shape[-1] / (2 if loss == "squared" else 1)
    found = [[v.detach().clone() for v in weights]]
    for _ in range(steps):
        optimiser.zero_grad()
        (scale * measure(run_network(weights, problem.x[index]), problem.y[index])).backward()
        optimiser.step()
        with torch.no_grad():
            for v in weights:
                v.clamp_(-box, box)
        found.append([v.detach().clone() for v in weights])
    return found


def list_indices(problem: NetworkProblem) -> list[tuple[int, ...]]:
    return list(torch.cartesian_prod(*map(torch.arange, problem.x.shape[:-2])).tolist())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("box", [0.7, 100.0])
def test_the_algorithm_is_torchs_training_step_by_step(shape: dict, loss: Loss, box: float) -> None:
    problem = sample_problem(2, 3, **shape)
    algorithm = NetworkGradientDescent(make_scalar(0.2)[None], make_scalar(box), loss)
    states = list(algorithm.states(problem, 5))
    for index in list_indices(problem):
        expected = train_with_torch(problem, tuple(index), loss, 5, 0.2, box)
        for state, weights in zip(states, expected, strict=True):
            for found, reference in zip(state, weights, strict=True):
                torch.testing.assert_close(found[tuple(index)], reference, rtol=1e-12, atol=1e-13)
        query = problem.x_query[tuple(index)]
        answer = algorithm.predict(problem, states[-1])[tuple(index)]
        torch.testing.assert_close(answer, run_network(expected[-1], query))


def test_the_losses_differ_and_the_box_binds() -> None:
    """What the comparison with torch rests on: neither setting is without effect."""
    problem = sample_problem(8, **SHAPES[0])
    sizes = make_scalar(0.2)[None]
    far, near = make_scalar(100.0), make_scalar(0.7)
    squared, huber = (NetworkGradientDescent(sizes, far, loss) for loss in LOSSES)
    gradients = [algorithm.gradient(problem, problem.start) for algorithm in (squared, huber)]
    assert max(float((a - b).abs().max()) for a, b in zip(*gradients, strict=True)) > 0.1
    *_, last = NetworkGradientDescent(sizes, near).states(problem, 3)
    assert all(float(v.abs().max()) == pytest.approx(0.7) for v in last)


def test_gradient_descent_lowers_the_risk() -> None:
    problem = sample_problem(32, d=3, n=40, width=6, noise=0.0)
    algorithm = NetworkGradientDescent(make_scalar(0.05)[None], make_scalar(10.0))
    risks = [
        torch.stack(
            [
                (run_network([v[i] for v in state], problem.x[i]) - problem.y[i]).square().mean()
                for i in range(32)
            ]
        ).mean()
        for state in algorithm.states(problem, 60)
    ]
    assert risks[-1] < 0.5 * risks[0]
    assert all(b <= a for a, b in itertools.pairwise(risks))


NAME = "network-gradient-descent"


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("box", [0.7, 100.0])
def test_the_transformer_is_torchs_training(shape: dict, loss: Loss, box: float) -> None:
    """No reference of ours in between: registers after each step against torch's weights."""
    built = innerloop.build(NAME, **shape, loss=loss, box=box, step_size=0.2, steps=4, instances=8)
    problem = sample_problem(4, seed=1, **shape)
    layout = built.transformer.layout
    expected = [train_with_torch(problem, (i,), loss, 4, 0.2, box) for i in range(4)]
    running = iterate_streams(built.construction, built.transformer, problem)
    for step, (stream, answer) in enumerate(zip(running, built.predictions(problem), strict=True)):
        for i, steps in enumerate(expected):
            for j, reference in enumerate(steps[step], 1):
                for found in layout.read(stream, f"V{j}")[i]:  # every token holds the weights
                    torch.testing.assert_close(found, reference, rtol=1e-11, atol=1e-12)
            reference = run_network(steps[step], problem.x_query[i])
            torch.testing.assert_close(answer[i], reference, rtol=1e-11, atol=1e-12)


def test_signals_are_torchs_derivatives() -> None:
    """Registers `s` in mid-step: the derivative of each example's loss by each unit's input."""
    built = innerloop.build(NAME, layers=3, steps=1, outputs=2, instances=4)
    problem = sample_problem(layers=3, outputs=2)
    inputs, rows = [], problem.x
    for matrix in problem.start:
        inputs.append((rows @ matrix.mT).requires_grad_())
        rows = inputs[-1].relu()
    loss = functional.mse_loss(rows, problem.y, reduction="sum") / 2
    derivatives = torch.autograd.grad(loss, inputs)
    before_update = built.trace(problem)[2 * 3 - 1]
    for j, reference in enumerate(derivatives, 1):
        found = before_update[f"s{j}"]
        torch.testing.assert_close(found[:-1], reference, rtol=1e-12, atol=1e-13)
        assert not found[-1].any(), "the query has no loss"


def make_problem_at(value: float) -> NetworkProblem:
    """Make a problem of one example whose first hidden unit has this input."""
    start = [[[value, 0.0], [0.0, 1.0]], [[1.0, 1.0]]]
    return NetworkProblem.from_arrays([[1.0, 1.0]], [0.5], [1.0, 2.0], start)


def test_an_input_inside_the_ramp_is_detected() -> None:
    size: dict[str, Any] = {"d": 2, "n": 1, "layers": 2, "width": 2, "steps": 2}
    built = innerloop.build(NAME, slope=1e9, box=10.0, instances=4, **size)

    def measure_deviation(value: float) -> float:
        """Measure how far the bare transformer is from torch after one step."""
        problem = make_problem_at(value)
        stream = built.transformer.step(built.construction.prompt(problem), 0)
        found = built.transformer.layout.read(stream, "V1")[0]
        return float(
            (found - train_with_torch(problem, (), "squared", 1, 0.1, 10.0)[1][0]).abs().max()
        )

    for value in (0.4e-9, -0.4e-9, 1e-12):
        with pytest.raises(
            OutOfRangeError, match=r"after step 0 .* times the range .* larger slope"
        ):
            built.predict(make_problem_at(value))
    assert measure_deviation(0.4e-9) > 1e-3, "the ramp is there: it is not detected for nothing"
    for value in (0.0, 1.0001e-9, -1.0001e-9, 1.0):
        built.predict(make_problem_at(value))
        assert measure_deviation(value) < 1e-15
    shallow = innerloop.build(NAME, slope=1.0, instances=8).certificate
    assert shallow.range_used > 1
    assert not shallow.holds


def test_numbers_beyond_the_bound_are_detected() -> None:
    tight = innerloop.build(NAME, bound=0.1, instances=8).certificate
    assert tight.range_used > 1
    assert not tight.holds
    built = innerloop.build(NAME, d=2, n=1, layers=2, width=2, instances=4)
    near = make_problem_at(1.0)
    for scale in (1e5, 1e200):
        far = NetworkProblem(scale * near.x, near.y, near.x_query, near.start)
        with pytest.raises(OutOfRangeError, match="times the range"):
            built.predict(far)


@pytest.mark.parametrize("slope", [1e6, 1e12])
def test_a_steep_ramp_and_a_wide_gate_cost_no_precision(slope: float) -> None:
    certificate = innerloop.build(NAME, slope=slope, bound=1e9).certificate
    assert certificate.max_deviation < 1e-13


@pytest.mark.parametrize("layers", [2, 3, 4, 6])
def test_fewer_layers_than_printed(layers: int) -> None:
    """(2N + 4)L printed, which reads nothing out; 2N a step here, and N to read out."""
    transformer = innerloop.build(NAME, layers=layers, steps=5, instances=8).transformer
    count = transformer.count()["layers"] - len(transformer.epilogue)
    assert (count, len(transformer.epilogue)) == (2 * layers * 5, layers)
    assert count == (2 * layers + 4) * 5 - 4 * 5


def ungate_units(mutant: Transformer) -> None:
    """Let back-propagation forget which units were silent."""
    for j in (1, 2):
        place = list(mutant.layout[f"off{j}"].places)
        for block in mutant.blocks():
            assert block.attention is not None
            block.attention.query[..., place] = 0


def ungate_output(mutant: Transformer) -> None:
    error = mutant.blocks()[2].mlp
    assert error is not None
    error.inner[:, list(mutant.layout["off3"].places)] = 0


def divide_by_tokens(mutant: Transformer) -> None:
    """Divide the sum over examples by n + 1 instead of n."""
    update = mutant.blocks()[5].attention
    assert update is not None
    update.value.mul_(12 / 13)


def learn_from_the_query(mutant: Transformer) -> None:
    error = mutant.blocks()[2].mlp
    assert error is not None
    error.inner[:, list(mutant.layout["query"].places)] = 0


def skip_projection(mutant: Transformer) -> None:
    tidy = mutant.blocks()[5].mlp
    assert tidy is not None
    for piece in tidy.everywhere:
        piece.weight.zero_()  # pyright: ignore[reportCallIssue]


@functools.cache
def build_default() -> BuiltTransformer:
    """Build the construction at its default parameters, once: copy it before changing weights."""
    return innerloop.build(NAME, instances=16)


@pytest.mark.parametrize(
    "mutate",
    [ungate_units, ungate_output, divide_by_tokens, learn_from_the_query, skip_projection],
)
def test_what_is_left_out_is_missed(mutate: Callable[[Transformer], None]) -> None:
    built = build_default()
    assert built.certificate.holds
    mutant = copy.deepcopy(built.transformer)
    mutate(mutant)
    assert certify(built.construction, mutant, instances=16).max_deviation > 1e-4


def test_problems_beyond_a_limit_are_refused() -> None:
    built = innerloop.build(NAME, steps=1, instances=4)
    with pytest.raises(OutOfRangeError, match="built for n=12, got n=5"):
        built.predict(sample_problem(n=5))
    with pytest.raises(OutOfRangeError, match="weights 4×3, 4×4, 1×4, got 4×3, 1×4"):
        built.predict(sample_problem(layers=2))
    with pytest.raises(InputError, match="expects a NetworkProblem, got RegressionProblem"):
        built.predict(LinearRegression(d=3, n=12).sample())


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"layers": 1}, "layers must be at least 2, got 1"),
        ({"layers": 4, "width": 16}, "at most 400 weights, got 576 .16×3, 16×16, 16×16, 1×16."),
        ({"loss": "logistic"}, "loss must be 'squared' or 'huber', got 'logistic'"),
        ({"box": 0.0}, "box must be at least"),
        ({"slope": 1e13}, "slope must be at most"),
        ({"n": 0}, "n must be at least 1"),
        ({"step_size": 0.0, "box": 1e6}, "moves by .* use larger steps"),
    ],
)
def test_impossible_parameters_are_named(parameters: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        innerloop.build(NAME, **parameters)
