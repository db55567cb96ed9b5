"""The UCB-VI construction: the reference policy's values at every step, and whole games."""

from __future__ import annotations

import copy

import pytest
import torch

import innerloop
from innerloop.certification.certificate import certify
from innerloop.constructions.ucb_vi import UCBVIConstruction
from innerloop.errors import InputError, OutOfRangeError
from innerloop.playing.player import TransformerPolicy
from innerloop.policies.base import Policy
from innerloop.policies.rollout import rollout
from innerloop.policies.uniform import UniformPolicy
from innerloop.problems.mdp import Situation
from innerloop.problems.river_swim import RiverSwim
from innerloop.problems.tabular_games import TabularGameProblem, TabularGames
from innerloop.problems.tabular_mdps import TabularMDPs


def test_values_are_those_of_the_policy_at_every_step_of_random_games() -> None:
    built = innerloop.build("ucb-vi", instances=4)
    construction = built.construction
    assert isinstance(construction, UCBVIConstruction)
    game = TabularGames(states=3, arms=2, horizon=3, episodes=6).sample(8)
    found = built.predict(game)
    environment = TabularMDPs(states=3, arms=2, horizon=3).sample(8)
    state = construction.policy.init_state(environment)
    for episode in range(6):
        for step in range(3):
            situation = Situation(step, game.states[:, episode, step])
            expected = construction.policy.score_actions(state, situation)
            torch.testing.assert_close(found[:, episode, step], expected, rtol=1e-12, atol=1e-12)
            action, reward = (part[:, episode, step] for part in (game.actions, game.rewards))
            state = construction.policy.update(state, situation, action, reward)


def test_whole_games_are_those_of_the_policy() -> None:
    """In 200 decision processes with the same random numbers, every action is equal, even ties."""
    built = innerloop.build("ucb-vi", temperature=0.0, n=5, instances=4)
    construction = built.construction
    assert isinstance(construction, UCBVIConstruction)
    worlds = TabularMDPs(states=3, arms=2, horizon=3).sample(200)
    found = rollout(TransformerPolicy.from_built(built), worlds, 15, 1)
    expected = rollout(construction.policy, worlds, 15, 1)
    assert torch.equal(found.history.actions, expected.history.actions)
    torch.testing.assert_close(found.regret, expected.regret, rtol=1e-10, atol=1e-10)
    uniform = rollout(UniformPolicy(), worlds, 15, 1)
    assert not torch.equal(found.history.actions, uniform.history.actions)


def test_a_plan_agrees_with_queries_one_by_one() -> None:
    construction = UCBVIConstruction(d=3, arms=2, n=3, steps=2)
    player = TransformerPolicy(construction=construction, transformer=construction.transformer)
    worlds, noise = TabularMDPs(states=3, arms=2, horizon=3).sample(2, 4), torch.zeros(2, 4, 0)
    state, noise = player.init_state(worlds), noise.double()
    for t in range(9):
        if worlds.starts_episode(t):
            found = player.plan(state, worlds, noise)
            assert found.shape == (2, 4, 3, 3, 2)
            expected = Policy.plan(player, state, worlds, noise)
            torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)
        situation = Situation(t % 3, torch.randint(3, (2, 4)))
        action, reward = torch.randint(2, (2, 4)), torch.rand(2, 4, dtype=torch.float64)
        state = player.update(state, situation, action, reward)
    with pytest.raises(OutOfRangeError, match="up to 9 steps"):
        player.plan(state, worlds, noise)


def test_a_prompt_is_the_tokens_of_a_game_in_order() -> None:
    construction = UCBVIConstruction(d=3, arms=2, n=5, steps=3)
    game = TabularGames(states=3, arms=2, horizon=4, episodes=4).sample(2, 3)
    noise, tokens = game.rewards.new_zeros(2, 3, 0), []
    for t in range(16):
        at = (..., t // 4, t % 4)
        situation = Situation(t % 4, game.states[at])
        tokens.append(construction.encode_observation(t, situation, noise))
        tokens.append(construction.encode_action(t, situation, game.actions[at], game.rewards[at]))
    assert torch.equal(construction.prompt(game), torch.cat(tokens, dim=-2))


def test_it_plays_river_swim_like_the_policy() -> None:
    world = RiverSwim(states=3, horizon=4).sample(5)
    built = innerloop.build("ucb-vi", d=3, steps=3, n=4, instances=4)
    construction = built.construction
    assert isinstance(construction, UCBVIConstruction)
    found = rollout(TransformerPolicy.from_built(built), world, 16, 3)
    expected = rollout(construction.policy, world, 16, 3)
    assert torch.equal(found.history.actions, expected.history.actions)


def test_it_needs_fewer_layers_than_the_paper() -> None:
    """The paper needs 2H + 8 layers, with H = steps + 1; the construction needs fewer."""
    for steps in (1, 2, 5):
        layers = UCBVIConstruction(d=2, arms=2, steps=steps, n=3).transformer.count()["layers"]
        assert layers == 4 + 2 * steps < 2 * (steps + 1) + 8


def test_counting_the_current_episode_breaks_the_certificate() -> None:
    """The second counting head subtracts the current episode; without it the law breaks."""
    built = innerloop.build("ucb-vi", instances=4)
    changed = copy.deepcopy(built.transformer)
    attention = changed.blocks()[1].attention
    assert attention is not None
    attention.key[1] *= 0
    assert not certify(built.construction, changed, instances=4).holds


def test_what_is_out_of_range_is_named() -> None:
    built = innerloop.build("ucb-vi", n=3, instances=4)
    with pytest.raises(OutOfRangeError, match="up to n=3, got n=4"):
        built.predict(TabularGames(states=3, arms=2, horizon=3, episodes=4).sample(2))
    with pytest.raises(
        OutOfRangeError, match=r"3 states, 2 actions, 3 steps of an episode; got 4, 2, 3: build it"
    ):
        built.predict(TabularGames(states=4, arms=2, horizon=3, episodes=2).sample(2))
    worlds = TabularMDPs(states=3, arms=2, horizon=3).sample(2)
    with pytest.raises(OutOfRangeError, match="up to 9 steps"):
        rollout(TransformerPolicy.from_built(built), worlds, 12, 0)
    five = TabularMDPs(states=5, arms=2, horizon=3).sample(2)
    with pytest.raises(OutOfRangeError, match="got 5, 2, 3"):
        rollout(TransformerPolicy.from_built(built), five, 3, 0)
    with pytest.raises(OutOfRangeError, match="a width of at most 1000"):
        innerloop.build("ucb-vi", d=12, arms=5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"states": torch.zeros(2, 4, 2).long()}, r"got states \(2, 4, 2\), actions \(2, 4, 3\)"),
        ({"states": torch.full((2, 4, 3), 3)}, "states must be in 0 … 2, got 3 … 3"),
        ({"actions": torch.zeros(2, 4, 3)}, "actions must be whole numbers, got torch.float32"),
        ({"states": torch.zeros(2, 4, 3).bool()}, "states must be whole numbers, got torch.bool"),
        ({"rewards": torch.full((2, 4, 3), 2.0)}, r"rewards must lie in \[0, 1\]"),
        ({"rewards": torch.full((2, 4, 3), torch.nan)}, "rewards must be finite"),
        ({"rewards": [[0.0]]}, "rewards must be a tensor, got list"),
    ],
)
def test_bad_games_are_named(change: dict, message: str) -> None:
    fields = vars(TabularGames(states=3, arms=2, horizon=3, episodes=4).sample(2))
    # Bypass the constructor: the type checker of the tests would refuse these shapes first.
    problem = object.__new__(TabularGameProblem)
    for name, value in {**fields, **change}.items():
        object.__setattr__(problem, name, value)
    with pytest.raises(InputError, match=message):
        problem.__post_init__()


def test_games_in_another_precision_and_on_another_device() -> None:
    game = TabularGames(states=3, arms=2, horizon=3, episodes=4).sample(2)
    single = game.to(torch.float32)
    assert single.rewards.dtype == torch.float32
    assert torch.equal(single.states, game.states)
    for where in ("cpu", torch.device("cpu")):
        moved = game.to(where)
        for name in ("states", "actions", "rewards"):
            assert torch.equal(getattr(moved, name), getattr(game, name))
            assert getattr(moved, name).device.type == "cpu"
        assert moved.sizes == (3, 2)
