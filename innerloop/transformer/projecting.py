"""Matrix products of attention: queries, keys and values of all heads, and causal Gram matrices."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

CHUNK = 64
"""Tokens per chunk of causal linear attention.

It computes scores within a chunk, and Gram matrices of earlier chunks.
"""


def nonzero_rows(weight: Float[Tensor, "heads rows width"]) -> tuple[Tensor, Tensor]:
    """Return the nonzero rows of every head, padded to the same number, and their indices.

    The padding consists of zero rows of the same head; no index occurs twice.
    """
    used = (weight != 0).any(dim=-1)
    most = max(1, int(used.sum(dim=-1).max()))
    places = used.byte().argsort(dim=-1, descending=True, stable=True)[:, :most]
    return weight.gather(1, places.unsqueeze(-1).expand(-1, -1, weight.shape[-1])), places


def project_sparse(
    stream: Float[Tensor, "*batch tokens width"], weight: Float[Tensor, "heads rows width"]
) -> Float[Tensor, "*batch heads tokens rows"]:
    """Compute the same as `project`, using only the places that some weight reads."""
    read = (weight != 0).flatten(0, 1).any(dim=0).nonzero().squeeze(-1)
    if 2 * len(read) <= weight.shape[-1]:
        stream, weight = stream.index_select(-1, read.to(stream.device)), weight[..., read]
    return project(stream, weight)


def project(
    stream: Float[Tensor, "*batch tokens width"], weight: Float[Tensor, "heads rows width"]
) -> Float[Tensor, "*batch heads tokens rows"]:
    """Compute W h of every head and token.

    One product for all heads is much faster than one per head.
    """
    rows = stream @ weight.to(stream.device).flatten(0, 1).mT
    return rows.unflatten(-1, weight.shape[:2]).transpose(-2, -3)


def causal_gram(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Compute Σ_{j ≤ i} ⟨q_i, k_j⟩ v_j chunk by chunk, in time linear in the number of tokens."""
    tokens = query.shape[-2]
    spare = -tokens % CHUNK
    query, key, value = (
        nn.functional.pad(part, (0, 0, 0, spare)).unflatten(-2, (-1, CHUNK))
        for part in (query, key, value)
    )
    inside = (query @ key.mT).tril() @ value
    grams = key.mT @ value
    # Shifted instead of grams.cumsum() - grams, because the subtraction would add rounding errors.
    before = nn.functional.pad(grams.cumsum(dim=-3)[..., :-1, :, :], (0, 0, 0, 0, 1, 0))
    return (inside + query @ before).flatten(-3, -2)[..., :tokens, :]
