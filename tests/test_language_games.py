"""Programs on games: tokens counted by position, and an oracle in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from test_program_weights import digest_weights

import innerloop
from innerloop.certification.certificate import certify
from innerloop.constructions.acting import ActingProgram
from innerloop.constructions.base import Construction
from innerloop.errors import OutOfRangeError
from innerloop.language import (
    Data,
    State,
    define,
    dot,
    entry_sum,
    mean,
    own_total,
    program,
    relu,
    stack,
    total,
)
from innerloop.language.classes import BanditProgram, Cost, parameter
from innerloop.language.prompts.planning import (
    PlanningProgram,
    PlanningPrompt,
    copy_before,
    sum_earlier,
)
from innerloop.problems.bandit import ActionSet
from innerloop.problems.linear_bandit_games import LinearBanditGames
from innerloop.registry import load_members


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


@define(prompt=PlanningPrompt(), i=Data(), i2=Data(), e=Data(), s=Data("S"), r=Data(), sum=State())
def add_rewards(me: Any) -> None:
    me.sum = me.sum + copy_before(me, 1, "r")


@add_rewards.init
def _(me: Any) -> None:
    me.sum = sum_earlier(me, "r")


@add_rewards.answer
def _(me: Any, A: int) -> Any:
    return stack([me.sum] * A)


class AddingConstruction(PlanningProgram):
    """Adds the rewards of earlier episodes, and that of the step before once per step."""

    program = add_rewards
    source, cost = "a test", Cost("k + 1", "2", "d + 6")


def test_a_program_on_planning_prompts_needs_no_algorithm_of_its_own() -> None:
    construction = AddingConstruction(d=2, arms=3, n=4, steps=2)
    game = construction.distributions()[0].sample(5, generator=torch.Generator().manual_seed(0))
    found = construction.decode(game, construction.transformer(construction.prompt(game))).numpy()
    for case, episode, step in np.ndindex(5, 4, 3):
        rewards, t = game.rewards[case].numpy(), 3 * episode + step
        before = rewards.flat[t - 1] if t else 0.0
        expected = rewards[:episode].sum() + 2 * before
        np.testing.assert_allclose(found[case, episode, step], expected, atol=1e-13)
    certificate = certify(construction, instances=4)
    assert certificate.holds, certificate.explain()
    longer = AddingConstruction(d=2, arms=3, n=5, steps=2).distributions()[0].sample(2)
    with pytest.raises(OutOfRangeError, match="up to n=4, got n=5"):
        construction.check(longer)


class EstimatingConstruction(BanditProgram, ActingProgram):
    """Plays by the estimates of the program above."""

    definition = estimate.definition  # pyright: ignore[reportAttributeAccessIssue]
    source, norms = "a test", {"a": "bound", "reward": "reach"}
    eta: float = parameter(0.3, "η")
    reach: float = parameter(100.0, "the largest number")
    bound: float = parameter(1.0, "the largest norm of an action")


@pytest.mark.parametrize("d", [1, 3])
def test_a_program_on_bandits_makes_the_tokens_of_a_game_step_by_step(d: int) -> None:
    construction = EstimatingConstruction(d=d, n=5, arms=2, steps=3)
    game = LinearBanditGames(d=d, n=5, arms=2).sample(2, generator=torch.Generator().manual_seed(3))
    construction.check(game)
    tokens, odds = [], []
    for t in range(5):
        shown = ActionSet(t, game.features[:, t])
        tokens.append(construction.encode_observation(t, shown, game.noise[:, t]))
        stream = construction.transformer(torch.cat(tokens, dim=-2))
        odds.append(construction.log_odds(stream[:, -1]))
        action, reward = game.actions[:, t], game.rewards[:, t]
        tokens.append(construction.encode_action(t, shown, action, reward))
    assert torch.equal(torch.cat(tokens, dim=-2), construction.prompt(game))
    answers = construction.decode(game, construction.transformer(construction.prompt(game)))
    torch.testing.assert_close(torch.stack(odds, dim=1), answers.log_softmax(dim=-1))
    large = ActionSet(0, 2 * game.features[:, 0] / game.features[:, 0].norm(dim=-1, keepdim=True))
    with pytest.raises(OutOfRangeError, match="bound=1, the largest norm of an action; got 2: use"):
        construction.encode_observation(0, large, game.noise[:, 0])
    with pytest.raises(OutOfRangeError, match="built for 5 steps of a game, got 6"):
        construction.encode_action(5, large, game.actions[:, 0], game.rewards[:, 0])


DIGESTS = {
    "packed-ucb-vi": ["86de5e5465cf2489", "2ac773a558fb1d9e"],
    "soft-lin-ucb": ["4c2238c4e1d31a65", "f54e6931301f3f85"],
    "thompson-sampling": ["dca86cdef66c27ec", "2f7de952acf1f904"],
    "ucb-vi": ["08e291c79af4c8cf", "99ca0c41d49a4ea9"],
}
"""Digests of the weights at small sizes and with default parameters."""


@pytest.mark.parametrize("name", DIGESTS)
def test_weights_of_games_stay_what_they_were(name: str) -> None:
    kind = load_members("constructions", Construction)[name]
    sizes = ({"d": 2, "n": 3, "arms": 3, "steps": 2}, {})
    assert [digest_weights(kind.from_values(dict(s)).transformer) for s in sizes] == DIGESTS[name]
