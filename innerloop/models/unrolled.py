"""Iterations for sparse recovery, unrolled into layers whose parameters are learned.

All start from β = 0, and each layer ends with its own soft threshold S_θ, parametrised by log θ.
Every instance of a batch has its own measurements X (n×d) and labels y.
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
    """An iteration of K layers; a subclass defines a layer's update of β before its threshold."""

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
        """θ of every layer."""
        return self.log_thresholds.exp()

    def prepare(self, x: Measurements, y: Labels) -> Any:
        """Precompute what every layer uses of the data; by default, return the data unchanged."""
        return x, y

    @abstractmethod
    def update(self, k: int, beta: Weights, data: Any) -> Weights:
        """Apply layer k (from 0) to β, before its threshold."""

    def iterates(self, x: Measurements, y: Labels) -> Float[Tensor, "layers *batch d"]:
        """β after every layer."""
        beta = x.new_zeros(*x.shape[:-2], x.shape[-1])
        data, iterates, thresholds = self.prepare(x, y), [], self.thresholds
        for k in range(self.layers):
            beta = soft_threshold(self.update(k, beta, data), thresholds[k])
            iterates.append(beta)
        return torch.stack(iterates)

    def forward(self, x: Measurements, y: Labels) -> Weights:
        return self.iterates(x, y)[-1]


def soft_threshold(values: Tensor, threshold: Tensor) -> Tensor:
    """The soft threshold S_θ: values minus their projection onto [−θ, θ]."""
    return values - values.clamp(-threshold, threshold)


def matvec(matrix: Float[Tensor, "*batch rows columns"], vector: Tensor) -> Tensor:
    """Multiply the vector of every instance by its matrix."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def ista_step(x: Float[Tensor, "n d"]) -> Tensor:
    """1/L for L = λmax(XᵀX): the step of ISTA, where models for one X start."""
    return torch.linalg.matrix_norm(x, ord=2).square().reciprocal()
