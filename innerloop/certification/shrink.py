"""Find a small version of a construction that still breaks its law.

Integer parameters (d, n, steps, …) are lowered one at a time: to the smallest allowed value, by
half, or by one. A lower value is used if the construction accepts it and still breaks its law.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from innerloop.constructions.base import Construction

C = TypeVar("C", bound=Construction[Any, Any])
MAX_ATTEMPTS = 24
"""Largest number of smaller versions that are built and measured."""


def shrink(construction: C, breaks: Callable[[C], bool]) -> C:
    """Return the smallest version found for which `breaks` is true, or else the original one.

    A version that cannot be built, or for which `breaks` raises an error, is skipped.
    """
    smallest, attempts, changed = construction, 0, True
    while changed:
        changed = False
        for name in list_sizes(construction):
            for value in _smaller_values(smallest, name):
                if attempts == MAX_ATTEMPTS:
                    return smallest
                attempts += 1
                try:
                    smaller = replace(smallest, **{name: value})
                    broken = breaks(smaller)
                except Exception:  # a size that the construction refuses, or fails at altogether
                    continue
                if broken:
                    smallest, changed = smaller, True
                    break
    return smallest


def list_sizes(construction: Construction[Any, Any]) -> list[str]:
    """List the integer parameters."""
    values = construction.values()
    return [name for name, value in values.items() if type(value) is int]


def _smaller_values(construction: Construction[Any, Any], name: str) -> Iterator[int]:
    """Yield the values to try, from the smallest one, each at most once."""
    value = getattr(construction, name)
    least = construction.describe_parameters()[name].get("least")
    least = 1 if least is None else int(least)
    yield from dict.fromkeys(v for v in (least, value // 2, value - 1) if least <= v < value)
