"""Algorithms for regression agree with SciPy, scikit-learn and textbook loops."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.sparse.linalg import cg
from scipy.stats import multivariate_normal
from sklearn.linear_model import Lasso as SklearnLasso
from sklearn.linear_model import orthogonal_mp
from sklearn.metrics.pairwise import rbf_kernel

from innerloop.algorithms.approximate_message_passing import ApproximateMessagePassing
from innerloop.algorithms.base import Algorithm
from innerloop.algorithms.chebyshev import Chebyshev
from innerloop.algorithms.conjugate_gradients import ConjugateGradients
from innerloop.algorithms.coordinate_descent import CoordinateDescent
from innerloop.algorithms.damped_newton import DampedNewton
from innerloop.algorithms.gaussian_prior import GaussianPrior
from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.algorithms.gradient_descent_with_weight_decay import GradientDescentWithWeightDecay
from innerloop.algorithms.heavy_ball import HeavyBall
from innerloop.algorithms.higher_order_newton import HigherOrderNewton
from innerloop.algorithms.huber_descent import HuberDescent
from innerloop.algorithms.iterative_hard_thresholding import IterativeHardThresholding
from innerloop.algorithms.kaczmarz import Kaczmarz
from innerloop.algorithms.kernel_smoothing import KernelSmoothing
from innerloop.algorithms.lms import LMS
from innerloop.algorithms.nesterov import Nesterov
from innerloop.algorithms.newton import Newton
from innerloop.algorithms.orthogonal_matching_pursuit import OrthogonalMatchingPursuit
from innerloop.algorithms.sign_descent import SignDescent
from innerloop.algorithms.sparse_prior import SparsePrior
from innerloop.algorithms.weighted_gradient_descent import WeightedGradientDescent
from innerloop.errors import InputError
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem

Array = np.ndarray
SIZES = [(3, 7), (5, 3), (1, 4), (4, 1)]
STEPS = 4


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def sample_problems(d: int, n: int, **setting: object) -> RegressionProblem:
    values = {"d": d, "n": n, "noise": 0.3, "queries": 2, **setting}
    distribution = LinearRegression.from_values(values)
    return distribution.sample(2, 3, generator=torch.Generator().manual_seed(0))


def iterate_instances(problem: RegressionProblem) -> Iterator[tuple[Any, Array, Array]]:
    for index in np.ndindex(*problem.x.shape[:-2]):
        yield index, problem.x[index].numpy(), problem.y[index].numpy()


def slope(x: Array, y: Array, w: Array) -> Array:
    """∇R(w), term by term."""
    return sum(((x[i] @ w - y[i]) * x[i] for i in range(len(y))), np.zeros_like(w)) / len(y)


def heavy_ball(x: Array, y: Array, k: int) -> Array:
    w, before = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    for t in range(k):
        w, before = w - (0.2, 0.3)[t % 2] * slope(x, y, w) + (0.5, 0.1)[t % 2] * (w - before), w
    return w


def nesterov(x: Array, y: Array, k: int) -> Array:
    w, v = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    for t in range(k):
        after = v - (0.2, 0.3)[t % 2] * slope(x, y, v)
        v, w = after + (0.5, 0.1)[(t + 1) % 2] * (after - w), after
    return w


def weight_decay(x: Array, y: Array, k: int) -> Array:
    w = np.zeros(x.shape[1])
    for _ in range(k):
        w = (1 - 0.2 * 0.7) * w - 0.2 * slope(x, y, w)
    return w


def half_of_the_examples(x: Array, y: Array, k: int) -> Array:
    """Step 1 sees the first half, step 2 the rest."""
    w, half = np.zeros(x.shape[1]), (len(y) + 1) // 2
    for t in range(k):
        part = slice(None, half) if t % 2 == 0 else slice(half, None)
        w = w - 0.3 * x[part].T @ (x[part] @ w - y[part]) / len(y)
    return w


def lms(x: Array, y: Array, k: int) -> Array:
    w = np.zeros(x.shape[1])
    for _, i in itertools.product(range(k), range(len(y))):
        w = w + 0.1 * (y[i] - x[i] @ w) * x[i]
    return w


def kaczmarz(x: Array, y: Array, k: int) -> Array:
    w = np.zeros(x.shape[1])
    for _, i in itertools.product(range(k), range(len(y))):
        w = w + 0.8 * (y[i] - x[i] @ w) / np.linalg.norm(x[i]) ** 2 * x[i]
    return w


def lms_by_examples(x: Array, y: Array, k: int) -> Array:
    w = np.zeros(x.shape[1])
    for t in range(k):
        i = t % len(y)
        w = w + 0.1 * (y[i] - x[i] @ w) * x[i]
    return w


def huber(x: Array, y: Array, k: int) -> Array:
    w = np.zeros(x.shape[1])
    for _ in range(k):
        for_one = [max(-0.6, min(0.6, float(x[i] @ w - y[i]))) * x[i] for i in range(len(y))]
        w = w - 0.4 * np.mean(for_one, axis=0)
    return w


def signs(x: Array, y: Array, k: int) -> Array:
    w = np.zeros(x.shape[1])
    for _ in range(k):
        w = w - 0.1 * np.sign(slope(x, y, w))
    return w


def message_passing(x: Array, y: Array, k: int) -> Array:
    """As printed: A has columns of length near 1, z carries the derivative's mean, times d/n."""
    n, d = x.shape
    a, b = x / np.sqrt(n), y / np.sqrt(n)
    w, z = np.zeros(d), b
    for _ in range(k):
        theta = 1.2 * np.sqrt(np.sum(z**2) / n)
        moved = a.T @ z + w
        w = np.where(moved > theta, moved - theta, np.where(moved < -theta, moved + theta, 0.0))
        z = b - a @ w + d / n * z * np.mean(np.abs(moved) > theta)
    return w


def hard_thresholds(x: Array, y: Array, k: int) -> Array:
    w = np.zeros(x.shape[1])
    for _ in range(k):
        w = w - 0.3 * slope(x, y, w)
        w[np.argsort(-np.abs(w))[2:]] = 0
    return w


def sweeps(x: Array, y: Array, k: int) -> Array:
    """Each weight minimises the objective, found by its values at the kink and both slopes."""
    w = np.zeros(x.shape[1])
    for _, j in itertools.product(range(k), range(x.shape[1])):
        left = y - x @ w + x[:, j] * w[j]
        square, moment = x[:, j] @ x[:, j], x[:, j] @ left
        options = [0.0, (moment - 0.5) / square, (moment + 0.5) / square]
        w[j] = min(options, key=lambda b: 0.5 * np.sum((left - x[:, j] * b) ** 2) + 0.5 * abs(b))
    return w


def damped_inverse(x: Array, y: Array, k: int) -> Array:
    """In the eigenbasis of S, where the iteration is one of numbers."""
    values, vectors = np.linalg.eigh(x.T @ x)
    m = 1e-3 * values
    for t in range(k):
        m = m + (0.5, 0.9)[t % 2] * m * (1 - values * m)
    return vectors @ (m * (vectors.T @ (x.T @ y)))


def cubic_inverse(x: Array, y: Array, k: int) -> Array:
    """S M = I − (I − S M)³ at every step, in the eigenbasis of S."""
    values, vectors = np.linalg.eigh(x.T @ x)
    left = (1 - 1e-3 * values**2) ** (3**k)
    inverse = np.where(values > 1e-9, (1 - left) / np.where(values > 1e-9, values, 1), 0.0)
    return vectors @ (inverse * (vectors.T @ (x.T @ y)))


TWO, SHARES = numbers(0.2, 0.3), numbers(0.5, 0.1)
ORACLES: dict[str, tuple[Callable[[int], Algorithm[Any, Any]], Callable[..., Array]]] = {
    "heavy-ball": (lambda n: HeavyBall(TWO, SHARES), heavy_ball),
    "nesterov": (lambda n: Nesterov(TWO, SHARES), nesterov),
    "weight decay": (lambda n: GradientDescentWithWeightDecay(TWO[:1], number(0.7)), weight_decay),
    "part": (lambda n: WeightedGradientDescent(half_weights(n)), half_of_the_examples),
    "lms": (lambda n: LMS(number(0.1)), lms),
    "lms by examples": (lambda n: LMS(number(0.1), takes_passes=False), lms_by_examples),
    "kaczmarz": (lambda n: Kaczmarz(number(0.8)), kaczmarz),
    "huber": (lambda n: HuberDescent(numbers(0.4), number(0.6)), huber),
    "signs": (lambda n: SignDescent(numbers(0.1)), signs),
    "message passing": (lambda n: ApproximateMessagePassing(numbers(1.2)), message_passing),
    "hard thresholds": (lambda n: IterativeHardThresholding(numbers(0.3), 2), hard_thresholds),
    "sweeps": (lambda n: CoordinateDescent(number(0.5)), sweeps),
    "damped newton": (lambda n: DampedNewton(number(1e-3), numbers(0.5, 0.9)), damped_inverse),
    "cubic newton": (lambda n: HigherOrderNewton(number(1e-3), 3), cubic_inverse),
}


def half_weights(n: int) -> torch.Tensor:
    first = (torch.arange(n) < (n + 1) // 2).double()
    return 0.3 * torch.stack([first, 1 - first])


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize(("d", "n"), SIZES)
def test_iterations_agree_with_textbook_loops(name: str, d: int, n: int) -> None:
    make, oracle = ORACLES[name]
    problem, algorithm = sample_problems(d, n), make(n)
    predictions = [algorithm.predict(problem, s) for s in algorithm.states(problem, STEPS)]
    for index, x, y in iterate_instances(problem):
        for k, prediction in enumerate(predictions):
            expected = problem.x_query[index].numpy() @ oracle(x, y, k)
            np.testing.assert_allclose(
                prediction[index].numpy(), expected, rtol=1e-8, atol=1e-10, err_msg=f"step {k}"
            )


def test_the_order_of_examples_matters() -> None:
    problem = sample_problems(3, 6)
    turned = RegressionProblem(problem.x.flip(-2), problem.y.flip(-1), problem.x_query)
    for algorithm in (LMS(number(0.2)), Kaczmarz(number(1.0))):
        one, other = (algorithm.step(p, algorithm.init(p), 0) for p in (problem, turned))
        assert float((one - other).abs().max()) > 0.01


def test_a_full_projection_fits_the_last_example() -> None:
    problem = sample_problems(4, 6)
    after = Kaczmarz(number(1.0)).step(problem, torch.zeros(2, 3, 4, dtype=torch.float64), 0)
    left = (problem.x[..., -1, :] * after).sum(dim=-1)
    torch.testing.assert_close(left, problem.y[..., -1])


def test_chebyshev_has_the_errors_of_its_polynomial() -> None:
    """The error is T_k((u + l − 2λ)/(u − l)) / T_k((u + l)/(u − l)) on each eigenvalue λ."""
    problem, (low, high) = sample_problems(4, 9), (0.1, 2.5)
    algorithm = Chebyshev(number(low), number(high))
    states = list(algorithm.states(problem, 6))
    for index, x, y in iterate_instances(problem):
        values, vectors = np.linalg.eigh(x.T @ x / len(y))
        best = np.linalg.lstsq(x, y, rcond=None)[0]
        for k, state in enumerate(states):
            polynomial = np.polynomial.Chebyshev.basis(k)
            shares = polynomial((high + low - 2 * values) / (high - low))
            error = vectors @ (
                shares / polynomial((high + low) / (high - low)) * (vectors.T @ best)
            )
            np.testing.assert_allclose(state.weights[index].numpy(), best - error, atol=1e-9)


def test_chebyshev_on_a_point_is_gradient_descent() -> None:
    problem = sample_problems(3, 8)
    one, other = Chebyshev(number(2.0), number(2.0)), GradientDescent(numbers(0.5))
    *_, last = one.states(problem, 3)
    *_, expected = other.states(problem, 3)
    torch.testing.assert_close(last.weights, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("d", "n"), SIZES)
def test_conjugate_gradients_agree_with_scipy(d: int, n: int) -> None:
    problem, algorithm = sample_problems(d, n), ConjugateGradients()
    states = list(algorithm.states(problem, d + 2))
    for index, x, y in iterate_instances(problem):
        for k in range(1, min(d, n)):
            expected, _ = cg(x.T @ x, x.T @ y, rtol=0, maxiter=k)
            np.testing.assert_allclose(states[k].weights[index].numpy(), expected, atol=1e-8)
        best = np.linalg.lstsq(x, y, rcond=None)[0]
        np.testing.assert_allclose(states[-1].weights[index].numpy(), best, atol=1e-6)


def test_damped_newton_without_damping_is_newton() -> None:
    problem = sample_problems(3, 7)
    *_, one = DampedNewton(number(1e-3), numbers(1.0)).states(problem, 4)
    *_, other = Newton(number(1e-3)).states(problem, 4)
    torch.testing.assert_close(one, other)
    *_, quartic = HigherOrderNewton(number(1e-3), 4).states(problem, 2)
    torch.testing.assert_close(quartic, other)


def test_kernel_smoothing_agrees_with_scikit_learn() -> None:
    problem = sample_problems(3, 7)
    near = KernelSmoothing(number(0.7), "distance").init(problem)
    alike = KernelSmoothing(number(0.7)).init(problem)
    for index, x, y in iterate_instances(problem):
        query = problem.x_query[index].numpy()
        kernel = rbf_kernel(query, x, gamma=0.35)
        np.testing.assert_allclose(near[index], kernel @ y / kernel.sum(axis=1), rtol=1e-10)
        product = np.exp(0.7 * query @ x.T)
        np.testing.assert_allclose(alike[index], product @ y / product.sum(axis=1), rtol=1e-10)


def test_huber_descent_reaches_the_minimum_of_its_loss() -> None:
    problem = sample_problems(2, 9)
    *_, last = HuberDescent(numbers(0.5), number(0.4)).states(problem, 400)
    for index, x, y in iterate_instances(problem):

        def loss(w: Array, x: Array = x, y: Array = y) -> float:
            r = np.abs(x @ w - y)
            return float(np.where(r < 0.4, r**2 / 2, 0.4 * r - 0.08).mean())

        assert loss(last[index].numpy()) <= minimize(loss, np.zeros(2)).fun + 1e-7


def test_coordinate_descent_reaches_scikit_learns_lasso() -> None:
    problem = sample_problems(4, 9)
    *_, last = CoordinateDescent(number(1.3)).states(problem, 200)
    for index, x, y in iterate_instances(problem):
        model = SklearnLasso(alpha=1.3 / len(y), fit_intercept=False, tol=1e-12, max_iter=100_000)
        np.testing.assert_allclose(last[index], model.fit(x, y).coef_, atol=1e-8)


@pytest.mark.parametrize(("d", "n"), SIZES)
def test_matching_pursuit_agrees_with_scikit_learn(d: int, n: int) -> None:
    problem = sample_problems(d, n)
    states = list(OrthogonalMatchingPursuit().states(problem, d + 1))
    for index, x, y in iterate_instances(problem):
        for k in range(1, min(n, d) + 1):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = orthogonal_mp(x, y, n_nonzero_coefs=k)
            np.testing.assert_allclose(states[k].weights[index].numpy(), expected, atol=1e-8)
    torch.testing.assert_close(states[-1].weights, states[min(n, d)].weights)


def test_matching_pursuit_stops_where_all_is_explained() -> None:
    problem = sample_problems(5, 12, noise=0.0)
    weights = torch.zeros(2, 3, 5, dtype=torch.float64)
    weights[..., 1] = 2.0
    y = (problem.x @ weights.unsqueeze(-1)).squeeze(-1)
    *_, last = OrthogonalMatchingPursuit().states(RegressionProblem(problem.x, y, problem.x), 5)
    assert last.support.sum(dim=-1).max() <= 2
    torch.testing.assert_close(last.weights, weights)


@pytest.mark.parametrize(("d", "n"), SIZES)
def test_the_gaussian_posterior_mean_is_that_of_the_joint_distribution(d: int, n: int) -> None:
    """E(w | y) = Cov(w, y) Cov(y)⁻¹ y, from the covariance of (w, y) under the prior."""
    problem = sample_problems(d, n)
    root = torch.randn(d, d, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = GaussianPrior(root, number(0.09)).init(problem)
    prior = (root @ root.mT).numpy()
    for index, x, y in iterate_instances(problem):
        both = np.vstack([np.eye(d), x])
        joint = both @ prior @ both.T + np.diag([0.0] * d + [0.09] * n)
        expected = joint[:d, d:] @ np.linalg.solve(joint[d:, d:], y)
        np.testing.assert_allclose(found[index].numpy(), expected, rtol=1e-7, atol=1e-9)


def test_without_noise_the_gaussian_posterior_is_the_least_in_the_priors_metric() -> None:
    problem = sample_problems(5, 3, noise=0.0)
    root = torch.diag(numbers(1.0, 2.0, 0.5, 1.0, 3.0))
    found = GaussianPrior(root, number(1e-11)).init(problem)
    for index, x, y in iterate_instances(problem):
        expected = root.numpy() @ np.linalg.pinv(x @ root.numpy()) @ y
        np.testing.assert_allclose(found[index].numpy(), expected, atol=1e-7)


def test_the_sparse_posterior_mean_is_bayes_rule_over_supports() -> None:
    problem, (noise, slab) = sample_problems(4, 3), (0.09, 1.7)
    found = SparsePrior(number(noise / slab), number(noise), 2).init(problem)
    for index, x, y in iterate_instances(problem):
        means, evidence = [], []
        for support in itertools.combinations(range(4), 2):
            prior = np.diag([slab if j in support else 0.0 for j in range(4)])
            covariance: Any = x @ prior @ x.T + noise * np.eye(3)
            evidence.append(multivariate_normal(np.zeros(3), covariance).pdf(y))
            means.append(prior @ x.T @ np.linalg.solve(covariance, y))
        expected = np.array(evidence) @ np.array(means) / sum(evidence)
        np.testing.assert_allclose(found[index].numpy(), expected, rtol=1e-7, atol=1e-9)


def test_the_sparsity_of_the_ideal_learner_is_the_problems_own() -> None:
    problem = sample_problems(4, 3)
    assert {guess.sparsity for guess in SparsePrior.guesses(problem)} == {1}  # none is 0
    unknown = RegressionProblem(problem.x, problem.y, problem.x_query)
    assert {guess.sparsity for guess in SparsePrior.guesses(unknown)} == {1, 2, 3}
    sparse = torch.zeros(2, 3, 4, dtype=torch.float64)
    sparse[..., :2] = 1.0
    known = RegressionProblem(problem.x, problem.y, problem.x_query, sparse)
    assert {guess.sparsity for guess in SparsePrior.guesses(known)} == {2}


def test_bad_settings_are_refused() -> None:
    problem = sample_problems(3, 4)
    for make in (
        lambda: HigherOrderNewton(number(1e-3), 1),
        lambda: IterativeHardThresholding(numbers(0.1), 0),
        lambda: SparsePrior(number(0.1), number(0.1), 4).init(problem),
        lambda: WeightedGradientDescent(torch.ones(1, 3).double()).step(
            problem, torch.zeros(2, 3, 3).double(), 0
        ),
        lambda: GaussianPrior(torch.eye(3).double(), number(0.0)),
    ):
        with pytest.raises(InputError):
            make()
