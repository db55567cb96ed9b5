"""Where weights begin, other than at random: near a model that is known."""

from __future__ import annotations

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
