"""Detect whether gradients are needed, which determines how attention can be computed."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def is_transformed() -> bool:
    """Return whether torch.compile or torch.func traces the current code.

    Traced code must not contain in-place operations or operations that depend on the data.
    """
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def needs_gradient(stream: Tensor, module: nn.Module) -> bool:
    """Return whether the current forward pass needs gradients through this module."""
    tracked = stream.requires_grad or any(part.requires_grad for part in module.parameters())
    return tracked and torch.is_grad_enabled()
