"""Propagated errors of knots: never below what is measured, and not far above."""

from __future__ import annotations

import copy
from dataclasses import replace
from multiprocessing import Pipe
from typing import Any

import pytest
import torch

import innerloop
from innerloop.certification.approximation import measure_approximation
from innerloop.constructions.base import Construction
from innerloop.language import Data, State, dot, mean, piecewise, program, relu
from innerloop.language.bounds import ErrorBound
from innerloop.language.construction import ProgramConstruction
from innerloop.language.knots import Knots
from innerloop.registry import make_member


def make(name: str, **parameters: Any) -> Any:
    kind = "constructions" if name in ("em", "mixture-of-two-regressions") else "programs"
    return make_member(kind, Construction, name, parameters)


def measure(made: Any, seed: int = 0) -> dict[str, float]:
    problem = made.distributions()[0].sample(4, generator=torch.Generator().manual_seed(seed))
    found = measure_approximation(made, problem)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "looseness"),
    [
        ("logistic-descent", 3),
        ("approximate-message-passing", 5),
        ("soft-k-means", 50),
        (
            "subspace-iteration",
            1e5,
        ),  # a Newton step squares the error, which no bound by sizes sees
    ],
)
def test_a_bound_holds_and_falls_with_the_square_of_the_knots(name: str, looseness: float) -> None:
    found = [measure(make(name, knots=knots)) for knots in (101, 201)]
    for each in found:
        assert each["excess"] == 0
        assert 0 < each["measured"] <= each["bound"] < looseness * each["measured"]
    assert found[0]["bound"] > 3 * found[1]["bound"], "half of the knots, four times the error"


@pytest.mark.parametrize("name", ["em", "mixture-of-two-regressions"])
def test_the_propagated_bound_is_between_the_error_and_the_declared_one(name: str) -> None:
    """Constructions with a derived bound are compared with the algorithm itself."""
    made = make(name, knots=60, n=12)
    assert isinstance(made, ProgramConstruction)
    problem = made.distributions()[0].sample(3, generator=torch.Generator().manual_seed(1))
    state, plan = made.algorithm.init(problem), made.compiled.steps[0]
    for k in range(3):
        values, radii = ErrorBound(plan, made.layout).compute(
            made.encode(problem, state), made.context_length(problem)
        )
        state = made.algorithm.step(problem, state, k)
        goal = made.encode(problem, state)
        for name_, value in values.items():
            error = (value - goal[..., list(made.layout[name_].places)]).abs()
            assert bool((error <= radii[name_] + 1e-10).all())
            assert float(radii[name_].max()) <= made.tolerance(torch.float64)


@program(x=Data("d"), y=Data(), w=State("d", shared=True))
def squash(me: Any, slope: Any = 3.0) -> None:
    """Knots read by a score, by a value, by units that may be silent, and by other knots."""
    me.a = piecewise(dot(me.w, me.x), torch.tanh, torch.linspace(-30.0, 30.0, 121))
    me.b = piecewise(2 * me.a, torch.cos, torch.linspace(-2.1, 2.1, 13))
    me.c = relu(slope * me.b - 1) - relu(slope * me.b - 2)
    me.w = me.w - 0.3 * mean(lambda j: (j.a + j.c - j.y) * j.x) + 0.1 * mean(lambda j: j.a * j.c)


def test_knots_of_knots_and_units_are_bounded() -> None:
    for seed in range(4):
        found = measure(squash(d=3, n=9, steps=4), seed)
        assert found["excess"] == 0
        assert found["bound"] < 30 * found["measured"]


def test_a_bound_that_is_too_small_breaks_the_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = innerloop.compile(squash, d=2, n=5, steps=2, instances=4).certificate
    assert certificate.holds, certificate.explain()
    assert certificate.approximation is not None
    assert certificate.error.startswith("straight lines")
    bound = Knots.bound_error
    monkeypatch.setattr(Knots, "bound_error", lambda *given: 0.01 * bound(*given))
    certificate = innerloop.compile(squash, d=2, n=5, steps=2, instances=4).certificate
    assert not certificate.holds
    assert "propagated bound" in certificate.explain()


def test_an_interval_counts_only_where_a_radius_reaches_it() -> None:
    knots = Knots(lambda x: x.abs() * x, torch.tensor([-8.0, 0.0, 1.0, 2.0]).double())
    inside, across = (
        float(knots.bound_error(torch.tensor([0.5]).double(), torch.tensor([r]).double()))
        for r in (0.1, 0.6)
    )
    assert abs(inside - (0.1 * 1 + 0.25 * 1.002)) < 1e-3
    assert abs(across - (0.6 * 8 + 16 * 1.002)) < 1e-2


def send_to_process(value: Any) -> Any:
    """Copy a value as a worker's pipe does."""
    here, there = Pipe()
    with here, there:
        here.send(value)
        return there.recv()


def test_knots_are_copied_to_other_processes_without_their_function() -> None:
    knots = Knots(lambda x: x**2, torch.linspace(0.0, 1.0, 5, dtype=torch.float64))
    copied = send_to_process(knots)
    assert copied.net == knots.net
    at = torch.tensor([0.3, 0.9], dtype=torch.float64)
    assert torch.equal(copied.bound_error(at, 0.1 * at), knots.bound_error(at, 0.1 * at))
    assert copy.deepcopy(knots).function is knots.function
    made = make("logistic-descent", d=2, n=3)
    assert send_to_process((made.layout, made.compiled))[0] == made.layout


def test_a_leaking_gate_is_part_of_the_bound() -> None:
    """With a gate that lowers other tokens by little, lines and weights differ by their share."""
    made = make("soft-k-means", n=8)
    problem = made.distributions()[0].sample(2, generator=torch.Generator().manual_seed(0))
    stream = made.encode(problem, made.algorithm.init(problem))
    plan = made.compiled.steps[0]
    context = made.context_length(problem)
    tight = ErrorBound(plan, made.layout).compute(stream, context)[1]["mu"].max()
    leaking = [
        replace(
            node,
            gate={pair: c / 10_000 for pair, c in node.gate.items()},
            reach=node.reach / 10_000,
        )
        if node.kind == "softmax" and node.reach is not None
        else node
        for node in plan.nodes
    ]
    loose = ErrorBound(replace(plan, nodes=leaking), made.layout).compute(stream, context)
    assert loose[1]["mu"].max() > 100 * tight


def test_programs_without_knots_have_no_such_bound() -> None:
    assert innerloop.compile("heavy-ball", d=2, n=3, instances=2).certificate.approximation is None
