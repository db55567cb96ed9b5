"""Base class of families: the conversion from answers to vectors, and known properties of
answers.
"""

from __future__ import annotations

from abc import ABC
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

Answers = Float[Tensor, "*k batch outputs"]


class Family(ABC):
    """Answers of one kind: `rank` dimensions per instance, after those of layers and the batch."""

    name: ClassVar[str]
    rank: ClassVar[int] = 1

    def flatten(self, problem: Any, answers: Tensor) -> Answers:
        """Return the answers as vectors that can be compared."""
        return answers if self.rank == 1 else answers.flatten(-self.rank)

    def find_targets(self, problem: Any) -> Float[Tensor, "batch outputs"] | None:
        """Return the right answers as vectors, or None if there are none or they are not known."""
        return None

    def measure_errors(
        self, problem: Any, model: Float[Tensor, "layers batch outputs"]
    ) -> list[float] | None:
        """Return each layer's own error, relative to the size of the truth, or None if that is
        unknown.
        """
        target = self.find_targets(problem)
        if target is None or target.shape != model.shape[1:]:
            return None
        power = float(target.square().sum(dim=-1).mean())
        missed = (model - target).square().sum(dim=-1).mean(dim=-1)
        return (missed.nan_to_num(torch.inf, torch.inf) / max(power, 1e-300)).sqrt().tolist()

    def describe_constant(self, values: Float[Tensor, " outputs"]) -> str:
        """Describe an answer that is the same for every prompt."""
        numbers = [f"{value:.4g}" for value in values.tolist()]
        return f"answers {numbers[0] if len(numbers) == 1 else '(' + ', '.join(numbers) + ')'}"

    def measure(
        self, problem: Any, model: Float[Tensor, "batch outputs"], candidate: Tensor
    ) -> dict[str, float]:
        """Return further differences that are usual in the field, by name."""
        return {}

    def note(self, problem: Any) -> str | None:
        """Describe what cannot be distinguished on these problems, if anything."""
        return None


class Plain(Family):
    """Answers that are compared number by number: a prompt in another format, values of actions."""

    name = "answers"

    def __init__(self, rank: int) -> None:
        self.rank = rank  # pyright: ignore[reportAttributeAccessIssue]
