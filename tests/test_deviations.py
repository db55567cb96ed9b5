"""Deviations from the law of a construction: every kind of error is measured and located."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch

import innerloop
from innerloop.certification import law
from innerloop.certification.certificate import certify
from innerloop.certification.growth import ErrorGrowth
from innerloop.certification.law import _deviation, measure_deviations
from innerloop.constructions.preconditioned_gradient_descent import (
    PreconditionedGradientDescentConstruction,
)
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.transformer import MLP, Attention, Block, Head, Layout, affine, clear


class WritesScratch(PreconditionedGradientDescentConstruction):
    """Gradient descent that writes a scratch register. With `leaky`, it also reads it."""

    scratch = ("scratch",)
    leaky = False

    @property
    def layout(self) -> Layout:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Layout(x=self.d, y=(), scratch=())

    def body(self, k: int):
        score = {("x", "x"): -self.algorithm.preconditioners[k]}
        value = {("y", "y"): 1.0, ("y", "scratch"): 1.0}
        if self.leaky:
            value[("scratch", "y")] = 1e-6
        return [Block(Attention.from_heads(self.layout, [Head(score, value)]))]


class ReadsScratch(WritesScratch):
    """Reads a scratch register that nothing writes: only noise put into it reveals the leak."""

    def body(self, k: int):
        score = {("x", "x"): -self.algorithm.preconditioners[k]}
        value = {("y", "y"): 1.0, ("scratch", "y"): 1e-6}
        return [Block(Attention.from_heads(self.layout, [Head(score, value)]))]


def test_scratch_is_filled_with_noise_and_must_not_matter() -> None:
    problem = LinearRegression(d=3, n=5, noise=0.1).sample(6)
    generator = torch.Generator().manual_seed(0)
    honest = WritesScratch(d=3, n=5, steps=3)
    assert measure_deviations(honest, honest.transformer, problem, generator).largest < 1e-12
    leaky = WritesScratch(d=3, n=5, steps=3)
    object.__setattr__(leaky, "leaky", True)
    assert measure_deviations(leaky, leaky.transformer, problem, generator).largest > 1e-8
    reads = ReadsScratch(d=3, n=5, steps=3)
    deviations = measure_deviations(reads, reads.transformer, problem, generator)
    assert max(deviations.step) > 1e-8
    assert max(deviations.free) < 1e-12, "running free, the scratch register stays empty"


class ReadsScratchAtTheEnd(WritesScratch):
    """Its steps ignore the scratch register, but its read-out depends on it."""

    def body(self, k: int):
        head = Head({("x", "x"): -self.algorithm.preconditioners[k]}, {("y", "y"): 1.0})
        return [Block(Attention.from_heads(self.layout, [head]))]

    def epilogue(self):
        return [Block(mlp=MLP.from_pieces(self.layout, [affine("scratch", "y", 1e-6)]))]


def test_the_read_out_is_measured_after_every_step() -> None:
    construction = ReadsScratchAtTheEnd(d=3, n=5, steps=3)
    problem = LinearRegression(d=3, n=5).sample(4)
    deviations = measure_deviations(construction, construction.transformer, problem)
    assert all(deviation > 1e-8 for deviation in deviations.step)
    assert max(deviations.free) < 1e-12
    assert deviations.broken.startswith("in the read-out before any step, prediction: expected ")


class SloppyPrologue(WritesScratch):
    """Its prologue writes a value that its first step clears again."""

    scratch = ()

    def prologue(self):
        return [Block(mlp=MLP.from_pieces(self.layout, [affine("scratch", "scratch", bias=1.0)]))]

    def body(self, k: int):
        head = Head({("x", "x"): -self.algorithm.preconditioners[k]}, {("y", "y"): 1.0})
        attention = Attention.from_heads(self.layout, [head])
        return [Block(attention, MLP.from_pieces(self.layout, [clear("scratch")]))]


def test_an_error_of_the_prologue_counts_even_if_a_step_repairs_it() -> None:
    sloppy = SloppyPrologue(d=3, n=5, steps=3)
    problem = LinearRegression(d=3, n=5).sample(2)
    deviations = measure_deviations(sloppy, sloppy.transformer, problem)
    assert deviations.step[0] == 1.0
    assert max(*deviations.step[1:], *deviations.free) < 1e-12
    location = "(token 0 of instance 0)"
    assert deviations.broken == f"in the prologue, register scratch: expected 0, found 1 {location}"


def test_a_broken_step_is_located() -> None:
    built = innerloop.build("preconditioned-gradient-descent", d=3, n=8, steps=3)
    problem = LinearRegression(d=3, n=8, noise=0.5).sample(4)
    second = built.transformer.blocks()[1].attention
    assert second is not None
    second.value.mul_(1 + 1e-6)
    deviations = measure_deviations(built.construction, built.transformer, problem)
    assert [deviation > 1e-10 for deviation in deviations.step] == [False, True, False]
    assert [deviation > 1e-10 for deviation in deviations.free] == [False, True, True]
    assert deviations.broken.startswith("in step 2, register y: expected ")


class ScriptedUsage(PreconditionedGradientDescentConstruction):
    """Reports a given share of its range for each state in turn."""

    shares: ClassVar[list[float]] = []

    def usage(self, stream: torch.Tensor) -> float:
        return self.shares.pop(0)


def test_data_outside_the_range_alone_break_the_certificate() -> None:
    scripted = ScriptedUsage(d=3, n=5, steps=3)
    ScriptedUsage.shares = [0.0, 2.0, 0.5, 0.1]
    problem = LinearRegression(d=3, n=5).sample(2)
    deviations = measure_deviations(scripted, scripted.transformer, problem)
    assert deviations.usage == 2.0, "the largest over all states counts"
    assert deviations.largest < 1e-12

    class Outside(PreconditionedGradientDescentConstruction):
        def usage(self, stream: torch.Tensor) -> float:
            return 2.0

    outside = Outside()
    certificate = certify(outside, outside.transformer)
    assert certificate.max_deviation <= certificate.tolerance
    assert not certificate.holds


def test_deviation_is_the_largest_elementwise_relative_error() -> None:
    zeros = torch.zeros(1000, dtype=torch.float64)
    one_wrong = zeros.clone()
    one_wrong[7] = 1e-9
    assert _deviation(one_wrong, zeros) == 1e-9
    reference = torch.tensor([1e6, 1.0], dtype=torch.float64)
    assert _deviation(torch.tensor([1e6, 1.1]).double(), reference) == pytest.approx(0.1)
    assert _deviation(torch.tensor([1e6 + 1, 1.0]).double(), reference) == pytest.approx(1e-6)
    assert _deviation(torch.tensor([torch.nan, 1.0]), reference) == float("inf")
    assert _deviation(torch.tensor([torch.inf, 1.0]), reference) == float("inf")


class LosesQueries(PreconditionedGradientDescentConstruction):
    """Loses every query but the first two."""

    def decode(self, problem, stream):
        return super().decode(problem, stream)[..., :2]


def test_a_prediction_of_the_wrong_shape_deviates_infinitely() -> None:
    problem = LinearRegression(d=3, n=5, queries=4).sample(2)
    short = LosesQueries(d=3, n=5, steps=2)
    assert measure_deviations(short, short.transformer, problem).largest == float("inf")


ROUGH = 1e-6


class Rough(PreconditionedGradientDescentConstruction):
    """Every step is a little too long; its error is close to the tolerance it declares."""

    exact = False
    error = "1e-6"

    def tolerance(self, dtype: torch.dtype) -> float:
        return ROUGH

    def body(self, k: int):
        head = Head({("x", "x"): -self.algorithm.preconditioners[k]}, {("y", "y"): 1 + 2e-6})
        return [Block(Attention.from_heads(self.layout, [head]))]


def make_rough() -> tuple[Rough, RegressionProblem]:
    steps = 0.05 * torch.eye(3, dtype=torch.float64)
    problem = LinearRegression(d=3, n=8).sample(4, generator=torch.Generator().manual_seed(0))
    return Rough(d=3, n=8, steps=12, preconditioners=steps), problem


def test_the_free_run_may_deviate_by_twice_the_grown_errors() -> None:
    construction, problem = make_rough()
    deviations = measure_deviations(construction, construction.transformer, problem)
    algorithm, limits = construction.algorithm, []
    states = list(algorithm.states(problem, 12))
    growth = ErrorGrowth(states[0], torch.Size([4]))
    for k in range(12):
        growth.advance(
            lambda s, k=k: algorithm.step(problem, s, k), states[k], after := states[k + 1]
        )
        prediction_factor = growth.prediction_factor(lambda s: algorithm.predict(problem, s), after)
        limits.append(2 * ROUGH * max(growth.state_factor, prediction_factor))
    beyond = [deviation > ROUGH for deviation in deviations.free]
    assert max(deviations.step) <= ROUGH
    assert sum(beyond) >= 6, "errors add up"
    for limit, expected, is_beyond in zip(deviations.limit, limits, beyond, strict=True):
        assert limit == pytest.approx(expected if is_beyond else ROUGH, rel=1e-12)
        assert ROUGH <= limit < 1e-2
    assert not deviations.broken


@pytest.mark.parametrize(("max_entries", "message"), [(3, ""), (2, "running free, by step")])
def test_large_states_get_no_more_than_the_tolerance(
    monkeypatch, max_entries: int, message: str
) -> None:
    """The free run gets its larger limit only if the state is small enough to compute growth.

    The state has three entries here, so a limit of two entries leaves the plain tolerance.
    """
    monkeypatch.setattr(law, "MAX_ENTRIES", max_entries)
    construction, problem = make_rough()
    deviations = measure_deviations(construction, construction.transformer, problem)
    assert deviations.broken.startswith(message)
    assert bool(deviations.broken) == bool(message)
    assert (set(deviations.limit) == {ROUGH}) == bool(message)
