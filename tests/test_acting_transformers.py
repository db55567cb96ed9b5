"""Transformers that run a policy play the same games with the same regret as the policy."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from innerloop.constructions.acting import ActingConstruction
from innerloop.errors import OutOfRangeError
from innerloop.playing.contest import Contest, play_contest
from innerloop.policies.rollout import rollout
from innerloop.surveys import survey

BANDITS = ("soft-lin-ucb", "thompson-sampling")
SHORTER = {
    "ucb-vi": {"n": 10},
    "packed-ucb-vi": {"n": 10, "temperature": 0.02},
    **{name: {"n": 15, "steps": 75} for name in BANDITS},
}
"""The games of the report, but for their length."""


def play_games(construction: ActingConstruction, environments: int, seed: int = 0) -> Contest:
    """Play whole games, as long as the construction allows."""
    generator = torch.Generator().manual_seed(seed)
    worlds = construction.environments().sample(environments, generator=generator)
    assert construction.max_game_steps is not None
    return play_contest(construction, worlds, construction.max_game_steps, seed)


def test_every_construction_that_acts_is_played() -> None:
    assert {*BANDITS, "ucb-vi"} <= set(survey.make_acting_constructions())
    assert set(survey.GAME_PARAMETERS) <= set(survey.make_acting_constructions())


@pytest.mark.parametrize("name", list(survey.make_acting_constructions()))
def test_regret_is_that_of_the_policy_in_200_environments(name: str) -> None:
    """Odds whose logarithms differ by ε at most are (e^ε − 1)/2 apart in total variation, and a lot
    then falls on another action with at most A − 1 times that probability: that share of the games
    may differ, once they first do. The mean of the paired differences in regret is
    within three standard errors of 0, and that of blind play is not.
    """
    construction = replace(survey.make_acting_constructions()[name], **SHORTER[name])
    game = play_games(construction, 200)
    epsilon = getattr(construction, "accuracy", construction.tolerance(torch.float64))
    assert epsilon < 0.03
    actions, steps = game.policy.probabilities.shape[-1], game.policy.probabilities.shape[-2]
    explained = 200 * steps * (actions - 1) * math.expm1(epsilon) / 2
    pair = game.policy.history.actions, game.transformer.history.actions
    differ = int((pair[0] != pair[1]).flatten(1).any(dim=1).sum())
    assert differ <= explained + 3 * explained**0.5
    assert game.agreement_count >= 0.999 * game.action_count, "in fact, hardly any does"
    off, blind = (
        (other.regret - game.policy.regret).sum(dim=-1)
        for other in (game.transformer, game.uniform)
    )
    errors = [3 * float(part.std()) / 200**0.5 for part in (off, blind)]
    assert abs(float(off.mean())) <= errors[0] + 1e-10
    assert float(blind.mean()) > errors[1]
    assert float(game.policy.regret.sum()) < 0.8 * float(game.uniform.regret.sum())


@pytest.mark.parametrize("name", BANDITS)
def test_too_few_layers_play_another_game(name: str) -> None:
    """What the test above would notice."""
    hasty = replace(survey.make_acting_constructions()[name], n=15, steps=4)
    game = play_games(hasty, 200)
    assert game.agreement_count < 0.95 * game.action_count


def test_rows_are_means_over_environments_with_their_errors() -> None:
    construction = replace(survey.make_acting_constructions()["soft-lin-ucb"], n=5, steps=3)
    game = play_games(construction, 7)
    rows = game.regret_rows()
    assert [row["player"] for row in rows] == ["policy"] * 5 + ["transformer"] * 5 + ["uniform"] * 5
    for player, part in zip(("policy", "transformer", "uniform"), game, strict=True):
        total = np.cumsum(part.regret.numpy(), axis=-1)
        error = total.std(axis=0, ddof=1) / math.sqrt(7)
        mine = [row for row in rows if row["player"] == player]
        for t, row in enumerate(mine, 1):
            assert row["t"] == t
            assert row["regret"] == pytest.approx(total[:, t - 1].mean())
            assert row["low"] == pytest.approx(total[:, t - 1].mean() - 1.96 * error[t - 1])
            assert row["high"] == pytest.approx(total[:, t - 1].mean() + 1.96 * error[t - 1])
    assert game.action_count == 35
    same = game.policy.history.actions == game.transformer.history.actions
    assert game.agreement_count == int(same.sum())


def test_all_players_have_the_same_luck() -> None:
    construction = replace(survey.make_acting_constructions()["thompson-sampling"], n=6, steps=3)
    worlds = construction.environments().sample(5, generator=torch.Generator().manual_seed(2))
    game = play_contest(construction, worlds, 6, 4)
    alone = rollout(construction.policy, worlds, 6, 4)
    assert torch.equal(game.policy.history.actions, alone.history.actions)
    assert torch.equal(game.policy.regret, alone.regret)


def test_a_single_environment_has_no_band() -> None:
    construction = replace(survey.make_acting_constructions()["soft-lin-ucb"], n=3, steps=2)
    for row in play_games(construction, 1).regret_rows():
        assert row["low"] == row["regret"] == row["high"]


@pytest.mark.parametrize("name", BANDITS)
def test_games_longer_than_built_for_are_refused(name: str) -> None:
    construction = replace(survey.make_acting_constructions()[name], n=3, steps=2)
    fixed = replace(construction.environments(), sets=1).sample(2)
    with pytest.raises(OutOfRangeError, match="games of up to 3 steps, got a longer one"):
        play_contest(construction, fixed, 4)
