"""What no transformer runs is refused, with the file and line of the program and what to write."""

from __future__ import annotations

import ast
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import innerloop.language
from innerloop.errors import InputError
from innerloop.language import (
    Data,
    Number,
    State,
    clip,
    dot,
    entry_sum,
    gate,
    matvec,
    mean,
    outer,
    own_total,
    piecewise,
    program,
    relu,
    softmax,
    stack,
    total,
    transposed,
)
from innerloop.language.errors import CannotCompile
from innerloop.language.values import Matrix

REGISTERS: dict[str, Any] = {
    "x": Data("d"),
    "y": Data(),
    "w": State("d", shared=True),
    "m": State("d"),
    "V": State(2, "d", shared=True),
    "q": State(),
}


def square_of_a_score(me: Any) -> None:
    me.m = mean(lambda j: dot(me.m, j.x) * dot(me.m, j.x) * j.x)


def degree_3_in_j(me: Any) -> None:
    me.m = mean(lambda j: dot(j.m, j.x) * dot(me.m, j.x) * j.x)


def degree_2_in_me(me: Any) -> None:
    me.m = mean(lambda j: me.q * (dot(me.w, j.x) * j.x))


def value_of_me(me: Any) -> None:
    me.m = mean(lambda j: dot(me.m, j.x) * me.x)


def division(me: Any) -> None:
    me.m = me.m / me.q


def number_over_value(me: Any) -> None:
    me.q = 1 / me.q


def branch(me: Any) -> None:
    me.q = 1 if me.q > 0 else me.q


def power(me: Any) -> None:
    me.m = me.x**2


def unshared_into_shared(me: Any) -> None:
    me.w = me.m


def unshared_sum_into_shared(me: Any) -> None:
    me.w = mean(lambda j: dot(me.x, j.x) * j.x)


def causal_into_shared(me: Any) -> None:
    me.w = mean(lambda j: j.x, over="causal")


def unshared_product(me: Any) -> None:
    me.q = dot(me.m, me.x)


def assigned_data(me: Any) -> None:
    me.x = 2 * me.x


def unknown_register(me: Any) -> None:
    me.m = me.mm + me.x


def assigned_key(me: Any) -> None:
    def summand(j: Any) -> Any:
        j.q = 0
        return j.x

    me.m = mean(summand)


def one_other_token(me: Any) -> None:
    mean(lambda j: setattr(me, "m", j.x) or j.x)


def relu_of_a_product(me: Any) -> None:
    me.m = mean(lambda j: relu(dot(me.m, j.x) * j.y) * j.x)


def softmax_of_degree_2(me: Any) -> None:
    me.q = softmax(lambda j: dot(me.x, j.x) * j.y, lambda j: j.y)


def softmax_value_of_me(me: Any) -> None:
    me.m = softmax(lambda j: dot(me.x, j.x), lambda j: me.x)


def wrong_shape(me: Any) -> None:
    me.q = me.x


def mixed_shapes(me: Any) -> None:
    me.m = me.x + me.V[0][0] + matvec(me.V, me.x)


def wrong_mask(me: Any) -> None:
    me.m = mean(lambda j: j.x, over="future")


def gate_without_reach(me: Any) -> None:
    me.m = total(lambda j: j.x, where=lambda j: j.y)


def knots_in_a_sum(me: Any) -> None:
    me.q = mean(lambda j: piecewise(j.y, lambda x: x**2, [0.0, 1.0]))


def entry_out_of_range(me: Any) -> None:
    me.q = me.x[7]


def value_as_number(me: Any) -> None:
    me.q = float(me.q)


def three_values_of_j(me: Any) -> None:
    me.m = mean(lambda j: j.y * (dot(me.m, j.x) * j.x))


def shapes_of_dot(me: Any) -> None:
    me.q = dot(me.V, me.w)


def dot_with_a_number(me: Any) -> None:
    me.q = dot(me.w, 3)


def flag_of_two(me: Any) -> None:
    me.m = total(lambda j: j.x, where=lambda j: j.x, reach=1)


def iterating_over_a_score(me: Any) -> None:
    me.m = mean(lambda j: next(iter(outer(me.m, j.x))))


def iterating_over_a_number(me: Any) -> None:
    me.q = next(iter(me.q))


def entry_of_a_score(me: Any) -> None:
    me.m = mean(lambda j: outer(me.m, j.x)[0])


def transpose_of_a_score(me: Any) -> None:
    me.V = mean(lambda j: transposed(outer(me.m, j.x)))


def transpose_of_a_vector(me: Any) -> None:
    me.w = transposed(me.w)


def entries_of_a_score(me: Any) -> None:
    me.q = mean(lambda j: entry_sum(me.x * j.x))


def entries_of_a_matrix(me: Any) -> None:
    me.q = entry_sum(me.V)


def stacked_scores(me: Any) -> None:
    me.m = mean(lambda j: stack([dot(me.m, j.x), dot(me.x, j.x), dot(me.x, j.m)]))


def stacked_shapes(me: Any) -> None:
    me.m = stack([me.q, me.x, me.q])


def matrix_times_a_score(me: Any) -> None:
    me.m = mean(lambda j: Matrix(np.eye(3)) @ (me.m * j.x))


def matrix_of_another_size(me: Any) -> None:
    me.m = Matrix(np.eye(2)) @ me.m


def sums_of_other_shapes(me: Any) -> None:
    me.m = mean(lambda j: dot(me.m, j.x) * j.x + dot(me.m, j.x) * j.y)


REFUSED = {
    three_values_of_j: "degree 3 in j",
    shapes_of_dot: r"dot of values of shapes \(2, 3\) and \(3,\)",
    dot_with_a_number: "dot of a value and int: give vectors",
    flag_of_two: "`where` must be one number",
    iterating_over_a_score: "iterating over what is no vector",
    iterating_over_a_number: "iterating over one number",
    entry_of_a_score: "an entry of what depends on two tokens",
    transpose_of_a_score: "the transpose of what is no matrix",
    transpose_of_a_vector: r"the transpose of a value of shape \(3,\)",
    entries_of_a_score: "the entries of what is no vector",
    entries_of_a_matrix: r"the sum of entries of a value of shape \(2, 3\)",
    stacked_scores: "stacking what is no value of one token",
    stacked_shapes: "stacking values of different shapes",
    matrix_times_a_score: "a matrix times what is no vector",
    matrix_of_another_size: r"a 2×2 matrix times a value of shape \(3,\)",
    sums_of_other_shapes: r"a sum of shapes \(3,\) and \(\) inside of a sum",
    square_of_a_score: "degree 3 in j|two scores",
    degree_3_in_j: "me.p = ",
    degree_2_in_me: "degree 2 in me.*Take the factor of me out of the sum",
    value_of_me: "degree 2 in me",
    division: "piecewise.*softmax",
    number_over_value: "a division by a value",
    branch: "weights cannot branch",
    power: "a power of a value",
    unshared_into_shared: "w is declared shared, .* it depends on m",
    unshared_sum_into_shared: "depends on a sum .*line",
    causal_into_shared: "declared shared",
    unshared_product: r"\(m and x\).*shared=True.*own_total.*h²/16",
    assigned_data: "x is Data, which no step changes: declare it State",
    unknown_register: "no register 'mm'; did you mean 'm'",
    assigned_key: "assign to me.q, not j.q",
    one_other_token: "would depend on one other token",
    relu_of_a_product: "acts on its score alone",
    softmax_of_degree_2: "a softmax score must be one number",
    softmax_value_of_me: "a softmax value must be linear in j alone",
    wrong_shape: r"q has shape \(\), its new value \(3,\)",
    mixed_shapes: "use dot, outer or matvec",
    wrong_mask: "over must be one of context, all, causal, got 'future'",
    gate_without_reach: "needs reach",
    knots_in_a_sum: "inside of a sum",
    entry_out_of_range: "entry 7",
    value_as_number: "used as a Python number",
}


@pytest.mark.parametrize("step", REFUSED, ids=lambda step: step.__name__)
def test_what_is_refused_names_its_line(step: Any) -> None:
    made = program(**REGISTERS)(step)(d=3, n=4)
    with pytest.raises(CannotCompile, match=REFUSED[step]) as refused:
        made.compiled  # noqa: B018
    first = step.__code__.co_firstlineno
    place, _, rest = str(refused.value).partition(", line ")
    assert place.endswith("test_language_errors.py")
    assert first < int(rest.partition(":")[0]) <= first + 5
    assert "`" in rest


ELSEWHERE = {
    "the answer must be a value": "test_an_answer_that_is_no_value_is_refused",
    "this is for use inside of a program": "test_primitives_are_for_programs",
    "; there are ": "the interpreter, for what the compiler has refused before",
}
"""Messages with tests of their own, or none."""


def test_every_refusal_is_tested() -> None:
    """Whatever raises `CannotCompile` is reached by a program of this file."""
    reached = set()
    for step in REFUSED:
        with pytest.raises(CannotCompile) as refused:
            program(**REGISTERS)(step)(d=3, n=4).compiled  # noqa: B018
        frames = traceback.extract_tb(refused.value.__traceback__)
        reached |= {(Path(frame.filename).name, frame.lineno) for frame in frames}
    left = []
    for path in Path(innerloop.language.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Raise) and ast.unparse(node).startswith("raise CannotCompile("):
                lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                if not any((path.name, line) in reached for line in lines):
                    left.append(ast.unparse(node))
    assert len(left) == len(ELSEWHERE)
    assert all(any(part in each for each in left) for part in ELSEWHERE), left


def test_an_answer_that_is_no_value_is_refused() -> None:
    made = program(x=Data("d"), q=State())(lambda me: setattr(me, "q", me.q + 1))
    made.answer(lambda me: 3)
    with pytest.raises(CannotCompile, match="the answer must be a value of a token, got int"):
        made().compiled  # noqa: B018


def test_primitives_are_for_programs() -> None:
    with pytest.raises(CannotCompile, match="for use inside of a program"):
        mean(lambda j: j.x)


ACCEPTED = {
    "the product of shared sums": lambda me: setattr(
        me, "w", mean(lambda j: j.y * j.x) * mean(lambda j: j.y)
    ),
    "a shared number times a vector": lambda me: setattr(me, "m", me.w[0] * me.m),
    "a matrix state": lambda me: setattr(
        me, "V", me.V - mean(lambda j: outer(matvec(me.V, j.x), j.x))
    ),
    "a number and every entry": lambda me: setattr(me, "m", clip(me.x + me.y, 1)),
    "absolute values": lambda me: setattr(me, "m", abs(me.x)),
    "gates": lambda me: setattr(me, "q", gate(me.y, me.q, 3)),
    "a token's own product": lambda me: setattr(
        me, "q", own_total(lambda j: dot(me.m, j.x), "x", 5)
    ),
}


@pytest.mark.parametrize("step", ACCEPTED.values(), ids=ACCEPTED)
def test_what_looks_like_it_but_compiles(step: Any) -> None:
    assert program(**REGISTERS)(step)(d=3, n=4).compiled.steps[0].blocks


def nothing(me: Any) -> None:
    del me


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"x": Data("d"), "z": Data()}, "a regression prompt has no data 'z'; it has x, y, t"),
        ({"x": Data("k"), "w": State()}, r"x of a regression prompt has dimensions \('d'\)"),
        ({"one": State()}, "'one' is the compiler's name"),
        ({"x": Data("d")}, "has no State"),
        ({"w": State(), "eta": 0.1}, "eta must be Data, State, Number"),
        ({"prompt": "regresion", "w": State()}, "did you mean 'regression'"),
    ],
)
def test_declarations_that_are_wrong(declared: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        program(**declared)(nothing)


def test_what_is_missing_is_said() -> None:
    with pytest.raises(InputError, match="nothing changes no state"):
        program(w=State("d", shared=True))(nothing)().compiled  # noqa: B018
    silent = program(x=Data("d"), q=State())(lambda me: setattr(me, "q", me.q + 1))
    with pytest.raises(InputError, match="has no answer"):
        silent().compiled  # noqa: B018

    def needs(me: Any, eta: Any) -> None:
        me.w = eta * me.w

    with pytest.raises(InputError, match="needs a value of eta"):
        program(w=State("d", shared=True))(needs)()
    with pytest.raises(InputError, match="no size is called 'z'"):
        program(w=State("z"))(needs)(eta=1.0).compiled  # noqa: B018
    assert program(w=State("d"), eta=Number(2.0))(needs)().eta == 2.0

    def asks(me: Any, own: Any) -> None:
        me.w = own.eta * me.w

    with pytest.raises(InputError, match="asks asks for `own`"):
        program(w=State("d", shared=True))(asks)
    with pytest.raises(InputError, match="asks for `own`"):
        program(w=State("d", shared=True), eta=Number(2.0))(needs).answer(asks)
