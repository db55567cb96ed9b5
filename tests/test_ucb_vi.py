"""UCB-VI as weights: the reference policy's values at every step, and whole games."""

from __future__ import annotations

import copy

import pytest
import torch

import innerloop
from innerloop.constructions.certificate import certify
from innerloop.constructions.player import TransformerPolicy
from innerloop.constructions.ucb_vi import UCBVIDecoder
from innerloop.errors import InputError, OutOfRange
from innerloop.policies.base import Policy
from innerloop.policies.rollout import rollout
from innerloop.policies.uniform import Uniform
from innerloop.problems.mdp import Situation
from innerloop.problems.river_swim import RiverSwim
from innerloop.problems.tabular_games import TabularGame, TabularGames
from innerloop.problems.tabular_mdps import TabularMDPs


def test_values_are_those_of_the_policy_at_every_step_of_random_games() -> None:
    built = innerloop.build("ucb-vi", instances=4)
    construction = built.construction
    assert isinstance(construction, UCBVIDecoder)
    game = TabularGames(states=3, arms=2, horizon=3, episodes=6).sample(8)
    found = built.predict(game)
    environment = TabularMDPs(states=3, arms=2, horizon=3).sample(8)
    state = construction.policy.start(environment)
    for episode in range(6):
        for step in range(3):
            here = Situation(step, game.states[:, episode, step])
            expected = construction.policy.scores(state, here)
            torch.testing.assert_close(found[:, episode, step], expected, rtol=1e-12, atol=1e-12)
            chosen, paid = (part[:, episode, step] for part in (game.actions, game.rewards))
            state = construction.policy.update(state, here, chosen, paid)


def test_whole_games_are_those_of_the_policy() -> None:
    """200 decision processes with the same luck: every action is equal, ties and all."""
    built = innerloop.build("ucb-vi", temperature=0.0, n=5, instances=4)
    construction = built.construction
    assert isinstance(construction, UCBVIDecoder)
    worlds = TabularMDPs(states=3, arms=2, horizon=3).sample(200)
    found = rollout(TransformerPolicy.of(built), worlds, 15, 1)
    expected = rollout(construction.policy, worlds, 15, 1)
    assert torch.equal(found.history.actions, expected.history.actions)
    torch.testing.assert_close(found.regret, expected.regret, rtol=1e-10, atol=1e-10)
    blind = rollout(Uniform(), worlds, 15, 1)
    assert not torch.equal(found.history.actions, blind.history.actions)


def test_a_plan_is_what_is_asked_for_one_by_one() -> None:
    construction = UCBVIDecoder(d=3, arms=2, n=3, steps=2)
    player = TransformerPolicy(construction=construction, transformer=construction.transformer)
    worlds, noise = TabularMDPs(states=3, arms=2, horizon=3).sample(2, 4), torch.zeros(2, 4, 0)
    state, noise = player.start(worlds), noise.double()
    for t in range(9):
        if worlds.begins(t):
            found = player.plan(state, worlds, noise)
            assert found.shape == (2, 4, 3, 3, 2)
            expected = Policy.plan(player, state, worlds, noise)
            torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)
        here = Situation(t % 3, torch.randint(3, (2, 4)))
        action, reward = torch.randint(2, (2, 4)), torch.rand(2, 4, dtype=torch.float64)
        state = player.update(state, here, action, reward)
    with pytest.raises(OutOfRange, match="up to 9 steps"):
        player.plan(state, worlds, noise)


def test_prompts_are_the_tokens_of_a_game_one_after_the_other() -> None:
    construction = UCBVIDecoder(d=3, arms=2, n=5, steps=3)
    game = TabularGames(states=3, arms=2, horizon=4, episodes=4).sample(2, 3)
    none, tokens = game.rewards.new_zeros(2, 3, 0), []
    for t in range(16):
        at = (..., t // 4, t % 4)
        here = Situation(t % 4, game.states[at])
        tokens.append(construction.observed(t, here, none))
        tokens.append(construction.acted(t, here, game.actions[at], game.rewards[at]))
    assert torch.equal(construction.prompt(game), torch.cat(tokens, dim=-2))


def test_it_plays_a_named_world() -> None:
    world = RiverSwim(states=3, horizon=4).sample(5)
    built = innerloop.build("ucb-vi", d=3, steps=3, n=4, instances=4)
    construction = built.construction
    assert isinstance(construction, UCBVIDecoder)
    found = rollout(TransformerPolicy.of(built), world, 16, 3)
    expected = rollout(construction.policy, world, 16, 3)
    assert torch.equal(found.history.actions, expected.history.actions)


def test_the_printed_count_is_larger() -> None:
    """2H + 8 layers, for two actions and episodes of H = steps + 1."""
    for steps in (1, 2, 5):
        layers = UCBVIDecoder(d=2, arms=2, steps=steps, n=3).transformer.count()["layers"]
        assert layers == 4 + 2 * steps < 2 * (steps + 1) + 8


def test_counting_the_episode_under_way_is_noticed() -> None:
    """The second head of the count takes away what the present episode adds."""
    built = innerloop.build("ucb-vi", instances=4)
    mutant = copy.deepcopy(built.transformer)
    attention = mutant.blocks()[1].attention
    assert attention is not None
    attention.key[1] *= 0
    assert not certify(built.construction, mutant, instances=4).holds


def test_what_is_out_of_range_is_named() -> None:
    built = innerloop.build("ucb-vi", n=3, instances=4)
    with pytest.raises(OutOfRange, match="up to n=3 episodes, got 4"):
        built.predict(TabularGames(states=3, arms=2, horizon=3, episodes=4).sample(2))
    with pytest.raises(OutOfRange, match=r"3 states, 2 actions and episodes of 3, got 4, 2 and 3"):
        built.predict(TabularGames(states=4, arms=2, horizon=3, episodes=2).sample(2))
    worlds = TabularMDPs(states=3, arms=2, horizon=3).sample(2)
    with pytest.raises(OutOfRange, match="up to 9 steps"):
        rollout(TransformerPolicy.of(built), worlds, 12, 0)
    five = TabularMDPs(states=5, arms=2, horizon=3).sample(2)
    with pytest.raises(OutOfRange, match="got 5, 2 and 3"):
        rollout(TransformerPolicy.of(built), five, 3, 0)
    with pytest.raises(OutOfRange, match="up to 1000 are built"):
        innerloop.build("ucb-vi", d=12, arms=5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"states": torch.zeros(2, 4, 2).long()}, r"none empty; got \(2, 4, 2\), \(2, 4, 3\)"),
        ({"states": torch.full((2, 4, 3), 3)}, "states must be in 0 … 2, got 3 … 3"),
        ({"actions": torch.zeros(2, 4, 3)}, "actions must be whole numbers, got torch.float32"),
        ({"states": torch.zeros(2, 4, 3).bool()}, "states must be whole numbers, got torch.bool"),
        ({"rewards": torch.full((2, 4, 3), 2.0)}, r"rewards must lie in \[0, 1\]"),
        ({"rewards": torch.full((2, 4, 3), torch.nan)}, "rewards must be finite"),
        ({"rewards": [[0.0]]}, "rewards must be a tensor, got list"),
    ],
)
def test_bad_games_are_named(change: dict, says: str) -> None:
    game = vars(TabularGames(states=3, arms=2, horizon=3, episodes=4).sample(2))
    # Made without its constructor, whose shapes the tests enforce.
    made = object.__new__(TabularGame)
    for name, value in {**game, **change}.items():
        object.__setattr__(made, name, value)
    with pytest.raises(InputError, match=says):
        made.__post_init__()


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
