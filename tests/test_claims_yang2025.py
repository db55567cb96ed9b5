"""What the claims of yang2025 found, recomputed in NumPy or in exact arithmetic."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np
import pytest
import torch

from innerloop.claims.base import claims
from innerloop.claims.yang2025.fu_rates import ERRORS, _steps, descent, newton
from innerloop.claims.yang2025.lin_theorem_12 import TEMPERATURE, best, cut, soft_ucb_vi
from innerloop.claims.yang2025.packed_planning import PackedUCBVI, layers
from innerloop.problems.tabular_games import TabularGame, TabularGames


def test_newton_from_the_edge_never_moves() -> None:
    """S = diag(1, 1/2), α = 2: the first entry of I − MS is 1 for ever, the second vanishes."""
    S, M = (Fraction(1), Fraction(1, 2)), [Fraction(2), Fraction(1)]
    for _ in range(8):
        M = [2 * m - m * s * m for m, s in zip(M, S, strict=True)]
        assert M[0] == 0
    assert abs(1 - M[1] * S[1]) < Fraction(1, 10**9)


def test_newton_in_numpy() -> None:
    """(28) adds |a|, (38) is not the first step, and below the edge the limit is the inverse."""
    # x = T = n = 1: the score is −1/2, the pair of equal values adds 1/2, doubled 3, and not 1.
    a, step = -0.5, 2 * 1 - 1 * 1 * 1
    assert 2 * (1 + max(a, 0) + max(-a, 0)) == 3
    assert 2 * (1 + max(a, 0) - max(-a, 0)) == step
    X = np.random.default_rng(0).normal(size=(9, 3))
    S = X.T @ X
    alpha = 1.9 / np.linalg.norm(S @ S.T, 2)
    M = alpha * S
    first = 2 * M - M @ S @ M
    np.testing.assert_allclose(first, 2 * alpha * S - alpha**2 * S @ S @ S, rtol=1e-9)
    assert np.abs(first - (2 * alpha * S - 4 * alpha**2 * S @ S @ S)).max() > 0.1 * abs(first).max()
    for _ in range(25):
        M = 2 * M - M @ S @ M
    np.testing.assert_allclose(M, np.linalg.inv(S), rtol=1e-8)


@pytest.mark.parametrize("kappa", [10.0, 700.0])
def test_steps_are_those_of_the_closed_forms(kappa: float) -> None:
    """Errors (1 − 1/κ²)^(2^k) of Newton's and (1 − 1/κ)^k of gradient descent."""
    errors = ERRORS[:6]
    fast = [math.ceil(math.log2(math.log(e) / math.log1p(-(kappa**-2)))) for e in errors]
    slow = [math.ceil(math.log(e) / math.log1p(-1 / kappa)) for e in errors]
    assert _steps(newton, kappa, errors) == fast
    assert _steps(descent, kappa, errors) == slow


def planned(game: TabularGame, width: float) -> np.ndarray:
    """Soft UCB-VI of one game with dictionaries: log-odds (episodes, H, A)."""
    parts = (game.states, game.actions, game.rewards)
    states, actions, rewards = (part[0].numpy() for part in parts)
    (S, A), (episodes, H) = game.sizes, states.shape
    visits, moves, earned = Counter(), Counter(), defaultdict(float)
    rows = []
    for e in range(episodes):
        Q, V = np.zeros((H, S, A)), np.zeros((H + 1, S))
        for h in reversed(range(H)):
            for s in range(S):
                for a in range(A):
                    n = visits[h, s, a]
                    if n == 0:
                        Q[h, s, a] = H
                        continue
                    later = sum(moves[h, s, a, t] / n * V[h + 1, t] for t in range(S))
                    Q[h, s, a] = min(H, earned[h, s, a] / n + width / math.sqrt(n) + later)
                V[h, s] = Q[h, s].max()
        seen = Q[np.arange(H), states[e]] / TEMPERATURE
        rows.append(seen - np.log(np.exp(seen).sum(axis=1, keepdims=True)))
        for h in range(H):
            cell = (h, states[e, h], actions[e, h])
            visits[cell] += 1
            earned[cell] += rewards[e, h]
            if h + 1 < H:
                moves[(*cell, states[e, h + 1])] += 1
    return np.stack(rows)


@pytest.mark.parametrize(("S", "A", "H", "n"), [(2, 2, 3, 9), (2, 5, 2, 14), (1, 9, 2, 24)])
def test_packed_planning_is_soft_ucb_vi(S: int, A: int, H: int, n: int) -> None:
    built = PackedUCBVI(d=S, arms=A, steps=H - 1, n=n, bonus=0.02, temperature=TEMPERATURE)
    generator = torch.Generator().manual_seed(1)
    game = TabularGames(states=S, arms=A, horizon=H, episodes=n).sample(1, generator=generator)
    wanted = planned(game, float(built.algorithm.width))
    reference = soft_ucb_vi(game, float(built.algorithm.width), best, cut)[0].numpy()
    np.testing.assert_allclose(reference, wanted, atol=1e-12)
    values = built.decode(game, built.transformer(built.prompt(game)))
    found = (values / TEMPERATURE).log_softmax(dim=-1)[0].numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-11)
    assert (values < H - 1e-6).double().mean() > 0.1, "not everything is as hopeful as can be"
    assert built.transformer.count()["layers"] == layers(H, A)


def test_layers_fit_for_up_to_eight_actions() -> None:
    for H in (2, 3, 10, 1000):
        assert layers(H, 2) == H + 3
        assert layers(H, 8) == layers(H, 3) == 2 * H + 2
    assert layers(7, 32) == 2 * 7 + 8
    assert layers(8, 32) > 2 * 8 + 8


@pytest.mark.parametrize(
    ("id", "verdicts"),
    [
        ("yang2025.fu.newton", ["holds"] * 2 + ["holds as corrected"] * 3),
        ("yang2025.fu.rates", ["holds"] * 4),
        ("yang2025.lin.theorem-12", ["holds"] * 2 + ["undecided"]),
    ],
)
def test_what_holds_and_what_does_not(id: str, verdicts: list[str]) -> None:
    claim = claims()[id]
    found = claim.check(claim.tiny)
    assert [part.verdict for part in found.parts] == verdicts
    if id == "yang2025.fu.newton":
        assert "found 3, wanted 1" in found.parts[3].printed.counterexample
    if id == "yang2025.fu.rates":
        assert found.numbers["largest difference to the counts on rotated data"] == 0
