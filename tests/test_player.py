"""A transformer that plays: the same game as its reference, whatever else it was asked."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pytest
import torch
from torch import Tensor

import innerloop
from innerloop.constructions.acting import ActingConstruction
from innerloop.constructions.player import TransformerPolicy
from innerloop.errors import InputError, OutOfRange
from innerloop.policies.base import Policy
from innerloop.policies.rollout import Draws, play, rollout
from innerloop.problems.bandit import Bandit
from innerloop.problems.bernoulli_bandits import BernoulliBandits
from innerloop.problems.tabular_mdps import TabularMDPs
from innerloop.transformer import Attention, Block, Head, Layout

ARMS = 4


class Habit(Policy[Bandit, Tensor]):
    """Odds proportional to exp(what an arm has earned so far + a normal)."""

    plays = Bandit

    def start(self, environment: Bandit) -> Tensor:
        return environment.like.new_zeros(*environment.batch, environment.actions)

    def normals(self, environment: Bandit) -> int:
        return environment.actions

    def probabilities(self, state: Tensor, observation: Any, noise: Tensor) -> Tensor:
        return (state + noise).softmax(dim=-1)

    def update(self, state: Tensor, observation: Any, action: Tensor, reward: Tensor) -> Tensor:
        return state.scatter_add(-1, action.unsqueeze(-1), reward.unsqueeze(-1))


class HabitOfHeads(ActingConstruction):
    """The same by one head, which adds up `won`, and the noise that an observation carries."""

    @cached_property
    def layout(self) -> Layout:
        return Layout(one=(), won=ARMS, z=ARMS, total=ARMS)

    @cached_property
    def policy(self) -> Habit:
        return Habit()

    @property
    def longest(self) -> int:
        return 30

    def body(self, k: int) -> list[Block]:
        head = Head({("one", "one"): 1.0}, {("won", "total"): 1.0})
        setting: dict[str, Any] = {"kind": "relu", "mask": "causal", "normalisation": "1"}
        return [Block(Attention.of(self.layout, [head], **setting))]

    def observed(self, t: int, observation: Any, noise: Tensor) -> Tensor:
        return self.layout.tokens(one=1.0, z=noise.unsqueeze(-2))

    def acted(self, t: int, observation: Any, action: Tensor, reward: Tensor) -> Tensor:
        chosen = torch.nn.functional.one_hot(action, ARMS) * reward.unsqueeze(-1)
        return self.layout.tokens(one=1.0, won=chosen.unsqueeze(-2))

    def log_odds(self, stream: Tensor) -> Tensor:
        parts = (self.layout.read(stream.unsqueeze(-2), name) for name in ("total", "z"))
        return sum(parts, torch.zeros(ARMS)).squeeze(-2)

    def distributions(self) -> list[Any]:
        return []

    def prompt(self, problem: Any) -> Tensor:
        raise NotImplementedError

    def encode(self, problem: Any, state: Any) -> Tensor:
        raise NotImplementedError

    def decode(self, problem: Any, stream: Tensor) -> Tensor:
        raise NotImplementedError


class Remembering(HabitOfHeads):
    """Also adds up the noise of every observation: later tokens see what was given back then."""

    def body(self, k: int) -> list[Block]:
        value = {("won", "total"): 1.0, ("z", "total"): 0.5}
        setting: dict[str, Any] = {"kind": "relu", "mask": "causal", "normalisation": "1"}
        head = Head({("one", "one"): 1.0}, value)
        return [Block(Attention.of(self.layout, [head], **setting))]


def player(kind: type[HabitOfHeads] = HabitOfHeads) -> TransformerPolicy:
    construction = kind(steps=1)
    return TransformerPolicy(construction=construction, transformer=construction.transformer)


@pytest.mark.parametrize("batch", [(), (50,), (3, 4)])
def test_the_game_is_the_reference_policys(batch: tuple[int, ...]) -> None:
    world = BernoulliBandits(arms=ARMS).sample(*batch)
    one, other = (rollout(policy, world, 30, 5) for policy in (player(), Habit()))
    assert torch.equal(one.history.actions, other.history.actions)
    torch.testing.assert_close(one.probabilities, other.probabilities, rtol=1e-12, atol=1e-12)
    assert torch.equal(one.regret, other.regret)


def test_what_was_asked_in_between_leaves_no_trace() -> None:
    """Odds of other observations, with other noise, asked of the same state."""
    world = BernoulliBandits(arms=ARMS).sample(6)
    policy = player(Remembering)
    draws = Draws.of(policy, world, 12, 1)
    plain = play(policy, world, draws)

    class Curious(TransformerPolicy):
        def probabilities(self, state, observation, noise):
            super().probabilities(state, observation._replace(step=77), noise + 3)
            found = super().probabilities(state, observation, noise)
            assert torch.equal(found, super().probabilities(state, observation, noise))
            return found

    curious = Curious(construction=policy.construction, transformer=policy.transformer)
    asked = play(curious, world, draws)
    assert torch.equal(plain.probabilities, asked.probabilities)


def test_later_tokens_see_the_noise_that_came_with_the_observation() -> None:
    world = BernoulliBandits(arms=ARMS).sample(6)
    policy = player(Remembering)
    draws = Draws.of(policy, world, 9, 1)
    game = play(policy, world, draws)
    won = torch.zeros(6, ARMS, dtype=torch.float64)
    for t in range(9):
        expected = (won + draws.noise[t] + 0.5 * draws.noise[: t + 1].sum(dim=0)).softmax(dim=-1)
        torch.testing.assert_close(game.probabilities[:, t], expected, rtol=1e-12, atol=1e-12)
        action = game.history.actions[:, t : t + 1]
        won = won.scatter_add(-1, action, game.history.rewards[:, t : t + 1])


def test_an_answer_to_another_observation_is_not_gone_on_from() -> None:
    """Asked about one thing and told about another: as if it had never been asked."""
    world = BernoulliBandits(arms=ARMS).sample(5)
    policy, noise = player(Remembering), torch.ones(5, ARMS, dtype=torch.float64)
    seen, zero = world.observe(0, world.luck(None), None), torch.zeros(5, dtype=torch.long)
    one = torch.ones(5, dtype=torch.float64)
    fresh = policy.update(policy.start(world), seen, zero, one)
    asked = policy.start(world)
    policy.probabilities(asked, seen._replace(features=seen.features + 1), noise.cumsum(dim=-1))
    after = policy.update(asked, seen, zero, one)
    expected = policy.probabilities(fresh, seen, noise)
    assert torch.equal(policy.probabilities(after, seen, noise), expected)


def test_a_state_can_be_gone_on_from_twice() -> None:
    world = BernoulliBandits(arms=ARMS).sample(5)
    policy, noise = player(), torch.zeros(5, ARMS, dtype=torch.float64)
    seen, state = world.observe(0, world.luck(None), None), policy.start(world)
    zero, one = torch.zeros(5, dtype=torch.long), torch.ones(5, dtype=torch.float64)
    for arm in (0, 2, 0):  # without asking first: replaying a history
        after = policy.update(state, seen, zero + arm, one)
        expected = torch.nn.functional.one_hot(zero + arm, ARMS).double().softmax(dim=-1)
        torch.testing.assert_close(policy.probabilities(after, seen, noise), expected)
        torch.testing.assert_close(
            policy.log_probabilities(after, seen, noise), expected.log(), rtol=1e-12, atol=1e-12
        )


def test_a_game_that_is_too_long_is_refused() -> None:
    world = BernoulliBandits(arms=ARMS).sample(2)
    with pytest.raises(OutOfRange, match="up to 30 steps, got one more: build it for longer"):
        rollout(player(), world, 31, 0)


def test_mistakes_are_named() -> None:
    with pytest.raises(OutOfRange, match="plays in a Bandit, got a TabularMDP"):
        rollout(player(), TabularMDPs().sample(2), 4, 0)
    built = innerloop.build("newton", instances=1)
    with pytest.raises(InputError, match="only a construction that acts can play, got newton"):
        TransformerPolicy.of(built)
    with pytest.raises(InputError, match="other registers"):
        TransformerPolicy(construction=HabitOfHeads(), transformer=built.transformer)
