"""Softmax gradient descent: against NumPy and SciPy, the stream as printed, the bound."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import expit

from innerloop.algorithms.projected_gradient_descent import ProjectedGradientDescent, RiskName
from innerloop.claims.yang2025.projections import find_disturbance
from innerloop.constructions.base import iterate_streams
from innerloop.constructions.softmax_gradient_descent import (
    SoftmaxGradientDescentConstruction,
    square_hinges,
)
from innerloop.errors import OutOfRangeError
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem

LOSSES: tuple[RiskName, ...] = ("squared", "logistic", "huber")


def draw(d: int = 2, n: int = 7, count: int = 5) -> RegressionProblem:
    generator = torch.Generator().manual_seed(3)
    return LinearRegression(d=d, n=n, noise=0.3).sample(count, generator=generator)


def descend(problem: RegressionProblem, loss: str, size: float, box: float, steps: int):
    """Projected gradient descent written with NumPy, instance by instance."""
    x, y = problem.x.numpy(), problem.y.numpy()
    weights = np.zeros((len(x), x.shape[-1]))
    for _ in range(steps):
        for b in range(len(x)):
            said = x[b] @ weights[b]
            slope = expit(said) - y[b] if loss == "logistic" else said - y[b]
            slope = np.clip(slope, -1, 1) if loss == "huber" else slope
            weights[b] = np.clip(weights[b] - size * x[b].T @ slope / len(slope), -box, box)
    return weights


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("box", [3.0, 0.2])
def test_algorithm_and_transformer_are_numpys_descent(loss: RiskName, box: float) -> None:
    problem = draw()
    expected = descend(problem, loss, 0.4, box, 6)
    sizes = torch.tensor([0.4], dtype=torch.float64)
    algorithm = ProjectedGradientDescent(sizes, torch.tensor(box, dtype=torch.float64), loss)
    *_, last = algorithm.states(problem, 6)
    assert np.allclose(last.numpy(), expected, atol=1e-12)
    built = SoftmaxGradientDescentConstruction(
        d=2, n=7, steps=6, loss=loss, step_size=0.4, box=box, knots=4000
    )
    *_, stream = iterate_streams(built, built.transformer, problem)
    held = built.layout.read(stream, "w")
    assert np.allclose(held.numpy(), expected[:, None], atol=6 * built.step_bound * 3)
    out = built.transformer.run_epilogue(stream, problem.n)
    said = (problem.x_query[:, 0].numpy() * expected).sum(axis=-1)
    assert np.allclose(built.decode(problem, out)[:, 0].numpy(), said, atol=1e-3)


def test_the_fourth_layer_holds_what_is_printed() -> None:
    """[x; y; w; 0; 1; t] in every token: nothing but w has changed after any number of steps."""
    problem = draw()
    built = SoftmaxGradientDescentConstruction(d=2, n=7, steps=3, knots=200)
    assert [block.attention is not None for block in built.body(0)] == [False, False, False, True]
    first, *later = iterate_streams(built, built.transformer, problem)
    others = torch.ones(built.layout.width, dtype=torch.bool)
    others[list(built.layout["w"].places)] = False
    for stream in later:
        assert torch.allclose(stream[..., others], first[..., others], atol=1e-10)
        weights = built.layout.read(stream, "w")
        assert torch.allclose(weights, weights[:, :1], atol=1e-12)
        assert not torch.allclose(weights, torch.zeros_like(weights))


@pytest.mark.parametrize("knots", [2, 3, 8, 101])
def test_squares_are_above_by_at_most_what_is_declared(knots: int) -> None:
    reach = 5.0
    hinges = square_hinges(reach, knots)
    z = torch.linspace(-reach, reach, 4001, dtype=torch.float64)
    made = (z[:, None] * hinges.slope + hinges.bias).relu() @ hinges.weight
    off = made - z**2 / 4
    most = (2 * reach / max(knots - 1, 1)) ** 2 / 16
    assert float(off.min()) > -1e-12
    assert float(off.max()) <= most * (1 + 1e-9)
    assert float(off.max()) >= most / 8  # the bound is not idle


def test_the_error_falls_like_the_square_of_the_knots() -> None:
    problem, errors = draw(count=40), []
    start = torch.full((40, 2), 0.7, dtype=torch.float64)
    for knots in (100, 200, 400):
        built = SoftmaxGradientDescentConstruction(
            d=2, n=7, steps=1, knots=knots, loss="squared", step_size=0.2
        )
        moved = built.layout.read(
            built.transformer.step(built.encode(problem, start), 0, problem.n), "w"
        )[:, 0]
        wanted = built.algorithm.step(problem, start, 0)
        errors.append(float((moved - wanted).abs().max()))
        assert errors[-1] <= built.step_bound
    assert 3 < errors[0] / errors[1] < 5.5
    assert 3 < errors[1] / errors[2] < 5.5


def test_what_is_out_of_range_is_refused() -> None:
    built = SoftmaxGradientDescentConstruction(d=2, n=7, steps=1, knots=50, bound=1.0)
    with pytest.raises(OutOfRangeError, match="times the range"):
        list(iterate_streams(built, built.transformer, draw()))
    with pytest.raises(OutOfRangeError, match="n up to 7, got 9"):
        built.check(draw(n=9))


def test_one_feature_has_the_knots_of_its_own_range() -> None:
    """With d = 1 the weights are as short as the slope: ranges follow the factor, not its size."""
    problem = draw(d=1, n=5, count=6)
    built = SoftmaxGradientDescentConstruction(d=1, n=5, steps=1)
    weights = torch.linspace(-2, 2, 6, dtype=torch.float64).unsqueeze(-1)
    stream = built.transformer.run_epilogue(built.encode(problem, weights), problem.n)
    off = built.decode(problem, stream) - built.algorithm.predict(problem, weights)
    assert 0 < float(off.abs().max()) <= built.product_bound


def test_layer_norm_of_a_mirrored_stream_is_a_known_scale() -> None:
    """(h, −h, K, −K) has mean 0: LayerNorm reads h times a number, up to |h|²/2K²."""
    h, large = torch.linspace(-3, 5, 11, dtype=torch.float64), 1e3
    ends = torch.tensor([large, -large], dtype=torch.float64)
    stream = torch.cat([h, -h, ends])
    read = torch.nn.functional.layer_norm(stream, stream.shape, eps=0.0)[: len(h)]
    scale = large * (2 / len(stream)) ** 0.5
    share = float(h.square().sum()) / large**2
    assert torch.allclose(read * scale, h * (1 + share) ** -0.5, rtol=1e-12)
    assert torch.allclose(read * scale, h, rtol=share / 2, atol=0)


@pytest.mark.parametrize(
    ("after", "free", "least"),
    [
        (0.49, 10.0, 9.51),  # inside the box: no projection hides what is wrong
        (-0.49, -10.0, 9.51),
        (0.5, 10.0, 0.0),  # beyond the same side: nothing is needed
        (-0.5, -10.0, 0.0),
        (0.5, 0.2, 0.3),  # at a side that free does not reach
        (-0.5, 0.2, 0.7),
        (0.5, -10.0, 10.5),
        (0.1, 0.3, 0.2),
        (0.7, 10.0, 0.2),  # outside of the box: no projection at all
    ],
)
def test_the_disturbance_is_the_least_inside_the_projection(
    after: float, free: float, least: float
) -> None:
    said, wanted = (torch.tensor([each], dtype=torch.float64) for each in (after, free))
    found = find_disturbance(said, wanted, 0.5)
    assert abs(float(found)) == pytest.approx(least)
    if abs(after) <= 0.5:
        assert float((wanted + found).clamp(-0.5, 0.5)) == pytest.approx(after)
