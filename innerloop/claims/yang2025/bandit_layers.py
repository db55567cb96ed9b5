"""How many steps of the ridge solves bandit policies need: by the bound, and on given games."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.algorithms.accelerated_ridge import AcceleratedRidge
from innerloop.problems.linear_bandit_games import BanditGame, LinearBanditGames

MOST = 200_000


def least(enough: Callable[[int], bool]) -> int:
    """The smallest number of steps that is enough, where more are never worse."""
    high = 1
    while not enough(high):
        high *= 2
        if high > MOST:
            raise ValueError(f"{high} steps are not enough")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def games(generator: torch.Generator, batch: int, n: int, arms: int, d: int) -> BanditGame:
    """Games of n steps; in the second half of the batch one direction is played all the time, so
    that nothing is learned of the others, which is as hard as can be."""
    drawn = LinearBanditGames(d=d, n=n, arms=arms).sample(batch, generator=generator)
    features = drawn.features.clone()
    half = batch // 2
    features[half:, :, 0] = 0.0
    features[half:, :, 0, 0] = 1.0
    actions = drawn.actions.clone()
    actions[half:] = 0
    rewards = drawn.rewards.clamp(-3.0, 3.0)
    return BanditGame(features, actions, rewards, drawn.noise)


def prefixes(game: BanditGame, ridge: float) -> tuple[Tensor, Tensor]:
    """λI + Σ φφᵀ and Σ rφ of the steps before each, written out."""
    phi = game.chosen
    outer = phi.unsqueeze(-1) * phi.unsqueeze(-2)
    moment = game.rewards.unsqueeze(-1) * phi
    eye = ridge * torch.eye(game.d, dtype=torch.float64)
    return outer.cumsum(dim=-3) - outer + eye, moment.cumsum(dim=-2) - moment


def needed(algorithm: AcceleratedRidge, game: BanditGame, wanted: Tensor, error: float) -> int:
    """The last step at which a log-probability is off by more than the error, plus one."""
    state, last, k = algorithm.init(game), 0, 0
    while k <= 1.3 * last + 30:
        state = algorithm.step(game, state, k)
        k += 1
        if float((algorithm.predict(game, state) - wanted).abs().max()) > error:
            last = k
        if k > MOST:
            raise ValueError("the solves do not converge")
    return last + 1
