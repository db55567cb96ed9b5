"""The networks that recipes over sequences of tokens offer: the library's GPT-2, or our own."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from innerloop.models.decider import Decider
from innerloop.models.gpt2 import GPT2

Network = Literal["gpt2", "transformer"]
AttentionKind = Literal["relu", "softmax"]


def build_backbone(
    network: Network,
    inputs: int,
    *,
    width: int,
    layers: int,
    heads: int,
    tokens: int,
    outputs: int,
    attention: AttentionKind,
    generator: torch.Generator,
) -> nn.Module:
    """Build a causal network with fresh weights that reads `outputs` numbers out of every token.

    GPT-2 has positions for `tokens` of them.
    """
    sizes = {"width": width, "layers": layers, "heads": heads, "outputs": outputs}
    if network == "transformer":
        return Decider.with_random_weights(inputs, **sizes, kind=attention, generator=generator)
    # Libraries draw from the global generator, which is restored afterwards.
    with torch.random.fork_rng():
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        return GPT2(inputs, **sizes, tokens=tokens, attention=attention)
