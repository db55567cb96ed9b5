"""Shapes of the results of operations.

Shapes that do not fit raise an error in the language's terms.
"""

from __future__ import annotations

from typing import Any

from innerloop.language.errors import CannotCompile

Shape = tuple[int, ...]
RANKS = {"dot": (1, 1), "outer": (1, 1), "matvec": (2, 1)}
"""The numbers of dimensions of the two factors of each product."""


def broadcast(a: Shape, b: Shape) -> Shape:
    """Return the shape of a sum or of a product entry by entry; a scalar fits any shape."""
    if a and b and a != b:
        raise CannotCompile(f"values of shapes {a} and {b}: use dot, outer or matvec")
    return a or b


def find_product_shape(operation: str, a: Shape, b: Shape) -> Shape:
    """Return the shape of `dot`, `outer` or `matvec` of two values."""
    if (len(a), len(b)) != RANKS[operation] or (operation != "outer" and a[-1] != b[0]):
        raise CannotCompile(f"{operation} of values of shapes {a} and {b}")
    return {"dot": (), "outer": a + b, "matvec": a[:1]}[operation]


def find_entry(shape: Shape, index: Any) -> int:
    """Return the position of an entry along the first dimension, counted from 0."""
    if not isinstance(index, int):
        raise CannotCompile(
            "entries are taken by whole numbers: x[i], M[i][j]; several with stack([x[i], …])"
        )
    if not shape or not -shape[0] <= index < shape[0]:
        raise CannotCompile(f"entry {index} of a value of shape {shape}")
    return index % shape[0]


def find_transposed_shape(shape: Shape) -> Shape:
    if len(shape) != 2:
        raise CannotCompile(f"the transpose of a value of shape {shape}")
    return shape[::-1]


def find_stacked_shape(shapes: list[Shape]) -> Shape:
    """Return the shape of values that are stacked along a new first dimension."""
    if len(set(shapes)) > 1:
        raise CannotCompile(f"stacking values of different shapes: {', '.join(map(str, shapes))}")
    return (len(shapes), *shapes[0])
