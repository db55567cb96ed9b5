"""The attack on the compiler: its evaluator is right, and it notices mistakes of the front end."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from innerloop.errors import InputError
from innerloop.language.record import OPERATIONS
from innerloop.language.recorder import Recorder

sys.path.insert(0, str(Path(__file__).parent.parent))

from tools.torture.attack import Defect
from tools.torture.attacks.random_programs import draw_data, try_program
from tools.torture.program_values import Evaluator, make_prompt
from tools.torture.programs import Program, Statement, Tree

W, X, Y = ("read", 0, "w"), ("read", 1, "x"), ("read", 1, "y")
ERROR = ("subtract", ("dot", W, X), Y)
DESCENT = ("sum", "mean", 1, "context", None, ("multiply", ERROR, X))
MOVED = ("read", 0, "m")
NESTED = (
    "sum",
    "mean",
    1,
    "context",
    None,
    ("multiply", ("sum", "mean", 2, "context", None, ("dot", X, ("read", 2, "x"))), Y),
)


def make_program(*step: Statement, reused: bool = False, **changes: Any) -> Program:
    settings: dict[str, Any] = {
        "prompt": "regression",
        "d": 2,
        "n": 3,
        "attention": "linear",
        "eta": (0.5, -0.25),
        "matrix": ((1.0, 0.5), (0.0, -1.0)),
        "first": (),
        "answer": ("add", ("dot", W, ("read", 0, "x")), ("read", 0, "q")),
    }
    return Program(**{**settings, **changes}, step=step, reused=reused)


def assign(name: str, value: Tree) -> Statement:
    return Statement("register", name, value)


def test_the_evaluator_runs_gradient_descent() -> None:
    descent = assign("w", ("subtract", W, ("multiply", ("number", "eta"), DESCENT)))
    data = draw_data(make_program(descent), random.Random(0))
    (answer,) = Evaluator(make_program(descent), make_prompt("regression", data)).run(2)
    x, y, w = np.array(data["x"]), np.array(data["y"]), np.zeros(2)
    for eta in (0.5, -0.25):
        w = w - eta * x.T @ (x @ w - y) / 3
    assert float(answer.value) == pytest.approx(float(w @ np.array(data["x_query"][0])), abs=1e-14)


def test_the_evaluator_tells_the_tokens_of_nested_sums_apart() -> None:
    program = make_program(assign("q", NESTED))
    data = draw_data(program, random.Random(0))
    (answer,) = Evaluator(program, make_prompt("regression", data)).run(1)
    x, y = np.array(data["x"]), np.array(data["y"])
    expected = sum((x @ x[j]).mean() * y[j] for j in range(3)) / 3
    assert float(answer.value) == pytest.approx(float(expected), abs=1e-14)


def test_the_evaluator_knows_every_operation() -> None:
    """Each is compared with NumPy on one token."""
    q, one = ("read", 0, "y"), ("number", "1")
    numbers: list[tuple[Tree, Any]] = [
        (("relu", q), lambda v: np.maximum(v, 0)),
        (("abs", q), np.abs),
        (("clip", q, 0.25), lambda v: np.clip(v, -0.25, 0.25)),
        (
            ("soft_threshold", q, 0.25),
            lambda v: np.sign(v) * np.maximum(np.abs(v) - 0.25, 0),
        ),
        (
            ("hinges", q, [1, -2], [0.5, 0], [3, 1]),
            lambda v: 3 * np.maximum(v + 0.5, 0) + np.maximum(-2 * v, 0),
        ),
        (("gate", ("read", 0, "t"), q, 10.0), lambda v: v),
        (("closed", q, ("subtract", one, ("read", 0, "t")), 10.0), lambda v: v),
        (("negate", q), np.negative),
        (("sum", "total", 1, "causal", None, Y), np.cumsum),
    ]
    for tree, function in numbers:
        program = make_program(assign("q", tree))
        data = draw_data(program, random.Random(1))
        run = Evaluator(program, make_prompt("regression", data))
        run.run(1)
        values = [float(token["q"].value) for token in run.tokens[:3]]
        assert values == pytest.approx(function(np.array(data["y"])).tolist(), abs=1e-14)


@pytest.mark.parametrize("reused", [False, True])
def test_a_program_is_compiled_and_compared(tmp_path: Path, reused: bool) -> None:
    inner = ("sum", "mean", 2, "context", None, ("dot", ("read", 0, "x"), ("read", 2, "x")))
    outer = ("sum", "total", 1, "context", None, ("multiply", inner, Y))
    program = make_program(assign("q", ("add", outer, ("read", 0, "x"))), reused=reused)
    text = "total(lambda j: (mean(lambda j: dot" if reused else "total(lambda b: (mean(lambda c: "
    assert text in program.text
    program = make_program(assign("q", outer), reused=reused)
    assert try_program(program, random.Random(0), tmp_path) == "survived"


def test_a_nested_sum_that_the_front_end_misreads_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = make_program(assign("q", NESTED))
    with pytest.raises(InputError, match="reads both"):
        try_program(program, random.Random(0), tmp_path)
    monkeypatch.setattr(Recorder, "check_open", lambda recorder, token: None)
    with pytest.raises(Defect, match="its text means"):
        try_program(program, random.Random(0), tmp_path)


def test_a_mistake_that_compiler_and_interpreter_share_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = make_program(assign("w", ("subtract", W, DESCENT)))
    assert try_program(program, random.Random(0), tmp_path) == "survived"
    monkeypatch.setitem(OPERATIONS, "subtract", lambda _, a, b: b - a)
    with pytest.raises(Defect, match="its text means"):
        try_program(program, random.Random(0), tmp_path)
