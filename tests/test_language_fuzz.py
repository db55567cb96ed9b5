"""Random small programs, compiled and run in rational arithmetic, equal their interpreter.

The seed changes with each release; `make test-long` tries thousands. What once failed stays below.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any
from zlib import crc32

import pytest

import innerloop
from innerloop.language import Data, Matrices, State, dot, mean, program, relu, total
from innerloop.language.construction import ProgramConstruction
from innerloop.language.errors import CannotCompile
from innerloop.language.exactness import check_exactly
from innerloop.language.trace import Tracer

TRIES = int(os.environ.get("INNERLOOP_FUZZ", "60"))
REGISTERS: dict[str, Any] = {
    "x": Data("d"),
    "y": Data(),
    "w": State("d", shared=True),
    "g": State(shared=True),
    "m": State("d"),
    "q": State(),
}


class Author:
    """Writes a random step: a few temporaries, then new states; a pure function of its seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.names: list[str] = []

    def write(self, me: Any, A: Any) -> None:
        self.random, self.names, self.A = random.Random(self.seed), [], A
        for i in range(self.random.randint(1, 4)):
            value = self.number() * self.form(me) + self.number() * self.form(me)
            setattr(me, f"u{i}", value)
            self.names.append(f"u{i}")
        me.m = self.number() * self.vector(me) + self.number() * self.vector(me) + self.form(me)
        if self.random.random() < 0.3:  # the same in every token under some masks, not under all
            over = self.random.choice(["context", "all", "causal"])
            me.v = mean(lambda j: dot(me.w, self.vector(j)) * self.vector(j), over=over)
            me.q = self.number() * me.q + dot(me.v, self.vector(me))
        elif self.random.random() < 0.5:
            me.q = self.number() * me.q + dot(me.w, self.vector(me))
        if self.random.random() < 0.5:
            me.w = self.number() * me.w + mean(lambda j: self.scalar(j) * self.vector(j))
        if self.random.random() < 0.3:
            me.g = me.g - mean(lambda j: j.q + dot(me.w, j.x))

    def number(self) -> Any:
        return self.random.choice([2, -1, 0.2, -0.5, 1])

    def scalar(self, token: Any) -> Any:
        return getattr(token, self.random.choice(["y", "q"]))

    def vector(self, token: Any) -> Any:
        return getattr(token, self.random.choice(["x", "m", "w", *self.names]))

    def summand(self, me: Any, j: Any) -> Any:
        kind = self.random.randrange(4)
        left = self.A @ self.vector(me) if kind == 1 else self.vector(me)
        score = self.scalar(j) if kind == 2 else me.y * self.scalar(j) if kind == 3 else None
        score = dot(left, self.vector(j)) if score is None else score
        if self.random.random() < 0.5:
            score = score + self.number() * self.random.choice([j.y, j.q, me.y, me.q])
        if self.random.random() < 0.3:
            score = relu(score)
        value = self.vector(j) if self.random.random() < 0.6 else self.A @ self.vector(j)
        return score * value

    def form(self, me: Any) -> Any:
        kind = self.random.random()
        if kind < 0.45:
            over = self.random.choice(["context", "context", "context", "all", "causal"])
            where = None
            if self.random.random() < 0.25:  # queries have t = 0: closed to some tokens
                over, where = self.random.choice(["all", "causal"]), lambda j: j.t
            add = self.random.choice([mean, total])
            return add(lambda j: self.summand(me, j), over=over, where=where, reach=1e6)
        if kind < 0.6:
            return relu(self.vector(me) - self.number() * self.vector(me))
        if kind < 0.75:
            return self.A @ self.vector(me)
        if kind < 0.85:
            return me.g * self.vector(me)
        return self.vector(me) + self.number() * self.vector(me)


def make_program(seed: int) -> type[ProgramConstruction]:
    """Make a program whose step is that of a random author."""
    author = Author(seed)

    def step_of_n(me: Any, A: Any, n: Any) -> None:
        author.write(me, A)

    def step_of_any_n(me: Any, A: Any) -> None:
        author.write(me, A)

    chosen = step_of_n if seed % 3 == 0 else step_of_any_n
    made = program(**REGISTERS, t=Data(), A=Matrices(scale=0.5))(chosen)
    made.answer(lambda me: dot(me.w, me.x))
    return made


def try_program(seed: int) -> str:
    """Compile a random program and compare it exactly; `equal`, or why it was refused."""
    kind = make_program(seed)
    attention = random.Random(seed + 1).choice(["linear", "relu"])
    matrix = [[0.5, -1.0], [3.0, 0.25]]
    made = kind.from_values({"d": 2, "n": 3, "attention": attention, "A": matrix, "steps": 1})
    try:
        made.compiled  # noqa: B018
    except CannotCompile as refused:
        return str(refused).rpartition("`: ")[2][:40]
    found = check_exactly(made, points=2, seed=seed)
    assert found.equal, f"seed {seed}, {attention}: {found.difference}"
    return "equal"


def test_a_causal_sum_taken_for_shared_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that forgets that causal sums differ from token to token does not pass."""
    attend = Tracer.attend

    def forget(tracer: Tracer, summand: Any, over: str, *rest: Any) -> Any:
        form = attend(tracer, summand, over, *rest)
        node = tracer.nodes[-1]
        queries = {q[0] for term in node.terms for q, _ in term.score}
        tracer.shared[node.name] |= all(tracer.shared[name] for name in queries)
        return form

    monkeypatch.setattr(Tracer, "attend", forget)
    seeds = range(find_first_seed(), find_first_seed() + TRIES)
    with pytest.raises(AssertionError, match="should be"):
        list(map(try_program, seeds))


def find_first_seed() -> int:
    return crc32(innerloop.__version__.encode()) % 100_000


def test_random_programs_equal_their_interpreter_exactly() -> None:
    outcomes = Counter(try_program(find_first_seed() + i) for i in range(TRIES))
    assert outcomes["equal"] > 0.6 * TRIES, outcomes
