"""Linear bandits in Lin et al.'s experiments: a transformer distilled from LinUCB, in fresh games.

Printed    "Transformer performs comparably to LinUCB, outperforming Thompson sampling". In the
           set-up "algorithm distillation", LinUCB plays the games and labels them. The slides print
           no numbers
Missing    the sizes, the length of the training, the prior and the noise of Thompson sampling, and
           a number for "comparably". The outcome depends on the sizes: the regret is within our
           factor of LinUCB's at the smaller sizes and above it at the larger ones. So the two
           settings decide together, and they disagree
Tested     GPT-2 with ReLU attention. Three trainings on the same 40,000 games
           (results/decisions/distilled) with d = 2, 5 actions and games of 50 steps. One training
           (results/decisions/distilled-200) with d = 5, 10 actions and games of 200 steps, the
           sizes of the paper (Lin et al. 2023), but on 10,000 instead of 100,000 games and for
           2,000 steps of 32 games, 14 CPU minutes. Noise 1.5, w uniform on [0, 1]ᵈ, LinUCB with λ =
           1, α = 2. The mean regret at the end of fresh games is compared; all players have the
           same luck
Thompson   s = 1.5, λ = 1 has the noise of the games and the prior N(0, 2.25 I). The prior N(0, I)
           (s = 1.5, λ = 2.25) and s = 1 give other policies, which the words allow too
Ours       "comparably" is a regret within a factor of 1.25 of LinUCB's, either way. The factor was
           set after the first trainings (3 layers, 3,000 steps: 1.29) and before those that are
           judged. With a factor of 2, Thompson sampling and the empirical average would be
           comparable to LinUCB too, although the sentence sets the transformer apart from them
Beyond     at `full` the second set-up, where the best action is the label. Such networks know the
           law of w, which no reference does, and have less than half of LinUCB's regret. A player
           that always takes the best action for the mean of w has a quarter of it without any
           learning. Also the LinUCB that a network imitates: α by agreement, a temperature by
           divergence. In LinUCB's games α = 1.5 agrees slightly better than 2; in the network's own
           games, which differ from those, α is 0 (greedy)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.encoders import join_trainings
from innerloop.claims.evidence import Check, Evidence, Part
from innerloop.claims.falsifying import change_field
from innerloop.claims.readings import decide_together
from innerloop.claims.recorded import name_seeds
from innerloop.claims.yang2025.deciding import (
    Games,
    check_near,
    compare_regrets,
    draw_regret,
    list_ends,
    load_players,
    play_games,
    set_networks,
)
from innerloop.identification.families.games import PlayedPolicy
from innerloop.playing.trained import TrainedPolicy
from innerloop.policies.base import Policy
from innerloop.policies.empirical_average import EmpiricalAveragePolicy
from innerloop.policies.lin_ucb import LinUCBPolicy
from innerloop.policies.linear_thompson import LinearThompsonPolicy
from innerloop.policies.rollout import rollout
from innerloop.problems.linear_bandit_games import BanditGameProblem
from innerloop.problems.linear_bandits import LinearBandit
from innerloop.recipes.linear_bandits import LinearBanditsRecipe

FEW_GAMES = 100
"""Environments for the long games and for the fit of α: both take a second for a hundred."""
DRAWN_STEPS = 50
"""Number of steps of a game that a figure shows."""
ALPHAS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
TEMPERATURES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
THOMPSON = (
    "Thompson sampling",
    "Thompson sampling, prior N(0, I)",
    "Thompson sampling, s = 1",
)
"""Thompson sampling with the noise of the games, with another prior and with another noise."""
LEAST_ODDS = 1e-3
"""Share of uniform play that is mixed into the odds of both sides: every logarithm is finite."""


class Measured(NamedTuple):
    """Games of distilled networks by setting; games of networks taught the best action; fits."""

    games: dict[str, Games]
    decided: Games | None
    fits: list[dict[str, Any]]


def judge_games(measured: Measured) -> Evidence:
    titles = {
        **{f"distilled from LinUCB, {name}": each for name, each in measured.games.items()},
        "taught the best action": measured.decided,
    }
    tables = {title: games for title, games in titles.items() if games is not None}
    near = {
        name: check_near("the distilled transformer's regret is LinUCB's", games, "LinUCB")
        for name, games in measured.games.items()
    }
    below = {
        f"{name}; {reference}": join_trainings(
            compare_regrets(
                f"the distilled transformer's regret is below that of {reference}", games, reference
            )
        )
        for name, games in measured.games.items()
        for reference in THOMPSON
    }
    return Evidence(
        parts=[
            join_settings(
                "the distilled transformer's regret is comparable to LinUCB's",
                near,
                "algorithm distillation, the set-up to which LinUCB belongs; the slides print no "
                "sizes, so the smaller and the larger ones decide together",
            ),
            join_settings(
                "the distilled transformer's regret is below Thompson sampling's",
                below,
                "both sizes, and three forms of Thompson sampling: the slides print no sizes, no "
                "prior and no noise",
            ),
        ],
        beyond=[] if measured.decided is None else [judge_decided(measured.decided)],
        numbers={
            f"seed {fit['seed']}, in {fit['of']}": f"agrees most with LinUCB at α = {fit['α']:g} "
            f"({fit['agreement'][fit['α']]:.3f} of its odds; α = 2: "
            f"{fit['agreement'][2.0]:.3f}), nearest τ = {fit['τ']:g} "
            f"(divergence {fit['divergence']:.3g})"
            for fit in measured.fits
        },
        table=[row for games in tables.values() for row in list_ends(games)],
        figures=[
            draw_regret(
                f"Linear bandits: transformers {title}",
                games,
                every=max(1, games.references["LinUCB"].shape[-1] // DRAWN_STEPS),
            )
            for title, games in tables.items()
        ],
    )


def join_settings(statement: str, parts: Mapping[str, Part], reading: str) -> Part:
    """Join the same assertion in several settings to a part that is decided if they agree."""
    checks = {name: part.printed for name, part in parts.items()}
    return Part(
        printed=decide_together(statement, checks),
        reading=reading,
        other_readings=checks,
        trainings=next(iter(parts.values())).trainings,
    )


def judge_decided(games: Games) -> Check:
    statement = "taught the best action instead, a transformer's regret is Thompson sampling's"
    return check_near(statement, games, "Thompson sampling").printed


def list_references(noise: float) -> dict[str, Policy[Any, Any]]:
    """List the references; Thompson sampling has the prior N(0, (s²/λ) I)."""
    thompson = (
        LinearThompsonPolicy(scale=noise),
        LinearThompsonPolicy(scale=noise, ridge=noise**2),
        LinearThompsonPolicy(scale=1.0),
    )
    return {
        "LinUCB": LinUCBPolicy(alpha=2.0, ridge=1.0),
        **dict(zip(THOMPSON, thompson, strict=True)),
        "empirical average": EmpiricalAveragePolicy(),
    }


def fit_lin_ucb(
    network: Policy[Any, Any],
    player: Policy[Any, Any],
    environment: LinearBandit,
    steps: int,
    generator: torch.Generator,
) -> dict[str, Any]:
    """Find the LinUCB that a network imitates in the games of a player.

    α is the one whose choices have the largest share of the network's odds; τ is fitted at this α.
    """
    seed = int(torch.randint(2**31, (), generator=generator))
    played = rollout(player, environment, steps, seed)
    problem = BanditGameProblem.from_history(played.history)
    own = smooth(PlayedPolicy(network).init(problem).exp())
    scores = {
        alpha: PlayedPolicy(LinUCBPolicy(alpha=alpha, temperature=1.0)).init(problem)
        for alpha in ALPHAS
    }
    agreement = {
        alpha: float(own.gather(-1, each.argmax(dim=-1, keepdim=True)).mean())
        for alpha, each in scores.items()
    }
    best = max(agreement, key=lambda alpha: agreement[alpha])
    divergence = {
        temperature: float((own * (own / other).log()).sum(dim=-1).mean())
        for temperature in TEMPERATURES
        for other in [smooth((scores[best] / temperature).softmax(dim=-1))]
    }
    nearest = min(divergence, key=lambda temperature: divergence[temperature])
    return {"agreement": agreement, "α": best, "τ": nearest, "divergence": divergence[nearest]}


def smooth(odds: Tensor) -> Tensor:
    return (1 - LEAST_ODDS) * odds + LEAST_ODDS / odds.shape[-1]


def set_each(factor: float) -> Callable[[dict[str, Games]], dict[str, Games]]:
    """Make data in which, in every setting, networks have this many times the largest regret."""
    change = set_networks(factor)
    return lambda games: {name: change(each) for name, each in games.items()}


SMALL: Mapping[str, Any] = {**LinearBanditsRecipe.small, "steps": 2, "warmup": 0}


@claim(
    "yang2025.lin.linear-bandit",
    "On linear bandits a transformer pre-trained by algorithm distillation performs comparably to "
    "LinUCB, and better than Thompson sampling.",
    where="Third paper (Lin et al. 2023): experimental results, findings",
    kind="ordering",
    hypotheses={
        "GPT-2 with ReLU attention, LinUCB plays and labels": "the slide's set-up",
        "d = 2, 5 actions, 50 steps, and d = 5, 10 actions, 200 steps; noise 1.5": "ours: the "
        "slides print no sizes; the larger ones are those of the paper, with a shorter training",
    },
    missing="The slides print no sizes of the bandits, no length of the training, no prior and no "
    "noise of Thompson sampling, and no number for 'comparably'.",
    quick={"distilled": ["distilled"], "decided": [], "longer": "distilled-200", "games": 2000},
    full={
        "distilled": name_seeds("distilled", 3),
        "decided": ["decided"],
        "longer": "distilled-200",
        "games": 10_000,
    },
    tiny={"distilled": [None], "decided": [], "longer": None, "games": 4},
    judge=judge_games,
    falsified={
        "networks with ten times the largest regret": change_field("games", set_each(10.0)),
        "networks without regret": change_field("games", set_each(1e-3)),
    },
)
def lin_linear_bandit(
    generator: torch.Generator,
    *,
    distilled: Sequence[str | None],
    decided: Sequence[str | None],
    longer: str | None,
    games: int,
) -> Measured:
    players = load_players("linear-bandits", distilled, SMALL)
    others = load_players("linear-bandits", decided, {**SMALL, "setup": "decision"})
    large = load_players("linear-bandits", [longer], {**SMALL, "d": 3})
    recipe = players[0].recipe
    assert isinstance(recipe, LinearBanditsRecipe)
    environment = recipe.build_distribution().sample(games, generator=generator)
    references = list_references(recipe.noise)
    wide = large[0].recipe.build_distribution().sample(min(games, FEW_GAMES), generator=generator)
    long_games = play_games(large, references, wide, generator)
    return Measured(
        {
            describe_setting(players): play_games(players, references, environment, generator),
            describe_setting(large): long_games,
        },
        play_games(others, references, environment, generator) if others else None,
        [
            {
                "seed": k,
                "of": of,
                **fit_lin_ucb(
                    each, player, environment[:FEW_GAMES], recipe.horizon_steps, generator
                ),
            }
            for k, each in enumerate(players)
            for of, player in (("LinUCB's games", recipe.teacher), ("its own games", each))
        ],
    )


def describe_setting(players: Sequence[TrainedPolicy]) -> str:
    recipe, count = players[0].recipe, len(players)
    assert isinstance(recipe, LinearBanditsRecipe)
    trainings = "1 training" if count == 1 else f"{count} trainings"
    return f"d = {recipe.d}, {recipe.arms} actions, {recipe.horizon_steps} steps, {trainings}"
