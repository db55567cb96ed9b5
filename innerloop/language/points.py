"""Points of an exact comparison: draw points in range, then run the program and the blocks on
them.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import torch

from innerloop.errors import InputError
from innerloop.language.compiler import Compiled
from innerloop.language.construction import ProgramConstruction
from innerloop.language.drawing import SCALES, VARIED, Point, PointDrawer
from innerloop.language.emission import emit_blocks
from innerloop.language.interpreter import Interpreter
from innerloop.language.plan import SCRATCH, Plan
from innerloop.language.prompts.base import make_zero_draw
from innerloop.language.ranges import RangeCheck
from innerloop.language.rational import (
    ROUNDING,
    Activity,
    bound_rounding,
    run_blocks,
    run_plan,
)
from innerloop.language.record import Record, replay
from innerloop.language.scouting import Scout, shows_more
from innerloop.language.signs import SignProver
from innerloop.language.values import Value

MAX_ATTEMPTS = 60
"""The largest number of attempts to draw a point in range."""
MAX_STRETCHES = 6
"""The largest number of times that states are enlarged by each factor."""
REPEATS = 30
"""The number of further draws that show which entries depend on several choices."""
PATIENCE = 50
"""The search for new sides of ReLUs ends after this many points in a row that show none."""


class LawPart(NamedTuple):
    """A part of the law: its name, plan and record, and the number of its step."""

    name: str
    plan: Plan
    record: Record
    k: int


def list_parts(compiled: Compiled) -> list[LawPart]:
    """List the parts of a compiled program: prologue, steps and read-out."""
    parts = []
    for name, plan in compiled.plans.items():
        is_step = plan in compiled.steps
        k = compiled.steps.index(plan) if is_step else 0
        short = "step" if is_step and len(compiled.steps) == 1 else name
        parts.append(LawPart(short, plan, compiled.records[name], k))
    return parts


def estimate_work(construction: ProgramConstruction) -> int:
    """Estimate the number of rational multiplications that one point takes."""
    prompt = construction.definition.prompt
    problem = prompt.draw_problem(construction.sizes, make_zero_draw())
    tokens = len(prompt.fill_registers(problem)[next(iter(prompt.offers))])
    work = 0
    for part in list_parts(construction.compiled):
        for block in part.plan.blocks:
            work += sum(tokens**2 * (len(head.score) + len(head.value)) for head in block.heads)
            work += sum(tokens * (len(unit.reads) + len(unit.writes)) for unit in block.units)
            work += sum(tokens * len(h.net[0]) * len(h.sources) for h in block.hinges)
    return work


class _PartActivity(Activity):
    """The ReLU activity of one part of the law; keys are stored with the name of the part."""

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
        self.drawer = PointDrawer(construction, generator)
        self.tried: dict[str, Counter[tuple[int, ...]]] = defaultdict(Counter)
        """The number of points that were compared, by the part of the law and the choice that
        was drawn.
        """
        self.choices = 1
        """The number of possible choices."""
        self._emitted: dict[str, list[Any]] = {}

    def compare(
        self, part: LawPart, scale: Fraction | None, activity: Activity
    ) -> tuple[Any, Any, Any]:
        """Return the expected stream, that of the blocks, and the initial one of both."""
        return self._compare_at(part, self._draw_inside(part, scale), activity)

    def _compare_at(self, part: LawPart, point: Point, activity: Activity) -> tuple[Any, Any, Any]:
        self.tried[part.name][point.choice] += 1
        self.choices, tokens = point.choices, point.tokens
        context = self.definition.prompt.count_context(tokens, self.sizes)
        stream = self._write(point.registers, tokens)
        expected = self._write(self._run_program(part, point), tokens)
        noted = _PartActivity(activity, part.name)
        computed = run_plan(part.plan, self.layout, stream, context, noted)
        if part.name == "read-out" and SCRATCH in self.layout.registers:  # nothing reads it again
            left = set(self.layout[SCRATCH].places) - set(self.compiled.answer_places)
            expected[:, list(left)] = computed[:, list(left)]
        return expected, computed, stream

    def _run_program(self, part: LawPart, point: Point) -> dict[str, Value]:
        """Return the contents of all registers, and of the answer, after a part of the law."""
        context = self.definition.prompt.count_context(point.tokens, self.sizes)
        interpreter = Interpreter(dict(point.registers), point.tokens, context)
        answer = replay(part.record, interpreter, self.construction.numbers_at(part.k))
        if part.name == "read-out":
            interpreter.write("answer", answer)
        return interpreter.registers

    def prove_signs(self, part: LawPart) -> set[Any]:
        """Return the ReLUs of a part that are proved to have one side only, in range."""
        points = self._draw_different(part)
        streams = [self._write(point.registers, point.tokens) for point in points]
        context = self.definition.prompt.count_context(points[0].tokens, self.sizes)
        shared = {
            place
            for name, register in self.definition.registers.items()
            if register.shared and name in self.layout.registers
            for place in self.layout[name].places
        }
        signed = SignProver(part.plan, self.layout, context).run(streams, shared)
        return {(part.name, key) for key in signed}

    def _draw_different(self, part: LawPart) -> list[Point]:
        """Draw points that differ in every entry that depends on numbers or choices.

        If there are choices, some points set all choices to the same index, once per index, and
        others draw them at random.
        """
        scales = [Fraction(5, 7), None, Fraction(3)]
        points = [self._draw(part, scale) for scale in scales]
        if points[0].values > 1:
            points += [self._draw(part, Fraction(3)) for _ in range(REPEATS)]
            points += [self._draw(part, Fraction(3), index) for index in range(points[0].values)]
        return points

    def scout(
        self, part: LawPart, activity: Activity, signed: set[Any], most: int
    ) -> Iterator[tuple[Any, Any, Any]]:
        """Compare at up to `most` further points that show a ReLU from a new side.

        The ReLUs in `signed` have no other side.
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
            point = self._draw(part, VARIED)
            context = self.definition.prompt.count_context(point.tokens, self.sizes)
            stream = self._write(point.registers, point.tokens)
            shows = shows_more(scout.look(stream.astype(float), context), active, silent)
            if shows and self._measure_usage(part, point) <= 1:
                most, waited = most - 1, 0
                yield self._compare_at(part, point, activity)

    def draw_in_range(self, part: LawPart, count: int) -> Iterator[tuple[Any, int]]:
        """Draw points of varied sizes.

        Yield those in range as float streams with their context sizes.
        """
        for _ in range(count):
            point = self._draw(part, VARIED)
            if self._measure_usage(part, point) <= 1:
                context = self.definition.prompt.count_context(point.tokens, self.sizes)
                yield self._write(point.registers, point.tokens).astype(float), context

    def judge_weights(self, part: LawPart, stream: Any, exact: Any) -> tuple[float, str]:
        """Return the largest error of the float64 weights on one stream, and a message if it is
        too large.

        The error is relative to max(1, |exact|). It is too large if it exceeds a bound on the
        possible rounding error.
        """
        context = self.definition.prompt.count_context(len(stream), self.sizes)
        computed = run_blocks(self._emit(part), stream, context)
        off, message = abs(computed - exact), ""
        allowed = abs(exact) * ROUNDING
        if (off > allowed).any():
            allowed = bound_rounding(part.plan, self.layout, stream, context)
        places = np.argwhere(off > allowed)
        if len(places):
            where = self.describe(part, exact, computed, places)
            message = f"the float64 weights are not the exact ones, rounded: {where}"
        one: Any = Fraction(1)
        return float((off / np.maximum(abs(exact), one)).max()), message

    def _emit(self, part: LawPart) -> list[Any]:
        if part.name not in self._emitted:
            self._emitted[part.name] = emit_blocks(part.plan, self.layout)
        return self._emitted[part.name]

    def find_smallest(self, part: LawPart) -> str:
        """Describe a difference, at numbers as small as possible; return "" if none is found."""
        for limit in (1, 2, 4, 8, 64, 1024, 1 << 20, 1 << 30):
            for _ in range(6):
                expected, computed, _ = self.compare(part, Fraction(limit, 8), Activity())
                places = np.argwhere(expected != computed)
                if len(places):
                    return self.describe(part, expected, computed, places)
        return ""

    def describe(self, part: LawPart, expected: Any, computed: Any, places: Any = None) -> str:
        """Describe the entry at which two streams differ least."""
        places = np.argwhere(expected != computed) if places is None else places
        token, column = min(map(tuple, places), key=lambda p: abs(expected[p] - computed[p]))
        name = next(n for n in self.layout.registers if column in self.layout[n].places)
        entry = self.layout[name].places.index(column)
        return (
            f"in the {part.name}, entry {entry} of {name} of token {token} should be "
            f"{expected[token, column]}, the weights give {computed[token, column]}"
        )

    def _draw(self, part: LawPart, scale: Fraction | None, index: int | None = None) -> Point:
        return self.drawer.draw(scale, states=part.name != "prologue", index=index)

    def _draw_inside(self, part: LawPart, scale: Fraction | None) -> Point:
        """Draw data and, except for the prologue, a state, within the declared range."""
        point = self._draw(part, scale)
        for _ in range(MAX_ATTEMPTS):
            if scale is None:
                return point
            if self._measure_usage(part, point) <= 1:
                return self._stretch(part, point)
            point = self._draw(part, self.generator.choice(SCALES))
        self._run_program(part, point)  # which may say what is wrong with the point
        raise InputError(
            f"no random point is in the range of {self.construction.name}: set larger bounds"
        )

    def _measure_usage(self, part: LawPart, point: Point) -> float:
        """Return the largest share of a declared range that a point uses.

        Above 1 it is out of range.
        """
        stream = torch.tensor(self._write(point.registers, point.tokens).astype(float))
        context = self.definition.prompt.count_context(point.tokens, self.sizes)
        used = RangeCheck(part.plan, self.layout).measure(stream, context)
        return used if part.name == "prologue" else max(used, self.construction.usage(stream))

    def _stretch(self, part: LawPart, point: Point) -> Point:
        """Enlarge every second state up to the end of its range, so that outer knots are
        reached too.
        """
        if part.name == "prologue" or self.generator.random() < 0.5 or not part.plan.ranges:
            return point
        for factor in (Fraction(4), Fraction(2), Fraction(3, 2), Fraction(9, 8)):
            for _ in range(MAX_STRETCHES):
                registers = {
                    name: Value(value.array * factor, value.shape)
                    if self.definition.registers[name].state
                    else value
                    for name, value in point.registers.items()
                }
                larger = point._replace(registers=registers)
                if not self._measure_usage(part, larger) <= 1:
                    break
                point = larger
        return point

    def _write(self, registers: Mapping[str, Value], tokens: int) -> Any:
        """Return registers as a stream."""
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
