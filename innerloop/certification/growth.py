"""Compute how errors of single steps grow in later steps, from the algorithm's derivative.

A construction with an error bound η has an error of at most η in each step. In a run from the
prompt, the error of a later state is to first order Σ_i (J_k ⋯ J_{i+1}) ε_i, where J_i is the
derivative of step i of the reference and |ε_i| ≤ η. Entry r therefore has an error of at most
η Σ_i Σ_c |(J_k ⋯ J_{i+1})_{rc}|. This file computes the sum exactly, from the reference alone. All
errors are relative to max(1, |entry|).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.autograd.forward_ad as forward
from jaxtyping import Float
from torch import Tensor

Matrix = Float[Tensor, "instances rows columns"]


class ErrorGrowth:
    """The largest sum Σ_i Σ_c |…| for the state and for the prediction, updated step by step.

    `state_factor` is the sum for the current state: its error is at most η times that.
    """

    def __init__(self, state: Any, batch: torch.Size) -> None:
        self.batch = batch
        self.steps = 0
        self.state_factor = 1.0
        self._initial_scale = _scale(self._flatten(state))
        self._errors: Matrix | None = None

    @property
    def entry_count(self) -> int:
        """The number of entries of a state."""
        return self._initial_scale.shape[-1]

    def _propagated_errors(self) -> Matrix:
        """Propagated unit errors, one column per entry of each earlier step's state."""
        return torch.diag_embed(self._initial_scale) if self._errors is None else self._errors

    def advance(self, step: Callable[[Any], Any], state: Any, after: Any) -> None:
        """Propagate the errors through one step, from `state` to the state `after`."""
        scale = _scale(self._flatten(after))
        carried = self._derivative(step, state) @ self._propagated_errors()
        self._errors = torch.cat([carried, torch.diag_embed(scale)], dim=-1)
        self.state_factor = float((self._errors.abs().sum(dim=-1) / scale).max())
        self.steps += 1

    def prediction_factor(self, predict: Callable[[Any], Tensor], state: Any) -> float:
        """Return the sum for the prediction, including 1 for the error of the read-out."""
        scale = _scale(self._flatten(predict(state)))
        carried = self._derivative(predict, state) @ self._propagated_errors()
        return 1.0 + float((carried.abs().sum(dim=-1) / scale).max())

    def _derivative(self, function: Callable[[Any], Any], state: Any) -> Matrix:
        """Return the Jacobian of a function of the state, one column per entry."""
        flat = self._flatten(state)
        columns = []
        for entry in range(flat.shape[-1]):
            direction = torch.zeros_like(flat)
            direction[:, entry] = 1.0
            with forward.dual_level():
                dual_state = self._unflatten(forward.make_dual(flat, direction), state)
                value, tangent = forward.unpack_dual(self._flatten(function(dual_state)))
            columns.append(torch.zeros_like(value) if tangent is None else tangent)
        return torch.stack(columns, dim=-1)

    def _flatten(self, state: Any) -> Float[Tensor, "instances entries"]:
        """Return the entries of a state (a tensor, or a tuple of them) for each instance."""
        tensors = [state] if isinstance(state, Tensor) else list(state)
        count = self.batch.numel()
        return torch.cat([tensor.reshape(count, -1) for tensor in tensors], dim=-1)

    def _unflatten(self, flat: Tensor, like: Any) -> Any:
        """Return a state with these entries, shaped like another one."""
        tensors = [like] if isinstance(like, Tensor) else list(like)
        sizes = [tensor.numel() // self.batch.numel() for tensor in tensors]
        parts = [
            part.reshape(tensor.shape)
            for part, tensor in zip(flat.split(sizes, dim=-1), tensors, strict=True)
        ]
        return parts[0] if isinstance(like, Tensor) else type(like)(*parts)


def _scale(entries: Tensor) -> Tensor:
    """Return max(1, |entry|), the scale of relative errors."""
    return entries.abs().clamp_min(1.0)
