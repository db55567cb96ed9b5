"""Closed forms against quadrature with a product rule, sampling and textbook formulas."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch
from torch import Tensor

from innerloop.errors import InputError
from innerloop.theory.bartlett import bartlett_rule
from innerloop.theory.flow import gradient_flow, isotropic_flow, unwhitened_loss
from innerloop.theory.gaussian import product_rule
from innerloop.theory.layers import LayeredLoss, residual, restricted_loss
from innerloop.theory.looped import (
    LoopedLoss,
    deviation_rule,
    isotropic_loss,
    isotropic_minimum,
    isotropic_moments,
)
from innerloop.theory.single_layer import SingleLayerLoss
from innerloop.theory.spectrum import spectral_rule
from innerloop.theory.stack import expected_loss
from innerloop.theory.wishart import Wishart

DENSE = torch.tensor([[2.0, 0.7], [0.7, 0.5]], dtype=torch.float64)


def trace(values: Tensor) -> Tensor:
    return values.diagonal(dim1=-2, dim2=-1).sum(-1)


def draw_scatter_matrices(covariance: Tensor, n: int, degree: int) -> tuple[Tensor, Tensor]:
    """W = XᵀX at every node of a product rule over X, and the weights of the nodes."""
    d = len(covariance)
    points, mass = product_rule(n * d, degree)
    X = points.reshape(-1, n, d) @ torch.linalg.cholesky(covariance).mT
    return X.mT @ X, mass


@pytest.mark.parametrize("degree", [1, 3, 5, 8])
def test_the_product_rule_integrates_polynomials(degree: int) -> None:
    points, mass = product_rule(2, degree)
    for a in range(degree + 1):
        for b in range(degree + 1):
            found = float((mass * points[:, 0] ** a * points[:, 1] ** b).sum())
            known = math.prod(float(scipy.stats.norm.moment(k)) for k in (a, b))
            assert found == pytest.approx(known, abs=1e-9 * max(1.0, known))


def test_the_product_rule_refuses_impossible_sizes() -> None:
    with pytest.raises(InputError, match=r"3\^20 points"):
        product_rule(20, 5)
    with pytest.raises(InputError, match="variables ≥ 1"):
        product_rule(0, 5)


@pytest.mark.parametrize("n", [1, 3])
def test_powers_agree_with_the_product_rule(n: int) -> None:
    W, mass = draw_scatter_matrices(DENSE, n, 8)
    law = Wishart(DENSE, n)
    for traces, k in [((), 1), ((), 2), ((), 3), ((), 4), ((1,), 2), ((2, 1), 1), ((1, 1, 2), 0)]:
        value = torch.linalg.matrix_power(W, k)
        for a in traces:
            value = value * trace(torch.linalg.matrix_power(W, a))[:, None, None]
        known = torch.tensordot(mass, value, dims=1)
        torch.testing.assert_close(law.power(k, traces), known, rtol=1e-10, atol=0)


def test_traces_of_words_agree_with_the_product_rule() -> None:
    n = 2
    W, mass = draw_scatter_matrices(DENSE, n, 8)
    A, B, C, D = torch.randn(4, 2, 2, dtype=torch.float64)
    law = Wishart(DENSE, n)

    def mean(values: Tensor) -> float:
        return float((mass * values).sum())

    one = trace(W @ A @ W @ B @ W @ C @ W @ D)
    assert float(law.trace([A, B, C, D])) == pytest.approx(mean(one))
    two = trace(W @ A @ W @ B) * trace(W @ C) * trace(W @ D)
    assert float(law.trace([A, B], [C], [D])) == pytest.approx(mean(two))
    three = trace(W @ A @ W @ B @ W @ C) * trace(W @ D)
    assert float(law.trace([A, B, C], [D])) == pytest.approx(mean(three))
    assert float(law.trace([D], [C, A, B])) == pytest.approx(
        mean(trace(W @ D) * trace(W @ C @ W @ A @ W @ B))
    )


def test_moments_agree_with_textbook_formulas() -> None:
    """E[W²] = n(n+1)Σ² + n tr(Σ)Σ; with one feature, W is chi-squared."""
    law = Wishart(DENSE, 7)
    known = 56 * DENSE @ DENSE + 7 * DENSE.trace() * DENSE
    torch.testing.assert_close(law.power(2), known)
    single = Wishart(torch.ones(1, 1, dtype=torch.float64), 5)
    for k in range(1, 6):
        assert float(single.power(k)) == pytest.approx(float(scipy.stats.chi2(5).moment(k)))
        word = [torch.ones(1, 1, dtype=torch.float64)] * k
        assert float(single.trace(word)) == pytest.approx(float(single.power(k)))
    with pytest.raises(InputError, match="n ≥ 1"):
        Wishart(DENSE, 0)
    with pytest.raises(InputError, match="at least 0"):
        law.power(-1)


def test_powers_agree_with_samples() -> None:
    rng = np.random.default_rng(0)
    W = scipy.stats.wishart(df=6, scale=DENSE.numpy()).rvs(200_000, random_state=rng)
    samples = W @ W @ W
    error = samples.std(axis=0) / math.sqrt(len(samples))
    assert (np.abs(samples.mean(axis=0) - Wishart(DENSE, 6).power(3).numpy()) < 5 * error).all()


@pytest.mark.parametrize("n", [1, 2])
def test_the_single_layer_agrees_with_the_product_rule(n: int) -> None:
    """The loss, E[⟨C, E⟩ C] and E[⟨v, w⟩ C] agree with the product rule applied to tokens."""
    d, root = 2, torch.linalg.cholesky(DENSE)
    points, mass = product_rule(d * (n + 2), 5)
    vectors = points.reshape(-1, n + 2, d)
    X, w, query = vectors[:, :n] @ root.mT, vectors[:, n], vectors[:, n + 1] @ root.mT
    z = torch.cat([X, X @ w[:, :, None]], dim=-1)
    C = z.mT @ z / n
    layer = SingleLayerLoss(DENSE, n)
    b, A = torch.randn(d + 1, dtype=torch.float64), torch.randn(d + 1, d, dtype=torch.float64)
    error = torch.einsum("i,pij,jk,pk->p", b, C, A, query) + (w * query).sum(-1)
    assert float(layer.loss(b, A)) == pytest.approx(float((mass * error**2).sum()))
    E, v = torch.randn(d + 1, d + 1, dtype=torch.float64), torch.randn(d, dtype=torch.float64)
    known = torch.tensordot(mass * (C * E).sum((-1, -2)), C, dims=1)
    torch.testing.assert_close(layer.second_moment(E), known)
    torch.testing.assert_close(layer.linear_moment(v), torch.tensordot(mass * (w @ v), C, dims=1))


def test_the_stack_agrees_with_the_product_rule() -> None:
    n, d = 2, 2
    W, mass = draw_scatter_matrices(DENSE, n, 8)
    weights = torch.tensor([[1.0, -0.3], [-0.3, 2.0]], dtype=torch.float64)
    A = torch.randn(2, 3, d, d, dtype=torch.float64)
    found = expected_loss(A, DENSE, weights, n)
    eye, G = torch.eye(d, dtype=torch.float64), W / n
    for k in range(3):
        R = (eye + G @ A[0, k]) @ (eye + G @ A[1, k])
        known = float((mass * trace(R.mT @ weights @ R @ DENSE)).sum())
        assert float(found[k]) == pytest.approx(known)
    assert float(expected_loss(A[:0, 0], DENSE, weights, n)) == pytest.approx(
        float((weights @ DENSE).trace())
    )


@pytest.mark.parametrize(("d", "n", "loops"), [(1, 1, 3), (2, 2, 2), (3, 5, 1)])
def test_the_looped_loss_agrees_with_the_stack(d: int, n: int, loops: int) -> None:
    """A Gauss rule over Bartlett factors against a sum over pairings and exact fractions."""
    B, v = torch.randn(d, d, dtype=torch.float64), torch.randn(d, dtype=torch.float64)
    eye, law = torch.eye(d, dtype=torch.float64), LoopedLoss(d, n, loops)
    known = float(expected_loss(-B.expand(loops, d, d), eye, eye, n))
    assert float(law.loss(B)) == pytest.approx(known)
    scalar = float(isotropic_loss(d, n, loops, Fraction(7, 10)))
    assert float(law.loss(0.7 * eye)) == pytest.approx(scalar)
    assert float(law.trace_loss(0.7 * eye)) == pytest.approx(scalar)
    R = torch.linalg.matrix_power(law.residual(B), loops)
    row = v @ (eye - R)
    known += float(((row**2).sum(-1) * law.rule[1]).sum())
    assert float(law.loss(B, v)) == pytest.approx(known)


def test_isotropic_moments_agree_with_the_wishart_class() -> None:
    d, n = 3, 4
    law = Wishart(torch.eye(d, dtype=torch.float64) / n, n)
    for k, moment in enumerate(isotropic_moments(d, n, 6)):
        assert float(moment) == pytest.approx(float(law.power(k)[0, 0]))


def test_the_isotropic_minimum_is_accurate_for_large_n() -> None:
    """With one loop, b = n/(n + d + 1), and 1 − b is accurate even where b rounds to 1."""
    for n in (5, 10**6, 10**15):
        assert isotropic_minimum(2, n, 1) == pytest.approx(3 / (n + 3), rel=1e-12)
        eye = torch.eye(2, dtype=torch.float64)
        exact = float(isotropic_loss(2, n, 2, Fraction(1)))
        assert float(LoopedLoss(2, n, 2).loss(eye)) == pytest.approx(exact, rel=1e-9)
    with pytest.raises(InputError, match="1 ≤ d ≤ n"):
        deviation_rule(3, 2, 2)
    with pytest.raises(InputError, match="points"):
        deviation_rule(6, 7, 6)


@pytest.mark.parametrize(("d", "n"), [(1, 1), (2, 1), (2, 3), (3, 2), (2, 50)])
def test_rules_for_the_wishart_matrix_and_its_spectrum_agree_with_its_powers(
    d: int, n: int
) -> None:
    """Both rules agree with the recursion for powers, up to the requested degree."""
    law = Wishart(torch.eye(d, dtype=torch.float64) / n, n)
    G, mass = bartlett_rule(d, n, 5)
    nodes, weights = spectral_rule(d, n, 5)
    for k in range(6):
        power = torch.tensordot(mass, torch.linalg.matrix_power(G, k), dims=1)
        torch.testing.assert_close(power, law.power(k))
        assert float((weights * nodes**k).sum()) == pytest.approx(float(law.power(k).trace()))
    with pytest.raises(InputError, match="more than"):
        bartlett_rule(6, 9, 20)
    with pytest.raises(InputError, match="degree"):
        spectral_rule(d, n, -1)


def test_layers_without_b_agree_with_the_stack() -> None:
    A = torch.randn(2, 2, 2, dtype=torch.float64)
    law = LayeredLoss(DENSE, 3, 2)
    known = expected_loss(A, DENSE, torch.linalg.inv(DENSE), 3)
    assert float(law.loss(A)) == pytest.approx(float(known))


def test_layers_that_change_x_agree_with_tokens_and_with_the_spectrum() -> None:
    """One prompt layer by layer in NumPy; then the exact loss of weights ∝ Σ⁻¹ and ∝ I."""
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((2, 5)), rng.standard_normal(2)
    A, B = rng.standard_normal((2, 3, 2, 2)) / 4
    M = np.diag([1.0, 1, 1, 1, 0])
    x, y = X, w @ X
    for i in range(3):
        scores = M @ x.T @ A[i] @ x / 4
        x, y = x + B[i] @ x @ scores, y + y @ scores
    G = torch.from_numpy(X @ M @ X.T / 4)
    H = residual(G, torch.from_numpy(A), torch.from_numpy(B[:2])).numpy()
    assert y[4] == pytest.approx(w @ H @ X[:, 4])
    a, b = torch.tensor([-0.4, -0.9]).double(), torch.tensor([0.3]).double()
    inverse, eye = torch.linalg.inv(DENSE), torch.eye(2, dtype=torch.float64)
    loss = LayeredLoss(DENSE, 4, 2, True).loss(a[:, None, None] * inverse, b[:, None, None] * eye)
    assert float(restricted_loss(a, b, 2, 4)) == pytest.approx(float(loss))


def as_tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_the_flow_of_one_loop_is_a_matrix_exponential() -> None:
    """dA/dt = −2(κΣAΣ − Σ) with κ = 1 + (d + 1)/n is linear: SciPy's expm solves it."""
    d, n = 2, 5
    start = torch.tensor([[3.0, -1.0], [0.5, -2.0]], dtype=torch.float64)
    times = as_tensor(0.0, 0.1, 1.0, 7.0)
    found = gradient_flow(unwhitened_loss(LoopedLoss(d, n, 1), DENSE), start, times)
    S, kappa = DENSE.numpy(), 1 + (d + 1) / n
    end = np.linalg.inv(S) / kappa
    for time, A in zip(times.tolist(), found.points, strict=True):
        decay = scipy.linalg.expm(-2 * kappa * time * np.kron(S, S))
        known = end + (decay @ (start.numpy() - end).ravel()).reshape(d, d)
        np.testing.assert_allclose(A.numpy(), known, rtol=1e-6, atol=1e-7)


def test_the_flow_follows_the_negative_gradient() -> None:
    """The flow starts along the negative gradient, the loss only falls, and u shrinks."""
    d, n, loops = 2, 4, 2
    weights = torch.tensor([[0.6, 0.1], [-0.2, 0.4], [0.3, -0.5]], dtype=torch.float64)
    loss = unwhitened_loss(LoopedLoss(d, n, loops), DENSE)
    A = weights[:2].clone().requires_grad_()
    stack = expected_loss(-A.expand(loops, d, d), DENSE, torch.linalg.inv(DENSE), n)
    (slope,) = torch.autograd.grad(stack, A)
    short = gradient_flow(loss, weights[:2], as_tensor(1e-7), rtol=1e-10, atol=1e-14)
    torch.testing.assert_close((weights[:2] - short.points[0]) / 1e-7, slope, rtol=1e-4, atol=1e-5)
    found = gradient_flow(loss, torch.stack([weights, weights / 2]), as_tensor(0, 0.1, 0.5, 2, 5))
    assert found.losses.shape == (5, 2)
    assert bool((found.losses.diff(dim=0) < 0).all())
    assert bool((found.points[:, :, 2].norm(dim=-1).diff(dim=0) < 0).all())
    assert [row["loss"] for row in found.as_rows()[:2]] == found.losses[0].tolist()
    again = gradient_flow(loss, weights, as_tensor(0.5), method="DOP853")
    torch.testing.assert_close(again.points[0], found.points[2, 0], rtol=1e-5, atol=1e-6)


def test_the_flow_of_multiples_of_the_identity() -> None:
    """It agrees with the flow of matrices, and for n → ∞ with the solution of z' = −4z³."""
    eye, times = torch.eye(2, dtype=torch.float64), as_tensor(0.1, 1.0)
    dense = gradient_flow(unwhitened_loss(LoopedLoss(2, 9, 2), eye), -0.5 * eye, times)
    single = isotropic_flow(2, 9, 2, -0.5, times)
    torch.testing.assert_close(single.losses, dense.losses, rtol=1e-6, atol=0)
    torch.testing.assert_close(single.points, dense.points[:, 0, 0], rtol=1e-6, atol=1e-7)
    many = isotropic_flow(900, 10**16, 2, 0.0, times)
    torch.testing.assert_close(many.losses, 900 / (1 + 8 * times) ** 2, rtol=1e-6, atol=0)


def test_a_flow_refuses_bad_input_and_reports_where_it_stopped() -> None:
    eye, law = torch.eye(2, dtype=torch.float64), LoopedLoss(2, 3, 1)
    with pytest.raises(InputError, match=r"stopped at t = 0\.125 of 10: Required step"):
        gradient_flow(lambda x: -(x**4), as_tensor(1.0), as_tensor(1.0, 10.0), method="RK45")
    with pytest.raises(InputError, match="increasing times"):
        gradient_flow(unwhitened_loss(law, eye), eye, as_tensor(1.0, 0.5))
    with pytest.raises(InputError, match="finite entries"):
        gradient_flow(unwhitened_loss(law, eye), eye * math.inf, as_tensor(1.0))
    with pytest.raises(InputError, match="2×2 covariance"):
        unwhitened_loss(law, torch.eye(3, dtype=torch.float64))
    with pytest.raises(InputError, match="positive eigenvalues"):
        unwhitened_loss(law, torch.ones(2, 2, dtype=torch.float64) - eye)
    with pytest.raises(InputError, match="one more row"):
        unwhitened_loss(law, eye)(torch.eye(3, dtype=torch.float64))
    with pytest.raises(InputError, match="loops ≥ 1"):
        isotropic_flow(2, 3, 0, 0.0, as_tensor(1.0))
