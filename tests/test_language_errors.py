"""What no transformer runs is refused, with the file and line of the program and what to write."""

from __future__ import annotations

import ast
import math
import random
import traceback
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import innerloop
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
    hinges,
    matvec,
    mean,
    outer,
    own_total,
    piecewise,
    program,
    recorder,
    recording,
    relu,
    soft_threshold,
    softmax,
    stack,
    total,
    transposed,
    types,
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
    me.m = mean(lambda j: transposed(outer(me.m, j.x))[0])


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


def equality(me: Any) -> None:
    me.q = 2 * me.q if me.y == 0 else me.q


def inequality(me: Any) -> None:
    me.q = 2 * me.q if me.y != 0 else me.q


def membership(me: Any) -> None:
    me.q = 2 * me.q if me.y in [0, 1] else me.q


def equality_in_a_sum(me: Any) -> None:
    me.m = mean(lambda j: (2 if j.y == 1 else 3) * j.x)


def inequality_of_a_score(me: Any) -> None:
    me.m = mean(lambda j: (2 if dot(me.m, j.x) != 1 else 3) * j.x)


def truth_in_a_sum(me: Any) -> None:
    me.m = mean(lambda j: (j.y and 2) * j.x)


def key_of_a_dictionary(me: Any) -> None:
    me.q = {me.y: 1}[me.y] * me.q


def function_of_numpy(me: Any) -> None:
    me.m = np.exp(me.m)


def function_of_torch(me: Any) -> None:
    me.m = torch.relu(me.m)


def function_of_math(me: Any) -> None:
    me.q = math.exp(me.q)


def not_a_number(me: Any) -> None:
    me.m = float("nan") * me.m


def complex_number(me: Any) -> None:
    me.m = 1j * me.m


def text_as_number(me: Any) -> None:
    me.m = me.m + "1"


def several_numbers(me: Any) -> None:
    me.m = me.m * torch.ones(3)


def array_times_value(me: Any) -> None:
    me.m = np.eye(3) @ me.m


def vector_times_matrix(me: Any) -> None:
    me.m = outer(me.w, me.w) @ me.m


def length(me: Any) -> None:
    me.m = me.m / len(me.m)


def round_a_value(me: Any) -> None:
    me.q = round(me.q)


def whole_division(me: Any) -> None:
    me.q = me.q // 2


def remainder(me: Any) -> None:
    me.q = me.q % 2


def relu_of_a_number(me: Any) -> None:
    me.m = relu(-3) * me.m


def sum_without_a_function(me: Any) -> None:
    me.m = mean(me.x)


def function_of_two_tokens(me: Any) -> None:
    me.m = mean(lambda i, j: i.x + j.x)


def python_function_on_knots(me: Any) -> None:
    me.q = piecewise(me.q, math.sin, [0.0, 1.0])  # pyright: ignore[reportArgumentType]


def infinite_on_a_knot(me: Any) -> None:
    me.q = piecewise(me.q, torch.log, [0.0, 1.0])


def knots_in_disorder(me: Any) -> None:
    me.q = piecewise(me.q, torch.sin, [1.0, 0.0])


def unknown_name(me: Any) -> None:
    me.q = undefined * me.q  # pyright: ignore[reportUndefinedVariable]


def missing_bound(me: Any) -> None:
    me.q = gate(me.y, me.q)  # pyright: ignore[reportCallIssue]


def method_of_arrays(me: Any) -> None:
    me.q = me.m.sum()


def slice_of_entries(me: Any) -> None:
    me.q = me.m[0:2]


def assigned_entry(me: Any) -> None:
    me.m[0] = 1


def assigned_list(me: Any) -> None:
    me.m = [1.0, 2.0, 3.0]


def deleted_register(me: Any) -> None:
    del me.m


def digits(me: Any) -> None:
    me.q = float(f"{me.q:.2f}")


def divided_by_zero(me: Any) -> None:
    me.q = me.q / 0


def negative_clip(me: Any) -> None:
    me.m = clip(me.m, -1.0)


def negative_threshold(me: Any) -> None:
    me.m = soft_threshold(me.m, -0.5)


def negative_reach(me: Any) -> None:
    me.m = total(lambda j: j.x, where=lambda j: j.y, reach=-1)


def negative_gate(me: Any) -> None:
    me.q = gate(me.y, me.q, -2)


def random_number(me: Any) -> None:
    me.q = random.random() * me.q


COUNTED = [0]


def changing_variable(me: Any) -> None:
    COUNTED[0] += 1
    me.q = relu(me.q + COUNTED[0])


def unknown_tokens(me: Any) -> None:
    me.m = mean(lambda j: j.x, over="some")


def empty_stack(me: Any) -> None:
    me.m = stack([])


def unequal_hinges(me: Any) -> None:
    me.q = hinges(me.q, [1, 2], [0], [1])


def matrix_times_a_number(me: Any) -> None:
    me.m = Matrix(np.eye(3)) @ 3


def value_as_exponent(me: Any) -> None:
    me.q = 2**me.q


def called_value(me: Any) -> None:
    me.q = me.q(1)


def gate_on_a_number(me: Any) -> None:
    me.q = gate(me.y, 3, 1)


def too_few_values_on_knots(me: Any) -> None:
    me.q = piecewise(me.q, lambda x: x[:1], [0.0, 1.0])


def bits_of_a_value(me: Any) -> None:
    me.q = me.q & 1


def value_as_array(me: Any) -> None:
    me.m = np.asarray(me.m)


def comparison_by_numpy(me: Any) -> None:
    me.q = me.q if np.float64(1) == me.q else -me.q


def comparison_by_torch(me: Any) -> None:
    me.q = me.q if torch.ones(()) == me.q else -me.q


REFUSED = {
    bits_of_a_value: "values have no bits",
    value_as_array: "used as a Python number",
    comparison_by_numpy: "weights cannot branch",
    comparison_by_torch: "weights cannot branch",
    unknown_tokens: "over must be one of",
    empty_stack: "stack of nothing",
    unequal_hinges: "as many slopes as biases",
    matrix_times_a_number: "a matrix times the number 3",
    value_as_exponent: "a value as an exponent",
    called_value: "called like a function",
    gate_on_a_number: "a gate or knots on the number 3",
    too_few_values_on_knots: "a number for each of the 2 knots",
    three_values_of_j: "degree 3 in j",
    shapes_of_dot: r"dot of values of shapes \(2, 3\) and \(3,\)",
    dot_with_a_number: "dot of a value and the number 3: give vectors",
    flag_of_two: "`where` must be one number",
    iterating_over_a_score: "an entry of a value that depends on two tokens",
    iterating_over_a_number: "iterating over one number",
    entry_of_a_score: "an entry of a value that depends on two tokens",
    transpose_of_a_score: "the transpose of a value that depends on two tokens",
    transpose_of_a_vector: r"the transpose of a value of shape \(3,\)",
    entries_of_a_score: "the sum of entries of a value that depends on two tokens",
    entries_of_a_matrix: r"the sum of entries of a value of shape \(2, 3\)",
    stacked_scores: "a stack of a value that depends on two tokens",
    stacked_shapes: "stacking values of different shapes",
    matrix_times_a_score: "a matrix times a value that depends on two tokens",
    matrix_of_another_size: r"a 2×2 matrix times a value of shape \(3,\)",
    sums_of_other_shapes: r"a sum of shapes \(3,\) and \(\) inside of a sum",
    equality: "weights cannot branch",
    inequality: "weights cannot branch",
    membership: "weights cannot branch",
    equality_in_a_sum: "weights cannot branch",
    inequality_of_a_score: "weights cannot branch",
    truth_in_a_sum: "weights cannot branch",
    key_of_a_dictionary: "used as a key",
    function_of_numpy: r"numpy.exp of a value of a token.*piecewise\(x, f, knots\)",
    function_of_torch: r"the language's relu\(x\)",
    function_of_math: "used as a Python number.*piecewise",
    not_a_number: "the number nan",
    complex_number: "1j is not a number",
    text_as_number: "'1' is not a number",
    several_numbers: "a Tensor of several numbers.*Matrices",
    array_times_value: r"matvec\(M, v\)",
    vector_times_matrix: r"matvec\(M, v\)",
    length: r"def step\(me, d\)",
    round_a_value: "cannot round",
    whole_division: "cannot round",
    remainder: "cannot round",
    relu_of_a_number: r"got the number -3: for numbers, max\(x, 0\)",
    sum_without_a_function: r"got a value of shape \(3,\): write mean\(lambda j: …\)",
    function_of_two_tokens: r"a function of one other token: write mean\(lambda j: …\)",
    python_function_on_knots: "use functions of torch",
    infinite_on_a_knot: "not finite at the knot 0",
    knots_in_disorder: "two increasing numbers",
    unknown_name: "NameError: name 'undefined' is not defined",
    missing_bound: "missing 1 required positional argument: 'bound'",
    method_of_arrays: r"a value of a token has no attribute 'sum': write entry_sum\(x\)",
    slice_of_entries: r"M\[i\]\[j\]",
    assigned_entry: r"with stack\(\[…\]\)",
    assigned_list: "me.m is assigned a list",
    deleted_register: "assign 0 to me.m",
    digits: "print it without a format",
    divided_by_zero: "a number that is 0",
    negative_clip: "the bound of clip must be at least 0, got -1",
    negative_threshold: "must be at least 0, got -0.5",
    negative_reach: "reach must be above 0, got -1",
    negative_gate: "the bound of gate must be above 0, got -2",
    random_number: "something else when it is run again",
    changing_variable: "something else when it is run again",
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
    assert "Form" not in rest


def test_a_flag_that_is_neither_0_nor_1_is_named_as_the_cause() -> None:
    """The program means flag · score, half open gates something else: no law is broken first."""

    @program(x=Data("d"), y=Data(), w=State("d", shared=True))
    def half_open(me: Any, eta: Any = 0.1) -> None:
        me.w = me.w - eta * mean(lambda j: dot(me.w, j.x) * j.x, where=lambda j: j.y, reach=10)

    with pytest.raises(
        CannotCompile, match=r"line .*`where` must be 0 or 1 for every pair"
    ) as told:
        innerloop.compile(half_open, d=2, n=3, steps=1, instances=2)
    assert "test_language_errors.py" in str(told.value)


@pytest.mark.parametrize(
    "registers",
    [
        {"x": Data("d", shared=True), "y": Data(), "m": State("d")},
        {"x": State("d", shared=True), "y": Data(), "m": State("d")},
        {"x": Data("d"), "y": Data(shared=True), "m": State("d")},
    ],
)
def test_a_register_that_differs_is_not_believed_to_be_shared(registers: Any) -> None:
    def step(me: Any) -> None:
        me.m = me.m + me.y * me.x

    made = program(**registers)(step)
    made.answer(lambda me: me.y)
    with pytest.raises(CannotCompile, match=r"line .* declared shared, but a regression prompt"):
        innerloop.exact(made)


def test_numbers_of_the_program_may_be_compared() -> None:
    """They are rationals to the compiler and arrays to the interpreter: both say the same."""

    @program(x=Data("d"), y=Data(), w=State("d", shared=True))
    def choosing(me: Any, eta: Any = 0.1, beta: Any = 0.0) -> None:
        pull = mean(lambda j: (dot(me.w, j.x) - j.y) * j.x)
        if beta == 0:
            me.w = me.w - eta * pull
        elif beta == 2 or 0 < beta < eta:
            me.w = me.w - 3 * eta * pull
        else:
            me.w = (1 - beta) * me.w - eta * pull

    for beta in (0.0, 2.0, 0.05, 0.5):
        built = innerloop.compile(choosing, d=2, n=3, steps=2, instances=2, beta=beta)
        assert built.certificate.holds, beta
    rates = torch.tensor([0.0, 2.0], dtype=torch.float64)
    assert innerloop.compile(choosing, d=2, n=3, steps=2, instances=2, beta=rates).certificate.holds


def test_a_token_is_the_first_argument() -> None:
    def step() -> None: ...

    def only_numbers(eta: Any = 0.1) -> None: ...

    for function in (step, only_numbers):
        with pytest.raises(CannotCompile, match=rf"write def {function.__name__}\(me, …\)"):
            program(w=State("d"))(function)
    made = program(w=State("d", shared=True))(lambda me: setattr(me, "w", 2 * me.w))
    with pytest.raises(CannotCompile, match="the first argument is the token"):
        made.answer(step)


def test_a_program_may_be_a_lambda() -> None:
    made = program(x=Data("d"), w=State("d", shared=True))(
        lambda me: setattr(me, "w", me.w + mean(lambda j: j.x))
    )
    assert innerloop.compile(made, d=2, n=3, steps=2, instances=2).certificate.holds


def tiny_weight(me: Any) -> None:
    me.q = me.q + Fraction(1, 10**400) * mean(lambda j: j.y)


def tiny_product(me: Any) -> None:
    me.part = 1e-200 * mean(lambda j: j.y)
    me.q = me.q + 1e-200 * me.part


def huge_weight(me: Any) -> None:
    me.q = me.q + 1e200 * (1e200 * mean(lambda j: j.y))


def tiny_bias(me: Any) -> None:
    me.q = me.q + hinges(me.y, [1, 1], [0, Fraction(1, 10**340)], [1, -1])


def huge_gate(me: Any) -> None:
    me.q = me.q + gate(me.y, me.y, 10**400)


def huge_power(me: Any, eta: Any = 10.0) -> None:
    me.q = me.q + eta**400 * me.y


def converted_number(me: Any, eta: Any = 1e300) -> None:
    me.q = me.q + float(eta * eta) * me.y


def number_as_index(me: Any, eta: Any = 0.5) -> None:
    me.q = me.q + me.x[eta]


def value_as_bound(me: Any) -> None:
    me.q = gate(me.y, me.y, "10")


def too_many_units(me: Any) -> None:
    value = me.y
    for _ in range(1_100):
        value = relu(value)
    me.q = value


def endless_operations(me: Any) -> None:
    value = me.y
    while True:
        value = value + me.y


def endless_loop(me: Any) -> None:
    while True:
        pass


def knots_on_a_number(me: Any) -> None:
    me.q = piecewise(3.0, torch.square, [0, 1])


def stack_of_two_tokens(me: Any) -> None:
    me.q = mean(lambda j: stack([me.y, j.y])[0])


def overflowing_float(me: Any) -> None:
    me.q = me.q + float(10**400) * me.y


LIMITS = {
    tiny_weight: "about 1e-400, which float64 cannot hold.*nearer to 1",
    tiny_product: "about 1e-400, which float64 cannot hold",
    huge_weight: "about 1e400, which float64 cannot hold: it is at most 1.8e308",
    tiny_bias: "about 1e-340, which float64 cannot hold",
    huge_gate: "about 1e400, which float64 cannot hold",
    huge_power: "about 1e400, which float64 cannot hold",
    converted_number: "a number of the program is too large for float64",
    number_as_index: "the number 0.5 is not whole: declare it Count|entries are taken by whole",
    value_as_bound: "the bound of gate must be a number, got a str",
    too_many_units: "more than 1,000 sums and layers of hidden units",
    endless_operations: "more than 5,000 operations",
    endless_loop: "still running after 0.2 seconds",
    knots_on_a_number: "a gate or knots on the number 3",
    stack_of_two_tokens: "stacking values of different tokens",
    overflowing_float: "OverflowError",
}


@pytest.mark.parametrize("step", LIMITS, ids=lambda step: step.__name__)
def test_what_is_too_large_or_too_long_names_its_line(
    step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MAX_OPERATIONS", 5_000)
    monkeypatch.setattr(recording, "MAX_SECONDS", 0.2 if step is endless_loop else 30.0)
    made = program(**REGISTERS)(step)
    made.answer(lambda me: me.q)
    with pytest.raises(CannotCompile, match=rf"test_language_errors.py, line .*{LIMITS[step]}"):
        made(d=3, n=4).compiled  # noqa: B018


@pytest.mark.parametrize("name", ["tolerance", "transformer", "algorithm", "steps", "seed"])
def test_a_number_is_not_called_as_what_a_construction_has(name: str) -> None:
    declared: dict[str, Any] = {name: Number(0.1)}
    with pytest.raises(CannotCompile, match=rf"line .*a number cannot be called {name!r}"):
        program(w=State(), **declared)(nothing)


@pytest.mark.parametrize("dim", [2.5, 0, -1, True, "d+1", None])
def test_a_dimension_is_a_name_or_a_whole_number(dim: Any) -> None:
    with pytest.raises(CannotCompile, match="a dimension of a register is the name of a size"):
        types._check_dims((dim,))


def test_a_token_of_a_million_numbers_is_refused() -> None:
    made = program(x=Data("d"), big=State(1_000_000), w=State("d", shared=True))(nothing)
    with pytest.raises(CannotCompile, match=r"line .*1,000,000 of them in big; up to 16,384"):
        made().compiled  # noqa: B018


LIMITED = "test_what_is_too_large_or_too_long_names_its_line"
ELSEWHERE = {
    "the first argument is the token": "test_a_token_is_the_first_argument",
    "has no State": "test_declarations_that_are_wrong",
    "is the compiler's name": "test_declarations_that_are_wrong",
    "must be Data, State, Number": "test_declarations_that_are_wrong",
    "the answer must be a value": "test_an_answer_that_is_no_value_is_refused",
    "`where` must be 0 or 1": "test_a_flag_that_is_neither_0_nor_1_is_named_as_the_cause",
    "is declared shared, but a": "test_a_register_that_differs_is_not_believed_to_be_shared",
    "changes no state": "test_what_is_missing_is_said",
    "the answer has shape": "test_an_answer_of_another_shape_than_the_prompt_reads_is_refused",
    "has no answer": "test_what_is_missing_is_said",
    "this is for use inside of a program": "test_primitives_are_for_programs",
    "cannot be a name in Python": "none: Python refuses it in a call",
    "a number cannot be called": "test_a_number_is_not_called_as_what_a_construction_has",
    "the default of {name} must be a number": "tests/test_language_soundness.py",
    "a dimension of a register": "test_a_dimension_is_a_name_or_a_whole_number",
    "has a dimension": "test_what_is_missing_is_said",
    "a token would hold": "test_a_token_of_a_million_numbers_is_refused",
    "sums and layers of hidden units in one step": LIMITED,
    "{MAX_OPERATIONS:,} operations": LIMITED,
    "this was still running": LIMITED,
    "{describe_size(number)}": LIMITED,
    "CannotCompile(describe_size(value))": "the interpreter: the compiler has refused it before",
    "a number of the program is too large": LIMITED,
    "is not whole: declare it Count": LIMITED,
    "must be a number, got": LIMITED,
    "a number is too large for float64": "the interpreter, as above",
    "a division by a number that is 0": "the interpreter, as above",
    "must be {condition} in every token": "tests/test_language_soundness.py",
    "the marks {mark!r}": "tests/test_language_soundness.py",
    "geometric_knots needs": "tests/test_language_soundness.py",
    "the flag of {name} must be": "tests/test_language_soundness.py",
    "a comparison of tokens": "tests/test_language_soundness.py",
    "CannotCompile(FOREIGN)": "tests/test_language_soundness.py",
    "NESTED if is_outer": "tests/test_language_soundness.py",
    "is assigned inside of a sum": "tests/test_language_soundness.py",
    "stacking values of different tokens": LIMITED,
    "a gate or knots on": LIMITED,
    "from prompt to prompt": "the interpreter, as above",
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
    unlisted = [each for each in left if not any(part in each for part in ELSEWHERE)]
    assert not unlisted
    unused = [part for part in ELSEWHERE if not any(part in each for each in left)]
    assert not unused


@pytest.mark.parametrize("part", ["answer", "readout"])
@pytest.mark.parametrize(
    ("prompt", "answer", "message"),
    [
        ("regression", lambda me: me.x, r"shape \(3,\), but answers to this prompt are one number"),
        ("points", lambda me: me.data, r"shape \(\), but .* are of dimensions \(K\): use .* stack"),
    ],
)
def test_an_answer_of_another_shape_than_the_prompt_reads_is_refused(
    prompt: str, answer: Any, message: str, part: str
) -> None:
    """It was once read along the wrong axis, by the weights and by the reference alike."""
    data: dict[str, Any] = {"data": Data()} if prompt == "points" else {}
    made = program(prompt=prompt, x=Data("d"), q=State(), **data)(
        lambda me: setattr(me, "q", me.q + me.x[0])
    )
    getattr(made, part)(answer)
    with pytest.raises(CannotCompile, match=rf"line .*{message}"):
        innerloop.compile(made, d=3, n=4, instances=2)


def test_an_answer_that_is_no_value_is_refused() -> None:
    made = program(x=Data("d"), q=State())(lambda me: setattr(me, "q", me.q + 1))
    made.answer(lambda me: 3)
    with pytest.raises(CannotCompile, match="a value of this token, got the number 3"):
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
    with pytest.raises(InputError, match="w has a dimension 'z', but the sizes are d, n"):
        program(w=State("z"))(needs)(eta=1.0).compiled  # noqa: B018
    assert program(w=State("d"), eta=Number(2.0))(needs)().eta == 2.0

    def asks(me: Any, own: Any) -> None:
        me.w = own.eta * me.w

    with pytest.raises(InputError, match="asks asks for `own`"):
        program(w=State("d", shared=True))(asks)
    with pytest.raises(InputError, match="asks for `own`"):
        program(w=State("d", shared=True), eta=Number(2.0))(needs).answer(asks)
