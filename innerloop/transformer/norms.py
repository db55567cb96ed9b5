"""Operator norms of the heads of an attention layer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.transformer.projecting import nonzero_rows


@torch.no_grad()
def measure_norms(
    query: Float[Tensor, "heads rank width"],
    key: Float[Tensor, "heads rank width"],
    value: Float[Tensor, "heads out width"],
    explicit_split: Sequence[bool],
) -> tuple[float, float]:
    """Return max_m max(‖Q_m‖, ‖K_m‖), balanced unless the split is explicit, and Σ_m ‖V_m‖."""
    # ‖QᵀK‖ = ‖RSᵀ‖ for the triangular factors R and S of Qᵀ and Kᵀ, which are small.
    query, key = (torch.linalg.qr(part.mT, mode="r").R for part in (query, key))
    balanced = torch.linalg.matrix_norm(query @ key.mT, ord=2).sqrt()
    largest = torch.maximum(
        torch.linalg.matrix_norm(query, ord=2), torch.linalg.matrix_norm(key, ord=2)
    )
    explicit = torch.tensor(explicit_split, device=balanced.device)
    scores = torch.where(explicit, largest, balanced).max()
    small = nonzero_rows(nonzero_rows(value)[0].mT)[0]
    return float(scores), float(torch.linalg.matrix_norm(small, ord=2).sum())
