"""Constants, ranges and registers: what a program means where values are not the usual ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import innerloop
from innerloop.errors import OutOfRangeError
from innerloop.language import Data, State, dot, gate, mean, outer, piecewise, program
from innerloop.problems.linear_regression import LinearRegression

SMALL: dict[str, Any] = {"d": 3, "n": 4, "steps": 2, "instances": 2}


def descend(me: Any, eta: Any = 0.1) -> None:
    me.w = me.w - eta * mean(lambda j: (dot(me.w, j.x) - j.y) * j.x)


@pytest.mark.parametrize("start", [1.0, 0, -0.5])
def test_a_state_may_start_from_a_constant(start: float) -> None:
    """Compared with gradient descent in three lines, from the same start."""
    made = program(x=Data("d"), y=Data(), w=State("d", shared=True))(descend)
    made.init(lambda me: setattr(me, "w", start))
    built = innerloop.compile(made, **SMALL)
    assert built.certificate.holds
    assert (built.certificate.exactness or {})["status"] == "proof"
    problem = LinearRegression(d=3, n=4).sample(5, generator=torch.Generator().manual_seed(1))
    w = torch.full((5, 3), float(start), dtype=torch.float64)
    for _ in range(2):
        w = w - 0.1 * ((w[:, None] * problem.x).sum(-1) - problem.y)[:, None].mul(
            problem.x.mT
        ).mean(-1)
    expected = (w[:, None] * problem.x_query).sum(-1)
    torch.testing.assert_close(built.predict(problem), expected)


def test_one_number_is_every_entry_of_any_register() -> None:
    @program(
        x=Data("d"), y=Data(), M=State("d", "d", shared=True), m=State("d"), q=State(shared=True)
    )
    def constants(me: Any, eta: Any = 0.25) -> None:
        me.level = 2.0
        me.m = me.y
        me.M = me.q
        me.M = me.M + me.level + mean(lambda j: outer(j.x, j.m))
        me.q = eta

    @constants.init
    def _(me: Any) -> None:
        me.M, me.m, me.q = 1, -2.5, 3

    @constants.answer
    def _(me: Any) -> Any:
        return me.M[0][1] + me.m[0] + me.q

    built = innerloop.compile(constants, **SMALL)
    assert built.certificate.holds
    assert (built.certificate.exactness or {})["status"] == "proof"
    problem = LinearRegression(d=3, n=4).sample(3, generator=torch.Generator().manual_seed(0))
    state = built.construction.algorithm.init(problem)
    assert state.M.shape == (3, 3, 3)
    assert bool((state.M == 1).all() and (state.m == -2.5).all() and (state.q == 3).all())
    then = built.construction.algorithm.step(problem, state, 0)
    expected = 3 + 2 + (problem.x * problem.y[..., None]).mean(1)
    torch.testing.assert_close(then.M, expected[..., None].expand(3, 3, 3))


@program(x=Data("d"), y=Data(), w=State("d", shared=True))
def knots_on_labels(me: Any, eta: Any = 0.1) -> None:
    me.r = piecewise(me.y, torch.square, [0.25 * k for k in range(-12, 13)])
    me.w = me.w - eta * mean(lambda j: (dot(me.w, j.x) - j.r) * j.x)


@program(x=Data("d"), y=Data(), t=Data(), w=State("d", shared=True))
def gate_on_labels(me: Any, eta: Any = 0.1, bound: Any = 2.0) -> None:
    me.r = gate(me.t, me.y, bound)
    me.w = me.w - eta * mean(lambda j: (dot(me.w, j.x) - j.r) * j.x)


@pytest.mark.parametrize(("made", "limit"), [(knots_on_labels, 3.0), (gate_on_labels, 2.0)])
def test_ranges_that_read_the_prompt_alone_are_checked(made: Any, limit: float) -> None:
    built = innerloop.compile(made, d=3, n=6, steps=2, instances=2)
    problem = LinearRegression(d=3, n=6).sample(4, generator=torch.Generator().manual_seed(0))
    inside = problem.map_tensors(lambda tensor: tensor / problem.y.abs().max())
    start = built.construction.prompt(inside)
    assert built.construction.usage(start) == pytest.approx(1 / limit)
    built.predict(inside)
    with pytest.raises(OutOfRangeError, match="times the range"):
        built.predict(inside.map_tensors(lambda tensor: 30 * tensor))
