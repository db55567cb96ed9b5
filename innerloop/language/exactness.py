"""Exact certificates: weights and program, run in rational arithmetic, must be equal.

Each part of the law is compared at random points: the prologue from the prompt, every step and the
read-out from a random state. Steps need no more, since what holds for every state holds for all
steps one after another.

Linear attention  both sides are polynomials. A difference of degree D that is not 0 is 0 at a point
                  of random integers among 2³¹ with probability D/2³¹ at most (Schwartz and Zippel),
                  and at all p points with (D/2³¹)^p: equality is a proof for these sizes, up to it
ReLU              a point speaks for its own pattern of active units and heads. Patterns are
                  counted, and each unit and head should be seen active and silent. No proof
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from innerloop.errors import InputError
from innerloop.language.compiler import Compiled
from innerloop.language.construction import ProgramConstruction
from innerloop.language.degrees import find_degree
from innerloop.language.emission import emit_blocks
from innerloop.language.interpreter import Interpreter
from innerloop.language.machine import run_program
from innerloop.language.plan import SCRATCH, Plan
from innerloop.language.rational import Activity, check_kind, run_blocks, run_plan, to_fractions
from innerloop.language.values import Value

BITS = 31
"""Random integers of polynomial identities have this many bits."""
MAX_ATTEMPTS = 60
"""Points out of range are drawn again this often."""
SCALES = (Fraction(1, 64), Fraction(1, 8), Fraction(1), Fraction(4))
"""Sizes of random numbers for ReLU: thresholds are met from both sides."""


@dataclass(frozen=True)
class Exactness:
    """The outcome of an exact comparison.

    degree       of the polynomials, for linear attention; None with ReLU
    log10_probability  that polynomials which differ would have passed; None with ReLU
    patterns     distinct patterns of active ReLUs that were seen
    one_sided    ReLUs that were never seen active, or never silent
    rounding     deviation of the float64 weights from the exact ones, relative to max(1, |exact|)
    difference   where they differ, at the smallest numbers found; empty if they are equal
    """

    name: str
    sizes: dict[str, int]
    points: int
    parts: list[str]
    relus: int
    degree: int | None
    log10_probability: float | None
    patterns: int
    one_sided: list[str]
    rounding: float
    difference: str
    seed: int

    @property
    def equal(self) -> bool:
        return not self.difference

    @property
    def text(self) -> str:
        """Say what was found, and what it proves."""
        sizes = ", ".join(f"{name} = {size}" for name, size in self.sizes.items())
        where = f"{self.points} random points of {sizes}"
        if self.difference:
            return f"{self.name}: not equal: {self.difference} (of {where})"
        rounding = (
            "the float64 weights are these rational numbers exactly"
            if self.rounding == 0
            else f"rounding the weights to float64 moves the result by {self.rounding:.1e}"
        )
        if self.degree is not None:
            bound = f"({self.degree}/2^{BITS})^{self.points}"
            return (
                f"{self.name}: equal, exactly, at {where} ({', '.join(self.parts)}). Polynomials "
                f"of degree up to {self.degree}: a proof for these sizes, up to a probability of "
                f"{len(self.parts)}·{bound} < 1e{math.ceil(self.log10_probability or 0)}; "
                f"{rounding}"
            )
        seen = (
            f"each of the {self.relus} ReLU units and heads was seen active and silent"
            if not self.one_sided
            else f"{len(self.one_sided)} of {self.relus} ReLU units and heads were seen on one "
            f"side only: {', '.join(self.one_sided[:4])}{', …' if len(self.one_sided) > 4 else ''}"
        )
        return (
            f"{self.name}: exact at the points tried: equal at {where} ({', '.join(self.parts)}), "
            f"{self.patterns} distinct activation patterns; {seen}. With ReLU a point speaks for "
            f"its own pattern alone: no proof; {rounding}"
        )

    def __str__(self) -> str:
        return self.text

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return {**asdict(self), "equal": self.equal, "text": self.text}


class _Part(NamedTuple):
    """A part of the law: its name, plan, function, and the number of its step."""

    name: str
    plan: Plan
    function: Any
    k: int


def check_exactly(
    construction: ProgramConstruction,
    points: int = 12,
    seed: int = 0,
    compiled: Compiled | None = None,
) -> Exactness:
    """Compare compiled blocks (the construction's own, if none are given) with the program."""
    if not 1 <= points <= 10_000:
        raise InputError(f"points must be from 1 to 10,000, got {points}")
    own = compiled is None
    compiled = construction.compiled if compiled is None else compiled
    for plan in compiled.plans.values():
        for block in plan.blocks:
            check_kind(block.kind, bool(block.heads))
    parts = _list_parts(construction, compiled)
    degrees = [find_degree(part.plan) for part in parts]
    degree = None if None in degrees else max(d for d in degrees if d is not None)
    generator, activity, rounding = random.Random(seed), Activity(), 0.0
    checker = _Checker(construction, compiled, generator)
    difference = ""
    for index in range(points):
        scale = None if degree is not None else SCALES[index % len(SCALES)]
        for part in parts:
            expected, found, stream = checker.compare(part, scale, activity)
            if not difference and (expected != found).any():
                difference = checker.find_smallest(part)
            if index == 0 and own:
                rounding = max(rounding, checker.measure_rounding(part, stream, found))
        activity.finish_point()
    bound = None
    if degree is not None:
        bound = math.log10(len(parts)) + points * (
            math.log10(max(degree, 1)) - BITS * math.log10(2)
        )
    return Exactness(
        name=construction.name,
        sizes=construction.sizes,
        points=points,
        parts=[part.name for part in parts],
        relus=len(activity.active | activity.silent),
        degree=degree,
        log10_probability=bound,
        patterns=len(activity.patterns),
        one_sided=[_describe_relu(key) for key in activity.one_sided],
        rounding=rounding,
        difference=difference,
        seed=seed,
    )


def _describe_relu(key: tuple[str, Any]) -> str:
    part, (block, what, index) = key
    return f"{what} {index + 1} of block {block + 1} of the {part}"


def _list_parts(construction: ProgramConstruction, compiled: Compiled) -> list[_Part]:
    definition = construction.definition
    parts = []
    if compiled.prologue is not None:
        parts.append(_Part("prologue", compiled.prologue, definition.first_part, 0))
    for k, plan in enumerate(compiled.steps):
        name = "step" if len(compiled.steps) == 1 else f"step {k + 1}"
        parts.append(_Part(name, plan, definition.step, k))
    if compiled.epilogue is not None:
        parts.append(_Part("read-out", compiled.epilogue, definition.answer_part, 0))
    return parts


class _PartActivity(Activity):
    """Activity of one part of the law, noted under its name."""

    def __init__(self, whole: Activity, part: str) -> None:
        super().__init__()
        self.whole, self.part = whole, part

    def note(self, key: Any, numbers: Any) -> None:
        self.whole.note((self.part, key), numbers)


class _Checker:
    """Draws points, and runs program and blocks on them."""

    def __init__(
        self, construction: ProgramConstruction, compiled: Compiled, generator: random.Random
    ) -> None:
        self.construction, self.compiled, self.generator = construction, compiled, generator
        self.definition = construction.definition
        self.sizes = construction.sizes
        self.layout = compiled.layout

    def compare(
        self, part: _Part, scale: Fraction | None, activity: Activity
    ) -> tuple[Any, Any, Any]:
        """Return the expected stream, that of the blocks, and the one that both began with."""
        registers, tokens = self._draw(part, scale)
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

    def measure_rounding(self, part: _Part, stream: Any, exact: Any) -> float:
        """Return how far the float64 weights are from the exact ones, on one stream."""
        context = self.definition.prompt.count_context(len(stream), self.sizes)
        found = run_blocks(emit_blocks(part.plan, self.layout), stream, context)
        error = [
            abs(a - b) / max(Fraction(1), abs(b))
            for a, b in zip(found.ravel(), exact.ravel(), strict=True)
        ]
        return float(max(error))

    def find_smallest(self, part: _Part) -> str:
        """Describe a difference, at numbers as small as they differ at."""
        for limit in (1, 2, 4, 8, 64, 1024, 1 << 20, 1 << 30):
            for _ in range(6):
                expected, found, _ = self.compare(part, Fraction(limit, 8), Activity())
                places = np.argwhere(expected != found)
                if len(places):
                    return self._describe(part, expected, found, places)
        return f"the {part.name} differs"

    def _describe(self, part: _Part, expected: Any, found: Any, places: Any) -> str:
        token, column = min(map(tuple, places), key=lambda p: abs(expected[p] - found[p]))
        name = next(n for n in self.layout.registers if column in self.layout[n].places)
        entry = self.layout[name].places.index(column)
        return (
            f"in the {part.name}, entry {entry} of {name} of token {token} should be "
            f"{expected[token, column]}, the weights give {found[token, column]}"
        )

    def _draw(self, part: _Part, scale: Fraction | None) -> tuple[dict[str, Value], int]:
        """Draw data and, but for the prologue, a state, in the declared range."""
        for _ in range(MAX_ATTEMPTS):
            registers, tokens = self._draw_once(part, scale)
            if scale is None or part.name == "prologue":
                return registers, tokens
            floats = torch.tensor(self._write(registers, tokens).astype(float))
            if self.construction.usage(floats) <= 1:
                return registers, tokens
            scale = self.generator.choice(SCALES)
        raise InputError(
            f"no random point is in the range of {self.construction.name}: set larger bounds"
        )

    def _draw_once(self, part: _Part, scale: Fraction | None) -> tuple[dict[str, Value], int]:
        prompt = self.definition.prompt
        problem = prompt.draw_problem(self.sizes, lambda *shape: self._draw_floats(shape, scale))
        filled = prompt.fill_registers(problem)
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
        else:
            numbers = [float(scale * self.generator.randint(-8, 8)) for _ in range(count)]
        return torch.tensor(numbers, dtype=torch.float64).reshape(shape)

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
