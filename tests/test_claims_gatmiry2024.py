"""What the claims of gatmiry2024 found, recomputed by hand and in the package's own machine."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from innerloop.claims.base import claims
from innerloop.constructions.preconditioned_gradient_descent import LinearGradientDescent
from innerloop.problems.linear_regression import LinearRegression

VERDICTS: dict[str, list[str]] = {
    "proposition-3.1": [
        "holds",
        "holds as corrected",  # ℓ(w) has no w
        "holds as corrected",  # its gradient
        "holds",
        "holds as corrected",  # (7)
        "holds as corrected",
        "holds",
        "holds as corrected",  # (9)
        "holds as corrected",
    ],
    "theorem-A.1": [
        "holds as corrected",  # (12), the sign of u
        "holds as corrected",  # (13), the sign of u
        "holds",
        "holds as corrected",  # u is missing
        "holds as corrected",  # and the sign of y_q
        "holds as corrected",  # XXᵀ = Σ
    ],
}


@pytest.mark.parametrize("name", VERDICTS)
def test_verdicts(name: str) -> None:
    claim = claims()[f"gatmiry2024.{name}"]
    found = claim.check(claim.tiny)
    assert [part.verdict for part in found.parts] == VERDICTS[name]


def looped(Z: np.ndarray, A: np.ndarray, u: np.ndarray, loops: int) -> np.ndarray:
    """(3) with (11), written out once more."""
    d, n = Z.shape[0] - 1, Z.shape[1] - 1
    P, Q, M = np.zeros((d + 1, d + 1)), np.zeros((d + 1, d + 1)), np.eye(n + 1)
    P[d], Q[:d, :d], M[n, n] = [*u, 1.0], A, 0.0
    for _ in range(loops):
        Z = Z - P @ Z @ M @ (Z.T @ Q @ Z) / n
    return Z


def test_the_smallest_loop_by_hand() -> None:
    """d = 1, n = 2, ones: the step is w = 1, neither −1 (∇ℓ = Xy) nor 2 (∇ℓ = −2Xy)."""
    Z = np.array([[1.0, 1, 1], [1, 1, 0]])
    np.testing.assert_allclose(looped(Z, np.eye(1), np.zeros(1), 1)[1], [0, 0, -1])


def test_the_sign_of_u_by_hand() -> None:
    """d = 1, n = 2, w* = 0, all else 1: (12) says +1 and the label is −1."""
    Z = np.array([[1.0, 1, 1], [0, 0, 0]])
    np.testing.assert_allclose(looped(Z, np.eye(1), np.ones(1), 1)[1], [-1, -1, -1])


def test_the_recursion_with_u_against_tokens() -> None:
    """r ← (I − AᵀΣ)r − AᵀΣu from w*: labels ⟨r, x⟩, and ⟨r − w*, x_q⟩ on the query."""
    rng = np.random.default_rng(0)
    X, w, q = rng.standard_normal((3, 5)), rng.standard_normal(3), rng.standard_normal(3)
    A, u = 0.3 * rng.standard_normal((3, 3)), rng.standard_normal(3)
    Z = np.concatenate([np.column_stack([X, q]), np.append(w @ X, 0.0)[None]])
    S, r = X @ X.T / 5, w
    for _ in range(4):
        r = r - A.T @ S @ (r + u)
    found = looped(Z, A, u, 4)[3]
    np.testing.assert_allclose(found[:5], r @ X)
    np.testing.assert_allclose(found[5], (r - w) @ q)


def test_the_built_transformer_is_the_corrected_step() -> None:
    """The package's machine for w ← w − M∇½‖Xᵀw − y‖²/n, beside the printed loop with A = Mᵀ."""
    M = torch.tensor([[0.3, 0.2], [-0.1, 0.4]], dtype=torch.float64)
    built = LinearGradientDescent(d=2, steps=3, preconditioners=M)
    problem = LinearRegression(d=2, n=4).sample(generator=torch.Generator().manual_seed(0))
    told = built.decode(problem, built.transformer(built.prompt(problem)))
    Z = np.zeros((3, 5))
    Z[:2] = np.column_stack([problem.x.numpy().T, problem.x_query[0].numpy()])
    Z[2, :4] = problem.y.numpy()
    np.testing.assert_allclose(-looped(Z, M.numpy().T, np.zeros(2), 3)[2, 4], float(told))
