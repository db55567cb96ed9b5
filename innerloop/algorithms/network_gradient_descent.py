"""Projected gradient descent on the empirical risk of a ReLU network, by back-propagation.

    V ← Proj( V − η ∇R(V) ),   R(V) = 1/n Σᵢ ℓ(f(xᵢ) − yᵢ),   Proj onto the box |V| ≤ C

    s_N = ℓ'(p_N − y) where p_N > 0,   s_j = V_{j+1}ᵀ s_{j+1} where p_j > 0,   0 elsewhere
    ∇R(V_j) = 1/n Σᵢ s_j p_{j−1}ᵀ

ℓ sums over outputs r²/2, or Huber's loss, r²/2 up to |r| = 1 and |r| − ½ beyond. The derivative of
a unit at input 0 is defined as 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm, hyperparameter, select_entry
from innerloop.problems.network_regression import NetworkProblem, NetworkWeights, activations

Loss = Literal["squared", "huber"]
HUBER_THRESHOLD = 1.0
"""The residual at which Huber's loss changes from quadratic to linear."""


@dataclass(frozen=True, eq=False)
class NetworkGradientDescent(Algorithm[NetworkProblem, NetworkWeights]):
    """Gradient descent on the weights V_1 … V_N of a network, from the start of the problem.

    Step k uses η = `step_sizes[k]`.
    """

    source: ClassVar[str] = "Yang 2025, second paper (Wu et al. 2024)"
    problem_type: ClassVar = NetworkProblem
    step_sizes: Float[Tensor, " steps *batch"] = field(metadata=hyperparameter(per_step=True))
    box: Float[Tensor, "*batch"] = field(metadata=hyperparameter())
    loss: Loss = "squared"

    @classmethod
    def guesses(cls, problem: NetworkProblem) -> list[NetworkGradientDescent]:
        """Return starts for step sizes and boxes C.

        The boxes are between twice and a fifth of the largest initial weight.
        """
        largest = max(float(matrix.abs().max()) for matrix in problem.start)
        sizes = torch.tensor([[0.01], [0.03], [0.1], [0.3]], dtype=torch.float64)
        boxes = largest * torch.tensor([2.0, 0.6, 0.35, 0.2], dtype=torch.float64)
        return [cls(s, box, loss) for loss in get_args(Loss) for s in sizes for box in boxes]

    def init(self, problem: NetworkProblem) -> NetworkWeights:
        return problem.start

    def step(self, problem: NetworkProblem, state: NetworkWeights, k: int) -> NetworkWeights:
        size = select_entry(self.step_sizes, k, problem.x)[..., None, None]
        box = self.box.to(problem.x)[..., None, None]
        moved = (v - size * g for v, g in zip(state, self.gradient(problem, state), strict=True))
        return tuple(matrix.clamp(-box, box) for matrix in moved)

    def predict(self, problem: NetworkProblem, state: NetworkWeights) -> Float[Tensor, "*batch m"]:
        return activations(state, problem.x_query.unsqueeze(-2))[-1].squeeze(-2)

    def gradient(self, problem: NetworkProblem, weights: NetworkWeights) -> NetworkWeights:
        """Return ∇R(V_1) … ∇R(V_N)."""
        passed = activations(weights, problem.x)
        signals = self.signals(weights, passed, problem.y)
        pairs = zip(signals, passed[:-1], strict=True)
        return tuple(signal.mT @ below / problem.n for signal, below in pairs)

    def signals(
        self, weights: NetworkWeights, passed: list[Tensor], y: Float[Tensor, "*batch n m"]
    ) -> list[Tensor]:
        """Return s_1 … s_N of every row: the derivatives of its loss by the inputs of the units.

        Args:
            weights: The matrices V_1 … V_N.
            passed: The activations p_0 … p_N of the forward pass.
            y: The targets.
        """
        residual = passed[-1] - y
        residual = (
            residual.clamp(-HUBER_THRESHOLD, HUBER_THRESHOLD) if self.loss == "huber" else residual
        )
        signals = [residual * (passed[-1] > 0)]
        for above, active in zip(weights[:0:-1], passed[-2:0:-1], strict=True):
            signals.insert(0, signals[0] @ above * (active > 0))
        return signals
