"""Programs on games: tokens counted by position, and an oracle in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import innerloop
from innerloop.language import (
    Data,
    State,
    dot,
    entry_sum,
    mean,
    own_total,
    program,
    relu,
    stack,
    total,
)
from innerloop.problems.linear_bandit_games import LinearBanditGames


@program(
    prompt="bandits",
    a=Data("A", "d"),
    chosen=Data("A"),
    reward=Data(),
    pos=Data(),
    phi=State("d"),
    w=State("d"),
)
def estimate(me: Any, eta: Any = 0.3) -> None:
    """Gradient descent on the rewards so far, at every step of a game."""
    me.w = me.w - eta * mean(lambda j: (dot(me.w, j.phi) - j.reward) * j.phi, over="causal")


@estimate.init
def _(me: Any, A: int) -> None:
    now = entry_sum(me.chosen) - me.pos
    me.phi = sum(
        total(lambda j, k=k: relu(me.chosen[k] + now + j.pos) * j.a[k], over="causal")
        for k in range(A)
    )


@estimate.answer
def _(me: Any, A: int, reach: Any = 100.0) -> Any:
    return stack([own_total(lambda j, k=k: dot(me.w, j.a[k]), "pos", reach) for k in range(A)])


def test_a_program_on_a_game_is_certified_and_agrees_with_numpy() -> None:
    built = innerloop.compile(estimate, d=3, n=5, arms=2, steps=4, instances=4)
    assert built.certificate.holds, built.certificate.explain()
    assert (built.certificate.exactness or {})["status"] == "points"
    game = LinearBanditGames(d=3, n=5, arms=2).sample(2, generator=torch.Generator().manual_seed(3))
    found = built.predict(game).numpy()
    features, phi, rewards = (
        part.numpy() for part in (game.features, game.chosen_features, game.rewards)
    )
    for case, t in np.ndindex(2, 5):
        w = np.zeros(3)
        for _ in range(4):
            past, paid = phi[case, :t], rewards[case, :t]
            w = w - 0.3 * past.T @ (past @ w - paid) / (2 * t + 1)
        np.testing.assert_allclose(found[case, t], features[case, t] @ w, atol=1e-12)


def test_what_a_gate_by_position_cannot_silence_is_out_of_range() -> None:
    built = innerloop.compile(estimate, d=2, n=4, arms=2, steps=3, reach=1e-3, instances=1)
    assert not built.certificate.holds
    assert "times the declared range" in built.certificate.explain()


@pytest.mark.parametrize("name", ["soft-lin-ucb", "thompson-sampling"])
def test_bandits_are_their_programs_exactly(name: str) -> None:
    fewer = {"knots": 20} if name == "soft-lin-ucb" else {"terms": 2}
    found = innerloop.exact(name, d=2, n=3, points=3, **fewer)
    assert found.equal, found.text
    assert found.parts == ["prologue", "step", "read-out"]
