"""Compute attention patterns: the weights c_i · act(s_ij) of a head's sum of values."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.transformer import Attention


@torch.no_grad()
def compute_pattern(
    attention: Attention, stream: Float[Tensor, "tokens width"], context: int
) -> Float[Tensor, "heads tokens keys"]:
    """Return the weight of every key for every token.

    The output of a head at token i is Σ_j pattern_ij V h_j.
    """
    keys = stream[:context] if attention.mask == "context" else stream
    scores = (stream @ attention.query.mT) @ (keys @ attention.key.mT).mT
    hidden = torch.ones_like(scores[0], dtype=torch.bool).triu(1)
    causal = attention.mask == "causal"
    if attention.kind == "softmax":
        weights = (scores.masked_fill(hidden, -math.inf) if causal else scores).softmax(dim=-1)
    else:
        weights = scores.relu() if attention.kind == "relu" else scores
        weights = weights.masked_fill(hidden, 0.0) if causal else weights
    return weights * _scale_factors(attention, stream, context)


def _scale_factors(attention: Attention, stream: Tensor, context: int) -> Tensor:
    """Return the factor c_i of each row i, or one factor for all rows."""
    tokens = stream.shape[-2]
    if attention.normalisation == "1/i":
        return torch.arange(1, tokens + 1).to(stream).reciprocal().unsqueeze(-1)
    factor = {"1/n": 1 / max(context, 1), "1/N": 1 / tokens, "1": 1.0}[attention.normalisation]
    return stream.new_tensor(factor)
