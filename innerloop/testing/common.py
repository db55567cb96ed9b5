"""Helpers for the tests of all kinds: comparisons, and detection of in-place changes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from innerloop.problems.problem import Problem
from innerloop.registry import get_summary


def require(holds: object, message: str) -> None:
    """Raise `AssertionError` with a message that states what to do, unless the condition holds."""
    if not holds:
        raise AssertionError(message)


def check_described(member: Any) -> None:
    """Check that a member has a docstring and a source."""
    kind = member if inspect.isclass(member) else type(member)
    name = kind.__name__
    require(
        get_summary(kind), f"{name} must have a docstring; `innerloop list` prints its first line"
    )
    source = getattr(kind, "source", "")
    require(isinstance(source, str) and source, f"{name} must declare `source`, a text")


def make_generator(seed: int = 0) -> torch.Generator:
    """Make a generator with a fixed seed."""
    return torch.Generator().manual_seed(seed)


def list_tensors(value: Any) -> list[Tensor]:
    """List the tensors in a tensor, a problem, or a tuple of them."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [tensor for part in value for tensor in list_tensors(part)]
    if isinstance(value, Problem) or hasattr(value, "__dataclass_fields__"):
        return [t for part in vars(value).values() for t in list_tensors(part)]
    return []


@contextmanager
def forbid_changes(value: Any, what: str) -> Iterator[None]:
    """Check that no tensor of a value is changed in place."""
    tensors = list_tensors(value)
    before = [tensor.clone() for tensor in tensors]
    yield
    same = all(torch.equal(old, new) for old, new in zip(before, tensors, strict=True))
    require(same, f"{what} was changed in place: make new tensors instead")


def require_close(value: Any, expected: Any, message: str, tolerance: float = 1e-10) -> None:
    """Check that tensors, or tuples of them, agree up to a tolerance relative to max(1,
    |expected|)."""
    pairs = list(zip(list_tensors(value), list_tensors(expected), strict=True))
    for one, other in pairs:
        require(one.shape == other.shape, f"{message}: shapes {one.shape} and {other.shape}")
        error = (one.double() - other.double()).abs() / other.double().abs().clamp_min(1.0)
        worst = float(error.nan_to_num(nan=torch.inf).max()) if error.numel() else 0.0
        require(worst <= tolerance, f"{message}: off by {worst:.2g}, allowed {tolerance:.0e}")
