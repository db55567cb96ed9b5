"""A causal `innerloop.transformer.Transformer` on tokens of numbers, with a linear read-out.

It is the class of transformer that constructions build, with trainable weights. One register
contains the numbers of a token; the rest of the stream is scratch space. The output at a token
depends only on this token and earlier ones, so a game can be played token by token with a cache.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.errors import InputError
from innerloop.transformer import Cache, Layout, Transformer
from innerloop.transformer.attention import Kind


class Decider(nn.Module):
    """A transformer with a linear read-out of one or more numbers at every token.

    With a single output, results have no dimension for outputs.

    Args:
        machine: The transformer; its register `token` contains the numbers of a token.
        reading: The weights of the read-out, with one row per output.
    """

    def __init__(self, machine: Transformer, reading: Float[Tensor, "outputs width"]) -> None:
        super().__init__()
        self.machine, self.reading = machine, nn.Parameter(reading)

    @classmethod
    def with_random_weights(
        cls,
        inputs: int,
        *,
        width: int,
        layers: int,
        heads: int,
        outputs: int,
        kind: Kind,
        generator: torch.Generator,
    ) -> Decider:
        """Draw the transformer's weights; the read-out is 0, which makes all actions equally
        likely."""
        if width < inputs:
            raise InputError(
                f"width must be at least {inputs}, the numbers of a token, got {width}"
            )
        spare = {"scratch": width - inputs} if width > inputs else {}
        machine = Transformer.with_random_weights(
            Layout(token=inputs, **spare),
            layers=layers,
            heads=heads,
            hidden=2 * width,
            kind=kind,
            mask="causal",
            normalisation="1" if kind == "softmax" else "1/i",
            rank=max(1, width // heads),
            scale=0.5,
            generator=generator,
        )
        return cls(machine, torch.zeros(outputs, width, dtype=torch.float64)).float()

    def forward(
        self, tokens: Float[Tensor, "batch tokens inputs"]
    ) -> Float[Tensor, "batch tokens *outputs"]:
        """Return the read-out of every token after the last layer."""
        return self._read(self.machine(self._fill(tokens)))

    def predict_layers(
        self, tokens: Float[Tensor, "batch tokens inputs"]
    ) -> Float[Tensor, "layers batch tokens *outputs"]:
        """Apply the read-out to every token before the first layer and after each layer."""
        trace = self.machine.trace(self._fill(tokens))
        return self._read(torch.stack([snapshot.stream for snapshot in trace]))

    def extend(
        self, cache: Cache | None, tokens: Float[Tensor, "batch tokens inputs"]
    ) -> tuple[Float[Tensor, "batch tokens *outputs"], Any]:
        """Run further tokens; return their read-outs and the new cache.

        Pass None as the cache at the start of a game.
        """
        before = self.machine.new_cache() if cache is None else cache
        stream, after = self.machine.extend(before, self._fill(tokens))
        return self._read(stream), after

    def _read(self, stream: Tensor) -> Tensor:
        output = stream @ self.reading.mT
        return output.squeeze(-1) if len(self.reading) == 1 else output

    def _fill(self, tokens: Tensor) -> Tensor:
        return nn.functional.pad(tokens, (0, self.machine.layout.width - tokens.shape[-1]))
