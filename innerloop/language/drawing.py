"""Random points of an exact comparison: each point is a prompt and a state of rational numbers.

For each point, all parts of a prompt that may vary are drawn again: numbers, and choices such as
the actions of a game.
"""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from innerloop.language.construction import ProgramConstruction
from innerloop.language.prompts.base import Draw
from innerloop.language.rational import to_fractions
from innerloop.language.values import Value
from innerloop.transformer.marks import find_gap

BITS = 31
"""The number of bits of the random integers that test polynomial identities."""
SCALES = (Fraction(1, 64), Fraction(1, 8), Fraction(1), Fraction(4))
"""Sizes of random numbers for programs with ReLU, so that inputs fall on both sides of
thresholds.
"""


VARIED = Fraction(0)
"""A value of `scale` that requests numbers whose size is random too."""


class Point(NamedTuple):
    """The input of a program: its registers, the number of tokens, and the choices made.

    choice   the integers that were drawn
    choices  the number of possible choices for these sizes
    values   the largest number of values that a single choice, or a rational mark, can have
    """

    registers: dict[str, Value]
    tokens: int
    choice: tuple[int, ...]
    choices: int
    values: int


class PointDrawer:
    """Draws points for a construction of fixed sizes."""

    def __init__(self, construction: ProgramConstruction, generator: random.Random) -> None:
        self.definition, self.sizes = construction.definition, construction.sizes
        self.generator = generator

    def draw(self, scale: Fraction | None, states: bool, index: int | None = None) -> Point:
        """Draw a point.

        Args:
            scale: The size of numbers: None for integers of `BITS` bits, `VARIED` if it is random.
            states: Whether states are drawn too, instead of those that the prompt starts with.
            index: The value of each choice, modulo its number of values; None to draw it.
        """
        prompt = self.definition.prompt
        draw = Draw(
            lambda count: self._draw_numbers(count, scale),
            lambda count: self._draw_shares(count, scale),
            self.generator.randrange if index is None else lambda count: index % count,
        )
        filled = prompt.fill_registers(prompt.draw_problem(self.sizes, draw))
        for name in prompt.marks:
            filled[name] = make_rational_marks(filled[name], self.generator, index)
        tokens = len(filled[next(iter(prompt.offers))])
        registers: dict[str, Value] = {}
        for name, register in self.definition.registers.items():
            shape = register.find_shape(self.sizes)
            rows = 1 if register.shared else tokens
            if register.state and states:
                numbers = self._draw_numbers(math.prod((rows, *shape)), scale)
                array = to_fractions(np.array(numbers).reshape(rows, *shape))
            elif name in filled:
                array = to_fractions(filled[name])[:rows]
            else:
                array = np.full((rows, *shape), Fraction(0), dtype=object)
            registers[name] = Value(array, shape)
        values = max(draw.most, len(CORNERS) if prompt.marks else 1)
        return Point(registers, tokens, draw.choice, draw.choices, values)

    def _draw_numbers(self, count: int, scale: Fraction | None) -> list[float]:
        if scale is None:
            half = 1 << (BITS - 1)
            return [float(self.generator.randrange(-half, half)) for _ in range(count)]
        if scale == VARIED:
            return self._vary(count)
        return [float(scale * self.generator.randint(-8, 8)) for _ in range(count)]

    def _draw_shares(self, count: int, scale: Fraction | None) -> list[float]:
        """Draw numbers from 0 to 1; there are as many different values as of unbounded numbers."""
        parts = 1 << BITS if scale is None else 8
        return [self.generator.randrange(parts + 1) / parts for _ in range(count)]

    def _vary(self, count: int) -> list[float]:
        """Draw numbers of one random size, of both signs or of one, some of which may be 0."""
        size, low = Fraction(2) ** self.generator.randint(-12, 10), self.generator.choice((-8, 0))
        share = self.generator.choice((1.0, 1.0, 0.4))
        return [
            float(size * self.generator.randint(low, 8)) if self.generator.random() < share else 0.0
            for _ in range(count)
        ]


CORNERS = [
    *torch.eye(4, dtype=torch.float64),
    *(-torch.eye(4, dtype=torch.float64)),
    *torch.tensor(list(itertools.product((0.5, -0.5), repeat=4)), dtype=torch.float64),
]
"""Corners of the 24-cell: unit vectors whose inner products are at most ½, and at most 0 for
the first eight.
"""


def make_rational_marks(
    marks: Tensor, generator: random.Random, index: int | None = None
) -> Tensor:
    """Replace marks, which are points on circles, by rational vectors that serve the same purpose.

    The assignment of tokens to corners of the 24-cell is random, or follows from an index. If the
    products of corners would be larger than those of points on circles (for 9 tokens, or more than
    24), the marks stay unchanged, and the interpreter raises an error.
    """
    marked = marks.abs().sum(-1).nonzero().flatten().tolist()
    largest = 0.0 if len(marked) <= 8 else 0.5
    if len(marked) > len(CORNERS) or largest > 1 - find_gap(max(len(marked), 1)):
        return marks
    rational = torch.zeros_like(marks)
    usable = CORNERS[: 8 if len(marked) <= 8 else None]
    if index is None:
        usable = generator.sample(usable, len(usable))
    else:
        usable = [*usable[index % len(usable) :], *usable]
    for corner, token in zip(usable, marked, strict=False):
        rational[token] = corner
    return rational
