"""Sparse recovery: its distribution, and its algorithms against scikit-learn and NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from sklearn.linear_model import Lasso

import innerloop
from innerloop.algorithms.fista import FISTA
from innerloop.algorithms.ista import ISTA
from innerloop.algorithms.lista_vm import ListaVM
from innerloop.errors import InputError, OutOfRangeError
from innerloop.problems.linear_regression import LinearRegression
from innerloop.problems.sparse_recovery import SparseRecovery


def test_weights_are_sparse_on_a_uniform_support() -> None:
    problem = SparseRecovery(d=6, n=2, sparsity=2).sample(40_000)
    assert problem.weights is not None
    kept = problem.weights != 0
    assert kept.sum(dim=-1).unique().tolist() == [2]
    np.testing.assert_allclose(kept.double().mean(dim=0).numpy(), [1 / 3] * 6, atol=0.01)
    assert float(problem.weights[kept].std()) == pytest.approx(1.0, rel=0.02)
    within = SparseRecovery(d=6, n=2, sparsity=2, support=3).sample(1000).weights
    assert within is not None
    assert not within[:, 3:].any()
    assert (within[:, :3] != 0).any(dim=0).all()


def test_rows_labels_and_noise() -> None:
    variances = torch.tensor([4.0, 0.25])
    distribution = SparseRecovery(d=2, n=3, sparsity=1, noise=0.5, variances=variances)
    problem = distribution.sample(40_000)
    assert problem.weights is not None
    np.testing.assert_allclose(
        problem.x.flatten(0, 1).square().mean(dim=0).numpy(), variances.numpy(), rtol=0.03
    )
    residual = problem.y - torch.einsum("bnd,bd->bn", problem.x, problem.weights)
    assert float(residual.std()) == pytest.approx(0.5, rel=0.02)
    first, again = (
        distribution.sample(3, generator=torch.Generator().manual_seed(1)) for _ in range(2)
    )
    assert torch.equal(first.y, again.y)


def test_paired_decoder_format() -> None:
    problem = SparseRecovery(d=3, n=2, sparsity=1).sample(4)
    registers = problem.to_paired_decoder_format()
    assert torch.equal(registers["x"][:, 0:4:2], problem.x)
    assert torch.equal(registers["x"][:, 1:4:2], problem.x)
    assert torch.equal(registers["x"][:, 4:], problem.x_query)
    assert torch.equal(registers["y"][:, 1:4:2], problem.y)
    assert not registers["y"][:, 0::2].any()
    assert registers["odd"].tolist() == [1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"sparsity": 0}, "sparsity must be at least 1"),
        ({"d": 4, "sparsity": 5}, "sparsity must be at most 4"),
        ({"d": 4, "sparsity": 1, "support": 5}, "support must be at most d=4"),
        ({"d": 4, "sparsity": 3, "support": 2}, "sparsity must be at most 2"),
        ({"d": 4, "variances": torch.zeros(4)}, "positive numbers"),
    ],
)
def test_bad_settings_are_named(setting: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        SparseRecovery.from_values(setting)


@pytest.mark.parametrize(("kind", "steps"), [(ISTA, 4_000), (FISTA, 3_000)])
@pytest.mark.parametrize(("d", "n"), [(4, 9), (8, 5)])
def test_ista_and_fista_reach_scikit_learns_lasso(kind, steps: int, d: int, n: int) -> None:
    problem = SparseRecovery(d=d, n=n, sparsity=2, noise=0.1).sample(3)
    algorithm = kind(torch.tensor(0.3, dtype=torch.float64))
    *_, last = algorithm.states(problem, steps)
    weights = last if isinstance(last, torch.Tensor) else last.weights
    for k in range(3):
        lasso = Lasso(alpha=0.3 / n, fit_intercept=False, tol=1e-12, max_iter=1_000_000)
        expected = lasso.fit(problem.x[k].numpy(), problem.y[k].numpy()).coef_
        np.testing.assert_allclose(weights[k].numpy(), expected, atol=1e-6)
        assert ((weights[k].numpy() != 0) == (expected != 0)).all()


def test_fista_is_faster_than_ista() -> None:
    problem = SparseRecovery(d=20, n=10).sample(50)

    def objective(weights: torch.Tensor) -> torch.Tensor:
        residual = problem.y - torch.einsum("bnd,bd->bn", problem.x, weights)
        return residual.square().sum(-1) / 2 + 0.1 * weights.abs().sum(-1)

    penalty = torch.tensor(0.1, dtype=torch.float64)
    slow = [objective(state) for state in ISTA(penalty).states(problem, 100)]
    fast = [objective(state.weights) for state in FISTA(penalty).states(problem, 100)]
    assert all(bool((b <= a + 1e-12).all()) for a, b in itertools.pairwise(slow))
    assert float(fast[-1].mean()) < float(slow[-1].mean())


@pytest.mark.parametrize("support", [None, 2])
def test_lista_vm_in_numpy_prefix_by_prefix(support: int | None) -> None:
    problem = SparseRecovery(d=4, n=3, sparsity=2, noise=0.1).sample(2)
    matrices = 0.3 * torch.randn(3, 4, 4, dtype=torch.float64)
    thresholds = torch.tensor([0.1, 0.0, 0.02], dtype=torch.float64)
    algorithm = ListaVM(matrices, thresholds, support)
    *_, last = algorithm.states(problem, 3)
    for k in range(2):
        x, y = problem.x[k].numpy(), problem.y[k].numpy()
        for m in range(4):
            beta = np.zeros(4)
            for matrix, theta in zip(matrices.numpy(), thresholds.numpy(), strict=True):
                moved = beta - matrix @ x[:m].T @ (x[:m] @ beta - y[:m]) / (2 * m + 1)
                beta = np.sign(moved) * np.maximum(np.abs(moved) - theta, 0)
                beta[support:] = 0 if support else beta[support:]
            np.testing.assert_allclose(last[k, m].numpy(), beta, atol=1e-13)
    rows = np.concatenate([problem.x, problem.x_query], axis=1)
    np.testing.assert_allclose(
        algorithm.predict(problem, last).numpy(), (rows * last.numpy()).sum(-1), atol=1e-13
    )
    linear = ListaVM(matrices, thresholds, support, torch.tensor([-2.0, 0.5], dtype=torch.float64))
    found = linear.predict(problem, last).numpy()
    for k, m in np.ndindex(2, 4):
        heard = sum(max(rows[k, m] @ last[k, j].numpy() + 2.0, 0) for j in range(m + 1))
        assert found[k, m] == pytest.approx(2 / 0.5 * heard / (2 * m + 1) - 2.0)


def test_no_prefix_sees_its_own_label() -> None:
    """Changing label m+1 changes nothing that is read for examples 1 … m+1."""
    built = innerloop.build("lista-vm", d=4, n=6, steps=3)
    linear = innerloop.build("lista-vm-linear", d=4, n=6, steps=3)
    problem = SparseRecovery(d=4, n=6, sparsity=2).sample(3)
    y = problem.y.clone()
    y[:, 3] += 5.0
    other = innerloop.RegressionProblem(problem.x, y, problem.x_query, problem.weights)
    for model in (built, linear):
        before, after = model.predict(problem), model.predict(other)
        assert torch.equal(before[:, :4], after[:, :4])
        assert not torch.equal(before[:, 4:], after[:, 4:])


def test_without_a_threshold_the_query_token_runs_gradient_descent() -> None:
    n, d = 8, 3
    lista = innerloop.build(
        "lista-vm", d=d, n=n, steps=5, threshold=0.0, preconditioners="identity", step_size=0.4
    )
    plain = innerloop.build(
        "looped-gradient-descent",
        d=d,
        n=n,
        steps=5,
        preconditioners=0.4 * n / (2 * n + 1) * torch.eye(d, dtype=torch.float64),
    )
    problem = LinearRegression(d=d, n=n).sample(4)
    torch.testing.assert_close(lista.predict(problem)[:, -1:], plain.predict(problem))


def test_the_printed_bias_of_the_soft_threshold_is_wrong() -> None:
    """(C.2) prints +θ in the last block: then S(0) = −θ instead of 0."""
    theta = 0.3

    def unit(x: float) -> float:
        return max(x, 0.0)

    def mlp(x: float, last: float) -> float:
        return x - unit(x) + unit(-x) + unit(x - theta) - unit(-x + last)

    assert mlp(0.0, theta) == -theta
    for x in (-1.0, -0.2, 0.0, 0.2, 1.0):
        assert mlp(x, -theta) == pytest.approx(np.sign(x) * max(abs(x) - theta, 0))


def test_conversion_makes_the_encoders_prompt() -> None:
    problem = LinearRegression(d=3, n=5).sample(2)
    built = innerloop.build("format-conversion", d=3, n=5)
    expected = problem.to_encoder_format()
    found = built.predict(problem)
    torch.testing.assert_close(found[..., :3], expected["x"])
    torch.testing.assert_close(found[..., 3], expected["y"])
    assert built.certificate.operator_norm <= 12
    assert built.certificate.heads <= 3
    assert built.certificate.hidden == 2


def test_decoder_and_encoder_give_the_same_answer() -> None:
    problem = LinearRegression(d=3, n=7, noise=0.2).sample(4)
    both = [
        innerloop.build(name, d=3, n=7, steps=6).predict(problem)
        for name in ("decoder-gradient-descent", "relu-gradient-descent")
    ]
    torch.testing.assert_close(*both, rtol=1e-10, atol=1e-10)


def test_limits_are_named() -> None:
    with pytest.raises(InputError, match="support must be at most d=3"):
        innerloop.build("lista-vm", d=3, support=4)
    built = innerloop.build("lista-vm", d=3, n=4)
    with pytest.raises(OutOfRangeError, match="one query, got 2"):
        built.predict(LinearRegression(d=3, n=4, queries=2).sample())
    problem = LinearRegression(d=3, n=4).sample()
    far = innerloop.RegressionProblem(problem.x * 300, problem.y * 300, problem.x_query)
    with pytest.raises(OutOfRangeError, match="times the range"):
        built.predict(far)
