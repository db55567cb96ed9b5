"""Closed forms against sums over a product rule, sampling, and what is known from textbooks."""

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
from innerloop.theory.flow import gradient_flow, isotropic_flow, looped_loss
from innerloop.theory.gaussian import product_rule
from innerloop.theory.layers import Layers, inside, residual
from innerloop.theory.looped import (
    Looped,
    deviation_rule,
    isotropic_loss,
    isotropic_minimum,
    isotropic_moments,
)
from innerloop.theory.single_layer import SingleLayer
from innerloop.theory.spectrum import spectral_rule
from innerloop.theory.stack import expected_loss
from innerloop.theory.wishart import Wishart

DENSE = torch.tensor([[2.0, 0.7], [0.7, 0.5]], dtype=torch.float64)


def trace(values: Tensor) -> Tensor:
    return values.diagonal(dim1=-2, dim2=-1).sum(-1)


def scatter(covariance: Tensor, n: int, degree: int) -> tuple[Tensor, Tensor]:
    """W of every prompt of a rule, and the weights of the sum."""
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


def test_the_product_rule_says_what_it_cannot() -> None:
    with pytest.raises(InputError, match=r"3\^20 points"):
        product_rule(20, 5)
    with pytest.raises(InputError, match="variables ≥ 1"):
        product_rule(0, 5)


@pytest.mark.parametrize("n", [1, 3])
def test_powers_are_the_rule_s(n: int) -> None:
    W, mass = scatter(DENSE, n, 8)
    law = Wishart(DENSE, n)
    for traces, k in [((), 1), ((), 2), ((), 3), ((), 4), ((1,), 2), ((2, 1), 1), ((1, 1, 2), 0)]:
        value = torch.linalg.matrix_power(W, k)
        for a in traces:
            value = value * trace(torch.linalg.matrix_power(W, a))[:, None, None]
        known = torch.tensordot(mass, value, dims=1)
        torch.testing.assert_close(law.power(k, traces), known, rtol=1e-10, atol=0)


def test_words_are_the_rule_s() -> None:
    n = 2
    W, mass = scatter(DENSE, n, 8)
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


def test_known_moments() -> None:
    """E[W²] = n(n+1)Σ² + n tr(Σ)Σ; one column of one feature is a chi-squared."""
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


def test_powers_against_samples() -> None:
    rng = np.random.default_rng(0)
    W = scipy.stats.wishart(df=6, scale=DENSE.numpy()).rvs(200_000, random_state=rng)
    samples = W @ W @ W
    error = samples.std(axis=0) / math.sqrt(len(samples))
    assert (np.abs(samples.mean(axis=0) - Wishart(DENSE, 6).power(3).numpy()) < 5 * error).all()


@pytest.mark.parametrize("n", [1, 2])
def test_the_single_layer_is_the_rule_s(n: int) -> None:
    """The loss, and E[⟨C, E⟩ C] and E[⟨v, w⟩ C], straight from tokens."""
    d, root = 2, torch.linalg.cholesky(DENSE)
    points, mass = product_rule(d * (n + 2), 5)
    drawn = points.reshape(-1, n + 2, d)
    X, w, query = drawn[:, :n] @ root.mT, drawn[:, n], drawn[:, n + 1] @ root.mT
    z = torch.cat([X, X @ w[:, :, None]], dim=-1)
    C = z.mT @ z / n
    layer = SingleLayer(DENSE, n)
    b, A = torch.randn(d + 1, dtype=torch.float64), torch.randn(d + 1, d, dtype=torch.float64)
    error = torch.einsum("i,pij,jk,pk->p", b, C, A, query) + (w * query).sum(-1)
    assert float(layer.loss(b, A)) == pytest.approx(float((mass * error**2).sum()))
    E, v = torch.randn(d + 1, d + 1, dtype=torch.float64), torch.randn(d, dtype=torch.float64)
    known = torch.tensordot(mass * (C * E).sum((-1, -2)), C, dims=1)
    torch.testing.assert_close(layer.second(E), known)
    torch.testing.assert_close(layer.along(v), torch.tensordot(mass * (w @ v), C, dims=1))


def test_the_stack_is_the_rule_s() -> None:
    n, d = 2, 2
    W, mass = scatter(DENSE, n, 8)
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
def test_the_looped_loss_is_the_words(d: int, n: int, loops: int) -> None:
    """A Gauss rule in Bartlett's numbers against a sum over pairings, and against fractions."""
    B, v = torch.randn(d, d, dtype=torch.float64), torch.randn(d, dtype=torch.float64)
    eye, law = torch.eye(d, dtype=torch.float64), Looped(d, n, loops)
    known = float(expected_loss(-B.expand(loops, d, d), eye, eye, n))
    assert float(law.loss(B)) == pytest.approx(known)
    scalar = float(isotropic_loss(d, n, loops, Fraction(7, 10)))
    assert float(law.loss(0.7 * eye)) == pytest.approx(scalar)
    assert float(law.traced(0.7 * eye)) == pytest.approx(scalar)
    R = torch.linalg.matrix_power(law.residual(B), loops)
    row = v @ (eye - R)
    known += float(((row**2).sum(-1) * law.rule[1]).sum())
    assert float(law.loss(B, v)) == pytest.approx(known)


def test_isotropic_moments_are_wishart_s() -> None:
    d, n = 3, 4
    law = Wishart(torch.eye(d, dtype=torch.float64) / n, n)
    for k, moment in enumerate(isotropic_moments(d, n, 6)):
        assert float(moment) == pytest.approx(float(law.power(k)[0, 0]))


def test_the_isotropic_minimum() -> None:
    """One loop: b = n/(n + d + 1). Digits are kept where n is so large that b rounds to 1."""
    for n in (5, 10**6, 10**15):
        assert isotropic_minimum(2, n, 1) == pytest.approx(3 / (n + 3), rel=1e-12)
        eye = torch.eye(2, dtype=torch.float64)
        exact = float(isotropic_loss(2, n, 2, Fraction(1)))
        assert float(Looped(2, n, 2).loss(eye)) == pytest.approx(exact, rel=1e-9)
    with pytest.raises(InputError, match="1 ≤ d ≤ n"):
        deviation_rule(3, 2, 2)
    with pytest.raises(InputError, match="points"):
        deviation_rule(6, 7, 6)


@pytest.mark.parametrize(("d", "n"), [(1, 1), (2, 1), (2, 3), (3, 2), (2, 50)])
def test_rules_of_the_wishart_matrix_and_its_spectrum(d: int, n: int) -> None:
    """Against the recursion for powers, up to the degree that the rules were asked for."""
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


def test_layers_without_b_are_the_stack() -> None:
    A = torch.randn(2, 2, 2, dtype=torch.float64)
    law = Layers(DENSE, 3, 2)
    known = expected_loss(A, DENSE, torch.linalg.inv(DENSE), 3)
    assert float(law.loss(A)) == pytest.approx(float(known))


def test_layers_that_move_x_are_the_tokens_and_the_spectrum() -> None:
    """One prompt in NumPy, layer by layer; then the exact loss of proportional weights."""
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
    loss = Layers(DENSE, 4, 2, True).loss(a[:, None, None] * inverse, b[:, None, None] * eye)
    assert float(inside(a, b, 2, 4)) == pytest.approx(float(loss))


def times(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_the_flow_of_one_loop_is_a_matrix_exponential() -> None:
    """L = tr(I − 2B + κBBᵀ), κ = 1 + (d + 1)/n: dA/dt = −2(κΣAΣ − Σ), linear; SciPy's expm."""
    d, n = 2, 5
    start = torch.tensor([[3.0, -1.0], [0.5, -2.0]], dtype=torch.float64)
    asked = times(0.0, 0.1, 1.0, 7.0)
    found = gradient_flow(looped_loss(Looped(d, n, 1), DENSE), start, asked)
    S, kappa = DENSE.numpy(), 1 + (d + 1) / n
    end = np.linalg.inv(S) / kappa
    for time, A in zip(asked.tolist(), found.points, strict=True):
        decay = scipy.linalg.expm(-2 * kappa * time * np.kron(S, S))
        known = end + (decay @ (start.numpy() - end).ravel()).reshape(d, d)
        np.testing.assert_allclose(A.numpy(), known, rtol=1e-6, atol=1e-7)


def test_the_flow_goes_downhill_as_the_words_say() -> None:
    """Its first step is the gradient of the sum over pairings, the loss only falls, u goes to 0."""
    d, n, loops = 2, 4, 2
    weights = torch.tensor([[0.6, 0.1], [-0.2, 0.4], [0.3, -0.5]], dtype=torch.float64)
    loss = looped_loss(Looped(d, n, loops), DENSE)
    A = weights[:2].clone().requires_grad_()
    stack = expected_loss(-A.expand(loops, d, d), DENSE, torch.linalg.inv(DENSE), n)
    (slope,) = torch.autograd.grad(stack, A)
    short = gradient_flow(loss, weights[:2], times(1e-7), rtol=1e-10, atol=1e-14)
    torch.testing.assert_close((weights[:2] - short.points[0]) / 1e-7, slope, rtol=1e-4, atol=1e-5)
    found = gradient_flow(loss, torch.stack([weights, weights / 2]), times(0, 0.1, 0.5, 2, 5))
    assert found.losses.shape == (5, 2)
    assert bool((found.losses.diff(dim=0) < 0).all())
    assert bool((found.points[:, :, 2].norm(dim=-1).diff(dim=0) < 0).all())
    assert [row["loss"] for row in found.rows()[:2]] == found.losses[0].tolist()
    again = gradient_flow(loss, weights, times(0.5), method="DOP853")
    torch.testing.assert_close(again.points[0], found.points[2, 0], rtol=1e-5, atol=1e-6)


def test_the_flow_of_multiples_of_the_identity() -> None:
    """The dense flow; without noise, z' = −4z³ at two loops, whatever d is."""
    eye, asked = torch.eye(2, dtype=torch.float64), times(0.1, 1.0)
    dense = gradient_flow(looped_loss(Looped(2, 9, 2), eye), -0.5 * eye, asked)
    single = isotropic_flow(2, 9, 2, -0.5, asked)
    torch.testing.assert_close(single.losses, dense.losses, rtol=1e-6, atol=0)
    torch.testing.assert_close(single.points, dense.points[:, 0, 0], rtol=1e-6, atol=1e-7)
    many = isotropic_flow(900, 10**16, 2, 0.0, asked)
    torch.testing.assert_close(many.losses, 900 / (1 + 8 * asked) ** 2, rtol=1e-6, atol=0)


def test_a_flow_says_what_it_cannot() -> None:
    eye, law = torch.eye(2, dtype=torch.float64), Looped(2, 3, 1)
    with pytest.raises(InputError, match=r"stopped at t = 0\.125 of 10: Required step"):
        gradient_flow(lambda x: -(x**4), times(1.0), times(1.0, 10.0), method="RK45")
    with pytest.raises(InputError, match="increasing times"):
        gradient_flow(looped_loss(law, eye), eye, times(1.0, 0.5))
    with pytest.raises(InputError, match="finite numbers"):
        gradient_flow(looped_loss(law, eye), eye * math.inf, times(1.0))
    with pytest.raises(InputError, match="2×2 covariance"):
        looped_loss(law, torch.eye(3, dtype=torch.float64))
    with pytest.raises(InputError, match="eigenvalues are positive"):
        looped_loss(law, torch.ones(2, 2, dtype=torch.float64) - eye)
    with pytest.raises(InputError, match="one more row"):
        looped_loss(law, eye)(torch.eye(3, dtype=torch.float64))
    with pytest.raises(InputError, match="loops ≥ 1"):
        isotropic_flow(2, 3, 0, 0.0, times(1.0))
