"""Reference algorithms against NumPy, SciPy and scikit-learn."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge as SklearnRidge

from innerloop.algorithms.gd_plus_plus import GDPlusPlus
from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.algorithms.least_squares import LeastSquares
from innerloop.algorithms.newton import Newton
from innerloop.algorithms.preconditioned_gradient_descent import PreconditionedGradientDescent
from innerloop.algorithms.regression import gradient
from innerloop.algorithms.ridge import Ridge
from innerloop.errors import InputError
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem

SIZES = [(3, 7), (5, 3), (1, 4), (4, 1)]


def sample_problems(d: int, n: int, **setting: object) -> RegressionProblem:
    distribution = LinearRegression.from_values(
        {"d": d, "n": n, "noise": 0.3, "queries": 2, **setting}
    )
    return distribution.sample(2, 3, generator=torch.Generator().manual_seed(0))


def iterate_instances(problem: RegressionProblem):
    """Yield the index, x, y and queries of every instance in a batch."""
    for index in np.ndindex(*problem.x.shape[:-2]):
        yield index, problem.x[index].numpy(), problem.y[index].numpy(), problem.x_query[index]


@pytest.mark.parametrize(("d", "n"), SIZES)
def test_gradient_is_the_derivative_of_the_loss(d: int, n: int) -> None:
    problem = sample_problems(d, n)
    weights = torch.randn(2, 3, d, dtype=torch.float64, requires_grad=True)
    fitted = (problem.x @ weights.unsqueeze(-1)).squeeze(-1)
    ((fitted - problem.y).square().sum() / (2 * n)).backward()
    torch.testing.assert_close(gradient(problem, weights.detach()), weights.grad)


@pytest.mark.parametrize(("d", "n"), SIZES)
def test_preconditioned_gradient_descent_agrees_with_numpy(d: int, n: int) -> None:
    problem = sample_problems(d, n)
    matrices = 0.1 * torch.randn(3, d, d, dtype=torch.float64)
    algorithm = PreconditionedGradientDescent(matrices)
    *_, last = algorithm.states(problem, 3)
    for index, x, y, query in iterate_instances(problem):
        w = np.zeros(d)
        for a in matrices.numpy():
            w = w - a @ (x.T @ (x @ w - y)) / n
        np.testing.assert_allclose(last[index].numpy(), w, rtol=1e-12, atol=1e-13)
        prediction = algorithm.predict(problem, last)[index].numpy()
        np.testing.assert_allclose(prediction, query.numpy() @ w, rtol=1e-12, atol=1e-13)


def test_gradient_descent_is_preconditioned_by_multiples_of_the_identity() -> None:
    problem = sample_problems(3, 6)
    sizes = torch.tensor([0.1, 0.3], dtype=torch.float64)
    plain = GradientDescent(sizes)
    general = PreconditionedGradientDescent(sizes[:, None, None] * torch.eye(3).double())
    for a, b in zip(plain.states(problem, 5), general.states(problem, 5), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(("d", "n"), SIZES)
def test_gd_plus_plus_is_the_papers_recursion_on_tokens(d: int, n: int) -> None:
    """Eq. (4) of Ahn et al. with P, Q of eq. (13), on Z = [X; y], in NumPy."""
    problem = sample_problems(d, n)
    a, b = (0.1 * torch.randn(3, d, d, dtype=torch.float64) for _ in range(2))
    algorithm = GDPlusPlus(a, b)
    *_, last = algorithm.states(problem, 3)
    for index, x, y, query in iterate_instances(problem):
        queries = query.numpy()
        z = np.zeros((d + 1, n + len(queries)))
        z[:d] = np.concatenate([x, queries]).T
        z[d, :n] = y
        mask = np.diag([1.0] * n + [0.0] * len(queries))
        for k in range(3):
            p, q = np.zeros((d + 1, d + 1)), np.zeros((d + 1, d + 1))
            p[:d, :d], p[d, d] = b[k].numpy(), 1.0
            q[:d, :d] = -a[k].numpy().T
            z = z + p @ z @ mask @ (z.T @ q @ z) / n
        np.testing.assert_allclose(
            algorithm.predict(problem, last)[index].numpy(), -z[d, n:], rtol=1e-11, atol=1e-13
        )
        np.testing.assert_allclose(
            queries @ last.transform[index].numpy().T, z[:d, n:].T, rtol=1e-11, atol=1e-13
        )


@pytest.mark.parametrize(("d", "n"), SIZES)
def test_newton_squares_its_residual_and_reaches_the_pseudo_inverse(d: int, n: int) -> None:
    problem = sample_problems(d, n)
    gram = problem.x.mT @ problem.x
    top = float(torch.linalg.eigvalsh(gram).max())
    algorithm = Newton(torch.tensor(1 / top**2, dtype=torch.float64))
    states = list(algorithm.states(problem, 18))
    identity = torch.eye(d, dtype=torch.float64)
    for before, after in itertools.pairwise(states):
        residual = identity - before @ gram
        torch.testing.assert_close(identity - after @ gram, residual @ residual, atol=1e-9, rtol=0)
    for index, x, _, _ in iterate_instances(problem):
        pinv = np.linalg.pinv(x.T @ x)
        np.testing.assert_allclose(states[-1][index].numpy(), pinv, atol=1e-6 * np.abs(pinv).max())


def test_newton_stays_at_the_inverse_after_convergence() -> None:
    """Rounding errors do not add up over 100 steps.

    Multiplied in another order, the matrices would double their rounding error in every step.
    """
    problem = sample_problems(20, 200)
    gram = problem.x.mT @ problem.x
    top = float(torch.linalg.eigvalsh(gram).max())
    *_, last = Newton(torch.tensor(1 / top**2).double()).states(problem, 100)
    torch.testing.assert_close(last, torch.linalg.inv(gram), rtol=0, atol=1e-12)


def test_newton_needs_tens_of_steps_where_gradient_descent_needs_thousands() -> None:
    problem = sample_problems(5, 40, kappa=100.0, noise=0.0)
    gram = problem.x.mT @ problem.x
    top = float(torch.linalg.eigvalsh(gram).max())
    target = problem.targets

    def steps_until(algorithm, limit: int) -> int:
        for k, state in enumerate(algorithm.states(problem, limit)):
            if float((algorithm.predict(problem, state) - target).abs().max()) < 1e-6:
                return k
        return limit + 1

    newton = steps_until(Newton(torch.tensor(1 / top**2).double()), 60)
    descent = steps_until(GradientDescent(torch.tensor([problem.n / top]).double()), 20_000)
    assert newton <= 40
    assert 1000 <= descent <= 20_000


@pytest.mark.parametrize(("d", "n"), SIZES)
def test_least_squares_agrees_with_numpy(d: int, n: int) -> None:
    problem = sample_problems(d, n)
    found = LeastSquares().init(problem)
    for index, x, y, _ in iterate_instances(problem):
        expected = np.linalg.lstsq(x, y, rcond=None)[0]
        np.testing.assert_allclose(found[index].numpy(), expected, rtol=1e-8, atol=1e-10)
    assert torch.equal(LeastSquares().step(problem, found, 0), found)


@pytest.mark.parametrize(("d", "n"), SIZES)
def test_ridge_agrees_with_scikit_learn(d: int, n: int) -> None:
    problem = sample_problems(d, n)
    found = Ridge(torch.tensor(0.7, dtype=torch.float64)).init(problem)
    for index, x, y, _ in iterate_instances(problem):
        expected = SklearnRidge(alpha=0.7, fit_intercept=False).fit(x, y).coef_
        np.testing.assert_allclose(found[index].numpy(), expected, rtol=1e-9, atol=1e-11)
    with pytest.raises(InputError, match="penalty must be positive"):
        Ridge(torch.tensor(0.0))
