"""The networks of recipes that read token sequences: GPT-2 of `transformers`, or this package's."""

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
    """Build a causal network with random weights that reads `outputs` numbers out of every token.

    Args:
        network: "gpt2" for GPT-2 of the `transformers` library, else this package's transformer.
        inputs: Numbers of a token.
        width: Width of the stream.
        layers: Number of layers.
        heads: Heads of each layer.
        tokens: Largest number of tokens of a prompt, for GPT-2's learned positions.
        outputs: Numbers that are read out of every token.
        attention: The kind of attention.
        generator: The random number generator of the initial weights.
    """
    sizes = {"width": width, "layers": layers, "heads": heads, "outputs": outputs}
    if network == "transformer":
        return Decider.with_random_weights(inputs, **sizes, kind=attention, generator=generator)
    # Libraries draw from the global generator, which is restored afterwards.
    with torch.random.fork_rng():
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        return GPT2(inputs, **sizes, tokens=tokens, attention=attention)
