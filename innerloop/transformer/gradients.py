"""Whether gradients are taken, which decides how attention may be computed."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def is_transformed() -> bool:
    """Whether torch.compile or torch.func runs this: no data-dependent or in-place operations."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def needs_gradient(stream: Tensor, module: nn.Module) -> bool:
    """Whether gradients are taken through this module now."""
    tracked = stream.requires_grad or any(part.requires_grad for part in module.parameters())
    return tracked and torch.is_grad_enabled()
