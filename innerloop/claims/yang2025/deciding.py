"""Trained policies in fresh games beside reference policies, under the same luck.

    load_players("linear-bandits", ["distilled"], {})       recorded weights, or an error
    load_players("linear-bandits", [None], {"steps": 2, …})  trained now, for tests: decides nothing

Regret  the mean reward of the best action minus that of the chosen one, summed over the game
Ratio   mean regret of one player over that of another in the same environments, with the central
        95 % of 2,000 resamples of the environments
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.claims.encoders import join_trainings
from innerloop.claims.evidence import Check, Part
from innerloop.claims.figures import Figure, draw_lines
from innerloop.claims.intervals import Interval, check_within, estimate_mean, take_central
from innerloop.claims.recorded import load_recorded
from innerloop.playing.comparison import play_players
from innerloop.playing.contest import mean_with_band
from innerloop.playing.trained import TrainedPolicy
from innerloop.policies.base import Policy
from innerloop.problems.environment import Environment
from innerloop.recipes.base import train

FOLDER = "decisions"
"""Where policies are recorded below results."""
RESAMPLES = 2000
NEAR = 1.25
"""Ours: "comparable" and "aligns" are a regret within this factor, either way.

Set after first trainings on linear bandits (1.29) were seen, before those that are judged."""


class Games(NamedTuple):
    """Cumulative regret of every player, by environment and step; networks come first."""

    networks: dict[str, Float[Tensor, "environments steps"]]
    references: dict[str, Float[Tensor, "environments steps"]]
    description: str

    @property
    def players(self) -> dict[str, Float[Tensor, "environments steps"]]:
        return {**self.networks, **self.references}


def load_players(
    recipe: str, machines: Sequence[str | None], sizes: Mapping[str, Any]
) -> list[TrainedPolicy]:
    """Load the recorded policies, or train one for each seed where none is named."""
    players = []
    for seed, machine in enumerate(machines):
        if machine is not None:
            run = load_recorded(FOLDER, machine)
        else:
            run = train(recipe, seed=seed, **{"evaluate_every": sizes["steps"], **sizes})
        players.append(TrainedPolicy.from_run(run.recipe, run.model.eval()))
    return players


def play_games(
    networks: Sequence[TrainedPolicy],
    references: Mapping[str, Policy[Any, Any]],
    environment: Environment,
    generator: torch.Generator,
) -> Games:
    """Play networks and references in the same environments for as long as in training."""
    named = {f"transformer, seed {k}": network for k, network in enumerate(networks)}
    seed = int(torch.randint(2**31, (), generator=generator))
    recipe = networks[0].recipe
    played = play_players({**named, **references}, environment, recipe.horizon_steps, seed=seed)
    regrets = {name: game.regret.cumsum(dim=-1).double() for name, game in played.items()}
    told = (
        f"{recipe.blocks} layers of {recipe.attention} attention, {recipe.heads} heads, width "
        f"{recipe.width}, {recipe.steps} steps on batches of {recipe.batch} games; "
        f"{environment.batch[0]} environments"
    )
    return Games(
        {name: regrets[name] for name in named}, {name: regrets[name] for name in references}, told
    )


def estimate_ratio(over: Tensor, under: Tensor) -> Interval:
    """Estimate the ratio of two means over the same environments, by resampling them."""
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randint(len(over), (RESAMPLES, len(over)), generator=generator)
    ratios = over[chosen].mean(dim=-1) / under[chosen].mean(dim=-1)
    return take_central(ratios.tolist(), float(over.mean() / under.mean()))


def check_near(statement: str, games: Games, reference: str) -> Part:
    """Check for each network that its regret is that of a reference, within our factor."""
    other = games.references[reference][:, -1]
    return join_trainings(
        [
            check_within(
                statement,
                estimate_ratio(regret[:, -1], other),
                least=1 / NEAR,
                most=NEAR,
                what=f"regret over that of {reference}, {len(other)} environments",
                ours=f"within a factor of {NEAR:g}, either way; set after first trainings on "
                "linear bandits (1.29) were seen, before those that are judged",
            )
            for regret in games.networks.values()
        ]
    )


def compare_regrets(statement: str, games: Games, reference: str) -> list[Check]:
    """Check for each network that its regret is below that of a reference."""
    other = games.references[reference][:, -1]
    return [
        check_within(
            statement,
            estimate_mean(other - regret[:, -1]),
            least=0.0,
            what=f"{reference} {float(other.mean()):.3g} minus {float(regret[:, -1].mean()):.3g}, "
            f"{len(other)} environments",
        )
        for regret in games.networks.values()
    ]


def list_rows(games: Games, every: int = 1) -> list[dict[str, Any]]:
    """List mean regrets with 95 % bands, at every step or fewer."""
    rows = []
    for name, regret in games.players.items():
        steps = regret.diff(dim=-1, prepend=torch.zeros_like(regret[:, :1]))
        for t, (mean, half) in enumerate(mean_with_band(steps), 1):
            if t % every == 0 or t == 1:
                rows.append(
                    {
                        "player": name,
                        "t": t,
                        "regret": mean,
                        "low": mean - half,
                        "high": mean + half,
                    }
                )
    return rows


def draw_regret(title: str, games: Games, every: int = 1) -> Figure:
    """Draw mean regret with 95 % bands over environments."""
    return draw_lines(
        title,
        list_rows(games, every),
        "t: step of a game",
        "regret: mean cumulative regret",
        "player: player",
        band=("low", "high"),
        caption=f"{games.description}; bands are 95 % over environments.",
    )


def list_ends(games: Games) -> list[dict[str, Any]]:
    """List every player's regret at the end of the game."""
    return [
        {"player": name, "regret": found.value, "low": found.low, "high": found.high}
        for name, regret in games.players.items()
        for found in [estimate_mean(regret[:, -1])]
    ]


def set_networks(factor: float) -> Callable[[Games], Games]:
    """Make data in which all networks have this many times the largest mean regret, always."""

    def change(games: Games) -> Games:
        most = max(float(each[:, -1].mean()) for each in games.references.values())
        return games._replace(
            networks={
                name: torch.full_like(each, factor * most) for name, each in games.networks.items()
            }
        )

    return change
