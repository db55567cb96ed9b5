"""Pass 1, trace: run a program on symbols, and note what heads and hidden units must compute.

The result is a list of nodes (sums over tokens, and hidden units) and, for every register, the form
in registers and nodes that it has after the step. Errors of degree and of sharing arise here.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.errors import InputError
from innerloop.language.errors import (
    CannotCompile,
    Line,
    explain_failure,
    find_definition,
    find_line,
)
from innerloop.language.forms import (
    ONE,
    Form,
    Pairs,
    Score,
    Symbol,
    Term,
    add_rows,
    as_pair,
    as_summand,
    scale_row,
)
from innerloop.language.knots import Knots
from innerloop.language.machine import (
    Function,
    Machine,
    Token,
    check_function,
    run_on,
    run_program,
)
from innerloop.language.naming import find_calls
from innerloop.language.nodes import Node, Part, Range, Setting
from innerloop.language.products import multiply
from innerloop.language.refusals import describe_kind
from innerloop.language.types import Register, to_fraction

MASKS = ("context", "all", "causal")
NORMALISATIONS = {"context": "1/n", "all": "1/N", "causal": "1/i"}
"""The normalisation that makes a sum under a mask an average."""


class Tracer(Machine):
    """Runs one function of a program on symbols."""

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
        if name not in self.forms:
            near = difflib.get_close_matches(name, self.forms, n=1, cutoff=0.0)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise CannotCompile(f"no register {name!r}{hint} (there are {', '.join(self.forms)})")
        form = self.forms[name]
        return Form(form.shape, form.rows, side)

    def write(self, name: str, value: Any) -> None:
        register = self.registers.get(name)
        if register is not None and not register.state:
            raise CannotCompile(f"{name} is Data, which no step changes: declare it State")
        if value is None or isinstance(value, list | tuple):
            raise CannotCompile(
                f"me.{name} is assigned {describe_kind(value)}: assign a value of a token, "
                "stack([…]) of some, or one number for every entry"
            )
        if not isinstance(value, Symbol):
            number = to_fraction(value)
            value = Form((), [{ONE: number} if number else {}], "me")
        if not isinstance(value, Form) or value.side != "me":
            raise CannotCompile(
                f"me.{name} would depend on one other token: sum over j with mean, total or softmax"
            )
        if register is not None:
            value = self._fit(name, register, value)
        self._label(name, value)
        self.forms[name] = value
        self.assigned[name] = find_line()

    def _fit(self, name: str, register: Register, value: Form) -> Form:
        """Check a register's new value; one number is every entry's."""
        shape = self.forms[name].shape
        if value.shape == () and shape != ():
            value = Form(shape, value.rows * math.prod(shape), "me")
        if value.shape != shape:
            raise CannotCompile(f"{name} has shape {shape}, its new value {value.shape}")
        if register.shared and (others := self.list_unshared(value)):
            raise CannotCompile(
                f"{name} is declared shared, but its new value differs from token to token: it "
                f"depends on {', '.join(others)}"
            )
        return value

    def _label(self, name: str, value: Form) -> None:
        """Name a node after the register that it is assigned to, alone or as one of a sum."""
        known = {node.name: node for node in self.nodes}
        summed = {entry[0] for row in value.rows for entry in row}
        units = summed <= set(known) and all(not known[each].attends for each in summed)
        for node in self.nodes:
            alone = value.rows == make_form(node.name, node.shape).rows
            if not node.label and (alone or (units and node.name in summed)):
                node.label = name

    def list_unshared(self, form: Form) -> list[str]:
        """List what a form reads that differs from token to token."""
        names = {entry[0] for row in form.rows for entry in row}
        labels = {node.name: node.label or f"a sum ({node.line})" for node in self.nodes}
        return sorted(labels.get(name, name) for name in names if not self.shared[name])

    def _add(self, shape: tuple[int, ...], kind: str, shared: bool, **parts: Any) -> Form:
        name, calls = f"#{len(self.nodes) + 1}", find_calls()
        node = Node(name, shape, kind, find_line(), shared=shared, calls=calls, **parts)
        self.nodes.append(node)
        self.shared[node.name] = shared
        return make_form(node.name, shape)

    def add_units(self, form: Form, net: tuple[list[Fraction], ...]) -> Form:
        """Add hidden units on every entry of a form."""
        shared = not self.list_unshared(form)
        rows = [dict(row) for row in form.rows]
        return self._add(form.shape, "mlp", shared, parts=[Part(rows, net)])

    def multiply_inside(self, x: Form, y: Form, operation: str) -> Form:
        """Multiply two values of one token: attention, if one is the same in every token."""
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
        summand: Function,
        over: str,
        average: bool,
        where: Function | None,
        reach: Any,
        mark: str | None,
        gap: Any,
    ) -> Form:
        if over not in MASKS:
            raise CannotCompile(f"over must be one of {', '.join(MASKS)}, got {over!r}")
        for function in (summand, *([] if where is None else [where])):
            check_function(
                function, "mean" if average else "total" if mark is None else "own_total"
            )
        with run_on(self):
            pair = as_pair(summand(Token(self, "j")))
            flag = None if where is None else where(Token(self, "j"))
        gated = where is not None or mark is not None
        if mark is not None and not self.read(mark, "me").shape:
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
            pair.shape, kind, shared, setting=setting, terms=terms, gate=gate, reach=bound
        )

    def _make_gate(self, flag: Any, mark: str | None, reach: Any, gap: Any) -> Pairs:
        """reach·(flag − 1) for pairs of tokens, or reach/gap·(⟨mark, mark of j⟩ − 1).

        Where tokens are counted, reach/gap·(mark of j − mark), which a causal mask keeps below 0.
        """
        if reach is None:
            raise CannotCompile("`where` needs reach, a bound on |score|, to silence other tokens")
        if mark is not None:
            strength = to_fraction(reach) / to_fraction(gap)
            if not self.read(mark, "me").shape:
                return {(ONE, (mark, 0)): strength, ((mark, 0), ONE): -strength}
            entries = make_form(mark, self.read(mark, "me").shape).rows
            gate: Pairs = {(e, e): strength for row in entries for e in row}
        else:
            score = as_pair(flag)
            if not isinstance(score, Score) or score.shape != ():
                raise CannotCompile("`where` must be one number, 0 or 1, bilinear in me and j")
            strength = to_fraction(reach)
            gate = scale_row(score.rows[0], strength)
        return add_rows(gate, {(ONE, ONE): -strength})

    def attend_softmax(
        self, score: Function, value: Function, over: str, where: Function | None, reach: Any
    ) -> Form:
        for function in (score, value, *([] if where is None else [where])):
            check_function(function, "softmax")
        if over not in MASKS:
            raise CannotCompile(f"over must be one of {', '.join(MASKS)}, got {over!r}")
        with run_on(self):
            scores, values = (as_pair(f(Token(self, "j"))) for f in (score, value))
            flag = None if where is None else where(Token(self, "j"))
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
        )

    def interpolate(self, value: Any, knots: Knots) -> Any:
        """Add the hidden units of straight lines, and note how far they are from their function."""
        _check_knots(knots)
        self.require(value, float(knots.places[0]), float(knots.places[-1]), knots)
        form = value.sum_hinges(*knots.net)
        (part,) = self.nodes[-1].parts
        self.nodes[-1].parts = [part._replace(knots=knots)]
        return form

    def require(self, value: Any, low: Any, high: Any, knots: Knots | None = None) -> None:
        """Note a range, to be checked when prompts are run."""
        if not isinstance(value, Symbol):
            raise CannotCompile(f"a gate or knots on {describe_kind(value)}: give a value of me")
        if not isinstance(value, Form) or value.side != "me":
            raise CannotCompile("a gate or knots inside of a sum: use `where`, or a register first")
        ends = to_fraction(low), to_fraction(high)
        self.ranges.append(Range(value.rows, *ends, find_line(), knots))


def _check_knots(knots: Knots) -> None:
    """Refuse knots, and functions on them, that no straight lines can follow."""
    places = knots.places
    if places.ndim != 1 or len(places) < 2 or not bool((places.diff() > 0).all()):
        raise CannotCompile("knots must be at least two increasing numbers")
    try:
        met = knots.function(places)
    except Exception as error:
        raise CannotCompile(
            "piecewise calls its function with a tensor of all knots: use functions of torch, such "
            f"as torch.log for math.log ({type(error).__name__}: {error})"
        ) from error
    if not isinstance(met, Tensor) or met.shape != places.shape:
        raise CannotCompile(
            f"the function of piecewise must return a number for each of the {len(places)} knots, "
            f"got {describe_kind(met)}"
        )
    if not bool(torch.isfinite(met).all()):
        where = float(places[~torch.isfinite(met)][0])
        raise CannotCompile(f"the function of piecewise is not finite at the knot {where:g}")


def make_form(name: str, shape: tuple[int, ...]) -> Form:
    """Return the form that reads a register or a node of this token."""
    return Form(shape, [{(name, i): Fraction(1)} for i in range(math.prod(shape))], "me")


class Trace(NamedTuple):
    """What a function of a program computes: nodes, ranges, and the forms of its results."""

    nodes: list[Node]
    ranges: list[Range]
    results: dict[str, Form]
    assigned: dict[str, Line] = {}
    """Where each register was assigned last."""


def _run(tracer: Tracer, function: Function, arguments: Mapping[str, Any]) -> Any:
    """Run a function of a program; what fails in Python is said with its line."""
    try:
        return run_program(tracer, function, arguments)
    except (InputError, MemoryError):
        raise
    except Exception as error:
        raise explain_failure(error, function) from error


def trace_step(
    function: Function,
    arguments: Mapping[str, Any],
    registers: Mapping[str, Register],
    shapes: Mapping[str, tuple[int, ...]],
) -> Trace:
    """Trace a function that assigns registers: its results are the states."""
    tracer = Tracer(registers, shapes)
    _run(tracer, function, arguments)
    states = {name: tracer.forms[name] for name, register in registers.items() if register.state}
    return Trace(tracer.nodes, tracer.ranges, states, tracer.assigned)


def trace_answer(
    function: Function,
    arguments: Mapping[str, Any],
    registers: Mapping[str, Register],
    shapes: Mapping[str, tuple[int, ...]],
) -> Trace:
    """Trace a function that returns the answer of a token."""
    tracer = Tracer(registers, shapes)
    value = _run(tracer, function, arguments)
    if not isinstance(value, Form) or value.side != "me":
        raise CannotCompile(
            f"the answer must be a value of this token, got {describe_kind(value)}: return it",
            find_definition(function),
        )
    return Trace(tracer.nodes, tracer.ranges, {"answer": value})
