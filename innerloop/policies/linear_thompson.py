"""Thompson sampling for linear bandits: choose the best action for posterior samples of weights.

    w = ŵ + s G^(−1/2) z,   z ~ N(0, I)

With G = λI + Σ a aᵀ, reward noise of standard deviation s and the prior w ~ N(0, (s²/λ) I), the
posterior is N(ŵ, s² G⁻¹), and w is a sample from it. The root is symmetric, so that w depends only
on the history and z. With a temperature τ, the probabilities conditional on z are a softmax of
⟨a, w⟩ / τ.
"""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from innerloop.parameters import parameter
from innerloop.policies.base import greedy_probabilities
from innerloop.policies.linear import LinearPolicy
from innerloop.policies.posterior import Posterior, move_batch_first, move_batch_last
from innerloop.problems.bandit import ActionSet, Bandit


class LinearThompsonPolicy(LinearPolicy):
    """Posterior sampling of the weights of a linear bandit."""

    source: ClassVar[str] = "Yang 2025, third paper, Theorem 10 (Lin et al. 2023)"

    scale: float = parameter(1.0, "s, the standard deviation of the reward's noise", least=0)
    temperature: float = parameter(0.0, "τ of the softmax over ⟨a, w⟩; 0 takes the best", least=0)

    def count_normals(self, environment: Bandit) -> int:
        return environment.d

    def draw_weights(
        self, state: Posterior, noise: Float[Tensor, "*batch d"]
    ) -> Float[Tensor, "*batch d"]:
        """Draw the weights from their posterior."""
        weights = state.mean + self.scale * state.deviation(noise.movedim(-1, 0))
        return weights.movedim(0, -1)

    def probabilities(
        self, state: Posterior, observation: ActionSet, noise: Float[Tensor, "*batch d"]
    ) -> Float[Tensor, "*batch actions"]:
        scores = self.score_actions(state, observation, noise)
        if self.temperature == 0:
            return greedy_probabilities(scores)
        return (scores / self.temperature).softmax(dim=-1)

    def log_probabilities(
        self, state: Posterior, observation: ActionSet, noise: Float[Tensor, "*batch d"]
    ) -> Float[Tensor, "*batch actions"]:
        scores = self.score_actions(state, observation, noise)
        if self.temperature == 0:
            return greedy_probabilities(scores).log()
        return (scores / self.temperature).log_softmax(dim=-1)

    def score_actions(
        self, state: Posterior, observation: ActionSet, noise: Float[Tensor, "*batch d"]
    ) -> Float[Tensor, "*batch actions"]:
        """Return ⟨a, w⟩ of each action for the sampled weights w."""
        weights = self.draw_weights(state, noise).movedim(-1, 0)
        return move_batch_first((move_batch_last(observation.features) * weights).sum(dim=1))
