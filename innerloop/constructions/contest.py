"""A transformer that acts, its reference policy, and blind play, in the same games with equal luck.

All three see the same lots, the same luck and the same normals: where transformer and policy give
the same odds, they choose the same, and every reward and all regret after that is the same too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor

from innerloop.constructions.acting import ActingConstruction
from innerloop.constructions.player import TransformerPolicy
from innerloop.policies.rollout import Draws, Rollout, play
from innerloop.policies.uniform import Uniform
from innerloop.problems.environment import Environment

BAND = 1.96
"""Standard errors on either side of a mean, for 95 %."""


class Contest(NamedTuple):
    """What the three players did, each in every environment of a batch."""

    policy: Rollout
    transformer: Rollout
    uniform: Rollout

    @property
    def choices(self) -> int:
        """How many actions each player chose."""
        return self.policy.history.actions.numel()

    @property
    def same(self) -> int:
        """How many of them transformer and policy chose alike."""
        return int((self.policy.history.actions == self.transformer.history.actions).sum())

    def rows(self) -> list[dict[str, Any]]:
        """The mean cumulative regret of each player over the environments, with a 95 % band."""
        return [
            {"player": player, "t": t, "regret": mean, "low": mean - half, "high": mean + half}
            for player, game in zip(self._fields, self, strict=True)
            for t, (mean, half) in enumerate(banded(game.regret), 1)
        ]


def contest(
    construction: ActingConstruction, environment: Environment, steps: int, seed: int = 0
) -> Contest:
    """Play a batch of environments (one batch dimension) with each of the players."""
    player = TransformerPolicy(construction=construction, transformer=construction.transformer)
    draws = Draws.of(player, environment, steps, seed)
    games = (play(one, environment, draws) for one in (construction.policy, player, Uniform()))
    return Contest(*games)


def banded(regret: Float[Tensor, "environments games"]) -> list[tuple[float, float]]:
    """The mean of the cumulative regret over environments, and half the width of its 95 % band."""
    total = regret.cumsum(dim=-1)
    mean, count = total.mean(dim=0), len(total)
    error = ((total - mean).square().sum(dim=0) / max(count - 1, 1) / count).sqrt()
    return list(zip(mean.tolist(), (BAND * error).tolist(), strict=True))
