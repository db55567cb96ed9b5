"""The value of a random program: its expression tree, evaluated token by token with plain loops.

Numbers are rational, and each has a size, the sum of the magnitudes of the terms that it is the sum
of. The rounding error of a transformer is compared with this size. This file does not use the
package.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

from tools.torture.programs import STATES, Program, Statement, Tree

Array = Any
"""A number, or a list of numbers."""
Registers = dict[str, Array]


class Number(NamedTuple):
    """A rational number, and the sum of the magnitudes that it was added up from."""

    value: Fraction
    size: Fraction


ZERO = Number(Fraction(0), Fraction(0))


class Prompt(NamedTuple):
    """The registers of each token, the number of context tokens, and the tokens that answer."""

    tokens: list[Registers]
    context: int
    answering: list[int]


def make_number(value: Any) -> Number:
    """Return a number as it is in a program: 0.1 is one tenth."""
    exact = value if isinstance(value, Fraction) else Fraction(str(value))
    return Number(exact, abs(exact))


def make_prompt(kind: str, data: dict[str, list[Any]]) -> Prompt:
    """Make the tokens of a prompt from the arrays of a problem."""
    rows = [[read_float(v) for v in row] for row in data["x"]]
    zeros, one = [ZERO] * len(rows[0]), make_number(1)
    tokens: list[Registers] = []
    if kind == "points":
        centres = [[read_float(v) for v in row] for row in data["start"]]
        for i, x in enumerate(rows):
            tokens.append({"x": x, "mu": zeros, "data": one, "centroid": ZERO, "p": i})
        for centre in centres:
            tokens.append({"x": zeros, "mu": centre, "data": ZERO, "centroid": one, "p": None})
        return Prompt(tokens, len(rows), list(range(len(rows))))
    labels = [read_float(v) for v in data["y"]]
    (query,) = ([read_float(v) for v in row] for row in data["x_query"])
    if kind == "regression":
        for x, y in zip(rows, labels, strict=True):
            tokens.append({"x": x, "y": y, "t": one, "xk": x})
        tokens.append({"x": query, "y": ZERO, "t": ZERO, "xk": zeros})
        return Prompt(tokens, len(rows), [len(rows)])
    for x, y in zip(rows, labels, strict=True):
        tokens.append({"x": x, "y": ZERO, "odd": one, "first": ZERO})
        tokens.append({"x": x, "y": y, "odd": ZERO, "first": ZERO})
    tokens.append({"x": query, "y": ZERO, "odd": one, "first": ZERO})
    tokens[0] = {**tokens[0], "first": one}
    return Prompt(tokens, len(tokens) - 1, list(range(0, len(tokens), 2)))


def read_float(value: float) -> Number:
    """Return a float of a problem as the rational number that it is."""
    return Number(Fraction(value), abs(Fraction(value)))


class Evaluator:
    """Runs a program on one prompt."""

    def __init__(self, program: Program, prompt: Prompt) -> None:
        self.program, self.prompt = program, prompt
        self.tokens = [dict(token) for token in prompt.tokens]
        self.variables: list[dict[str, Array]] = [{} for _ in self.tokens]
        self.k = 0
        for token in self.tokens:
            for name, (dims, _) in STATES.items():
                token[name] = [ZERO] * program.d if dims else ZERO

    def run(self, steps: int) -> list[Number]:
        """Run the steps; return the answers of the tokens that answer."""
        self.assign(self.program.first)
        for self.k in range(steps):
            self.assign(self.program.step)
        self.k = 0
        answers = [self.evaluate(self.program.answer, [i]) for i in self.prompt.answering]
        return [entry for each in answers for entry in (each if is_vector(each) else [each])]

    def assign(self, statements: tuple[Statement, ...]) -> None:
        """Execute the assignments one after another, each in all tokens at the same time."""
        for kind, name, value in statements:
            results = [self.evaluate(value, [i]) for i in range(len(self.tokens))]
            holders = self.tokens if kind == "register" else self.variables
            for holder, result in zip(holders, results, strict=True):
                holder[name] = result

    def evaluate(self, tree: Tree, at: list[int]) -> Array:
        """Evaluate an expression; `at` has the token of each level of sums."""
        name, *rest = tree
        if (evaluate := getattr(self, f"evaluate_{name}", None)) is not None:
            return evaluate(at, *rest)
        values = [self.evaluate(r, at) if isinstance(r, tuple) else r for r in rest]
        return spread(OPERATIONS[name], *values)

    def evaluate_number(self, at: list[int], text: str) -> Number:
        return self.find_number(text)

    def evaluate_variable(self, at: list[int], name: str) -> Array:
        return self.variables[at[0]][name]

    def evaluate_read(self, at: list[int], token: int, name: str) -> Array:
        return self.tokens[at[token]][name]

    def evaluate_entry(self, at: list[int], value: Tree, index: int) -> Number:
        return self.evaluate(value, at)[index]

    def evaluate_stack(self, at: list[int], *values: Tree) -> list[Number]:
        return [self.evaluate(value, at) for value in values]

    def evaluate_dot(self, at: list[int], a: Tree, b: Tree) -> Number:
        pairs = zip(self.evaluate(a, at), self.evaluate(b, at), strict=True)
        return add_up([multiply(one, other) for one, other in pairs])

    def evaluate_entry_sum(self, at: list[int], value: Tree) -> Number:
        return add_up(self.evaluate(value, at))

    def evaluate_apply(self, at: list[int], value: Tree, transposed: bool) -> list[Number]:
        vector, rows = self.evaluate(value, at), self.program.matrix
        if transposed:
            rows = tuple(zip(*rows, strict=True))
        return [
            add_up([multiply(make_number(c), v) for c, v in zip(row, vector, strict=True)])
            for row in rows
        ]

    def find_number(self, written: str) -> Number:
        """Return a number of the program, which may be one per step."""
        if written == "eta":
            return make_number(self.program.eta[self.k % len(self.program.eta)])
        return make_number(1 + self.k if written == "(1 + k)" else written)

    def find_keys(self, over: str, token: int) -> range:
        """Return the tokens that a sum of one token runs over."""
        counts = {"context": self.prompt.context, "all": len(self.tokens), "causal": token + 1}
        return range(counts[over])

    def evaluate_sum(
        self, at: list[int], kind: str, level: int, over: str, flag: Tree | None, body: Tree
    ) -> Array:
        keys = self.find_keys(over, at[0])
        summands = []
        for key in keys:
            inner = [*at[:level], key]
            value = self.evaluate(body, inner)
            if flag is not None:
                value = spread(multiply, value, self.evaluate(flag, inner))
            summands.append(value)
        share = make_number(Fraction(1, len(keys)) if kind == "mean" else 1)
        return spread(multiply, share, spread(lambda *parts: add_up(parts), *summands))

    def evaluate_own_total(self, at: list[int], level: int, body: Tree) -> Array:
        """Return the sum over the tokens with the same mark: only this token, if it has a mark."""
        mark = self.tokens[at[0]]["p"]
        value = self.evaluate(body, [*at[:level], at[0]])
        return spread(multiply, make_number(0 if mark is None else 1), value)

    def evaluate_softmax(
        self, at: list[int], level: int, over: str, score: Tree, value: Tree
    ) -> Array:
        places = [[*at[:level], key] for key in self.find_keys(over, at[0])]
        scores = [self.evaluate(score, each) for each in places]
        largest = max(each.value for each in scores)
        weights = [Fraction(math.exp(each.value - largest)) for each in scores]
        # An error e of a score changes a weight by the factor exp(e).
        growth = 1 + 2 * max(each.size for each in scores)
        total = sum(weights)
        shares = [Number(weight / total, growth) for weight in weights]
        summands = [
            spread(multiply, share, self.evaluate(value, each))
            for share, each in zip(shares, places, strict=True)
        ]
        return spread(lambda *parts: add_up(parts), *summands)


def spread(operation: Any, *values: Any) -> Array:
    """Apply an operation to every entry; numbers are repeated for every entry of a vector."""
    lengths = {len(v) for v in values if is_vector(v)}
    if not lengths:
        return operation(*values)
    (length,) = lengths
    return [operation(*(v[i] if is_vector(v) else v for v in values)) for i in range(length)]


def is_vector(value: Any) -> bool:
    return isinstance(value, list) and isinstance(value[0], Number)


def add_up(parts: Any) -> Number:
    return Number(sum((p.value for p in parts), Fraction(0)), sum((p.size for p in parts), ZERO[0]))


def multiply(a: Number, b: Number) -> Number:
    return Number(a.value * b.value, a.size * b.size)


def negate(a: Number) -> Number:
    return Number(-a.value, a.size)


def clip(a: Number, bound: Any) -> Number:
    limit = Fraction(str(bound))
    return Number(min(max(a.value, -limit), limit), a.size + limit)


def soft_threshold(a: Number, theta: Any) -> Number:
    limit = Fraction(str(theta))
    sign = 1 if a.value > 0 else -1
    return Number(sign * max(abs(a.value) - limit, Fraction(0)), a.size + limit)


def add_hinges(a: Number, slopes: Any, biases: Any, weights: Any) -> Number:
    total, size = Fraction(0), Fraction(0)
    for numbers in zip(slopes, biases, weights, strict=True):
        slope, bias, weight = (Fraction(str(each)) for each in numbers)
        total += weight * max(slope * a.value + bias, Fraction(0))
        size += abs(weight) * (abs(slope) * a.size + abs(bias))
    return Number(total, size)


def open_gate(flag: Number, a: Number, bound: float) -> Number:
    return Number(flag.value * a.value, a.size + Fraction(bound))


def close_gate(a: Number, off: Number, bound: float) -> Number:
    return Number(a.value if off.value == 0 else Fraction(0), a.size + Fraction(bound))


OPERATIONS = {
    "add": lambda a, b: add_up([a, b]),
    "subtract": lambda a, b: add_up([a, negate(b)]),
    "multiply": multiply,
    "negate": negate,
    "relu": lambda a: Number(max(a.value, Fraction(0)), a.size),
    "abs": lambda a: Number(abs(a.value), a.size),
    "clip": clip,
    "soft_threshold": soft_threshold,
    "hinges": add_hinges,
    "gate": open_gate,
    "closed": close_gate,
}
