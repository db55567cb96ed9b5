"""A transformer over a set of points, with a linear read-out (qliu2025, section 2).

Pooled  W̃₀ H W̃₁: one vector for the whole prompt. W̃₁ contains one weight per token. Without W̃₁, the
        read-out averages over the data tokens, and prompts can have any length
Points  W̃₀ H: one vector for each data token, such as the logits of its clusters
Query   W̃₀ h: one vector for the last token

H is the stream after the last layer. The read-out can also be applied after any other layer, to
study what the layers compute.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.errors import InputError
from innerloop.transformer import Transformer

Reading = Literal["pooled", "points", "query"]
Stream = Float[Tensor, "*batch tokens width"]


class Encoder(nn.Module):
    """A transformer with a linear read-out, on prompts whose first tokens are the data points.

    Args:
        machine: The transformer.
        reading: The kind of read-out: "pooled", "points" or "query".
        left: W̃₀, with one row per output.
        right: W̃₁, with one weight per token. None averages over the data tokens.
    """

    def __init__(
        self,
        machine: Transformer,
        reading: Reading,
        left: Float[Tensor, "outputs width"],
        right: Float[Tensor, " tokens"] | None = None,
    ) -> None:
        super().__init__()
        if right is not None and reading != "pooled":
            raise InputError(f"a read-out of {reading} takes no weights for tokens: leave them out")
        self.machine = machine
        self.reading: Reading = reading
        self.left = nn.Parameter(left)
        self.right = None if right is None else nn.Parameter(right)

    @classmethod
    def with_random_reading(
        cls,
        machine: Transformer,
        reading: Reading,
        outputs: int,
        generator: torch.Generator,
        tokens: int | None = None,
    ) -> Encoder:
        """Draw W̃₀ from N(0, 1/width); with `tokens`, set W̃₁ to the mean over this many tokens."""
        width = machine.layout.width
        left = torch.randn(outputs, width, generator=generator, dtype=torch.float64) / width**0.5
        right = None if tokens is None else torch.full((tokens,), 1 / tokens, dtype=torch.float64)
        return cls(machine, reading, left, right)

    def forward(self, tokens: Stream, points: int) -> Tensor:
        """Run the transformer and return the read-out of the stream after the last layer."""
        return self.read(self.machine(tokens, points), points)

    def read(self, stream: Stream, points: int) -> Tensor:
        """Return the read-out of a stream.

        Its shape is `(*batch, outputs)`, or `(*batch, points, outputs)` if every point is read out.
        """
        if self.reading == "query":
            return stream[..., -1, :] @ self.left.mT
        data = stream[..., :points, :]
        if self.reading == "points":
            return data @ self.left.mT
        return self._pool(data) @ self.left.mT

    def read_layers(self, tokens: Stream, points: int) -> Float[Tensor, "layers ..."]:
        """Apply the read-out to the stream after every block."""
        trace = list(self.machine.trace(tokens, points))[1:]
        return torch.stack([self.read(snapshot.stream, points) for snapshot in trace])

    def _pool(self, data: Stream) -> Float[Tensor, "*batch width"]:
        if self.right is None:
            return data.mean(dim=-2)
        if data.shape[-2] != len(self.right):
            raise InputError(
                f"this read-out has one weight for each of {len(self.right)} points, got "
                f"{data.shape[-2]}: train one with pooling=mean for prompts of any length"
            )
        return self.right @ data
