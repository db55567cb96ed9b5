"""Random programs of the language, as expression trees, and as the text of a file.

An expression is a tuple: the name of an operation, then its arguments. A token is an integer: 0 is
this token, 1 that of a sum, and 2 that of a sum inside of a sum. This file does not use the
compiler, so the value of a tree is the one that `program_values` computes from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

Tree = tuple[Any, ...]
REACH = 1e4
"""A bound on scores and gated values that exceeds all random ones."""
NUMBERS = ("2", "-1", "0.5", "-0.25", "0.2", "0.1", "3", "1", "eta", "(1 + k)")
"""Numbers as they are written in a program; `eta` and `k` are arguments of the program."""
PROMPTS: dict[str, dict[str, tuple[str, ...]]] = {
    "regression": {"x": ("d",), "y": (), "t": (), "xk": ("d",)},
    "prefixes": {"x": ("d",), "y": (), "odd": (), "first": ()},
    "points": {"x": ("d",), "mu": ("d",), "data": (), "centroid": (), "p": ("4",)},
}
"""The data of each kind of prompt."""
FLAGS = {"regression": "t", "prefixes": "odd", "points": "data"}
"""The register of each kind of prompt that is 0 or 1."""
STATES: dict[str, tuple[tuple[str, ...], bool]] = {
    "w": (("d",), True),
    "g": ((), True),
    "m": (("d",), False),
    "q": ((), False),
}
"""The states of every program: their dimensions, and whether they are shared."""
VARIABLES = "abcdef"
"""Names of tokens of sums; sums side by side, and inside of each other, may use the same name."""


class Statement(NamedTuple):
    """An assignment to a register of this token, or to a variable of Python."""

    kind: str
    name: str
    value: Tree


@dataclass(frozen=True)
class Program:
    """A program: its prompt, its prologue, its step, and its answer.

    `matrix` is its matrix of numbers A, and `reused` whether tokens of nested sums have the same
    name.
    """

    prompt: str
    d: int
    n: int
    attention: str
    eta: tuple[float, ...]
    matrix: tuple[tuple[float, ...], ...]
    first: tuple[Statement, ...]
    step: tuple[Statement, ...]
    answer: Tree
    reused: bool

    @property
    def text(self) -> str:
        """The program as the text of a file, in which it is called `drawn`."""
        data = ", ".join(
            f"{name}=Data({', '.join(_quote(dim) for dim in dims)})"
            for name, dims in PROMPTS[self.prompt].items()
        )
        states = ", ".join(
            f"{name}=State({', '.join([*map(_quote, dims), *['shared=True'] * shared])})"
            for name, (dims, shared) in STATES.items()
        )
        lines = ["from innerloop.language import *", "", ""]
        lines += [f"@program(prompt={self.prompt!r}, {data}, {states}, A=Matrices())"]
        lines += ["def drawn(me, eta, A, k):", *self._list_lines(self.step)]
        if self.first:
            lines += ["", "", "@drawn.init", "def begin(me, eta, A, k):"]
            lines += self._list_lines(self.first)
        lines += ["", "", "@drawn.answer", "def _(me, eta, A, k):"]
        lines += [f"    return {self._write(self.answer)}"]
        return "\n".join(lines) + "\n"

    def _list_lines(self, statements: tuple[Statement, ...]) -> list[str]:
        owner = {"register": "me.", "variable": ""}
        return [f"    {owner[s.kind]}{s.name} = {self._write(s.value)}" for s in statements]

    def _write(self, tree: Tree) -> str:
        """Write an expression as Python."""
        name, *rest = tree
        if name in OPERATORS:
            return f"({self._write(rest[0])} {OPERATORS[name]} {self._write(rest[1])})"
        if (write := getattr(self, f"_write_{name}", None)) is not None:
            return write(*rest)
        words = [self._write(part) if isinstance(part, tuple) else repr(part) for part in rest]
        return f"{name}({', '.join(words)})"

    def _write_number(self, text: str) -> str:
        return text

    def _write_variable(self, name: str) -> str:
        return name

    def _write_read(self, token: int, name: str) -> str:
        return f"{self._name_token(token)}.{name}"

    def _write_negate(self, value: Tree) -> str:
        return f"(-{self._write(value)})"

    def _write_entry(self, value: Tree, index: int) -> str:
        return f"{self._write(value)}[{index}]"

    def _write_apply(self, value: Tree, transposed: bool) -> str:
        return f"(A{'.T' * transposed} @ {self._write(value)})"

    def _write_stack(self, *values: Tree) -> str:
        return f"stack([{', '.join(map(self._write, values))}])"

    def _write_sum(self, kind: str, level: int, over: str, flag: Tree | None, body: Tree) -> str:
        where = "" if flag is None else f", where={self._write_lambda(level, flag)}"
        options = f"over={over!r}{where}, reach={REACH!r}"
        return f"{kind}({self._write_lambda(level, body)}, {options})"

    def _write_own_total(self, level: int, body: Tree) -> str:
        return f"own_total({self._write_lambda(level, body)}, 'p', {REACH!r})"

    def _write_softmax(self, level: int, over: str, score: Tree, value: Tree) -> str:
        functions = ", ".join(self._write_lambda(level, each) for each in (score, value))
        return f"softmax({functions}, over={over!r})"

    def _write_lambda(self, level: int, body: Tree) -> str:
        return f"lambda {self._name_token(level)}: {self._write(body)}"

    def _name_token(self, level: int) -> str:
        return "me" if level == 0 else "j" if self.reused else VARIABLES[level]


OPERATORS = {"add": "+", "subtract": "-", "multiply": "*"}


def _quote(dim: str) -> str:
    return dim if dim.isdigit() else repr(dim)


class Author:
    """Writes the expressions of one program, with the random choices of Hypothesis."""

    def __init__(self, draw: DrawFn, prompt: str) -> None:
        self.draw, self.prompt = draw, prompt
        vectors = [name for name, dims in PROMPTS[prompt].items() if dims == ("d",)]
        self.vectors, self.scalars = [*vectors, "m", "w"], ["q", "g"]
        self.scalars += [name for name, dims in PROMPTS[prompt].items() if dims == ()]
        self.variables: list[tuple[str, bool]] = []

    def choose(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def happens(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) < percent

    def number(self) -> Tree:
        return ("number", self.choose(*NUMBERS))

    def vector(self, token: int) -> Tree:
        """Write a vector of a token that costs no block."""
        kind = self.draw(st.integers(0, 9))
        read = ("read", token, self.choose(*self.vectors))
        if kind < 5:
            return read
        if kind < 7:
            return ("apply", read, self.happens(50))
        if kind < 8:
            return ("add", ("multiply", self.number(), read), self.vector(token))
        variables = [name for name, is_vector in self.variables if is_vector]
        if token == 0 and variables:
            return ("variable", self.choose(*variables))
        return ("negate", read)

    def scalar(self, token: int) -> Tree:
        """Write a number of a token that costs no block."""
        kind = self.draw(st.integers(0, 9))
        if kind < 6:
            return ("read", token, self.choose(*self.scalars))
        if kind < 8:
            return ("entry", self.vector(token), 0)
        return ("entry_sum", self.vector(token))

    def body(self, is_vector: bool, level: int = 1) -> Tree:
        """Write the summand of a sum: a score, bilinear in two tokens, times a value of one."""
        kind = self.draw(st.integers(0, 9))
        if kind < 4:
            score: Tree = ("dot", self.vector(0), self.vector(level))
        elif kind < 6:
            score = ("multiply", self.scalar(0), self.scalar(level))
        elif kind < 8:
            score = self.scalar(level)
        else:
            score = self.number()
        if self.happens(40):
            extra = self.scalar(self.choose(0, level))
            score = (self.choose("add", "subtract"), score, ("multiply", self.number(), extra))
        if self.happens(30) and kind < 8:
            score = ("relu", score)
        value = self.vector(level) if is_vector else self.value(level)
        return ("multiply", score, value) if self.happens(50) else ("multiply", value, score)

    def value(self, level: int) -> Tree:
        """Write a number that is a summand of a sum; sometimes it is a sum itself."""
        if level == 1 and self.happens(8):
            inner = self.body(False, 2)
            if self.happens(50):  # reads the token of the outer sum too
                inner = ("multiply", self.scalar(1), inner)
            return ("sum", "mean", 2, "context", None, inner)
        return self.scalar(level) if self.happens(80) else self.number()

    def shared_sum(self, is_vector: bool) -> Tree:
        """Write a sum that is the same in every token."""
        score = self.choose("dot", "scalar")
        left: Tree = ("dot", ("read", 0, "w"), self.vector(1)) if score == "dot" else self.scalar(1)
        right = self.vector(1) if is_vector else self.scalar(1)
        return ("sum", self.choose("mean", "total"), 1, "context", None, ("multiply", left, right))

    def form(self, is_vector: bool) -> Tree:
        """Write an expression that takes a block, or two."""
        write = self.vector if is_vector else self.scalar
        kinds: list[Callable[[], Tree]] = [
            *[lambda: self.any_sum(is_vector)] * 9,
            lambda: self.softmax(is_vector),
            *[lambda: self.units(self.combine(write))] * 5,
            *[lambda: ("multiply", ("read", 0, "g"), write(0))] * 2,
            lambda: self.combine(write),
        ]
        if not is_vector:
            kinds.append(lambda: ("dot", ("read", 0, "w"), self.vector(0)))
        if self.prompt == "points":
            kinds.append(lambda: ("own_total", 1, self.body(is_vector)))
        return self.choose(*kinds)()

    def combine(self, write: Callable[[int], Tree]) -> Tree:
        """Write a linear combination of two values of this token."""
        return (self.choose("add", "subtract"), write(0), ("multiply", self.number(), write(0)))

    def any_sum(self, is_vector: bool) -> Tree:
        """Write a sum under any mask, with or without a condition on pairs of tokens."""
        over, flag = self.choose("context", "context", "context", "all", "causal"), None
        if self.happens(25):
            own, other = (("read", token, FLAGS[self.prompt]) for token in (0, 1))
            both = ("multiply", own, other)
            over = self.choose("all", "causal")
            flag = self.choose(other, both, ("subtract", ("number", "1"), both))
        return ("sum", self.choose("mean", "total"), 1, over, flag, self.body(is_vector))

    def softmax(self, is_vector: bool) -> Tree:
        """Write an average with softmax weights."""
        score = ("multiply", self.number(), ("dot", self.vector(0), self.vector(1)))
        value = self.vector(1) if is_vector else self.scalar(1)
        return ("softmax", 1, self.choose("context", "all", "causal"), score, value)

    def units(self, value: Tree) -> Tree:
        """Write hidden units on a value."""
        flag, bound = ("read", 0, FLAGS[self.prompt]), self.choose(1, 0.25)
        kinds: list[Callable[[], Tree]] = [
            lambda: ("relu", value),
            lambda: ("abs", value),
            lambda: ("clip", value, bound),
            lambda: ("soft_threshold", value, bound),
            lambda: ("hinges", value, [1, -2, 0.5], [bound, 0, -1], [0.5, 1, -bound]),
            lambda: ("gate", flag, value, REACH),
            lambda: ("closed", value, ("subtract", ("number", "1"), flag), REACH),
        ]
        return self.choose(*kinds)()

    def statements(self) -> tuple[Statement, ...]:
        """Write the assignments of a step."""
        self.variables, made = [], []
        vectors, scalars = list(self.vectors), list(self.scalars)
        for i in range(self.draw(st.integers(1, 4))):
            is_vector = self.happens(60)
            value = ("multiply", self.number(), self.form(is_vector))
            if self.happens(50):
                value = ("add", value, self.form(is_vector))
            if self.happens(25):
                made.append(Statement("variable", f"v{i}", value))
                self.variables.append((f"v{i}", is_vector))
            else:
                made.append(Statement("register", f"u{i}", value))
                (self.vectors if is_vector else self.scalars).append(f"u{i}")
        for name in self.draw(st.permutations(["m", "q", "w", "g"])):
            dims, shared = STATES[name]
            own = ("multiply", self.number(), ("read", 0, name))
            if name == "m" or self.happens(60):
                other = self.shared_sum(bool(dims)) if shared else self.form(bool(dims))
                if name == "m":  # so that something moves
                    other = ("add", other, ("read", 0, "x"))
                made.append(Statement("register", name, ("add", own, other)))
        self.vectors, self.scalars = vectors, scalars
        return tuple(made)

    def answer(self) -> Tree:
        """Write the answer, which depends on every state."""
        self.variables = []
        parts = [("dot", ("read", 0, "w"), self.vector(0)), ("read", 0, "q"), ("read", 0, "g")]
        whole: Tree = ("entry_sum", ("read", 0, "m"))
        for part in parts:
            whole = ("add", whole, part)
        whole = ("relu", whole) if self.happens(20) else whole
        return ("stack", whole, self.scalar(0)) if self.prompt == "points" else whole


@st.composite
def programs(draw: DrawFn) -> Program:
    """Draw a program with sizes and numbers."""
    prompt = draw(st.sampled_from(["regression", "regression", "prefixes", "points"]))
    author = Author(draw, prompt)
    d, entries = draw(st.integers(1, 3)), st.sampled_from([0.5, -1.0, 0.25, 1.0, 0.0])
    first = author.statements() if author.happens(50) else ()
    return Program(
        prompt=prompt,
        d=d,
        n=draw(st.integers(1, 4)),
        attention=draw(st.sampled_from(["linear", "relu"])),
        eta=tuple(draw(st.lists(st.sampled_from([0.3, -0.5, 0.125]), min_size=1, max_size=2))),
        matrix=tuple(tuple(draw(entries) for _ in range(d)) for _ in range(d)),
        first=first,
        step=author.statements(),
        answer=author.answer(),
        reused=author.happens(50),
    )
