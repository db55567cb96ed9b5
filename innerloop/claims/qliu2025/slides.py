"""The transformer as the slides define it, tokens in columns: layers, their norm, how they run."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Layer(NamedTuple):
    """The matrices V, Q, K stacked over heads, and those of the MLP."""

    V: Tensor
    Q: Tensor
    K: Tensor
    W1: Tensor
    W2: Tensor


def make_weights(N: int, causal: bool) -> Tensor:
    """What scores are multiplied by: 1/N, or the mask MSK, column i with 1/i down to row i."""
    if not causal:
        return torch.full((N, N), 1 / N, dtype=torch.float64)
    return torch.ones(N, N, dtype=torch.float64).triu() / torch.arange(1.0, N + 1).double()


def run_layers(layers: list[Layer], H: Tensor, causal: bool) -> Tensor:
    """Run attention, Σ_j σ(⟨Qh_i, Kh_j⟩)Vh_j over j ≤ i by 1/i or all j by 1/N, then the MLP."""
    weights = make_weights(H.shape[-1], causal)
    for layer in layers:
        scores = ((layer.K @ H).mT @ (layer.Q @ H)).relu()
        H = H + ((layer.V @ H) @ (weights * scores)).sum(0)
        H = H + layer.W2 @ (layer.W1 @ H).relu()
    return H


def weights_norm(layers: list[Layer]) -> Tensor:
    """The norm ‖θ‖ of the slides: max over layers of max(‖Q‖, ‖K‖) + Σ‖V‖ + ‖W₁‖ + ‖W₂‖."""
    found = []
    for layer in layers:
        V, Q, K, W1, W2 = (torch.linalg.matrix_norm(part, 2) for part in layer)
        found.append(torch.maximum(Q.max(), K.max()) + V.sum() + W1 + W2)
    return torch.stack(found).max()


def combine_layers(one: list[Layer], other: list[Layer], a: float, b: float) -> list[Layer]:
    """The weights a θ + b θ'."""
    pairs = zip(one, other, strict=True)
    return [Layer(*(a * x + b * y for x, y in zip(*pair, strict=True))) for pair in pairs]
