"""What a program says is what is compiled, or it is refused: sums in sums, steps that change."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch

import innerloop
from innerloop.errors import InputError, OutOfRangeError
from innerloop.language import (
    Data,
    State,
    clip,
    closed,
    dot,
    gate,
    geometric_knots,
    mean,
    own_total,
    piecewise,
    program,
    soft_threshold,
    softmax,
    stack,
    total,
)
from innerloop.language.errors import CannotCompile
from innerloop.language.exactness import check_exactly
from innerloop.problems.gaussian_mixture import ClusteringProblem
from innerloop.problems.linear_regression import LinearRegression

REGISTERS: dict[str, Any] = {"x": Data("d"), "y": Data(), "t": Data(), "q": State()}
SMALL: dict[str, Any] = {"d": 2, "n": 3, "steps": 2, "instances": 2}


def answer(me: Any) -> Any:
    return me.q


def make(step: Any, **registers: Any) -> Any:
    """Make a program of a step on regression prompts that answers q."""
    made = program(**REGISTERS, **registers)(step)
    made.answer(answer)
    return made


def smooth(token: Any) -> Any:
    return mean(lambda i: dot(token.x, i.x))


def sum_in_a_sum(me: Any) -> None:
    me.q = mean(lambda j: mean(lambda i: dot(j.x, i.x)) * j.y)


def sum_in_a_helper(me: Any) -> None:
    me.q = mean(lambda j: smooth(j) * j.y)


def inner_sum_of_the_outer_token_alone(me: Any) -> None:
    me.q = mean(lambda j: mean(lambda i: j.y) * j.y)


def softmax_in_a_sum(me: Any) -> None:
    me.q = mean(lambda j: softmax(lambda i: dot(i.x, j.x), lambda i: i.y) * j.y)


def value_of_the_outer_token(me: Any) -> None:
    def summand(j: Any) -> Any:
        outside = 2 * j.x
        return mean(lambda i: dot(outside, i.x)) * j.y

    me.q = mean(summand)


def sum_in_a_flag(me: Any) -> None:
    me.q = total(lambda j: j.y, where=lambda j: j.t * mean(lambda i: j.t), reach=10)


NESTED = [
    sum_in_a_sum,
    sum_in_a_helper,
    inner_sum_of_the_outer_token_alone,
    softmax_in_a_sum,
    value_of_the_outer_token,
    sum_in_a_flag,
]


@pytest.mark.parametrize("step", NESTED, ids=lambda step: step.__name__)
def test_a_sum_that_reads_the_token_of_another_is_refused(step: Any) -> None:
    """With its line, and how to write it."""
    with pytest.raises(CannotCompile, match=r"test_language_soundness.py, line .*`.*me\.p = ") as e:
        innerloop.exact(make(step))
    assert "reads both" in str(e.value)


def escaped_token(me: Any) -> None:
    tokens = []
    mean(lambda j: tokens.append(j) or j.y)
    me.q = total(lambda i: dot(i.x, tokens[0].x))


def escaped_value(me: Any) -> None:
    values = []
    mean(lambda j: values.append(j.x) or j.y)
    me.q = total(lambda i: dot(i.x, values[0]))


LATER: list[Any] = []


def token_of_another_run(me: Any) -> None:
    LATER.append(me)
    me.q = me.y + LATER[0].y


def value_of_another_run(me: Any) -> None:
    LATER.append(me.y)
    me.q = me.y + LATER[0]


def assigned_in_a_sum(me: Any) -> None:
    def summand(j: Any) -> Any:
        me.q = 2 * me.q
        return j.y

    me.q = mean(summand) + me.q


def compared_tokens(me: Any) -> None:
    me.q = mean(lambda j: (0 if j == me else 1) * j.y)


def caught_failure(me: Any) -> None:
    values = []

    def summand(j: Any) -> Any:
        values.append(2 * me.q)
        return j.nothing

    try:
        mean(summand)
    except InputError:
        me.q = values[0]


ESCAPES = {
    escaped_token: "is used after that sum",
    escaped_value: "is used after that sum",
    token_of_another_run: "of another run of the program",
    value_of_another_run: "of another run of the program",
    assigned_in_a_sum: "assigned inside of a sum",
    compared_tokens: "a comparison of tokens",
    caught_failure: "no register 'nothing'",
}


@pytest.mark.parametrize("step", ESCAPES, ids=lambda step: step.__name__)
def test_a_token_is_used_inside_of_its_sum_alone(step: Any) -> None:
    LATER.clear()
    with pytest.raises(CannotCompile, match=rf"line .*{ESCAPES[step]}"):
        innerloop.exact(make(step))


def test_sums_that_do_not_share_a_token_may_be_nested_shadowed_and_reused() -> None:
    """An inner sum of this token is a number of this token: compared with plain loops."""

    def step(me: Any) -> None:
        weigh = lambda j: dot(me.x, j.x) * j.y  # noqa: E731
        me.a = mean(weigh) + 2 * total(weigh)
        me.q = mean(lambda j: mean(lambda j: dot(me.x, j.x)) * j.y) + me.a

    built = innerloop.compile(make(step), **SMALL)
    assert built.certificate.holds
    assert (built.certificate.exactness or {})["status"] == "proof"
    problem = LinearRegression(d=2, n=3).sample(generator=torch.Generator().manual_seed(0))
    x, y = problem.x.tolist(), problem.y.tolist()
    (query,) = problem.x_query.tolist()
    inner = sum(query[0] * x[i][0] + query[1] * x[i][1] for i in range(3)) / 3
    weighed = sum((query[0] * x[i][0] + query[1] * x[i][1]) * y[i] for i in range(3))
    expected = sum(inner * y[j] for j in range(3)) / 3 + weighed / 3 + 2 * weighed
    assert float(built.predict(problem)) == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("call", [2, 3, 5, 6, 9, 41])
def test_a_step_that_changes_later_is_refused_or_never_seen(call: int) -> None:
    """The weights, the certificate and the reference all are of the step that was recorded."""
    calls = itertools.count(1)

    def step(me: Any) -> None:
        me.q = me.q + (2 if next(calls) >= call else 1) * mean(lambda j: j.y)

    made = make(step)
    if call <= 5:
        with pytest.raises(CannotCompile, match=r"line .*computes something else when it is run"):
            innerloop.compile(made, **{**SMALL, "d": 4})
        return
    built = innerloop.compile(made, **{**SMALL, "d": 4})
    problem = LinearRegression(d=4, n=3).sample(generator=torch.Generator().manual_seed(0))
    expected = 2 * problem.y.mean()
    for _ in range(2):
        assert float(built.predict(problem)) == pytest.approx(float(expected), abs=1e-13)
    algorithm = built.construction.algorithm
    *_, state = algorithm.states(problem, 2)
    assert float(algorithm.predict(problem, state)) == pytest.approx(float(expected), abs=1e-13)
    assert next(calls) <= 7, "it is run twice for each size, and once more for the first"


def half_open_gate(me: Any) -> None:
    me.half = 0.5 * me.t
    me.q = me.q + gate(me.half, me.y, 10)


def half_open_constant(me: Any) -> None:
    me.q = me.q + gate(0.5, me.y, 10)


def half_closed(me: Any) -> None:
    me.half = 0.5 * me.t
    me.q = me.q + closed(me.y, me.half, 10)


def negative_threshold(me: Any) -> None:
    me.negative = -1 * me.t
    me.q = me.q + soft_threshold(me.y, me.negative)


def negative_bound(me: Any) -> None:
    me.negative = -1 * me.t
    me.q = me.q + clip(me.y, me.negative)


def labels_as_marks(me: Any) -> None:
    me.q = own_total(lambda j: dot(me.x, j.x), "x", 5)


def positions_too_near(me: Any) -> None:
    me.place = 0.25 * me.t
    me.q = own_total(lambda j: dot(me.x, j.x), "place", 5)


def knots_from_zero(me: Any) -> None:
    me.q = geometric_knots(0, 1, 5)[0] * me.q


CONDITIONS = {
    half_open_gate: "the flag of gate must be 0 or 1 in every token, and is 0.5",
    half_open_constant: "the flag of gate must be 0 or 1, got the number 0.5",
    half_closed: "the flag of closed must be 0 or at least 1 in every token, and is 0.5",
    negative_threshold: "the threshold of soft_threshold must be at least 0 .* is -1",
    negative_bound: "the bound of clip must be at least 0 in every token, and is -1",
    labels_as_marks: "marks 'x' of two tokens are neither the same nor 1 apart",
    positions_too_near: "marks 'place' of two tokens are neither the same nor 1 apart",
    knots_from_zero: "geometric_knots needs 0 < low < high",
}


@pytest.mark.parametrize("step", CONDITIONS, ids=lambda step: step.__name__)
@pytest.mark.parametrize("how", ["compile", "exact"])
def test_what_a_primitive_needs_is_checked(step: Any, how: str) -> None:
    with pytest.raises(CannotCompile, match=rf"line .*{CONDITIONS[step]}"):
        getattr(innerloop, how)(make(step), **({} if how == "exact" else SMALL))


@pytest.mark.parametrize("kind", ["gate", "where"])
def test_flags_of_a_prompt_are_checked_when_it_is_run(kind: str) -> None:
    """A program is certified on flags that its own problems have; others are out of range."""

    class Labelled(LinearRegression):
        def sample(self, *batch: int, **options: Any) -> Any:
            drawn = super().sample(*batch, **options)
            return replace(drawn, y=(drawn.y > 0).to(drawn.y))

    def step(me: Any) -> None:
        pulled = mean(lambda j: j.x[0], where=lambda j: j.y, reach=20) if kind == "where" else 0
        me.q = me.q + gate(me.t if kind == "where" else me.y, me.x[0], 10) + pulled

    made = program(**REGISTERS, problems=Labelled)(step)
    made.answer(answer)
    built = innerloop.compile(made, **SMALL)
    assert built.certificate.holds
    problem = Labelled(d=2, n=3).sample(generator=torch.Generator().manual_seed(0))
    built.predict(problem)
    with pytest.raises(OutOfRangeError):
        built.predict(replace(problem, y=0.5 * problem.y + 0.25))


def test_a_step_that_changed_is_refused_when_it_is_compiled_again() -> None:
    """It is not compiled as it once was, without a word."""
    factor = [1]

    def step(me: Any) -> None:
        me.q = me.q + factor[0] * mean(lambda j: j.y)

    made = make(step)
    assert innerloop.compile(made, **SMALL).certificate.holds
    factor[0] = 2
    with pytest.raises(CannotCompile, match=r"line .*computes something else"):
        innerloop.compile(made, **SMALL)


def test_a_list_as_a_default_is_refused() -> None:
    def step(me: Any, seen: Any = []) -> None:  # noqa: B006
        seen.append(1)
        me.q = me.q + len(seen) * me.y

    with pytest.raises(CannotCompile, match=r"line .*default of seen must be a number, got a list"):
        make(step)


def test_a_function_on_knots_that_changes_its_argument_is_followed() -> None:
    def step(me: Any) -> None:
        me.q = piecewise(me.y, lambda s: s.mul_(3.0), torch.linspace(-50, 50, 5))

    problem = LinearRegression(d=2, n=3).sample(generator=torch.Generator().manual_seed(0))
    made = make(step)
    made.answer(lambda me: mean(lambda j: j.q))
    predicted = innerloop.compile(made, **SMALL).predict(problem)
    assert float(predicted) == pytest.approx(3 * float(problem.y.mean()), abs=1e-13)


def test_a_flag_must_be_exact_where_the_bound_is_large() -> None:
    def step(me: Any) -> None:
        me.flag = 0.99995 * me.t
        me.q = me.q + gate(me.flag, me.y, 1e6)

    with pytest.raises(CannotCompile, match=r"the flag of gate must be 0 or 1 .* is 0.99995"):
        innerloop.compile(make(step), **SMALL)


@pytest.mark.parametrize("n", [1, 3, 4])
def test_marks_with_negative_products_are_marks(n: int) -> None:
    """They are in range: a gate closes to them even more."""

    @program(prompt="points", x=Data("d"), p=Data(4), q=State())
    def square(me: Any) -> None:
        me.q = own_total(lambda j: dot(me.x, j.x), "p", 1e3)

    square.answer(lambda me: stack([me.q, me.q]))
    built = innerloop.compile(square, d=2, n=n, clusters=2, steps=1, instances=2)
    assert built.certificate.holds
    problem = ClusteringProblem(
        torch.arange(2.0 * n).reshape(n, 2).double(), torch.ones(2, 2).double()
    )
    assert built.predict(problem)[:, 0].tolist() == pytest.approx(
        problem.x.square().sum(-1).tolist()
    )


def test_actions_of_a_game_are_drawn_at_random() -> None:
    """Weights that are right where actions take turns, and wrong elsewhere, are not the program."""

    def make_game(step: Any) -> Any:
        made = program(prompt="bandits", chosen=Data("A"), q=State())(step)
        made.answer(lambda me: stack([me.q, me.q]))
        return made(d=1, n=4, arms=2, steps=1)

    def count_first(me: Any) -> None:
        me.q = me.q + total(lambda j: j.chosen[0], over="all")

    def count_half(me: Any) -> None:
        me.q = me.q + total(lambda j: 0.5 * (j.chosen[0] + j.chosen[1]), over="all")

    right, other = make_game(count_first), make_game(count_half)
    assert check_exactly(right).equal
    mixed = replace(right.compiled, steps=other.compiled.steps, layout=other.compiled.layout)
    assert "should be" in check_exactly(right, compiled=mixed).difference
