"""Base class of problems about unlabelled points: data sets and starting vectors."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from jaxtyping import Float, Shaped
from torch import Tensor

from innerloop.arrays import as_tensor
from innerloop.problems.problem import Problem

P = TypeVar("P", bound="PointsProblem")


@dataclass(frozen=True, eq=False)
class PointsProblem(Problem, ABC):
    """A batch of data sets, each with the starting vectors of an algorithm.

    `labels` may contain the true cluster of each point; algorithms do not use it.
    """

    contents: ClassVar[str] = "point, feature and starting vector"

    x: Float[Tensor, "*batch n d"]
    start: Float[Tensor, "*batch starts d"]
    labels: Shaped[Tensor, "*batch n"] | None = None

    @classmethod
    def from_arrays(cls: type[P], x: Any, start: Any) -> P:
        """Return a problem made from tensors, NumPy arrays or lists."""
        return cls(as_tensor(x, "x"), as_tensor(start, "start"))

    @property
    def n(self) -> int:
        return self.x.shape[-2]

    @property
    def d(self) -> int:
        return self.x.shape[-1]
