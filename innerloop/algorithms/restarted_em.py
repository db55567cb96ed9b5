"""EM for clouds of equal weights and covariance σ²I, from several starts, of which the best counts.

The starts are the initial centres of the problem, and consecutive groups of K points. The answer
after k steps belongs to the start with the largest likelihood after k steps. Lloyd's algorithm
(from the initial centres of the problem) numbers the clusters: each cluster gets the number of the
cluster of Lloyd's algorithm with which it shares most points. The numbers therefore do not depend
on which start has the largest likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from innerloop.algorithms.base import Algorithm, hyperparameter
from innerloop.algorithms.em import Shares
from innerloop.algorithms.lloyd import Lloyd
from innerloop.problems.gaussian_mixture import ClusteringProblem

Restarts = Float[Tensor, "*batch starts clusters d"]
MAX_STARTS, NAMING_STEPS = 12, 20
"""The largest number of starts, and the steps of Lloyd's algorithm used to number clusters."""


class RestartState(NamedTuple):
    """The means of every start, and the counts of `count_lloyd` for numbering the clusters."""

    means: Restarts
    counts: Int[Tensor, "*batch n clusters"]


@dataclass(frozen=True, eq=False)
class RestartedEM(Algorithm[ClusteringProblem, RestartState]):
    """EM from several starts with σ = `noise`; it predicts the shares of the most likely start."""

    source: ClassVar[str] = "McLachlan and Peel 2000, Finite mixture models, section 2.12"
    problem_type: ClassVar = ClusteringProblem
    noise: Float[Tensor, "*batch"] = field(metadata=hyperparameter())

    @classmethod
    def guesses(cls, problem: ClusteringProblem) -> list[RestartedEM]:
        centred = problem.x - problem.x.mean(dim=-2, keepdim=True)
        spread = centred.square().mean().sqrt().double().cpu().clamp_min(1e-6)
        return [cls(share * spread) for share in (0.1, 0.2, 0.4, 0.7)]

    def init(self, problem: ClusteringProblem) -> RestartState:
        count = min(problem.n // problem.clusters, MAX_STARTS - 1)
        points = problem.x[..., : count * problem.clusters, :]
        further = points.unflatten(-2, (count, problem.clusters))
        means = torch.cat([problem.start.unsqueeze(-3), further], dim=-3)
        return RestartState(means, count_lloyd(problem))

    def step(self, problem: ClusteringProblem, state: RestartState, k: int) -> RestartState:
        shares = self._logits(problem, state.means).log_softmax(dim=-1).softmax(dim=-2)
        return state._replace(means=shares.mT @ problem.x.unsqueeze(-3))

    def predict(self, problem: ClusteringProblem, state: RestartState) -> Shares:
        logits = self._logits(problem, state.means)
        likelihood = logits.logsumexp(dim=-1).sum(dim=-1)
        best = likelihood.argmax(dim=-1)[..., None, None, None]
        shape = (*logits.shape[:-3], 1, *logits.shape[-2:])
        chosen = logits.gather(-3, best.expand(shape)).squeeze(-3)
        return match_names(chosen.softmax(dim=-1), state.counts.to(chosen))

    def _logits(
        self, problem: ClusteringProblem, means: Restarts
    ) -> Float[Tensor, "*batch starts n clusters"]:
        apart = problem.x[..., None, :, None, :] - means.unsqueeze(-3)
        noise = self.noise.to(means)[..., None, None, None]
        return -apart.square().sum(dim=-1) / (2 * noise**2)


def count_lloyd(problem: ClusteringProblem) -> Int[Tensor, "*batch n clusters"]:
    """Count the steps of Lloyd's algorithm at which each point is in each cluster.

    A cluster that loses all points during the steps keeps its counts from earlier steps.
    """
    lloyd = Lloyd()
    steps = [lloyd.predict(problem, state) for state in lloyd.states(problem, NAMING_STEPS)]
    return torch.stack(steps).sum(dim=0).round().long()


def match_names(shares: Shares, reference: Shares) -> Shares:
    """Order the clusters so that their points agree best with those of a reference."""
    agreement = reference.to(shares).mT @ shares
    tables = agreement.detach().cpu().numpy().reshape(-1, *agreement.shape[-2:])
    columns = np.stack([linear_sum_assignment(-table)[1] for table in tables])
    order = torch.as_tensor(columns, device=shares.device).reshape(agreement.shape[:-1])
    return shares.gather(-1, order.unsqueeze(-2).expand(shares.shape))
