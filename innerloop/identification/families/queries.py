"""Predictions at a query: regression, mixtures of regressions and networks, as they are."""

from __future__ import annotations

from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.identification.families.base import Answers, Family


class Queries(Family):
    """The predictions at the queries, which come last in a prediction at every position."""

    name: ClassVar[str] = "predictions at a query"

    def flatten(self, problem: Any, answers: Tensor) -> Answers:
        everywhere = (
            hasattr(problem, "queries") and answers.shape[-1] == problem.n + problem.queries
        )
        return answers[..., problem.n :] if everywhere else answers

    def find_targets(self, problem: Any) -> Float[Tensor, "batch outputs"] | None:
        try:
            return problem.targets
        except (AttributeError, InputError):
            return None
