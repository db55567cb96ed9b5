"""How far errors of single steps grow in the steps after them, by the algorithm's own derivative.

A construction with a bound η makes an error of at most η in each step. Running free, the error of
a later state is to first order Σ_i (J_k ⋯ J_{i+1}) ε_i with J the derivatives of the reference's
steps and |ε_i| ≤ η, so that entry r is off by at most η Σ_i Σ_c |(J_k ⋯ J_{i+1})_{rc}|. That sum is
computed here, exactly, from the reference alone; all errors are relative to max(1, |entry|).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.autograd.forward_ad as forward
from jaxtyping import Float
from torch import Tensor

Matrix = Float[Tensor, "instances rows columns"]


class Growth:
    """The sums Σ_i Σ_c |…| for the state and for the prediction, as the reference advances."""

    def __init__(self, state: Any, batch: torch.Size) -> None:
        self.batch = batch
        self.steps = 0
        self.grown = 1.0
        self._start = _scale(self._flat(state))
        self._errors: Matrix | None = None

    @property
    def entries(self) -> int:
        """The numbers in a state."""
        return self._start.shape[-1]

    def _grown(self) -> Matrix:
        """What each error so far has become, a column for each, but for its size."""
        return torch.diag_embed(self._start) if self._errors is None else self._errors

    def advance(self, step: Callable[[Any], Any], state: Any, after: Any) -> None:
        """Go on by a step, `after` being the state it leads to; `grown` is what errors become."""
        scale = _scale(self._flat(after))
        carried = self._derivative(step, state) @ self._grown()
        self._errors = torch.cat([carried, torch.diag_embed(scale)], dim=-1)
        self.grown = float((self._errors.abs().sum(dim=-1) / scale).max())
        self.steps += 1

    def read(self, predict: Callable[[Any], Tensor], state: Any) -> float:
        """What they become in the prediction, whose reading may add an error of its own."""
        scale = _scale(self._flat(predict(state)))
        carried = self._derivative(predict, state) @ self._grown()
        return 1.0 + float((carried.abs().sum(dim=-1) / scale).max())

    def _derivative(self, function: Callable[[Any], Any], state: Any) -> Matrix:
        """The derivative of a function of the state, a column for each entry."""
        flat = self._flat(state)
        columns = []
        for entry in range(flat.shape[-1]):
            direction = torch.zeros_like(flat)
            direction[:, entry] = 1.0
            with forward.dual_level():
                moved = self._unflat(forward.make_dual(flat, direction), state)
                value, tangent = forward.unpack_dual(self._flat(function(moved)))
            columns.append(torch.zeros_like(value) if tangent is None else tangent)
        return torch.stack(columns, dim=-1)

    def _flat(self, state: Any) -> Float[Tensor, "instances entries"]:
        """The entries of a state (a tensor, or a tuple of them), instance by instance."""
        tensors = [state] if isinstance(state, Tensor) else list(state)
        count = self.batch.numel()
        return torch.cat([tensor.reshape(count, -1) for tensor in tensors], dim=-1)

    def _unflat(self, flat: Tensor, like: Any) -> Any:
        """A state shaped like another one, from its entries."""
        tensors = [like] if isinstance(like, Tensor) else list(like)
        sizes = [tensor.numel() // self.batch.numel() for tensor in tensors]
        parts = [
            part.reshape(tensor.shape)
            for part, tensor in zip(flat.split(sizes, dim=-1), tensors, strict=True)
        ]
        return parts[0] if isinstance(like, Tensor) else type(like)(*parts)


def _scale(entries: Tensor) -> Tensor:
    return entries.abs().clamp_min(1.0)
