"""Thompson sampling for linear bandits: the best action for weights drawn from their posterior.

    w = ŵ + s G^(−1/2) z,   z ~ N(0, I)

With G = λI + Σ a aᵀ, reward noise of deviation s and the prior w ~ N(0, (s²/λ) I), the posterior is
N(ŵ, s² G⁻¹), and w is a draw of it. The root is the symmetric one, so that w is a function of the
history and of z alone. With a temperature τ the odds are a softmax of ⟨a, w⟩ / τ, given z.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from innerloop.parameters import parameter
from innerloop.policies.base import greedy
from innerloop.policies.linear import LinearPolicy
from innerloop.policies.posterior import Posterior, batch_first, batch_last
from innerloop.problems.bandit import ActionSet, Bandit


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearThompson(LinearPolicy):
    """Posterior sampling of the weights of a linear bandit."""

    source: ClassVar[str] = "Yang 2025, third paper, Theorem 10 (Lin et al. 2023)"

    scale: float = parameter(1.0, "s, the deviation of the reward's noise", least=0)
    temperature: float = parameter(0.0, "τ of the softmax over ⟨a, w⟩; 0 takes the best", least=0)

    def normals(self, environment: Bandit) -> int:
        return environment.d

    def weights(
        self, state: Posterior, noise: Float[Tensor, "*batch d"]
    ) -> Float[Tensor, "*batch d"]:
        """A draw from the posterior."""
        drawn = state.mean + self.scale * state.deviation(noise.movedim(-1, 0))
        return drawn.movedim(0, -1)

    def probabilities(
        self, state: Posterior, observation: ActionSet, noise: Float[Tensor, "*batch d"]
    ) -> Float[Tensor, "*batch actions"]:
        scores = self.scores(state, observation, noise)
        if self.temperature == 0:
            return greedy(scores)
        return (scores / self.temperature).softmax(dim=-1)

    def log_probabilities(
        self, state: Posterior, observation: ActionSet, noise: Float[Tensor, "*batch d"]
    ) -> Float[Tensor, "*batch actions"]:
        scores = self.scores(state, observation, noise)
        if self.temperature == 0:
            return greedy(scores).log()
        return (scores / self.temperature).log_softmax(dim=-1)

    def scores(
        self, state: Posterior, observation: ActionSet, noise: Float[Tensor, "*batch d"]
    ) -> Float[Tensor, "*batch actions"]:
        """⟨a, w⟩ of each action for the weights that were drawn."""
        drawn = self.weights(state, noise).movedim(-1, 0)
        return batch_first((batch_last(observation.features) * drawn).sum(dim=1))
