"""Exact certificates: run the weights and the program in rational arithmetic, and compare the
results.

The parts of the law are compared at random points: the prologue from the prompt, every step and the
read-out from a random state. It is enough to compare single steps. An equality that holds for every
state holds for all steps one after another.

Linear attention  both sides are polynomials. If their difference is a polynomial of degree D other
                  than 0, it is 0 at a point of random integers among 2³¹ with probability D/2³¹ at
                  most (Schwartz and Zippel), and at all p points with (D/2³¹)^p. Equality is
                  therefore a proof for these sizes, except with this probability
Choices           of a prompt, such as the actions of a game, are drawn for each point. The
                  polynomials are those of one choice. If not every choice was tried, the proof
                  covers the choices that were tried, and no others
ReLU              a point represents its own pattern of active units and heads only. Patterns are
                  counted, and each unit and head should be observed active and silent. If random
                  points show one side only, signs.py proves that the other side is impossible, or
                  scouting.py searches for it. Equality is not a proof
Weights           the float64 weights, read as rational numbers, may differ from the exact ones by
                  the rounding error that is possible at a point, and by no more
Knots             both the program and the weights use the straight lines between the knots, so the
                  comparison is exact. The distance between the lines and their function is bounded
                  separately
"""

from __future__ import annotations

import math
import random
from dataclasses import asdict, dataclass
from typing import Any

from innerloop.errors import InputError
from innerloop.language.compiler import Compiled
from innerloop.language.construction import ProgramConstruction
from innerloop.language.degrees import find_degree
from innerloop.language.drawing import BITS, SCALES
from innerloop.language.points import LawPart, PointChecker, list_parts
from innerloop.language.rational import Activity, check_kind
from innerloop.language.weights import are_exact


@dataclass(frozen=True)
class Exactness:
    """The outcome of an exact comparison.

    degree       degree of the polynomials, for linear attention; None with ReLU
    chance, log10_probability  the probability that different polynomials would have passed; empty
                 and None with ReLU
    tried, choices     the number of choices that were compared in every part of the law, and the
                       number that exist; both are 1 for prompts without choices
    discrete     the name of these choices, such as "actions"
    drawn_with   any other part of the prompt that does not vary, such as "one query"
    patterns     number of distinct patterns of active ReLUs that were observed
    signed       number of ReLUs for which one side is proved impossible in range (signs.py)
    one_sided    number of other ReLUs that were never observed active, or never silent
    lines        functions on knots, which count as straight lines
    rounding     deviation that the float64 weights make, relative to max(1, |exact|)
    exact_weights  whether all exact weights of the plans are float64 numbers, without rounding
    difference   the first difference, at the smallest numbers that show one; empty if all are equal
    """

    name: str
    sizes: dict[str, int]
    points: int
    parts: list[str]
    relus: int
    degree: int | None
    chance: str
    log10_probability: float | None
    tried: int
    choices: int
    discrete: str
    drawn_with: str
    patterns: int
    signed: int
    one_sided: list[str]
    lines: int
    rounding: float
    exact_weights: bool
    difference: str
    seed: int

    @property
    def equal(self) -> bool:
        return not self.difference

    @property
    def status(self) -> str:
        """`proof` (linear attention, all choices), `points` (equal at those tried) or `differs`."""
        if self.difference:
            return "differs"
        return "proof" if self.degree is not None and self.tried == self.choices else "points"

    @property
    def brief(self) -> str:
        """The outcome in a few words."""
        if self.difference:
            return f"differs: {self.difference}"
        lines = ", with straight lines between knots" if self.lines else ""
        if self.status == "points":
            return f"equal at the {self.points} points tried of {self._sizes}{self._choices}{lines}"
        bound = math.ceil(self.log10_probability or 0)
        where = f"{self._sizes}{self._choices}"
        return f"equal: a proof for {where}, up to a probability of 1e{bound}"

    @property
    def _sizes(self) -> str:
        sizes = [f"{name} = {size}" for name, size in self.sizes.items()]
        return ", ".join([*sizes, *([self.drawn_with] if self.drawn_with else [])])

    @property
    def _choices(self) -> str:
        """Describe how many of the choices were tried, for prompts that have choices."""
        if self.choices == 1:
            return ""
        if self.tried == self.choices:
            return f" and all {self.choices:,} choices of {self.discrete}"
        total = f"{self.choices:,}" if self.choices < 1_000_000 else f"{self.choices:.1e}"
        return f" and {self.tried:,} of the {total} choices of {self.discrete}"

    @property
    def text(self) -> str:
        """The outcome in a sentence, with what it proves."""
        where = f"{self.points} random points of {self._sizes}{self._choices}"
        if self.difference:
            return f"{self.name}: not equal: {self.difference} (of {where})"
        rounding = (
            "the float64 weights are these rational numbers exactly"
            if self.exact_weights
            else f"rounding the weights to float64 moves the result by {self.rounding:.1e}"
        )
        if self.degree is not None:
            return (
                f"{self.name}: equal, exactly, at {where} ({', '.join(self.parts)}). Polynomials "
                f"of degree up to {self.degree}: {self._proof}; {rounding}"
            )
        return (
            f"{self.name}: exact at the points tried: equal at {where} ({', '.join(self.parts)}), "
            f"{self.patterns} distinct activation patterns; {self._seen}. With ReLU a point speaks "
            f"for its own pattern alone: no proof; {rounding}{self._knots}"
        )

    @property
    def _proof(self) -> str:
        """Describe what the equality of polynomials proves."""
        bound = f"a probability of {self.chance} < 1e{math.ceil(self.log10_probability or 0)}"
        if self.tried == self.choices:
            return f"a proof for these sizes, up to {bound}"
        return (
            f"a proof for these sizes and the {self.tried:,} choices of {self.discrete} that were "
            f"tried, up to {bound}; no proof for the others"
        )

    @property
    def _seen(self) -> str:
        """Describe which ReLUs were observed from both sides, and why others were not."""
        both = self.relus - self.signed - len(self.one_sided)
        if not self.signed and not self.one_sided:
            return f"each of the {self.relus} ReLU units and heads was seen active and silent"
        parts = [f"{both} of {self.relus} ReLU units and heads were seen active and silent"]
        if self.signed:
            parts.append(f"{self.signed} have one sign for every input in range, which is proved")
        if self.one_sided:
            named = ", ".join(self.one_sided[:4]) + (", …" if len(self.one_sided) > 4 else "")
            parts.append(f"{len(self.one_sided)} were seen on one side only: {named}")
        return ", ".join(parts)

    @property
    def _knots(self) -> str:
        if not self.lines:
            return ""
        many = "a function" if self.lines == 1 else f"{self.lines} functions"
        return f"; {many} on knots counted as straight lines, whose own error is bounded apart"

    def __str__(self) -> str:
        return self.text

    def as_dict(self) -> dict[str, Any]:
        """Return the outcome as plain data for JSON."""
        summary = {"status": self.status, "brief": self.brief, "text": self.text}
        return {**asdict(self), "equal": self.equal, **summary}


def check_kinds(compiled: Compiled) -> None:
    """Raise an error for softmax attention, which does not have rational values."""
    for plan in compiled.plans.values():
        for block in plan.blocks:
            check_kind(block.kind, bool(block.heads))


def check_exactly(
    construction: ProgramConstruction,
    points: int = 12,
    seed: int = 0,
    compiled: Compiled | None = None,
) -> Exactness:
    """Compare compiled blocks with the program; by default, those of the construction."""
    if not 1 <= points <= 10_000:
        raise InputError(f"points must be from 1 to 10,000, got {points}")
    own = compiled is None
    compiled = construction.compiled if compiled is None else compiled
    check_kinds(compiled)
    parts = list_parts(compiled)
    degrees = [find_degree(part.plan) for part in parts]
    degree = None if None in degrees else max(d for d in degrees if d is not None)
    generator, activity, rounding = random.Random(seed), Activity(), 0.0
    checker = PointChecker(construction, compiled, generator)
    difference = ""

    def judge(part: LawPart, compared: tuple[Any, Any, Any], weights: bool) -> None:
        nonlocal difference, rounding
        expected, computed, stream = compared
        if not difference and (expected != computed).any():
            difference = checker.find_smallest(part) or checker.describe(part, expected, computed)
        if own and weights:
            off, message = checker.judge_weights(part, stream, computed)
            rounding, difference = max(rounding, off), difference or message

    for index in range(points):
        scale = None if degree is not None else SCALES[index % len(SCALES)]
        for part in parts:
            known = activity.count_sides()
            compared = checker.compare(part, scale, activity)
            judge(part, compared, index == 0 or activity.count_sides() > known)
        activity.finish_point()
    signed: set[Any] = set()
    for part in parts if degree is None else ():
        signed |= checker.prove_signs(part)
        for compared in checker.scout(part, activity, signed, points):
            judge(part, compared, weights=True)
            activity.finish_point()
    tried = min((len(checker.tried[part.name]) for part in parts), default=1)
    chance, bound = ("", None) if degree is None else _bound_chance(checker, degree)
    return Exactness(
        name=construction.name,
        sizes=_list_sizes(construction),
        points=points,
        parts=[part.name for part in parts],
        relus=len(activity.active | activity.silent),
        degree=degree,
        chance=chance,
        log10_probability=bound,
        tried=tried,
        choices=checker.choices,
        discrete=construction.definition.prompt.discrete,
        drawn_with=construction.definition.prompt.drawn_with,
        patterns=len(activity.patterns),
        signed=len(signed & set(activity.one_sided)),
        one_sided=[_describe_relu(key) for key in activity.one_sided if key not in signed],
        lines=len({r.line for part in parts for r in part.plan.ranges if r.error}),
        rounding=rounding,
        exact_weights=all(are_exact(plan) for plan in compiled.plans.values()),
        difference=difference,
        seed=seed,
    )


def _bound_chance(checker: PointChecker, degree: int) -> tuple[str, float]:
    """Bound the probability, and its logarithm, that different polynomials would have passed.

    The polynomials of one choice in one part pass if they are equal at all points of that choice.
    """
    counts = [count for tried in checker.tried.values() for count in tried.values()]
    least, size = min(counts), max(degree, 1)
    bound = math.log10(len(counts)) + least * (math.log10(size) - BITS * math.log10(2))
    return f"{len(counts)}·({size}/2^{BITS})^{least}", bound


def _list_sizes(construction: ProgramConstruction) -> dict[str, int]:
    """List the prompt's sizes, and the number of knots if it is a parameter."""
    knots = construction.values().get("knots")
    return {**construction.sizes, **({"knots": knots} if isinstance(knots, int) else {})}


def _describe_relu(key: tuple[str, Any]) -> str:
    part, (block, what, index) = key
    return f"{what} {index + 1} of block {block + 1} of the {part}"
