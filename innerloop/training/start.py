"""Where weights begin, other than at random: near a model that is known, or as copies of others."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


@torch.no_grad()
def perturb(model: nn.Module, scale: float, generator: torch.Generator) -> None:
    """Add N(0, scale²/fan-in) to every trainable weight, as free weights are drawn."""
    for weight in model.parameters():
        if weight.requires_grad:
            drawn = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            fan = weight.shape[-1] if weight.ndim > 1 else weight.numel()
            weight.add_((scale / fan**0.5 * drawn).to(weight))


@torch.no_grad()
def repeat(layers: Sequence[nn.Module], count: int) -> None:
    """Give the `count` layers that follow the first `count` the weights of those, in order."""
    for old, new in zip(layers[:count], layers[count : 2 * count], strict=True):
        new.load_state_dict(old.state_dict())
