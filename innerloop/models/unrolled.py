"""Iterations for sparse recovery, unrolled into layers whose parameters are learned.

All iterations start from β = 0. Each layer ends with a soft threshold S_θ of its own; the learned
parameter is log θ. Every instance of a batch has its own measurements X (n×d) and labels y.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.errors import InputError

Measurements = Float[Tensor, "*batch n d"]
Labels = Float[Tensor, "*batch n"]
Weights = Float[Tensor, "*batch d"]


class Unrolled(nn.Module, ABC):
    """An iteration of K layers; a subclass defines the update of β before a layer's threshold."""

    def __init__(self, layers: int, threshold: float | Tensor) -> None:
        super().__init__()
        if layers < 1:
            raise InputError(f"layers must be at least 1, got {layers}")
        thresholds = torch.as_tensor(threshold, dtype=torch.float64).expand(layers)
        self.log_thresholds = nn.Parameter(thresholds.log())

    @property
    def layers(self) -> int:
        return len(self.log_thresholds)

    @property
    def thresholds(self) -> Float[Tensor, " layers"]:
        """The threshold θ of every layer."""
        return self.log_thresholds.exp()

    def prepare(self, x: Measurements, y: Labels) -> Any:
        """Precompute quantities that all layers use; by default, return the data unchanged."""
        return x, y

    @abstractmethod
    def update(self, k: int, beta: Weights, data: Any) -> Weights:
        """Apply the update of layer k (counted from 0) to β, before the threshold."""

    def iterates(self, x: Measurements, y: Labels) -> Float[Tensor, "layers *batch d"]:
        """Compute β after every layer."""
        beta = x.new_zeros(*x.shape[:-2], x.shape[-1])
        data, iterates, thresholds = self.prepare(x, y), [], self.thresholds
        for k in range(self.layers):
            beta = soft_threshold(self.update(k, beta, data), thresholds[k])
            iterates.append(beta)
        return torch.stack(iterates)

    def forward(self, x: Measurements, y: Labels) -> Weights:
        return self.iterates(x, y)[-1]


def soft_threshold(values: Tensor, threshold: Tensor) -> Tensor:
    """Apply the soft threshold S_θ: subtract from the values their projection onto [−θ, θ]."""
    return values - values.clamp(-threshold, threshold)


def matvec(matrix: Float[Tensor, "*batch rows columns"], vector: Tensor) -> Tensor:
    """Multiply the vector of every instance by its matrix."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def ista_step(x: Float[Tensor, "n d"]) -> Tensor:
    """Return 1/L with L = λmax(XᵀX), the step size of ISTA and of the initial weights."""
    return torch.linalg.matrix_norm(x, ord=2).square().reciprocal()
