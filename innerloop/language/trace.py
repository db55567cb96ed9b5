"""Pass 1, trace: replay a record on symbols, and collect what heads and hidden units must compute.

The result is a list of nodes (sums over tokens, and hidden units) and, for every register, its form
after the step in registers and nodes. Errors of degree and of sharing are raised here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from innerloop.language.conditions import Condition, check_number
from innerloop.language.errors import REPLAYED, CannotCompile, Line, Place, find_line
from innerloop.language.forms import (
    ONE,
    Form,
    Pairs,
    Score,
    Symbol,
    Term,
    add_rows,
    add_to,
    as_pair,
    as_summand,
    scale_row,
)
from innerloop.language.knots import Knots
from innerloop.language.machine import Body, Machine, run_on
from innerloop.language.nodes import Node, Part, Range, Setting
from innerloop.language.products import multiply
from innerloop.language.record import Record, replay
from innerloop.language.types import Register, to_fraction

MAX_NODES = 1_000
"""The largest number of sums and layers of hidden units in one step."""
NORMALISATIONS = {"context": "1/n", "all": "1/N", "causal": "1/i"}
"""The normalisation that makes a sum under a mask an average."""


class Tracer(Machine):
    """Replays the record of one function of a program on symbols."""

    def __init__(
        self, registers: Mapping[str, Register], shapes: Mapping[str, tuple[int, ...]]
    ) -> None:
        self.registers = registers
        self.nodes: list[Node] = []
        self.ranges: list[Range] = []
        self.assigned: dict[str, Line] = {}
        self.shared = {name: register.shared for name, register in registers.items()}
        self.shared["one"] = True
        self.forms = {name: make_form(name, shape) for name, shape in shapes.items()}

    def read(self, name: str, side: str) -> Form:
        form = self.forms[name]
        return Form(form.shape, form.rows, side)

    def write(self, name: str, value: Any) -> None:
        if not isinstance(value, Symbol):
            number = to_fraction(value)
            value = Form((), [{ONE: number} if number else {}], "me")
        assert isinstance(value, Form), "what depends on another token is not recorded"
        if (register := self.registers.get(name)) is not None:
            value = self._fit(name, register, value)
        self._label(name, value)
        self.forms[name] = value
        self.assigned[name] = find_line()

    def _fit(self, name: str, register: Register, value: Form) -> Form:
        """Check that a shared register stays shared; repeat a single number for every entry."""
        shape = self.forms[name].shape
        if value.shape == () and shape != ():
            value = Form(shape, value.rows * math.prod(shape), "me")
        if register.shared and (others := self.list_unshared(value)):
            raise CannotCompile(
                f"{name} is declared shared, but its new value differs from token to token: it "
                f"depends on {', '.join(others)}"
            )
        return value

    def _label(self, name: str, value: Form) -> None:
        """Name a node after the register that it is assigned to, alone or as a term of a sum."""
        known = {node.name: node for node in self.nodes}
        summed = {entry[0] for row in value.rows for entry in row}
        units = summed <= set(known) and all(not known[each].attends for each in summed)
        for node in self.nodes:
            alone = value.rows == make_form(node.name, node.shape).rows
            if not node.label and (alone or (units and node.name in summed)):
                node.label = name

    def list_unshared(self, form: Form) -> list[str]:
        """List the registers and nodes that a form reads and that differ from token to token."""
        names = {entry[0] for row in form.rows for entry in row}
        labels = {node.name: node.label or f"a sum ({node.line})" for node in self.nodes}
        return sorted(labels.get(name, name) for name in names if not self.shared[name])

    def _add(self, shape: tuple[int, ...], kind: str, shared: bool, **parts: Any) -> Form:
        name, place = f"#{len(self.nodes) + 1}", REPLAYED.get() or Place(Line("", 0, ""))
        if len(self.nodes) >= MAX_NODES:
            raise CannotCompile(
                f"more than {MAX_NODES:,} sums and layers of hidden units in one step: let it be "
                "one step of the loop, and set steps"
            )
        node = Node(name, shape, kind, place.line, shared=shared, calls=place.calls, **parts)
        self.nodes.append(node)
        self.shared[node.name] = shared
        return make_form(node.name, shape)

    def add_units(self, form: Form, net: tuple[list[Fraction], ...]) -> Form:
        """Add hidden units on every entry of a form, and return their results."""
        shared = not self.list_unshared(form)
        rows = [dict(row) for row in form.rows]
        return self._add(form.shape, "mlp", shared, parts=[Part(rows, net)])

    def multiply_inside(self, x: Form, y: Form, operation: str) -> Form:
        """Multiply two values of one token, which takes attention.

        One must be the same in every token.
        """
        first, second = self.list_unshared(x), self.list_unshared(y)
        if first and second:
            raise CannotCompile(
                f"a product of two values of one token ({', '.join(first)} and "
                f"{', '.join(second)}), neither of them shared. Declare one shared=True if it is, "
                "or use "
                "own_total(lambda j: …, mark, reach) with a register of marks; or "
                "((a+b)² − (a−b)²)/4 with piecewise squares, off by at most h²/16 for knots h apart"
            )
        # The shared factor is read at the keys: its average over any of them is itself.
        sides = ("j", "me") if second else ("me", "j")
        product = multiply(
            Form(x.shape, x.rows, sides[0]), Form(y.shape, y.rows, sides[1]), operation
        )
        summand = as_summand(as_pair(product))
        return self._add(summand.shape, "linear", not (first or second), terms=summand.terms)

    def attend(
        self,
        summand: Body,
        over: str,
        average: bool,
        where: Body | None,
        reach: Any,
        mark: str | None,
        gap: Any,
    ) -> Form:
        pair = as_pair(summand())
        flag = None if where is None else where()
        gated = where is not None or mark is not None
        if mark is not None and not self.forms[mark].shape:
            over = "causal"
        if not gated and average and isinstance(pair, Score) and not pair.depends_on("j"):
            return pair.as_form("me")
        terms = as_summand(pair).terms
        gate = self._make_gate(flag, mark, reach, gap) if gated else {}
        kind = "relu" if gated or any(term.active for term in terms) else "linear"
        setting = Setting(over, NORMALISATIONS[over] if average else "1")
        queries = {q[0] for term in terms for q, _ in term.score} | {q[0] for q, _ in gate}
        shared = over != "causal" and all(self.shared[name] for name in queries)
        bound = to_fraction(reach) if gated else None
        return self._add(
            pair.shape,
            kind,
            shared,
            setting=setting,
            terms=terms,
            gate=gate,
            reach=bound,
            flagged=flag is not None,
        )

    def _make_gate(self, flag: Any, mark: str | None, reach: Any, gap: Any) -> Pairs:
        """Return reach·(flag − 1) for pairs of tokens, or reach/gap·(⟨mark, mark of j⟩ − 1).

        If the mark is a number that counts tokens, return reach/gap·(mark of j − mark), which is
        below 0 for earlier tokens; a causal mask removes later ones.
        """
        gate: Pairs = {}
        if mark is not None:
            strength, form = to_fraction(reach) / to_fraction(gap), self.forms[mark]
            if not form.shape:
                for entry, c in form.rows[0].items():
                    add_to(gate, (ONE, entry), strength * c)
                    add_to(gate, (entry, ONE), -strength * c)
                return gate
            for row in form.rows:
                for (a, c), (b, e) in itertools.product(row.items(), repeat=2):
                    add_to(gate, (a, b), strength * c * e)
        else:
            score = as_pair(flag)
            if not isinstance(score, Score) or score.shape != ():
                raise CannotCompile("`where` must be one number, 0 or 1, bilinear in me and j")
            strength = to_fraction(reach)
            gate = scale_row(score.rows[0], strength)
        return add_rows(gate, {(ONE, ONE): -strength})

    def attend_softmax(
        self, score: Body, value: Body, over: str, where: Body | None, reach: Any
    ) -> Form:
        scores, values = as_pair(score()), as_pair(value())
        flag = None if where is None else where()
        if not isinstance(scores, Score) or scores.shape != ():
            raise CannotCompile("a softmax score must be one number, bilinear in me and j")
        if not isinstance(values, Score) or values.depends_on("me"):
            raise CannotCompile("a softmax value must be linear in j alone")
        gate = {} if flag is None else self._make_gate(flag, None, reach, 1)
        written = {(t, k): c for t, row in enumerate(values.rows) for (_, k), c in row.items()}
        queries = {q[0] for q, _ in [*scores.rows[0], *gate]}
        shared = over != "causal" and all(self.shared[name] for name in queries)
        terms = [Term(scores.rows[0], True, written)]
        return self._add(
            values.shape,
            "softmax",
            shared,
            setting=Setting(over, "1"),
            terms=terms,
            gate=gate,
            reach=None if flag is None else to_fraction(reach),
            flagged=flag is not None,
        )

    def interpolate(self, value: Any, knots: Knots) -> Any:
        """Add the hidden units of straight lines, and record their distance from the function."""
        ends = float(knots.places[0]), float(knots.places[-1])
        self._note_range(value, *ends, knots=knots)
        form = value.sum_hinges(*knots.net)
        (part,) = self.nodes[-1].parts
        self.nodes[-1].parts = [part._replace(knots=knots)]
        return form

    def check_range(self, value: Any, low: Any, high: Any) -> None:
        self._note_range(value, low, high)

    def check_values(self, value: Any, condition: Condition, name: str) -> None:
        if isinstance(value, Form) and value.side == "me":  # the interpreter checks others
            self._note_range(value, 0, 1, condition=condition)

    def check_number(self, number: Any, least: int, above: bool, name: str) -> None:
        check_number(number, least, above, name)

    def _note_range(self, value: Any, low: Any, high: Any, **kind: Any) -> None:
        """Record a range, which is checked when prompts are run."""
        if not isinstance(value, Form) or value.side != "me":
            raise CannotCompile("a gate or knots inside of a sum: use `where`, or a register first")
        ends = to_fraction(low), to_fraction(high)
        self.ranges.append(Range(value.rows, *ends, find_line(), **kind))


def make_form(name: str, shape: tuple[int, ...]) -> Form:
    """Return the form that reads a register or a node of this token."""
    return Form(shape, [{(name, i): Fraction(1)} for i in range(math.prod(shape))], "me")


class Trace(NamedTuple):
    """The computations of a function of a program: nodes, ranges, and the forms of its results."""

    nodes: list[Node]
    ranges: list[Range]
    results: dict[str, Form]
    assigned: dict[str, Line] = {}
    """The line at which each register was last assigned."""


def trace_record(
    record: Record,
    numbers: Mapping[str, Any],
    registers: Mapping[str, Register],
    shapes: Mapping[str, tuple[int, ...]],
) -> tuple[Tracer, Any]:
    """Replay a record on symbols; return the tracer and the function's result."""
    tracer = Tracer(registers, shapes)
    with run_on(tracer):
        return tracer, replay(record, tracer, numbers)


def trace_step(
    record: Record,
    numbers: Mapping[str, Any],
    registers: Mapping[str, Register],
    shapes: Mapping[str, tuple[int, ...]],
) -> Trace:
    """Trace a function that assigns registers: its results are the states."""
    tracer, _ = trace_record(record, numbers, registers, shapes)
    states = {name: tracer.forms[name] for name, register in registers.items() if register.state}
    return Trace(tracer.nodes, tracer.ranges, states, tracer.assigned)


def trace_answer(
    record: Record,
    numbers: Mapping[str, Any],
    registers: Mapping[str, Register],
    shapes: Mapping[str, tuple[int, ...]],
) -> Trace:
    """Trace a function that returns the answer of a token."""
    tracer, value = trace_record(record, numbers, registers, shapes)
    assert isinstance(value, Form), "the recorder refuses answers that are not values"
    return Trace(tracer.nodes, tracer.ranges, {"answer": value})
