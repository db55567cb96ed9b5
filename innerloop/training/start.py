"""Initial weights other than random ones: weights near a known model, or copies of other layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


@torch.no_grad()
def perturb(model: nn.Module, scale: float, generator: torch.Generator) -> None:
    """Add N(0, scale²/fan-in) noise to every trainable weight, as random initial weights have."""
    for weight in model.parameters():
        if weight.requires_grad:
            noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            fan = weight.shape[-1] if weight.ndim > 1 else weight.numel()
            weight.add_((scale / fan**0.5 * noise).to(weight))


@torch.no_grad()
def copy_layers(layers: Sequence[nn.Module], count: int) -> None:
    """Copy the weights of the first `count` layers to the next `count`, in order."""
    for source, target in zip(layers[:count], layers[count : 2 * count], strict=True):
        target.load_state_dict(source.state_dict())
