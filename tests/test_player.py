"""A transformer as a policy plays the game of its reference; extra queries change nothing."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pytest
import torch
from torch import Tensor

import innerloop
from innerloop.constructions.acting import ActingConstruction
from innerloop.errors import InputError, OutOfRangeError
from innerloop.playing.player import TransformerPolicy
from innerloop.policies.base import Policy
from innerloop.policies.rollout import Draws, play, rollout
from innerloop.problems.bandit import Bandit
from innerloop.problems.bernoulli_bandits import BernoulliBandits
from innerloop.problems.tabular_mdps import TabularMDPs
from innerloop.transformer import Attention, Block, Head, Layout

ARMS = 4


class SoftmaxPolicy(Policy[Bandit, Tensor]):
    """Chooses arms with probability softmax(total reward of the arm + normal noise)."""

    environment_type = Bandit

    def init_state(self, environment: Bandit) -> Tensor:
        return environment.reference_tensor.new_zeros(*environment.batch, environment.actions)

    def count_normals(self, environment: Bandit) -> int:
        return environment.actions

    def probabilities(self, state: Tensor, observation: Any, noise: Tensor) -> Tensor:
        return (state + noise).softmax(dim=-1)

    def update(self, state: Tensor, observation: Any, action: Tensor, reward: Tensor) -> Tensor:
        return state.scatter_add(-1, action.unsqueeze(-1), reward.unsqueeze(-1))


class SoftmaxConstruction(ActingConstruction):
    """The same policy: one head adds up the rewards in `won`, observations carry the noise."""

    @cached_property
    def layout(self) -> Layout:
        return Layout(one=(), won=ARMS, z=ARMS, total=ARMS)

    @cached_property
    def policy(self) -> SoftmaxPolicy:
        return SoftmaxPolicy()

    @property
    def max_game_steps(self) -> int:
        return 30

    def body(self, k: int) -> list[Block]:
        head = Head({("one", "one"): 1.0}, {("won", "total"): 1.0})
        setting: dict[str, Any] = {"kind": "relu", "mask": "causal", "normalisation": "1"}
        return [Block(Attention.from_heads(self.layout, [head], **setting))]

    def encode_observation(self, t: int, observation: Any, noise: Tensor) -> Tensor:
        return self.layout.make_tokens(one=1.0, z=noise.unsqueeze(-2))

    def encode_action(self, t: int, observation: Any, action: Tensor, reward: Tensor) -> Tensor:
        won = torch.nn.functional.one_hot(action, ARMS) * reward.unsqueeze(-1)
        return self.layout.make_tokens(one=1.0, won=won.unsqueeze(-2))

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


class NoiseAddingConstruction(SoftmaxConstruction):
    """Also adds up the noise of all observations, so later tokens depend on earlier noise."""

    def body(self, k: int) -> list[Block]:
        value = {("won", "total"): 1.0, ("z", "total"): 0.5}
        setting: dict[str, Any] = {"kind": "relu", "mask": "causal", "normalisation": "1"}
        head = Head({("one", "one"): 1.0}, value)
        return [Block(Attention.from_heads(self.layout, [head], **setting))]


def make_player(kind: type[SoftmaxConstruction] = SoftmaxConstruction) -> TransformerPolicy:
    construction = kind(steps=1)
    return TransformerPolicy(construction=construction, transformer=construction.transformer)


@pytest.mark.parametrize("batch", [(), (50,), (3, 4)])
def test_the_game_is_that_of_the_reference_policy(batch: tuple[int, ...]) -> None:
    world = BernoulliBandits(arms=ARMS).sample(*batch)
    one, other = (rollout(policy, world, 30, 5) for policy in (make_player(), SoftmaxPolicy()))
    assert torch.equal(one.history.actions, other.history.actions)
    torch.testing.assert_close(one.probabilities, other.probabilities, rtol=1e-12, atol=1e-12)
    assert torch.equal(one.regret, other.regret)


def test_queries_in_between_do_not_change_the_game() -> None:
    """Querying a state with other observations and other noise does not change the game."""
    world = BernoulliBandits(arms=ARMS).sample(6)
    policy = make_player(NoiseAddingConstruction)
    draws = Draws.sample(policy, world, 12, 1)
    plain = play(policy, world, draws)

    class Curious(TransformerPolicy):
        def probabilities(self, state, observation, noise):
            super().probabilities(state, observation._replace(step=77), noise + 3)
            answer = super().probabilities(state, observation, noise)
            assert torch.equal(answer, super().probabilities(state, observation, noise))
            return answer

    curious = Curious(construction=policy.construction, transformer=policy.transformer)
    with_queries = play(curious, world, draws)
    assert torch.equal(plain.probabilities, with_queries.probabilities)


def test_later_tokens_see_the_noise_that_came_with_the_observation() -> None:
    world = BernoulliBandits(arms=ARMS).sample(6)
    policy = make_player(NoiseAddingConstruction)
    draws = Draws.sample(policy, world, 9, 1)
    game = play(policy, world, draws)
    won = torch.zeros(6, ARMS, dtype=torch.float64)
    for t in range(9):
        expected = (won + draws.noise[t] + 0.5 * draws.noise[: t + 1].sum(dim=0)).softmax(dim=-1)
        torch.testing.assert_close(game.probabilities[:, t], expected, rtol=1e-12, atol=1e-12)
        action = game.history.actions[:, t : t + 1]
        won = won.scatter_add(-1, action, game.history.rewards[:, t : t + 1])


def test_an_update_ignores_a_query_about_another_observation() -> None:
    """If `update` gets another observation than `probabilities` did, the query is forgotten."""
    world = BernoulliBandits(arms=ARMS).sample(5)
    policy, noise = make_player(NoiseAddingConstruction), torch.ones(5, ARMS, dtype=torch.float64)
    observation = world.observe(0, world.draw_luck(None), None)
    zero, one = torch.zeros(5, dtype=torch.long), torch.ones(5, dtype=torch.float64)
    fresh = policy.update(policy.init_state(world), observation, zero, one)
    queried = policy.init_state(world)
    different = observation._replace(features=observation.features + 1)
    policy.probabilities(queried, different, noise.cumsum(dim=-1))
    after = policy.update(queried, observation, zero, one)
    expected = policy.probabilities(fresh, observation, noise)
    assert torch.equal(policy.probabilities(after, observation, noise), expected)


def test_a_state_can_be_updated_more_than_once() -> None:
    world = BernoulliBandits(arms=ARMS).sample(5)
    policy, noise = make_player(), torch.zeros(5, ARMS, dtype=torch.float64)
    observation, state = world.observe(0, world.draw_luck(None), None), policy.init_state(world)
    zero, one = torch.zeros(5, dtype=torch.long), torch.ones(5, dtype=torch.float64)
    for arm in (0, 2, 0):  # `update` without `probabilities`, as when replaying a history
        after = policy.update(state, observation, zero + arm, one)
        expected = torch.nn.functional.one_hot(zero + arm, ARMS).double().softmax(dim=-1)
        torch.testing.assert_close(policy.probabilities(after, observation, noise), expected)
        torch.testing.assert_close(
            policy.log_probabilities(after, observation, noise),
            expected.log(),
            rtol=1e-12,
            atol=1e-12,
        )


def test_a_game_that_is_too_long_is_refused() -> None:
    world = BernoulliBandits(arms=ARMS).sample(2)
    with pytest.raises(OutOfRangeError, match="up to 30 steps, got a longer one: build it"):
        rollout(make_player(), world, 31, 0)


def test_mistakes_are_named() -> None:
    with pytest.raises(OutOfRangeError, match="an environment of type Bandit, got TabularMDP"):
        rollout(make_player(), TabularMDPs().sample(2), 4, 0)
    built = innerloop.build("newton", instances=1)
    with pytest.raises(InputError, match="a construction that chooses actions, got newton"):
        TransformerPolicy.from_built(built)
    with pytest.raises(InputError, match="other registers"):
        TransformerPolicy(construction=SoftmaxConstruction(), transformer=built.transformer)
