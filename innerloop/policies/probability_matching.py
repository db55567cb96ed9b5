"""Probability matching on Bernoulli bandits: choose each arm with the probability that it is best.

    P(arm a is best) = ∫ f_a(q) ∏_{b ≠ a} F_b(q) dq

f and F are density and distribution function of Beta(p + successes, p + failures), the posterior of
an arm's mean; p = 1 is a uniform prior. These are the probabilities of Thompson sampling averaged
over its samples, and the prediction of an ideal learner for the best arm.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import betainc, betaln
from torch import Tensor

from innerloop.parameters import parameter
from innerloop.policies.arms import ArmPolicy, Tally
from innerloop.problems.bandit import ActionSet
from innerloop.problems.bernoulli_bandits import BernoulliBandit
from innerloop.problems.environment import Environment

NODES = 96
"""Number of nodes of the Gauss–Legendre quadrature: the error is 1e-6 for 200 choices of an arm."""


class ProbabilityMatchingPolicy(ArmPolicy):
    """Chooses each arm with the posterior probability that it is the best."""

    source: ClassVar[str] = "Thompson 1933, On the likelihood that one probability exceeds another"
    environment_type: ClassVar[type[Environment]] = BernoulliBandit

    prior: float = parameter(
        1.0, "p of the prior Beta(p, p) of every arm's mean", least=0.01, most=100
    )

    def probabilities(
        self, state: Tally, observation: ActionSet, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch actions"]:
        counts, sums = (x.double().cpu().numpy()[..., None] for x in state)
        wins, losses = self.prior + sums, self.prior + counts - sums
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        chance, weights = (nodes + 1) / 2, weights / 2
        logs = (wins - 1) * np.log(chance) + (losses - 1) * np.log1p(-chance) - betaln(wins, losses)
        below = betainc(wins, losses, chance).clip(1e-300)
        others = np.log(below).sum(axis=-2, keepdims=True) - np.log(below)
        odds = (np.exp(logs + others) * weights).sum(axis=-1)
        return torch.from_numpy(odds / odds.sum(axis=-1, keepdims=True)).to(state.counts)
