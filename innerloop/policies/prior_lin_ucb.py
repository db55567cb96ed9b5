"""LinUCB with a ridge penalty on the distance of every weight from a prior mean m instead of 0.

    ŵ = G⁻¹ (λ m 1 + Σ r a),   G = λI + Σ a aᵀ

If the weights are distributed around m, such as uniform weights around 1/2, this ridge estimate is
the best linear estimate. A network that was trained on such games has learned m.
"""

from __future__ import annotations

from typing import ClassVar

from innerloop.parameters import parameter
from innerloop.policies.lin_ucb import LinUCBPolicy
from innerloop.policies.posterior import Posterior
from innerloop.problems.bandit import Bandit


class PriorLinUCBPolicy(LinUCBPolicy):
    """LinUCB with a prior mean m of every weight."""

    source: ClassVar[str] = "Yang 2025, third paper, Theorem 8 (Lin et al. 2023), around a mean"

    mean: float = parameter(0.5, "m, the prior mean of every weight", least=-1e6, most=1e6)

    def init_state(self, environment: Bandit) -> Posterior:
        prior = super().init_state(environment)
        return prior._replace(mean=prior.mean + self.mean)
