"""Base class of distributions of problems, and helpers to draw and check instances."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.arrays import check_tensor
from innerloop.errors import InputError
from innerloop.limits import format_number
from innerloop.parameters import Parameters

MAX_INSTANCES = 10**9


def check_batch(batch: tuple[int, ...]) -> None:
    """Check that batch dimensions are positive and not too large, else raise `InputError`."""
    if any(size < 1 for size in batch):
        raise InputError(f"batch dimensions must be at least 1, got {batch}")
    if (count := math.prod(batch)) > MAX_INSTANCES:
        raise InputError(
            f"expected at most {MAX_INSTANCES} instances in a batch, got {format_number(count)}"
        )


def normal_sampler(
    batch: tuple[int, ...], generator: torch.Generator | None
) -> Callable[..., Float[Tensor, ...]]:
    """Return a function of a shape that draws standard normals of this shape for every instance.

    They are drawn in float64.
    """
    check_batch(batch)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*batch, *shape, generator=generator, dtype=torch.float64)

    return normal


def sample_sphere(
    count: int, d: int, batch: tuple[int, ...], generator: torch.Generator | None
) -> Float[Tensor, "*batch count d"]:
    """Draw vectors uniformly from the unit sphere."""
    vectors = normal_sampler(batch, generator)(count, d)
    return vectors / vectors.norm(dim=-1, keepdim=True)


def resolve_proportions(
    proportions: Tensor | None, components: int
) -> Float[Tensor, " components"]:
    """Check and return the mixture proportions π; `None` gives equal ones."""
    if proportions is None:
        return torch.full((components,), 1 / components, dtype=torch.float64)
    positive = proportions.shape == (components,) and bool((proportions > 0).all())
    if not positive or abs(float(proportions.sum()) - 1) > 1e-9:
        raise InputError(
            f"proportions must be {components} positive numbers with sum 1, "
            f"got {proportions.tolist()}"
        )
    return proportions


def check_tensors(tensors: dict[str, Any], remedy: str) -> None:
    """Check that all values are dense tensors, else raise `InputError`.

    `remedy` completes the message: it names the function that accepts arrays and lists.
    """
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            raise InputError(f"{name} must be a tensor, got {type(value).__name__}: {remedy}")
        check_tensor(value, name)


def check_numbers(tensors: dict[str, Tensor]) -> None:
    """Check that tensors are finite floating-point numbers of one precision, else raise."""
    for name, tensor in tensors.items():
        first = next(iter(tensors))
        dtype = tensors[first].dtype
        if not tensor.is_floating_point():
            raise InputError(f"{name} must hold floating-point numbers, got {tensor.dtype}")
        if tensor.dtype != dtype:
            raise InputError(f"{first} is {dtype} but {name} is {tensor.dtype}: convert one")
        if not bool(torch.isfinite(tensor).all()):
            raise InputError(f"{name} must be finite, got NaN or infinity")


def check_whole_numbers(tensors: dict[str, Tensor]) -> None:
    """Check that tensors hold integers, else raise `InputError`."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
            raise InputError(f"{name} must be whole numbers, got {tensor.dtype}")


def check_indices(name: str, values: Int[Tensor, "*shape"], count: int) -> None:
    """Check that integers are in 0 … count − 1, else raise `InputError`."""
    low, high = int(values.min()), int(values.max())
    if low < 0 or high >= count:
        raise InputError(f"{name} must be in 0 … {count - 1}, got {low} … {high}")


@dataclass(frozen=True, kw_only=True)
class Distribution(Parameters, ABC):
    """A distribution over instances; `sample` draws a batch of them, which is a problem."""

    source: ClassVar[str]
    problem_type: ClassVar[type[Any]]
    """The class that `sample` returns: a `Problem` or an `Environment`."""
    cases: ClassVar[tuple[dict[str, Any], ...]]
    """Settings for tests of constructions, varied enough to expose a wrong one."""
    required: ClassVar[tuple[str, ...]] = ("source", "problem_type", "cases")

    @abstractmethod
    def sample(
        self,
        *batch: int,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> Any:
        """Draw a batch of instances with these leading dimensions."""
