"""Compare a transformer that acts with its reference policy and a uniform policy in the same games.

All three use the same random numbers. If transformer and policy compute the same probabilities,
they choose the same actions and get the same rewards and regrets.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor

from innerloop.constructions.acting import ActingConstruction
from innerloop.playing.player import TransformerPolicy
from innerloop.policies.rollout import Draws, Rollout, play
from innerloop.policies.uniform import UniformPolicy
from innerloop.problems.environment import Environment

BAND_STANDARD_ERRORS = 1.96
"""Half the width of a 95 % confidence band, in standard errors of the mean."""


class Contest(NamedTuple):
    """The games of the transformer, the reference policy and the uniform policy.

    There is one game per player and environment of a batch.
    """

    policy: Rollout
    transformer: Rollout
    uniform: Rollout

    @property
    def action_count(self) -> int:
        """The total number of actions of one player."""
        return self.policy.history.actions.numel()

    @property
    def agreement_count(self) -> int:
        """The number of actions on which transformer and policy agree."""
        return int((self.policy.history.actions == self.transformer.history.actions).sum())

    def regret_rows(self) -> list[dict[str, Any]]:
        """Return each player's mean cumulative regret over environments, with a 95 % band."""
        return [
            {"player": player, "t": t, "regret": mean, "low": mean - half, "high": mean + half}
            for player, game in zip(self._fields, self, strict=True)
            for t, (mean, half) in enumerate(mean_with_band(game.regret), 1)
        ]


def play_contest(
    construction: ActingConstruction[Any, Any], environment: Environment, steps: int, seed: int = 0
) -> Contest:
    """Play a batch of environments (with one batch dimension) with each of the three players."""
    player = TransformerPolicy(construction=construction, transformer=construction.transformer)
    draws = Draws.sample(player, environment, steps, seed)
    players = (construction.policy, player, UniformPolicy())
    return Contest(*(play(each, environment, draws) for each in players))


def mean_with_band(regret: Float[Tensor, "environments games"]) -> list[tuple[float, float]]:
    """Return the mean cumulative regret after each step, and half its 95 % interval's width."""
    total = regret.cumsum(dim=-1)
    mean, count = total.mean(dim=0), len(total)
    error = ((total - mean).square().sum(dim=0) / max(count - 1, 1) / count).sqrt()
    return list(zip(mean.tolist(), (BAND_STANDARD_ERRORS * error).tolist(), strict=True))
