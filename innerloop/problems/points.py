"""What problems about unlabelled points share: data sets, and vectors to start from."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.problems.base import check_numbers, check_tensors, tensor_of

P = TypeVar("P", bound="Points")


@dataclass(frozen=True, eq=False)
class Points(ABC):
    """A batch of data sets, each with vectors that an algorithm starts from.

    `labels` may say where each point came from; no algorithm looks at it.
    """

    x: Float[Tensor, "*batch n d"]
    start: Float[Tensor, "*batch starts d"]
    labels: Tensor | None = None

    @classmethod
    def of(cls: type[P], x: Any, start: Any) -> P:
        """A problem from tensors, NumPy arrays or lists."""
        return cls(tensor_of(x), tensor_of(start))

    def __post_init__(self) -> None:
        tensors = {"x": self.x, "start": self.start}
        check_tensors(tensors, f"{type(self).__name__}.of takes arrays and lists")
        shapes = f"x {tuple(self.x.shape)}, start {tuple(self.start.shape)}"
        fits = self.x.ndim >= 2 and self.start.ndim == self.x.ndim
        fits = fits and self.start.shape[:-2] == self.x.shape[:-2]
        if not fits or self.start.shape[-1] != self.d or 0 in (*self.x.shape, *self.start.shape):
            raise InputError(
                f"expected x (*batch, n, d) and start (*batch, k, d), none empty; got {shapes}"
            )
        if self.labels is not None and self.labels.shape != self.x.shape[:-1]:
            raise InputError(f"labels must be one for each of the {self.n} points, or None")
        check_numbers(tensors)

    @property
    def n(self) -> int:
        return self.x.shape[-2]

    @property
    def d(self) -> int:
        return self.x.shape[-1]

    def to(self: P, where: torch.dtype | torch.device | str) -> P:
        """The same instances in another precision or on another device."""
        labels = self.labels
        # Labels may be whole numbers, and stay so.
        if labels is not None and (
            labels.is_floating_point() or not isinstance(where, torch.dtype)
        ):
            labels = labels.to(where)
        return type(self)(self.x.to(where), self.start.to(where), labels)
