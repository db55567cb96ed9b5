"""Linear regression: its distribution, its token formats, and which data are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from innerloop.errors import InputError, OutOfRangeError
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem


def compute_covariance(x: torch.Tensor) -> torch.Tensor:
    return x.mT @ x / x.shape[-2]


def test_the_same_generator_gives_the_same_problem_in_every_precision() -> None:
    distribution = LinearRegression(d=3, n=5, kappa=7.0, noise=0.1, weights="inverse")
    first, again, single = (
        distribution.sample(4, generator=torch.Generator().manual_seed(2), dtype=dtype)
        for dtype in (torch.float64, torch.float64, torch.float32)
    )
    other = distribution.sample(4, generator=torch.Generator().manual_seed(3))
    assert torch.equal(first.x, again.x)
    assert torch.equal(first.y, again.y)
    assert torch.equal(first.x.float(), single.x)
    assert not torch.equal(first.x, other.x)


def test_labels_are_linear_up_to_their_noise() -> None:
    quiet = LinearRegression(d=3, n=50).sample(20, generator=torch.Generator().manual_seed(0))
    assert quiet.weights is not None
    clean = (quiet.x @ quiet.weights.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(quiet.y, clean)
    torch.testing.assert_close(
        quiet.targets, torch.einsum("bqd,bd->bq", quiet.x_query, quiet.weights)
    )
    noisy = LinearRegression(d=3, n=50, noise=0.5).sample(400)
    assert noisy.weights is not None
    residual = noisy.y - (noisy.x @ noisy.weights.unsqueeze(-1)).squeeze(-1)
    assert float(residual.std()) == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({}, np.eye(2)),
        ({"covariance": torch.tensor([[2.0, 0.6], [0.6, 0.5]])}, [[2.0, 0.6], [0.6, 0.5]]),
    ],
)
def test_rows_have_the_given_covariance(setting: dict, expected) -> None:
    problem = LinearRegression(d=2, n=200_000, **setting).sample(
        generator=torch.Generator().manual_seed(0)
    )
    np.testing.assert_allclose(compute_covariance(problem.x).numpy(), expected, atol=0.03)


@pytest.mark.parametrize("setting", [{"kappa": 100.0}, {"spectrum": torch.tensor([0.1, 1, 0.01])}])
def test_each_instance_has_the_given_spectrum_under_its_own_rotation(setting: dict) -> None:
    problem = LinearRegression(d=3, n=100_000, **setting).sample(
        3, generator=torch.Generator().manual_seed(0)
    )
    found = compute_covariance(problem.x)
    spectra = torch.linalg.eigvalsh(found)
    np.testing.assert_allclose(spectra.numpy(), [[0.01, 0.1, 1.0]] * 3, rtol=0.03)
    assert float((found[0] - found[1]).abs().max()) > 0.05, "each instance has its own rotation"


def test_rotations_are_uniform() -> None:
    """Under Haar measure an entry of the rotation has mean 0; QR alone would prefer one sign."""
    spectrum = torch.tensor([1.0, 1e-12, 1e-12])
    distribution = LinearRegression(d=3, n=1, spectrum=spectrum, weights="inverse")
    roots, _ = distribution._covariance_roots(
        lambda *shape: torch.randn(20_000, *shape, dtype=torch.float64)
    )
    assert float(roots[:, 0, 0].mean().abs()) < 0.02
    assert float(roots[:, 0, 0].square().mean()) == pytest.approx(1 / 3, rel=0.03)


def test_queries_are_fresh_rows_of_the_same_distribution() -> None:
    sigma = torch.tensor([[2.0, 0.6], [0.6, 0.5]])
    problem = LinearRegression(d=2, n=3, queries=2, covariance=sigma).sample(50_000)
    assert not torch.isin(problem.x_query, problem.x).any()
    found = compute_covariance(problem.x_query.flatten(0, 1))
    np.testing.assert_allclose(found.numpy(), sigma.numpy(), atol=0.03)
    plain = LinearRegression(d=2, n=1).sample(100_000).weights
    assert plain is not None
    np.testing.assert_allclose(compute_covariance(plain).numpy(), np.eye(2), atol=0.02)
    assert not torch.equal(plain[0], plain[1])


def test_weights_have_the_given_distribution() -> None:
    sigma = torch.tensor([[2.0, 0.6], [0.6, 0.5]], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    inverse = LinearRegression(d=2, n=1, covariance=sigma, weights="inverse")
    weights = inverse.sample(200_000, generator=generator).weights
    assert weights is not None
    np.testing.assert_allclose(compute_covariance(weights).numpy(), np.linalg.inv(sigma), rtol=0.02)
    rotated = LinearRegression(d=2, n=1, kappa=9.0, weights="inverse").sample(100_000)
    assert float(rotated.targets.var()) == pytest.approx(2.0, rel=0.05), "tr(Σ Σ⁻¹) = d"
    given = LinearRegression(d=2, n=1, weights=torch.tensor([1.0, -2.0])).sample(3)
    assert given.weights is not None
    assert given.weights.tolist() == [[1.0, -2.0]] * 3


def test_encoder_format_puts_queries_after_examples() -> None:
    problem = LinearRegression(d=2, n=3, queries=2).sample(4)
    registers = problem.to_encoder_format()
    assert torch.equal(registers["x"][:, :3], problem.x)
    assert torch.equal(registers["x"][:, 3:], problem.x_query)
    assert torch.equal(registers["y"][:, :3], problem.y)
    assert not registers["y"][:, 3:].any(), "the label of a query is not in the prompt"
    assert registers["t"].tolist() == [1, 1, 1, 0, 0]
    assert registers["one"].tolist() == [1] * 5


def test_decoder_format_alternates() -> None:
    problem = LinearRegression(d=2, n=3).sample(4)
    registers = problem.to_decoder_format()
    assert torch.equal(registers["x"][:, 0:6:2], problem.x)
    assert not registers["x"][:, 1:6:2].any()
    assert torch.equal(registers["x"][:, 6:], problem.x_query)
    assert torch.equal(registers["y"][:, 1:6:2], problem.y)
    assert not registers["y"][:, 0::2].any()
    assert registers["pos"].tolist() == [1, 1, 2, 2, 3, 3, 4]
    assert registers["par"].tolist() == [0, 1, 0, 1, 0, 1, 0]
    assert registers["one"].tolist() == [1] * 7
    with pytest.raises(OutOfRangeError, match="one query in the decoder format, got 2"):
        LinearRegression(d=2, n=3, queries=2).sample().to_decoder_format()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"d": 0}, "d must be at least 1, got 0"),
        ({"n": -3}, "n must be at least 1"),
        ({"queries": 0}, "queries must be at least 1"),
        ({"noise": -1.0}, "noise must be at least 0"),
        ({"noise": float("nan")}, "noise must be finite"),
        ({"kappa": 0.5}, "kappa must be at least 1"),
        ({"d": 1, "kappa": 2.0}, "kappa must be 1 for d=1"),
        ({"d": 2, "covariance": torch.eye(3)}, "2×2"),
        ({"d": 2, "covariance": torch.tensor([[1.0, 0.5], [0.0, 1.0]])}, "symmetric"),
        ({"d": 2, "covariance": torch.tensor([[1.0, 2.0], [2.0, 1.0]])}, "positive definite"),
        ({"d": 2, "covariance": torch.zeros(2, 2)}, "positive definite"),
        ({"d": 2, "covariance": torch.full((2, 2), torch.nan)}, "finite"),
        ({"d": 2, "spectrum": torch.tensor([1.0, 0.0])}, "positive numbers"),
        ({"d": 2, "weights": torch.ones(3)}, "2 numbers"),
        ({"d": 2, "kappa": 3.0, "covariance": torch.eye(2)}, "at most one of"),
        ({"dd": 2}, "did you mean 'd'"),
        ({"d": "five"}, "d must be a whole number, got 'five'"),
        ({"d": 2.5}, "whole number"),
        ({"d": True}, "whole number"),
        ({"weights": "inverze"}, "'identity' or 'inverse'"),
    ],
)
def test_bad_settings_are_named(setting: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        LinearRegression.from_values(setting)


@pytest.mark.parametrize(
    ("x", "y", "x_query", "message"),
    [
        (torch.ones(4, 2), torch.ones(3), torch.ones(1, 2), "got x .4, 2., y .3,."),
        (torch.ones(4, 2), torch.ones(4), torch.ones(1, 3), "expected x"),
        (torch.ones(2, 4, 2), torch.ones(4), torch.ones(1, 2), "expected x"),
        (torch.full((4, 2), torch.nan), torch.ones(4), torch.ones(1, 2), "x must be finite"),
        (torch.ones(4, 2), torch.full((4,), torch.inf), torch.ones(1, 2), "y must be finite"),
        (torch.ones(4, 2), torch.ones(4).double(), torch.ones(1, 2), "convert one"),
        (torch.ones(4, 0), torch.ones(4), torch.ones(1, 0), "at least one example"),
        (torch.ones(4, 2), torch.ones(4), torch.ones(0, 2), "at least one example"),
        (torch.ones(4, 2).long(), torch.ones(4).long(), torch.ones(1, 2).long(), "floating-point"),
        ([[1.0]], torch.ones(1), torch.ones(1, 1), "x must be a tensor, got list"),
    ],
)
def test_mismatched_or_bad_data_are_named(x, y, x_query, message: str) -> None:
    # Bypass the constructor: the type checker of the tests would refuse some shapes first.
    problem = object.__new__(RegressionProblem)
    for name, value in (("x", x), ("y", y), ("x_query", x_query), ("weights", None)):
        object.__setattr__(problem, name, value)
    with pytest.raises(InputError, match=message):
        problem.__post_init__()


def test_problems_from_arrays_and_lists() -> None:
    problem = RegressionProblem.from_arrays(
        [[1, 2], [3, 4], [5, 6]], np.array([1, 2, 3]), [7.0, 8.0]
    )
    assert problem.x.dtype == problem.y.dtype == torch.float64
    assert (problem.n, problem.d, problem.queries) == (3, 2, 1)
    single = RegressionProblem.from_arrays(torch.ones(3, 2), torch.ones(3), torch.ones(4, 2))
    assert single.x.dtype == torch.float32
    assert single.queries == 4
    with pytest.raises(InputError, match="rows of one length"):
        RegressionProblem.from_arrays([[1, 2], [3]], [1, 2], [1, 2])


def test_limits_are_inclusive_and_numpy_numbers_are_accepted() -> None:
    assert LinearRegression.from_values({"d": 4096, "n": np.int64(3)}).d == 4096
    with pytest.raises(InputError, match="at most 4096"):
        LinearRegression.from_values({"d": 4097})
    with pytest.raises(InputError, match="at least 1"):
        LinearRegression().sample(0)
    covariance = LinearRegression.from_values({"d": 2, "covariance": np.eye(2)}).covariance
    assert covariance is not None
    assert torch.equal(covariance, torch.eye(2, dtype=torch.float64))


def test_targets_need_the_true_weights() -> None:
    problem = RegressionProblem(torch.ones(4, 2), torch.ones(4), torch.ones(1, 2))
    with pytest.raises(InputError, match="true weights"):
        _ = problem.targets
