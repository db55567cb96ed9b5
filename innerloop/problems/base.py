"""What every problem has: declared settings, and instances drawn from a generator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.parameters import Parameters


def check_batch(batch: tuple[int, ...]) -> None:
    """Refuse leading dimensions that leave nothing to draw."""
    if any(size < 1 for size in batch):
        raise InputError(f"batch dimensions must be at least 1, got {batch}")


def normals(
    batch: tuple[int, ...], generator: torch.Generator | None
) -> Callable[..., Float[Tensor, ...]]:
    """Draws standard normal tensors of a given shape for every instance of a batch, in float64."""
    check_batch(batch)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*batch, *shape, generator=generator, dtype=torch.float64)

    return normal


def on_the_sphere(
    count: int, d: int, batch: tuple[int, ...], generator: torch.Generator | None
) -> Float[Tensor, "*batch count d"]:
    """Vectors drawn uniformly from the unit sphere."""
    drawn = normals(batch, generator)(count, d)
    return drawn / drawn.norm(dim=-1, keepdim=True)


def mixture_proportions(given: Tensor | None, components: int) -> Float[Tensor, " components"]:
    """π as given, checked; equal shares where none are."""
    if given is None:
        return torch.full((components,), 1 / components, dtype=torch.float64)
    whole = given.shape == (components,) and bool((given > 0).all())
    if not whole or abs(float(given.sum()) - 1) > 1e-9:
        raise InputError(
            f"proportions must be {components} positive numbers with sum 1, got {given.tolist()}"
        )
    return given


def tensor_of(value: Any) -> Tensor:
    """A tensor from a tensor, an array or lists; what is not a floating tensor becomes float64."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value
    try:
        return torch.as_tensor(value, dtype=torch.float64)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"expected numbers in rows of one length: {error}") from None


def check_tensors(tensors: dict[str, Any], instead: str) -> None:
    """Refuse what is not a tensor; `instead` says what takes arrays and lists."""
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            raise InputError(f"{name} must be a tensor, got {type(value).__name__}: {instead}")


def check_numbers(tensors: dict[str, Tensor]) -> None:
    """Refuse numbers that are not floating-point, not finite, or not of one precision."""
    first, *_ = tensors
    dtype = tensors[first].dtype
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise InputError(f"{name} must hold floating-point numbers, got {tensor.dtype}")
        if tensor.dtype != dtype:
            raise InputError(f"{first} is {dtype} but {name} is {tensor.dtype}: convert one")
        if not bool(torch.isfinite(tensor).all()):
            raise InputError(f"{name} must be finite, got NaN or infinity")


@dataclass(frozen=True, kw_only=True)
class Distribution(Parameters, ABC):
    """A distribution over instances. `sample` draws a batch of them: a problem."""

    source: ClassVar[str]
    cases: ClassVar[tuple[dict[str, Any], ...]]
    """Settings general enough to break a construction; the law is tested on each of them."""

    @abstractmethod
    def sample(
        self,
        *batch: int,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> Any:
        """A batch of instances with these leading dimensions."""
