"""Layers that bandit policies need: by the bound, on given games, and how well a build does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from innerloop.algorithms.accelerated_ridge import AcceleratedRidge
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Check
from innerloop.claims.falsifying import Rows
from innerloop.claims.intervals import check_rate
from innerloop.playing.contest import play_contest
from innerloop.problems.linear_bandit_games import BanditGameProblem, LinearBanditGames

MAX_STEPS, ERROR = 200_000, 1e-2
WIDE = (10, 30, 100, 300, 1000, 2000)
"""Steps T of games for which layers are counted by the bound."""


def check_depth(told: str, rows: Rows, within: float) -> Check:
    """Check that layers over log(T/ε) grow no faster than √T."""
    return check_rate(
        f"{told}, layers over $log(T/ε)$ grow no faster than $√T$",
        [row["T"] for row in rows],
        [row["layers"] / math.log(row["T"] / ERROR) for row in rows],
        0.5,
        within=within,
        bound=True,
        what="T",
        ours=f"{within:g} of a power, for further logarithms in Õ",
    )


def measure_games(
    built: Any,
    games: Sequence[tuple[str, BanditGameProblem]],
    solve: Callable[[BanditGameProblem], Tensor],
    case: Case,
) -> Rows:
    """Measure how far a build's log-probabilities are from those of a policy with exact solves."""
    rows: Rows = []
    for name, game in games:
        told = built.decode(game, built.transformer(built.prompt(game)))
        off = (told - solve(game)).abs().flatten(1).amax(dim=1).tolist()
        about = case.extend(note=name)
        rows += [{"case": about.extend(game=k), "off": each} for k, each in enumerate(off)]
    return rows


def count_choices(built: Any, T: int, generator: torch.Generator) -> dict[str, Any]:
    """Count the choices of a build that are its policy's, in games that it plays."""
    played = play_contest(built, built.environments().sample(4, generator=generator), T)
    same = f"{played.agreement_count} of {played.action_count}"
    return {"about": f"choices like the policy's in a game of {T} steps", "number": same}


def least_steps(enough: Callable[[int], bool]) -> int:
    """The smallest sufficient number of steps, assuming that more are never worse."""
    high = 1
    while not enough(high):
        high *= 2
        if high > MAX_STEPS:
            raise ValueError(f"more than {high // 2} steps are needed, the limit is {MAX_STEPS}")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def draw_games(
    generator: torch.Generator, batch: int, n: int, arms: int, d: int
) -> BanditGameProblem:
    """Draw games of n steps; the second half of the batch always plays one direction.

    Those games reveal nothing of the other directions, which is the hardest case.
    """
    drawn = LinearBanditGames(d=d, n=n, arms=arms).sample(batch, generator=generator)
    features = drawn.features.clone()
    half = batch // 2
    features[half:, :, 0] = 0.0
    features[half:, :, 0, 0] = 1.0
    actions = drawn.actions.clone()
    actions[half:] = 0
    rewards = drawn.rewards.clamp(-3.0, 3.0)
    return BanditGameProblem(features, actions, rewards, drawn.noise)


def prefix_moments(game: BanditGameProblem, ridge: float) -> tuple[Tensor, Tensor]:
    """The sums λI + Σ φφᵀ and Σ rφ over the steps before each step."""
    phi = game.chosen_features
    outer = phi.unsqueeze(-1) * phi.unsqueeze(-2)
    moment = game.rewards.unsqueeze(-1) * phi
    eye = ridge * torch.eye(game.d, dtype=torch.float64)
    return outer.cumsum(dim=-3) - outer + eye, moment.cumsum(dim=-2) - moment


def count_needed_steps(
    algorithm: AcceleratedRidge, game: BanditGameProblem, wanted: Tensor, error: float
) -> int:
    """One more than the last step at which a log-probability is off by more than the error."""
    state, last, k = algorithm.init(game), 0, 0
    while k <= 1.3 * last + 30:
        state = algorithm.step(game, state, k)
        k += 1
        if float((algorithm.predict(game, state) - wanted).abs().max()) > error:
            last = k
        if k > MAX_STEPS:
            raise ValueError(f"the ridge solves do not converge within {MAX_STEPS} steps")
    return last + 1
