"""Decisions: the odds of every action at every step of the same games.

Answers are logarithms of odds, up to a constant per step. What is compared are the probabilities
minus equal ones: equal odds say nothing. Total variation and the difference of log odds, which sees
what hardly ever happens, stand beside.
"""

from __future__ import annotations

from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from innerloop.identification.families.base import Answers, Family

LEAST = 1e-12
"""Probabilities below this count as this in log odds."""


class Odds(Family):
    """Probabilities of the actions minus equal ones, step by step."""

    name: ClassVar[str] = "odds of actions"
    rank: ClassVar[int] = 2

    def flatten(self, problem: Any, answers: Tensor) -> Answers:
        return (answers.softmax(dim=-1) - 1 / answers.shape[-1]).flatten(-2)

    def describe_constant(self, values: Float[Tensor, " outputs"]) -> str:
        equal = float(values.abs().max()) == 0
        return "plays all actions with equal odds" if equal else "plays every game alike"

    def measure(
        self, problem: Any, model: Float[Tensor, "batch outputs"], candidate: Tensor
    ) -> dict[str, float]:
        actions = count_actions(problem)
        p, q = (each.unflatten(-1, (-1, actions)) + 1 / actions for each in (model, candidate))
        logs = [each.clamp_min(LEAST).log() for each in (p, q)]
        apart = [each - each.mean(dim=-1, keepdim=True) for each in logs]
        return {
            "total variation": float((p - q).abs().sum(dim=-1).mean() / 2),
            "difference of log odds": float((apart[0] - apart[1]).abs().mean()),
        }


def count_actions(problem: Any) -> int:
    """Return the number of actions to choose from in recorded games."""
    return problem.arms if hasattr(problem, "arms") else problem.sizes[1]
