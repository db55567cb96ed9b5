"""Iterations for sparse recovery, unrolled into layers whose parameters are learned.

All start from β = 0 and end each layer with a soft threshold of its own, S_θ; what is learned is
log θ. Every instance of a batch has its own measurements X (n×d) and labels y.
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
    """K layers; a subclass says what a layer adds to β before its threshold."""

    def __init__(self, layers: int, threshold: float | Tensor) -> None:
        super().__init__()
        if layers < 1:
            raise InputError(f"layers must be at least 1, got {layers}")
        given = torch.as_tensor(threshold, dtype=torch.float64).expand(layers)
        self.log_thresholds = nn.Parameter(given.log())

    @property
    def layers(self) -> int:
        return len(self.log_thresholds)

    @property
    def thresholds(self) -> Float[Tensor, " layers"]:
        """θ of every layer."""
        return self.log_thresholds.exp()

    def prepare(self, x: Measurements, y: Labels) -> Any:
        """What every layer needs of the data, made once; by default the data."""
        return x, y

    @abstractmethod
    def move(self, k: int, beta: Weights, data: Any) -> Weights:
        """Layer k, counted from 0, before its threshold."""

    def iterates(self, x: Measurements, y: Labels) -> Float[Tensor, "layers *batch d"]:
        """β after every layer."""
        beta = x.new_zeros(*x.shape[:-2], x.shape[-1])
        data, found, thresholds = self.prepare(x, y), [], self.thresholds
        for k in range(self.layers):
            beta = shrunk(self.move(k, beta, data), thresholds[k])
            found.append(beta)
        return torch.stack(found)

    def forward(self, x: Measurements, y: Labels) -> Weights:
        return self.iterates(x, y)[-1]


def shrunk(values: Tensor, threshold: Tensor) -> Tensor:
    """The soft threshold S_θ as what is left beyond [−θ, θ]."""
    return values - values.clamp(-threshold, threshold)


def times(matrix: Float[Tensor, "*batch rows columns"], vector: Tensor) -> Tensor:
    """A vector of every instance by its matrix."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def unit_step(x: Float[Tensor, "n d"]) -> Tensor:
    """1/L for L = λmax(XᵀX): the step of ISTA, from which what is trained on one X begins."""
    return torch.linalg.matrix_norm(x, ord=2).square().reciprocal()
