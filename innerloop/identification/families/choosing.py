"""The family of an answer, from the problem and the answer's shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from innerloop.identification.families.base import Answers, Family, Plain
from innerloop.identification.families.clouds import Clouds
from innerloop.identification.families.clustering import Clustering
from innerloop.identification.families.directions import Directions, fits_directions
from innerloop.identification.families.odds import Odds
from innerloop.identification.families.queries import Queries
from innerloop.problems.gaussian_mixture import ClusteringProblem
from innerloop.problems.linear_bandit_games import BanditGameProblem
from innerloop.problems.principal_components import PCAProblem
from innerloop.problems.tabular_games import TabularGameProblem


def choose_family(problem: Any, shape: Sequence[int]) -> Family:
    """Choose the family of answers of this shape per instance."""
    if isinstance(problem, ClusteringProblem) and len(shape) == Clustering.rank:
        return Clustering()
    if isinstance(problem, PCAProblem) and len(shape) == Directions.rank:
        return Directions() if fits_directions(problem, shape) else Clouds()
    if isinstance(problem, BanditGameProblem | TabularGameProblem) and len(shape) == Odds.rank:
        return Odds()
    return Queries() if len(shape) == 1 else Plain(len(shape))


def flatten_answers(problem: Any, answers: Tensor) -> Answers:
    """Return answers as vectors: those of one layer or step, or of several, which come first."""
    batch = get_batch(problem)
    single = tuple(answers.shape[: len(batch)]) == batch
    shape = answers.shape[len(batch) :]
    if not single or _is_stack(problem, answers.shape):
        shape = answers.shape[len(batch) + 1 :]
    return choose_family(problem, shape).flatten(problem, answers)


def _is_stack(problem: Any, shape: Sequence[int]) -> bool:
    """Tell whether answers that begin with the batch's size begin with as many layers."""
    batch = get_batch(problem)
    again = tuple(shape[1 : len(batch) + 1]) == batch
    expected = {ClusteringProblem: 2, PCAProblem: 2, BanditGameProblem: 2, TabularGameProblem: 3}
    rank = next((r for kind, r in expected.items() if isinstance(problem, kind)), 1)
    return again and len(shape) > len(batch) + rank


def get_batch(problem: Any) -> tuple[int, ...]:
    """Return the batch dimensions of a problem."""
    return tuple(problem.batch) if hasattr(problem, "batch") else (len(problem.x),)
