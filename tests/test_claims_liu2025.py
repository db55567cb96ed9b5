"""What the claims of liu2025 found, recomputed in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from innerloop.claims.base import claims
from innerloop.claims.liu2025 import printed


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def soft(x: np.ndarray, theta: float) -> np.ndarray:
    return np.sign(x) * relu(np.abs(x) - theta)


def test_the_printed_bias_shifts_and_the_corrected_one_thresholds() -> None:
    x, theta = np.linspace(-3, 3, 25), 0.75
    common = x - relu(x) + relu(-x) + relu(x - theta)
    np.testing.assert_allclose(common - relu(-x + theta), x - theta, atol=1e-15)
    np.testing.assert_allclose(common - relu(-x - theta), soft(x, theta), atol=1e-15)


@pytest.mark.parametrize("d", [1, 3])
def test_the_printed_mlp_is_laid_out_as_printed(d: int) -> None:
    """(C.2) stacked by hand: four blocks of 2d + 2 rows, and the bias from its five parts."""
    weights = printed.units(d, 0.5, 1.0)
    parts = [np.zeros(5 * d + 5), np.full(d, -0.5), np.zeros(d + 2), np.full(d, 0.5), np.zeros(1)]
    np.testing.assert_array_equal(weights.bias.numpy(), np.concatenate(parts))
    sub = np.zeros((2 * d + 2, 2 * d + 2))
    sub[d + 1 : 2 * d + 1, d + 1 : 2 * d + 1] = np.eye(d)
    np.testing.assert_array_equal(weights.inner.numpy(), np.vstack([sub, -sub, sub, -sub]))
    one = np.eye(2 * d + 2)
    np.testing.assert_array_equal(weights.outer.numpy().T, np.vstack([-one, one, one, -one]))


def test_a_printed_layer_token_by_token() -> None:
    """The vector form of Definition 3.1 in loops, and (4.4) at odd tokens once the bias is −θ."""
    rng = np.random.default_rng(3)
    d, n, theta, bound = 3, 4, 0.1, 50.0
    X, y, M = rng.normal(size=(n, d)), rng.normal(size=n), rng.normal(size=(d, d))
    H = printed.prompt(*(torch.tensor(part) for part in (X, y, rng.normal(size=d))))
    H[d + 1 : 2 * d + 1] = torch.tensor(rng.normal(size=(d, 2 * n + 1)))
    heads = printed.heads(d, torch.tensor(M), bound)
    h, out = H.numpy(), H.numpy().copy()
    for i in range(2 * n + 1):
        for head in heads:
            Q, K, V = (part.numpy() for part in head)
            for j in range(i + 1):
                out[:, i] += relu((Q @ h[:, i]) @ (K @ h[:, j])) * (V @ h[:, j]) / (i + 1)
    np.testing.assert_allclose(printed.attended(H, heads).numpy(), out, atol=1e-12)
    after = printed.thresholded(torch.tensor(out), printed.units(d, theta, -1.0)).numpy()
    for m in range(n + 1):
        beta = h[d + 1 : 2 * d + 1, 2 * m]
        wanted = soft(beta - M @ X[:m].T @ (X[:m] @ beta - y[:m]) / (2 * m + 1), theta)
        np.testing.assert_allclose(after[d + 1 : 2 * d + 1, 2 * m], wanted, atol=1e-12)


def test_what_holds_and_what_does_not() -> None:
    found = claims()["liu2025.eq-4.3"]
    verdicts = [part.verdict for part in found.check(found.tiny).parts]
    assert verdicts == ["holds as corrected"] * 2 + ["holds", "holds as corrected"]
    found = claims()["liu2025.theorem-4.1"]
    evidence = found.check(found.tiny)
    assert [part.verdict for part in evidence.parts] == ["holds"] + ["holds as corrected"] * 3
    # x = 1, y = 2, M = 1, θ = 1: S_1(2/3) = 0, but 2/3 − 1 with the printed bias.
    assert "found -0.333" in evidence.parts[1].printed.counterexample
