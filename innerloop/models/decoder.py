"""A transformer with a read-out: token 2m+1 predicts the label of x_{m+1} (liu2025, Section 4.3).

Linear       ŷ = vᵀh                  v is learned (Definition 4.1)
Query        ŷ = hᵀ V x               V is learned (Definition 4.2)
Constructed  ŷ = ⟨β, x⟩               V = [0; I; 0] of Corollary E.1, without learned weights
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.transformer import Transformer

Readout = Literal["linear", "query", "constructed"]


class Decoder(nn.Module):
    """A transformer on prompts in format (4.2) of liu2025, with the registers x, y, beta and odd.

    Tokens 2m+1 contain x_{m+1} with label 0, tokens 2m+2 contain x_{m+1} with its label.

    Args:
        machine: The transformer.
        readout: The kind of read-out: "linear", "query" or "constructed".
    """

    def __init__(self, machine: Transformer, readout: Readout) -> None:
        super().__init__()
        self.machine = machine
        self.readout: Readout = readout
        self.depth: int | None = None
        """Number of layers that are run, from the first one on; None runs all."""
        layout = machine.layout
        if readout == "linear":
            self.reading = nn.Parameter(torch.zeros(1, layout.width, dtype=torch.float64))
        elif readout == "query":
            size = layout["beta"].size, layout.width
            start = torch.zeros(size, dtype=torch.float64)
            start[:, list(layout["beta"].places)] = torch.eye(size[0], dtype=torch.float64)
            self.reading = nn.Parameter(start)

    def forward(
        self, tokens: Float[Tensor, "*batch tokens width"]
    ) -> Float[Tensor, "*batch prefixes"]:
        """Predict the label of each example from the examples before it; the query comes last."""
        return self.read(tokens, self.compute_stream(tokens))

    def compute_stream(
        self, tokens: Float[Tensor, "*batch tokens width"]
    ) -> Float[Tensor, "*batch tokens width"]:
        """Compute the stream after the last layer that is run."""
        if self.depth is None:
            return self.machine(tokens)
        stream = self.machine.run_prologue(tokens)
        for k in range(self.depth):
            stream = self.machine.step(stream, k)
        return stream

    def read(self, tokens: Tensor, stream: Tensor) -> Tensor:
        """Return the predictions that the read-out makes from the stream after any layer."""
        if self.readout == "linear":
            return (stream[..., 0::2, :] @ self.reading.mT).squeeze(-1)
        rows = self.machine.layout.read(tokens, "x")[..., 0::2, :]
        return (self.read_weights(stream) * rows).sum(dim=-1)

    def read_weights(
        self, stream: Float[Tensor, "*batch tokens width"]
    ) -> Float[Tensor, "*batch prefixes d"]:
        """Return β̂ = Vᵀh; the prediction of a query read-out is ⟨β̂, x⟩."""
        odd = stream[..., 0::2, :]
        if self.readout == "constructed":
            return self.machine.layout.read(odd, "beta")
        return odd @ self.reading.mT
