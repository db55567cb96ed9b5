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
import torch

import innerloop
from innerloop.certification.certificate import certify
from innerloop.language import (
    Data,
    Matrices,
    State,
    clip,
    closed,
    dot,
    entry_sum,
    gate,
    hinges,
    matvec,
    mean,
    outer,
    own_total,
    piecewise,
    program,
    relu,
    soft_threshold,
    softmax,
    stack,
    total,
    transposed,
)
from innerloop.language.construction import ProgramConstruction
from innerloop.language.errors import CannotCompile
from innerloop.language.exactness import check_exactly
from innerloop.language.trace import Tracer

TRIES = int(os.environ.get("INNERLOOP_FUZZ", "60"))
REACH = 1e6
"""Beyond all scores and numbers of points that are drawn."""
REGISTERS: dict[str, Any] = {
    "x": Data("d"),
    "y": Data(),
    "w": State("d", shared=True),
    "g": State(shared=True),
    "m": State("d"),
    "q": State(),
    "V": State("d", "d", shared=True),
}
PROMPTS: dict[str, dict[str, Any]] = {
    "regression": {"t": Data()},
    "prefixes": {"odd": Data()},
    "points": {"y": State(), "data": Data(), "p": Data(4)},
}
"""What a prompt has beside, or instead."""
FLAGS = {"regression": "t", "prefixes": "odd", "points": "data"}
"""The register of a prompt that is 0 or 1."""


class Author:
    """Writes a random step: a few temporaries, then new states; a pure function of its seed."""

    def __init__(self, seed: int, prompt: str = "regression") -> None:
        self.seed, self.prompt = seed, prompt
        self.names: list[str] = []

    def begin(self, me: Any, A: Any) -> None:
        self.random, self.names, self.A = random.Random(self.seed + 1), [], A
        me.m = self.number() * me.x + self.form(me)
        me.w = mean(lambda j: self.scalar(j) * self.vector(j))

    def answer(self, me: Any) -> Any:
        self.random, self.names = random.Random(self.seed + 2), []
        if self.random.random() < 0.5:
            return stack([dot(me.w, me.x), me.q]) if self.prompt == "points" else dot(me.w, me.x)
        score = self.number() * me.q + mean(lambda j: dot(self.vector(me), self.vector(j)))
        score = relu(score) if self.random.random() < 0.3 else score
        return stack([score, me.q]) if self.prompt == "points" else score

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
        if self.random.random() < 0.2:
            pull = mean(lambda j: outer(self.vector(j), self.vector(me)))
            me.V = self.number() * transposed(me.V) + (pull if self.random.random() < 0.2 else 0)

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
        if kind < 0.4:
            over = self.random.choice(["context", "context", "context", "all", "causal"])
            where = None
            if self.random.random() < 0.25:  # queries, say, have t = 0: closed to some tokens
                flag = FLAGS[self.prompt]
                over, where = self.random.choice(["all", "causal"]), lambda j: j[flag]
            add = self.random.choice([mean, total])
            return add(lambda j: self.summand(me, j), over=over, where=where, reach=REACH)
        if kind < 0.45 and self.prompt == "points":
            return own_total(lambda j: self.summand(me, j), "p", REACH)
        if kind < 0.62:
            return self.units(me, self.vector(me) - self.number() * self.vector(me))
        vector = self.vector(me)
        if kind < 0.8:
            return self.A @ vector if kind < 0.72 else me.g * vector
        if kind < 0.9:
            return matvec(me.V, vector) if kind < 0.85 else stack([entry_sum(vector), vector[0]])
        return vector + self.number() * self.vector(me)

    def units(self, me: Any, value: Any) -> Any:
        """Hidden units of some kind on a vector."""
        bound = self.random.choice([1, 0.25])
        flag = me[FLAGS[self.prompt]]
        written = [
            lambda: relu(value),
            lambda: abs(value),
            lambda: clip(value, bound),
            lambda: soft_threshold(value, bound),
            lambda: hinges(value, [1, -2, 0.5], [bound, 0, -1], [0.5, 1, -bound]),
            lambda: gate(flag, value, REACH),
            lambda: closed(value, 1 - flag, REACH),
            lambda: piecewise(value, torch.square, torch.linspace(-REACH, REACH, 5)),
        ]
        return self.random.choice(written)()


def make_softmax_program(seed: int) -> type[ProgramConstruction]:
    """Make a program with softmax heads, whose scores and values are random."""

    def step(me: Any) -> None:
        chosen = random.Random(seed)
        names = [chosen.choice(["x", "w"]) for _ in range(4)]
        over = chosen.choice(["all", "context", "causal"])
        scale = chosen.choice([0.5, -0.25])
        me.u = softmax(
            lambda j: scale * dot(getattr(me, names[0]), getattr(j, names[1])) + 0.5 * j.y,
            lambda j: j.x + scale * getattr(j, names[2]),
            over=over,
            **({"where": lambda j: j.t, "reach": 500} if chosen.random() < 0.5 else {}),
        )
        me.m = 0.5 * me.m + me.u + relu(me.u - getattr(me, names[3]))
        me.w = 0.5 * me.w + scale * mean(lambda j: j.y * j.m)

    made = program(x=Data("d"), y=Data(), t=Data(), w=State("d", shared=True), m=State("d"))(step)
    made.answer(lambda me: dot(me.w, me.x))
    return made


def make_program(seed: int) -> type[ProgramConstruction]:
    """Make a program whose step is that of a random author."""
    prompt = random.Random(seed + 1).choice(["regression", "regression", "prefixes", "points"])
    author = Author(seed, prompt)

    def step_of_n(me: Any, A: Any, n: Any) -> None:
        author.write(me, A)

    def step_of_any_n(me: Any, A: Any) -> None:
        author.write(me, A)

    chosen = step_of_n if seed % 3 == 0 else step_of_any_n
    registers = {**REGISTERS, **PROMPTS[prompt]}
    made = program(prompt=prompt, **registers, A=Matrices(scale=0.5))(chosen)
    if seed % 4 == 0:
        made.init(author.begin)
    made.answer(author.answer)
    return made


def try_program(seed: int) -> str:
    """Compile a random program and compare it exactly; `equal`, or why it was refused."""
    kind = make_program(seed)
    attention = random.Random(seed + 2).choice(["linear", "relu"])
    matrix = [[0.5, -1.0], [3.0, 0.25]]
    sizes = {"d": 2, "n": 3, **({"clusters": 2} if "clusters" in kind.declared_types() else {})}
    made = kind.from_values({**sizes, "attention": attention, "A": matrix, "steps": 1})
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


def test_random_softmax_programs_equal_their_interpreter_in_floats() -> None:
    for seed in range(find_first_seed(), find_first_seed() + max(TRIES // 15, 4)):
        made = make_softmax_program(seed).from_values({"d": 2, "n": 3, "steps": 2})
        certificate = certify(made, made.transformer, instances=3)
        assert certificate.holds, f"seed {seed}: {certificate.explain()}"


def test_weights_for_one_n_know_how_many_tokens_a_prefix_prompt_has() -> None:
    """A sum and a mean over the context share a block where n is known."""

    @program(prompt="prefixes", x=Data("d"), y=Data(), w=State("d", shared=True), q=State())
    def add_up(me: Any, n: int) -> None:
        me.q = total(lambda j: j.y * j.y)
        me.w = me.w - mean(lambda j: j.y * j.x) / n

    add_up.answer(lambda me: me.q)
    made = add_up(d=2, n=3, steps=1)
    assert len(made.compiled.steps[0].blocks) == 1
    assert check_exactly(made, points=2).equal


def test_a_range_of_what_nothing_needs_is_not_checked() -> None:
    """Neither its gate nor what the gate reads is computed."""

    @program(x=Data("d"), y=Data(), t=Data(), q=State())
    def keep(me: Any) -> None:
        me.unused = gate(me.t, mean(lambda j: j.y), 1e-3)
        me.q = me.q + mean(lambda j: dot(me.x, j.x) * j.y)

    keep.answer(lambda me: me.q)
    made = keep(d=2, n=3, steps=1)
    assert check_exactly(made, points=2).equal
    assert innerloop.build(made, instances=2).certificate.holds
