"""LinUCB: choose the action with the highest upper confidence bound, ⟨a, ŵ⟩ + α √(aᵀ G⁻¹ a).

ŵ is the ridge estimate from the steps so far and G = λI + Σ a aᵀ over their actions. With a
temperature τ it is soft LinUCB, with probabilities proportional to exp(score / τ).
"""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from innerloop.parameters import parameter
from innerloop.policies.base import SoftPolicy
from innerloop.policies.linear import LinearPolicy
from innerloop.policies.posterior import Posterior, move_batch_first, move_batch_last
from innerloop.problems.bandit import ActionSet, Bandit


class LinUCBPolicy(LinearPolicy, SoftPolicy[Bandit, Posterior]):
    """Chooses the action with the highest upper confidence bound in a linear bandit."""

    source: ClassVar[str] = "Yang 2025, third paper, Theorem 8 (Lin et al. 2023)"

    alpha: float = parameter(2.0, "α, the weight of the uncertainty", least=0)

    def score_actions(
        self, state: Posterior, observation: ActionSet
    ) -> Float[Tensor, "*batch actions"]:
        features = move_batch_last(observation.features)
        widths = state.confidence_widths(features)
        return move_batch_first(state.values(features) + self.alpha * widths)
