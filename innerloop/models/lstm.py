"""An LSTM of several layers on prompts of numbers: torch.nn.LSTM with a linear read-out.

gates      i, f, o = σ(W x + U h + b),   g = tanh(W x + U h + b)
cell       c ← f ⊙ c + i ⊙ g,            h = o ⊙ tanh(c)
The input of the first layer is the tokens; the input of layer ℓ is the h of layer ℓ − 1. The
prediction at a token is a linear function of the h of the last layer.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class LSTM(nn.Module):
    """An LSTM whose layers' outputs are all accessible.

    It has one nn.LSTM per layer, because a stacked nn.LSTM returns only the last layer's h.

    Args:
        inputs: Numbers of a token.
        width: Width of every layer.
        layers: Number of layers.
    """

    def __init__(self, inputs: int, *, width: int, layers: int) -> None:
        super().__init__()
        sizes = [inputs, *[width] * (layers - 1)]
        self.network = nn.ModuleList(nn.LSTM(size, width, batch_first=True) for size in sizes)
        self.read_out = nn.Linear(width, 1)

    def forward(
        self, prompt: Float[Tensor, "batch tokens inputs"]
    ) -> Float[Tensor, "batch tokens"]:
        """Return the prediction at every token."""
        return self.read_out(self.compute_streams(prompt)[-1]).squeeze(-1)

    def predict_layers(self, prompt: Tensor) -> Float[Tensor, "layers batch tokens"]:
        """Apply the read-out after each layer."""
        return self.read_out(torch.stack(self.compute_streams(prompt))).squeeze(-1)

    def compute_streams(self, prompt: Tensor) -> list[Float[Tensor, "batch tokens width"]]:
        """Compute the hidden states h of every layer."""
        streams = [prompt]
        for layer in self.network:
            streams.append(layer(streams[-1])[0])
        return streams[1:]
