"""Two clouds of points: labels between −1 and 1, alone or after the scores they come from.

Which cloud is called +1 is a convention. Algorithms follow the starting vector, and so do models
that see it. For others the sign is matched once per prompt, for all layers together: the one under
which labels agree most with those of spectral clustering from the same start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.power_method import Vector
from innerloop.algorithms.spectral_clustering import SpectralClustering
from innerloop.identification.families.base import Family
from innerloop.problems.principal_components import PCAProblem

LabelColumns = Float[Tensor, "*batch n columns"]
REFERENCE_STEPS, REFERENCE_RAMP = 20, 1e-3


class Clouds(Family):
    """Label of each point, preceded by its score if the model also returns scores."""

    name: ClassVar[str] = "scores and labels"
    rank: ClassVar[int] = 2

    def measure_errors(
        self, problem: PCAProblem, model: Float[Tensor, "layers batch outputs"]
    ) -> list[float] | None:
        """Return the share of points outside the cloud of their origin, under the better of the
        two signs.
        """
        if problem.labels is None:
            return None
        labels = model.unflatten(-1, (problem.n, -1))[..., -1]
        wrong = (labels.sign() != problem.labels.sign()).double().mean(dim=-1)
        return torch.minimum(wrong, 1 - wrong).mean(dim=-1).tolist()


@dataclass(frozen=True, eq=False)
class CloudLabels(SpectralClustering):
    """Spectral clustering that returns labels only, for user-defined models that do the same."""

    def predict(self, problem: PCAProblem, state: Vector) -> LabelColumns:
        return super().predict(problem, state)[..., 1:]


def answer_as_asked(algorithm: Any, problem: Any, shape: Sequence[int]) -> Any:
    """Return a candidate that returns labels only, if the model does.

    Any other candidate unchanged.
    """
    if not isinstance(problem, PCAProblem) or tuple(shape) != (problem.n, 1):
        return algorithm
    if isinstance(algorithm, SpectralClustering):
        return CloudLabels(algorithm.ramp)
    return CloudLabels if algorithm is SpectralClustering else algorithm


def match_signs(
    problem: PCAProblem, labels: Float[Tensor, "layers batch n columns"]
) -> Float[Tensor, "layers batch n columns"]:
    """Give the clouds of a model the signs that spectral clustering from the given start gives
    them.
    """
    algorithm = SpectralClustering(torch.tensor(REFERENCE_RAMP, dtype=torch.float64))
    *_, last = algorithm.states(problem, REFERENCE_STEPS)
    reference = algorithm.predict(problem, last)[..., 1:]
    agreement = (labels[..., -1:].mean(dim=0) * reference.to(labels)).sum(dim=(-2, -1))
    return labels * torch.where(agreement < 0, -1.0, 1.0).to(labels)[:, None, None]
