"""Mixtures of regressions: their distribution, and gradient EM against SciPy and scikit-learn."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.linear_model import LinearRegression as SklearnRegression

from innerloop.algorithms.gradient_em import GradientEM
from innerloop.algorithms.symmetric_gradient_em import SymmetricGradientEM
from innerloop.errors import InputError
from innerloop.problems.mixture_of_regressions import MixtureOfRegressions, MixtureProblem

PI = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)


def as_scalar(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def make_em(noise: float = 0.5, step_size: float = 0.3, inner: int = 4) -> GradientEM:
    return GradientEM(PI, as_scalar(noise), as_scalar(step_size), inner)


def sample_problem(*batch: int, **settings: object) -> MixtureProblem:
    values = {"d": 3, "n": 30, "components": 3, "proportions": PI, **settings}
    return MixtureOfRegressions.from_values(values).sample(*batch)


def log_joint(problem: MixtureProblem, betas: torch.Tensor, noise: float) -> np.ndarray:
    """log π_k N(y_i; ⟨x_i, β_k⟩, ϑ²) by SciPy, (batch, n, components)."""
    fits = np.einsum("bnd,bkd->bnk", problem.x.numpy(), betas.numpy())
    return PI.log().numpy() + norm.logpdf(problem.y.numpy()[..., None], fits, noise)


def test_labels_follow_a_component_with_its_proportion() -> None:
    problem = sample_problem(2000, noise=0.0, n=10)
    assert problem.betas is not None
    torch.testing.assert_close(problem.betas.norm(dim=-1), torch.ones(2000, 3).double())
    residuals = (problem.y.unsqueeze(-1) - problem.x @ problem.betas.mT).abs()
    assert float(residuals.min(dim=-1).values.max()) < 1e-12
    shares = torch.bincount(residuals.argmin(dim=-1).flatten(), minlength=3) / 20_000
    np.testing.assert_allclose(shares.numpy(), PI.numpy(), atol=0.015)
    noisy = sample_problem(2000, noise=0.7, n=10, components=1, proportions=None, signal=2.5)
    assert noisy.betas is not None
    noise = noisy.y - (noisy.x @ noisy.betas.mT).squeeze(-1)
    assert float(noise.std()) == pytest.approx(0.7, rel=0.03)
    assert float(noisy.betas.norm(dim=-1).mean()) == pytest.approx(2.5)


def test_starting_vectors_have_the_declared_distance_from_the_truth() -> None:
    near, far = sample_problem(50, warm=0.2), sample_problem(50)
    assert near.betas is not None
    ones = torch.ones(50, 3).double()
    torch.testing.assert_close((near.start - near.betas).norm(dim=-1), 0.2 * ones)
    torch.testing.assert_close(far.start.norm(dim=-1), ones)
    for warm in (None, 0.3):
        pair = sample_problem(5, components=2, symmetric=True, proportions=None, warm=warm)
        assert pair.betas is not None
        assert pair.symmetric
        assert torch.equal(pair.betas[:, 1], -pair.betas[:, 0])
    assert not far.symmetric
    assert not sample_problem(5, components=2, proportions=None).symmetric


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"components": 0}, "components must be at least 1"),
        ({"symmetric": True}, "components must be 2 if symmetric=true, got 3"),
        ({"proportions": [0.5, 0.5]}, "proportions must be 3 positive numbers with sum 1"),
        ({"proportions": [0.5, 0.6, -0.1]}, "proportions must be 3 positive numbers"),
        ({"proportions": [0.5, 0.5, 0.5]}, "sum 1, got"),
        ({"warm": -1.0}, "warm must be at least 0"),
    ],
)
def test_bad_settings_are_named(setting: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        MixtureOfRegressions.from_values(setting)


def test_problems_from_arrays() -> None:
    x, y, query = np.ones((4, 2)), [1.0, 2.0, 3.0, 4.0], [1.0, 1.0]
    problem = MixtureProblem.from_arrays(x, y, query, [[1, 0], [0, 1], [1, 1]])
    assert (problem.n, problem.d, problem.queries, problem.components) == (4, 2, 1, 3)
    with pytest.raises(InputError, match="x must be finite"):
        MixtureProblem.from_arrays(x * np.inf, y, query, [[1, 0]])
    with pytest.raises(InputError, match="rows of one length"):
        MixtureProblem.from_arrays(x, y, query, [[1, 0], [1]])


@pytest.mark.parametrize(
    ("start", "betas", "message"),
    [
        (torch.ones(1, 3), None, r"start \(\*batch, components, d\).*; got .*start \(1, 3\)"),
        (torch.ones(5, 1, 2), None, r"got .*start \(5, 1, 2\)"),
        (torch.ones(0, 2), None, "at least one example, feature, query and component"),
        (torch.full((1, 2), torch.nan), None, "start must be finite"),
        (torch.ones(1, 2), torch.ones(2, 2), r"got .*betas \(2, 2\)"),
        (torch.ones(1, 2).double(), None, "convert one"),
        ([[1.0, 2.0]], None, "start must be a tensor"),
    ],
)
def test_mismatched_or_bad_vectors_are_named(start, betas, message: str) -> None:
    # Bypass the constructor: the type checker of the tests would refuse some shapes first.
    problem = object.__new__(MixtureProblem)
    data = {"x": torch.ones(4, 2), "y": torch.ones(4), "x_query": torch.ones(1, 2)}
    for name, value in {**data, "start": start, "betas": betas}.items():
        object.__setattr__(problem, name, value)
    with pytest.raises(InputError, match=message):
        problem.__post_init__()


@pytest.mark.parametrize("settings", [{}, {"d": 1, "n": 1}, {"d": 4, "n": 3, "signal": 8.0}])
def test_responsibilities_are_posteriors_computed_with_scipy(settings: dict) -> None:
    problem = sample_problem(5, **settings)
    found = make_em(0.4).responsibilities(problem.x, problem.y, problem.start)
    joint = log_joint(problem, problem.start, 0.4)
    expected = np.exp(joint - np.logaddexp.reduce(joint, axis=-1, keepdims=True))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-11, atol=1e-300)


def test_many_gradient_steps_converge_to_scikit_learns_weighted_least_squares() -> None:
    problem = sample_problem(3, n=60)
    algorithm = make_em(noise=1.0, step_size=1.0, inner=3000)
    found = algorithm.step(problem, problem.start, 0)
    shares = algorithm.responsibilities(problem.x, problem.y, problem.start).numpy()
    for b, k in np.ndindex(3, 3):
        fit = SklearnRegression(fit_intercept=False)
        fit.fit(problem.x[b].numpy(), problem.y[b].numpy(), sample_weight=shares[b, :, k])
        np.testing.assert_allclose(found[b, k].numpy(), fit.coef_, rtol=1e-9, atol=1e-10)


def test_a_step_agrees_with_numpy_loops() -> None:
    problem = sample_problem(2, n=5)
    found = make_em(inner=2).step(problem, problem.start, 0)
    joint = log_joint(problem, problem.start, 0.5)
    shares = np.exp(joint - np.logaddexp.reduce(joint, axis=-1, keepdims=True))
    for b, k in np.ndindex(2, 3):
        x, y, beta = problem.x[b].numpy(), problem.y[b].numpy(), problem.start[b, k].numpy()
        for _ in range(2):
            terms = [shares[b, i, k] * (y[i] - x[i] @ beta) * x[i] for i in range(5)]
            beta = beta + 0.3 * np.sum(terms, axis=0) / 5
        np.testing.assert_allclose(found[b, k].numpy(), beta, rtol=1e-12, atol=1e-14)
    prediction = make_em().predict(problem, found).numpy()
    expected = np.einsum("bqd,bkd,k->bq", problem.x_query, found, PI)
    np.testing.assert_allclose(prediction, expected, rtol=1e-12)


@pytest.mark.parametrize("inner", [1, 5])
def test_the_likelihood_never_falls(inner: int) -> None:
    problem = sample_problem(20)
    states = make_em(0.5, 0.2, inner).states(problem, 30)
    likelihoods = [
        np.sum(np.logaddexp.reduce(log_joint(problem, s, 0.5), axis=-1), axis=-1) for s in states
    ]
    for before, after in itertools.pairwise(likelihoods):
        assert (after >= before - 1e-9).all()
    assert (likelihoods[-1] > likelihoods[0] + 1).all()


def test_a_component_without_responsibility_stays_where_it_is() -> None:
    problem = sample_problem(4)
    start = problem.start.clone()
    start[:, 2] = 1e6
    after = make_em().step(problem, start, 0)
    assert torch.equal(after[:, 2], start[:, 2])
    assert bool(torch.isfinite(after).all())


def test_the_symmetric_step_combines_those_of_two_tied_components() -> None:
    """The step of β is the general algorithm's step of component β minus that of component −β."""
    problem = sample_problem(6, components=2, symmetric=True, proportions=None)
    beta = problem.start[:, 0]
    alone = SymmetricGradientEM(as_scalar(0.5), as_scalar(0.3), 1)
    half = as_scalar(0.5).expand(2)
    both = GradientEM(half, as_scalar(0.5), as_scalar(0.3), 1).step(problem, problem.start, 0)
    expected = beta + (both[:, 0] - beta) - (both[:, 1] + beta)
    torch.testing.assert_close(alone.step(problem, beta, 0), expected)
    tied = GradientEM(half, as_scalar(0.5), as_scalar(0.3), 1)
    gamma = tied.responsibilities(problem.x, problem.y, problem.start).numpy()
    fits = np.einsum("bnd,bd->bn", problem.x.numpy(), beta.numpy())
    tau = np.tanh(problem.y.numpy() * fits / 0.25)
    np.testing.assert_allclose(gamma[..., 0] - gamma[..., 1], tau, atol=1e-14)


def test_many_symmetric_steps_converge_to_numpys_least_squares_on_signed_labels() -> None:
    problem = sample_problem(3, components=2, symmetric=True, proportions=None)
    found = SymmetricGradientEM(as_scalar(0.5), as_scalar(0.4), 2000).step(
        problem, problem.start[:, 0], 0
    )
    for b in range(3):
        x, y = problem.x[b].numpy(), problem.y[b].numpy()
        signed = np.tanh(y * (x @ problem.start[b, 0].numpy()) / 0.25) * y
        expected = np.linalg.lstsq(x, signed, rcond=None)[0]
        np.testing.assert_allclose(found[b].numpy(), expected, rtol=1e-10, atol=1e-12)


def test_symmetric_em_recovers_the_truth_up_to_sign() -> None:
    problem = sample_problem(30, n=400, components=2, symmetric=True, proportions=None, noise=0.1)
    algorithm = SymmetricGradientEM(as_scalar(0.1), as_scalar(0.7), 8)
    *_, last = algorithm.states(problem, 60)
    assert problem.betas is not None
    errors = (last.unsqueeze(1) - problem.betas).norm(dim=-1).min(dim=-1).values
    assert float(errors.max()) < 0.03, "√(d/n) ϑ is 0.009"


def test_three_components_are_recovered_from_a_warm_start() -> None:
    problem = sample_problem(30, n=600, noise=0.1, warm=0.2)
    *_, last = make_em(0.1, 1.0, 20).states(problem, 60)
    assert problem.betas is not None
    assert float((last - problem.betas).norm(dim=-1).max()) < 0.1
    expected = torch.einsum("bqd,bkd,k->bq", problem.x_query, problem.betas, PI)
    assert float((make_em().predict(problem, last) - expected).abs().max()) < 0.1
