"""What the claims of qliu2025 found, recomputed in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from innerloop.claims.base import claims


def decoded(H: np.ndarray) -> np.ndarray:
    """The two layers by their formulas: rows are x, y, r, q, ⌈i/2⌉, 1, parity of the columns."""
    H = H.copy()
    r, q, pos, par = (H.shape[0] - k for k in (5, 4, 3, 1))
    first = H.copy()
    for i in range(H.shape[1]):
        seen = H[:, : i + 1]
        first[r, i] += np.mean(np.maximum(H[par, i] * seen[pos], 0) * seen[pos])
        first[q, i] += 3 * np.mean(H[par, i] * seen[pos])
    second = first.copy()
    for i in range(H.shape[1]):
        a = 4 / 3 * first[q, i] - 2 * first[par, i]
        b = -6 * first[r, i] + 10 / 3 * first[q, i] - 4 * first[par, i]
        weights = np.maximum(a * first[pos, : i + 1] + b, 0) / (i + 1)
        second[: H.shape[0] - 6, i] += first[: H.shape[0] - 6, : i + 1] @ weights
    second[[r, q]] = 0
    return second


@pytest.mark.parametrize("N", [1, 2, 7, 60])
def test_two_layers_pair_x_with_y(N: int) -> None:
    rng = np.random.default_rng(N)
    d, i = 2, np.arange(1, 2 * N + 2)
    X, y = rng.normal(size=(d, N + 1)), rng.normal(size=N)
    H = np.zeros((d + 6, 2 * N + 1))
    H[:d, 0::2], H[d, 1::2] = X, y
    H[-3], H[-2], H[-1] = (i + 1) // 2, 1, (i + 1) % 2
    out = decoded(H)
    wanted = H.copy()
    wanted[:d, 1::2] = X[:, :N]
    np.testing.assert_allclose(out, wanted, atol=1e-11)
    # Without row D − 2 and in columns 2, 4, …, 2N, 2N + 1 it is the encoder's prompt.
    kept = np.delete(out, -3, axis=0)[:, [*range(1, 2 * N, 2), 2 * N]]
    encoder = np.vstack([X, np.append(y, 0), np.zeros((2, N + 1)), np.ones(N + 1), np.ones(N + 1)])
    encoder[-1, -1] = 0
    np.testing.assert_allclose(kept, encoder, atol=1e-11)


def test_what_holds_and_what_does_not() -> None:
    claim = claims()["qliu2025.proposition-6"]
    evidence = claim.check(claim.tiny)
    assert [part.verdict for part in evidence.parts] == ["holds as corrected"] * 2 + ["holds"]
    assert "(0, 5, 0, 0, 1, 1) for (3, 5, 0, 0, 1, 1)" in evidence.parts[0].printed.counterexample
    numbers = evidence.numbers
    assert (numbers["layers"], numbers["heads in a layer"], numbers["hidden units"]) == (2, 2, 2)
    # max over layers: √‖score‖ + Σ‖V‖ + ‖W₁‖ + ‖W₂‖ of the second, with score rows as built.
    score = np.zeros((3, 2))
    score[0], score[1], score[2] = (4 / 3, 10 / 3), (-2, -4), (0, -6)  # q, par, r by pos, 1
    norm = np.sqrt(np.linalg.norm(score, 2)) + 1 + 1 + 1
    assert numbers["‖θ‖"] == pytest.approx(norm)
