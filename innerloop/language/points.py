"""Points of an exact comparison: drawn in range, then run by the program and by its blocks."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from innerloop.errors import InputError
from innerloop.language.compiler import Compiled
from innerloop.language.construction import ProgramConstruction
from innerloop.language.emission import emit_blocks
from innerloop.language.interpreter import Interpreter
from innerloop.language.machine import run_program
from innerloop.language.plan import SCRATCH, Plan
from innerloop.language.ranges import RangeCheck
from innerloop.language.rational import (
    ROUNDING,
    Activity,
    bound_rounding,
    run_blocks,
    run_plan,
    to_fractions,
)
from innerloop.language.scouting import Scout, shows_more
from innerloop.language.signs import SignProver
from innerloop.language.values import Value
from innerloop.transformer.marks import find_gap

BITS = 31
"""Random integers of polynomial identities have this many bits."""
MAX_ATTEMPTS = 60
"""Points out of range are drawn again this often."""
MAX_STRETCHES = 6
"""States are enlarged by each factor this often at most."""
SCALES = (Fraction(1, 64), Fraction(1, 8), Fraction(1), Fraction(4))
"""Sizes of random numbers for ReLU: thresholds are met from both sides."""


VARIED = Fraction(0)
"""Asks for numbers whose size is drawn too."""
PATIENCE = 50
"""Points of varied sizes that show nothing new before no more are looked at."""


class LawPart(NamedTuple):
    """A part of the law: its name, plan, function, and the number of its step."""

    name: str
    plan: Plan
    function: Any
    k: int


def list_parts(construction: ProgramConstruction, compiled: Compiled) -> list[LawPart]:
    definition = construction.definition
    parts = []
    if compiled.prologue is not None:
        parts.append(LawPart("prologue", compiled.prologue, definition.first_part, 0))
    for k, plan in enumerate(compiled.steps):
        name = "step" if len(compiled.steps) == 1 else f"step {k + 1}"
        parts.append(LawPart(name, plan, definition.step, k))
    if compiled.epilogue is not None:
        parts.append(LawPart("read-out", compiled.epilogue, definition.answer_part, 0))
    return parts


def estimate_work(construction: ProgramConstruction) -> int:
    """Estimate the multiplications of rational numbers that one point takes."""
    zeros = partial(torch.zeros, dtype=torch.float64)
    prompt = construction.definition.prompt
    problem = prompt.draw_problem(construction.sizes, lambda *shape: zeros(shape))
    tokens = len(prompt.fill_registers(problem)[next(iter(prompt.offers))])
    work = 0
    for part in list_parts(construction, construction.compiled):
        for block in part.plan.blocks:
            work += sum(tokens**2 * (len(head.score) + len(head.value)) for head in block.heads)
            work += sum(tokens * (len(unit.reads) + len(unit.writes)) for unit in block.units)
            work += sum(tokens * len(h.net[0]) * len(h.sources) for h in block.hinges)
    return work


def make_rational_marks(marks: Tensor) -> Tensor:
    """Replace marks, which are points on circles, by rational ones of the same use.

    Corners of the 24-cell are unit vectors with products of at most ½, the first eight of at most
    0. Where that is more than marks on circles have (of 9 tokens, or above 24), those are left as
    they are, and refused by the interpreter.
    """
    corners = [
        *torch.eye(4, dtype=torch.float64),
        *(-torch.eye(4, dtype=torch.float64)),
        *torch.tensor(list(itertools.product((0.5, -0.5), repeat=4)), dtype=torch.float64),
    ]
    marked = marks.abs().sum(-1).nonzero().flatten().tolist()
    largest = 0.0 if len(marked) <= 8 else 0.5
    if len(marked) > len(corners) or largest > 1 - find_gap(max(len(marked), 1)):
        return marks
    found = torch.zeros_like(marks)
    for corner, token in zip(corners, marked, strict=False):
        found[token] = corner
    return found


class _PartActivity(Activity):
    """Activity of one part of the law, noted under its name."""

    def __init__(self, whole: Activity, part: str) -> None:
        super().__init__()
        self.whole, self.part = whole, part

    def note(self, key: Any, numbers: Any) -> None:
        self.whole.note((self.part, key), numbers)

    def note_columns(self, keys: list[Any], numbers: Any) -> None:
        self.whole.note_columns([(self.part, key) for key in keys], numbers)


class PointChecker:
    """Draws points, and runs program and blocks on them."""

    def __init__(
        self, construction: ProgramConstruction, compiled: Compiled, generator: random.Random
    ) -> None:
        self.construction, self.compiled, self.generator = construction, compiled, generator
        self.definition = construction.definition
        self.sizes = construction.sizes
        self.layout = compiled.layout
        self._emitted: dict[str, list[Any]] = {}

    def compare(
        self, part: LawPart, scale: Fraction | None, activity: Activity
    ) -> tuple[Any, Any, Any]:
        """Return the expected stream, that of the blocks, and the one that both began with."""
        return self._compare_at(part, *self._draw(part, scale), activity)

    def _compare_at(
        self, part: LawPart, registers: dict[str, Value], tokens: int, activity: Activity
    ) -> tuple[Any, Any, Any]:
        context = self.definition.prompt.count_context(tokens, self.sizes)
        stream = self._write(registers, tokens)
        interpreter = Interpreter(dict(registers), tokens, context)
        numbers = self.construction.numbers_at(part.k)
        arguments = self.definition.bind(part.function, part.k, self.sizes, numbers)
        answer = run_program(interpreter, part.function, arguments)
        if part.name == "read-out":
            interpreter.write("answer", answer)
        expected = self._write(interpreter.registers, tokens)
        noted = _PartActivity(activity, part.name)
        found = run_plan(part.plan, self.layout, stream, context, noted)
        if part.name == "read-out" and SCRATCH in self.layout.registers:  # nothing reads it again
            left = set(self.layout[SCRATCH].places) - set(self.compiled.answer_places)
            expected[:, list(left)] = found[:, list(left)]
        return expected, found, stream

    def prove_signs(self, part: LawPart) -> set[Any]:
        """Return the ReLUs of a part that can be seen from one side only, in range."""
        points = [self._draw_once(part, scale) for scale in (Fraction(5, 7), None, Fraction(3))]
        streams = [self._write(*point) for point in points]
        tokens = points[0][1]
        context = self.definition.prompt.count_context(tokens, self.sizes)
        shared = {
            place
            for name, register in self.definition.registers.items()
            if register.shared and name in self.layout.registers
            for place in self.layout[name].places
        }
        found = SignProver(part.plan, self.layout, context).run(streams, shared)
        return {(part.name, key) for key in found}

    def scout(
        self, part: LawPart, activity: Activity, signed: set[Any], most: int
    ) -> Iterator[tuple[Any, Any, Any]]:
        """Compare at up to `most` points more, which show a ReLU from a side not seen yet.

        Those that are `signed` have no other side.
        """
        scout, waited = Scout(part.plan, self.layout), 0
        while most and waited < PATIENCE:
            active, silent = (
                {key for name, key in side | signed if name == part.name}
                for side in (activity.active, activity.silent)
            )
            if active == silent:
                return
            waited += 1
            registers, tokens = self._draw_once(part, VARIED)
            context = self.definition.prompt.count_context(tokens, self.sizes)
            sides = scout.look(self._write(registers, tokens).astype(float), context)
            shows = shows_more(sides, active, silent)
            if shows and self._measure_usage(part, registers, tokens) <= 1:
                most, waited = most - 1, 0
                yield self._compare_at(part, registers, tokens, activity)

    def draw_in_range(self, part: LawPart, count: int) -> Iterator[tuple[Any, int]]:
        """Draw points of varied sizes; those in range, as streams of floats and their context."""
        for _ in range(count):
            registers, tokens = self._draw_once(part, VARIED)
            if self._measure_usage(part, registers, tokens) <= 1:
                context = self.definition.prompt.count_context(tokens, self.sizes)
                yield self._write(registers, tokens).astype(float), context

    def judge_weights(self, part: LawPart, stream: Any, exact: Any) -> tuple[float, str]:
        """Return how far the float64 weights are from the exact ones, and if that is too far.

        On one stream, relative to max(1, |exact|); what rounding can do there is bounded.
        """
        context = self.definition.prompt.count_context(len(stream), self.sizes)
        found = run_blocks(self._emit(part), stream, context)
        off, told = abs(found - exact), ""
        allowed = abs(exact) * ROUNDING
        if (off > allowed).any():
            allowed = bound_rounding(part.plan, self.layout, stream, context)
        places = np.argwhere(off > allowed)
        if len(places):
            where = self.describe(part, exact, found, places)
            told = f"the float64 weights are not the exact ones, rounded: {where}"
        one: Any = Fraction(1)
        return float((off / np.maximum(abs(exact), one)).max()), told

    def _emit(self, part: LawPart) -> list[Any]:
        if part.name not in self._emitted:
            self._emitted[part.name] = emit_blocks(part.plan, self.layout)
        return self._emitted[part.name]

    def find_smallest(self, part: LawPart) -> str:
        """Describe a difference, at numbers as small as they differ at; empty if none is found."""
        for limit in (1, 2, 4, 8, 64, 1024, 1 << 20, 1 << 30):
            for _ in range(6):
                expected, found, _ = self.compare(part, Fraction(limit, 8), Activity())
                places = np.argwhere(expected != found)
                if len(places):
                    return self.describe(part, expected, found, places)
        return ""

    def describe(self, part: LawPart, expected: Any, found: Any, places: Any = None) -> str:
        """Describe where two streams differ."""
        places = np.argwhere(expected != found) if places is None else places
        token, column = min(map(tuple, places), key=lambda p: abs(expected[p] - found[p]))
        name = next(n for n in self.layout.registers if column in self.layout[n].places)
        entry = self.layout[name].places.index(column)
        return (
            f"in the {part.name}, entry {entry} of {name} of token {token} should be "
            f"{expected[token, column]}, the weights give {found[token, column]}"
        )

    def _draw(self, part: LawPart, scale: Fraction | None) -> tuple[dict[str, Value], int]:
        """Draw data and, but for the prologue, a state, in the declared range."""
        for _ in range(MAX_ATTEMPTS):
            registers, tokens = self._draw_once(part, scale)
            if scale is None:
                return registers, tokens
            if self._measure_usage(part, registers, tokens) <= 1:
                return self._stretch(part, registers, tokens), tokens
            scale = self.generator.choice(SCALES)
        raise InputError(
            f"no random point is in the range of {self.construction.name}: set larger bounds"
        )

    def _measure_usage(self, part: LawPart, registers: Mapping[str, Value], tokens: int) -> float:
        """Return the share of the declared range that a point uses."""
        stream = torch.tensor(self._write(registers, tokens).astype(float))
        context = self.definition.prompt.count_context(tokens, self.sizes)
        used = RangeCheck(part.plan, self.layout).measure(stream, context)
        return used if part.name == "prologue" else max(used, self.construction.usage(stream))

    def _stretch(self, part: LawPart, registers: dict[str, Value], tokens: int) -> dict[str, Value]:
        """Enlarge every other state up to the end of its range: far knots are met too."""
        if part.name == "prologue" or self.generator.random() < 0.5 or not part.plan.ranges:
            return registers
        for factor in (Fraction(4), Fraction(2), Fraction(3, 2), Fraction(9, 8)):
            for _ in range(MAX_STRETCHES):
                larger = {
                    name: Value(value.array * factor, value.shape)
                    if self.definition.registers[name].state
                    else value
                    for name, value in registers.items()
                }
                if not self._measure_usage(part, larger, tokens) <= 1:
                    break
                registers = larger
        return registers

    def _draw_once(self, part: LawPart, scale: Fraction | None) -> tuple[dict[str, Value], int]:
        prompt = self.definition.prompt
        problem = prompt.draw_problem(self.sizes, lambda *shape: self._draw_floats(shape, scale))
        filled = prompt.fill_registers(problem)
        filled |= {name: make_rational_marks(filled[name]) for name in prompt.marks}
        tokens = len(filled[next(iter(prompt.offers))])
        registers: dict[str, Value] = {}
        for name, register in self.definition.registers.items():
            shape = register.find_shape(self.sizes)
            rows = 1 if register.shared else tokens
            if register.state and part.name != "prologue":
                array = to_fractions(self._draw_floats((rows, *shape), scale))
            elif name in filled:
                array = to_fractions(filled[name])[:rows]
            else:
                array = np.full((rows, *shape), Fraction(0), dtype=object)
            registers[name] = Value(array, shape)
        return registers, tokens

    def _draw_floats(self, shape: tuple[int, ...], scale: Fraction | None) -> Tensor:
        count = math.prod(shape)
        if scale is None:
            half = 1 << (BITS - 1)
            numbers = [float(self.generator.randrange(-half, half)) for _ in range(count)]
        elif scale == VARIED:
            numbers = self._vary(count)
        else:
            numbers = [float(scale * self.generator.randint(-8, 8)) for _ in range(count)]
        return torch.tensor(numbers, dtype=torch.float64).reshape(shape)

    def _vary(self, count: int) -> list[float]:
        """Draw numbers of one size among many, of both signs or one, of which some may be 0."""
        size, low = Fraction(2) ** self.generator.randint(-12, 10), self.generator.choice((-8, 0))
        kept = self.generator.choice((1.0, 1.0, 0.4))
        return [
            float(size * self.generator.randint(low, 8)) if self.generator.random() < kept else 0.0
            for _ in range(count)
        ]

    def _write(self, registers: Mapping[str, Value], tokens: int) -> Any:
        """Write registers to a stream."""
        stream = np.full((tokens, self.layout.width), Fraction(0), dtype=object)
        for name in self.layout.registers:
            places = list(self.layout[name].places)
            if name == "one":
                stream[:, places] = Fraction(1)
            elif name in registers:
                array = registers[name].array
                stream[:, places] = array.reshape(len(array), -1)
        if "answer" in registers:
            array = registers["answer"].array
            stream[:, self.compiled.answer_places] = array.reshape(len(array), -1)
        return stream
