"""The law, measured: each of its parts notices what is wrong with it, and where."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch

import innerloop
from innerloop.constructions import law
from innerloop.constructions.certificate import certify
from innerloop.constructions.growth import Growth
from innerloop.constructions.law import _deviation, deviations
from innerloop.constructions.preconditioned_gradient_descent import LinearGradientDescent
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.transformer import MLP, Attention, Block, Head, Layout, affine, clear


class Scratchy(LinearGradientDescent):
    """Gradient descent that declares a scratch register. In `leaky` form, it also reads it."""

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
        return [Block(Attention.of(self.layout, [Head(score, value)]))]


class Reads(Scratchy):
    """Reads its scratch register, which nothing ever writes: only noise in it shows the leak."""

    def body(self, k: int):
        score = {("x", "x"): -self.algorithm.preconditioners[k]}
        value = {("y", "y"): 1.0, ("scratch", "y"): 1e-6}
        return [Block(Attention.of(self.layout, [Head(score, value)]))]


def test_scratch_is_filled_with_noise_and_must_not_matter() -> None:
    problem = LinearRegression(d=3, n=5, noise=0.1).sample(6)
    generator = torch.Generator().manual_seed(0)
    honest = Scratchy(d=3, n=5, steps=3)
    assert deviations(honest, honest.transformer, problem, generator).largest < 1e-12
    leaky = Scratchy(d=3, n=5, steps=3)
    object.__setattr__(leaky, "leaky", True)
    assert deviations(leaky, leaky.transformer, problem, generator).largest > 1e-8
    reads = Reads(d=3, n=5, steps=3)
    found = deviations(reads, reads.transformer, problem, generator)
    assert max(found.step) > 1e-8
    assert max(found.free) < 1e-12, "running free, the scratch register stays empty"


class ReadsAtTheEnd(Scratchy):
    """Steps honestly, but reads its scratch register out."""

    def body(self, k: int):
        head = Head({("x", "x"): -self.algorithm.preconditioners[k]}, {("y", "y"): 1.0})
        return [Block(Attention.of(self.layout, [head]))]

    def epilogue(self):
        return [Block(mlp=MLP.of(self.layout, [affine("scratch", "y", 1e-6)]))]


def test_the_read_out_is_measured_after_every_step() -> None:
    construction = ReadsAtTheEnd(d=3, n=5, steps=3)
    problem = LinearRegression(d=3, n=5).sample(4)
    found = deviations(construction, construction.transformer, problem)
    assert all(off > 1e-8 for off in found.step)
    assert max(found.free) < 1e-12
    assert found.broken == "in the read-out before any step, prediction"


class Sloppy(Scratchy):
    """Its prologue writes what its first step wipes out again."""

    scratch = ()

    def prologue(self):
        return [Block(mlp=MLP.of(self.layout, [affine("scratch", "scratch", bias=1.0)]))]

    def body(self, k: int):
        head = Head({("x", "x"): -self.algorithm.preconditioners[k]}, {("y", "y"): 1.0})
        attention = Attention.of(self.layout, [head])
        return [Block(attention, MLP.of(self.layout, [clear("scratch")]))]


def test_the_prologue_counts_even_if_a_step_repairs_it() -> None:
    sloppy = Sloppy(d=3, n=5, steps=3)
    problem = LinearRegression(d=3, n=5).sample(2)
    found = deviations(sloppy, sloppy.transformer, problem)
    assert found.step[0] == 1.0
    assert max(*found.step[1:], *found.free) < 1e-12
    assert found.broken == "in the prologue, register scratch"


def test_a_broken_step_is_found_where_it_is() -> None:
    built = innerloop.build("preconditioned-gradient-descent", d=3, n=8, steps=3)
    problem = LinearRegression(d=3, n=8, noise=0.5).sample(4)
    second = built.transformer.blocks()[1].attention
    assert second is not None
    second.value.mul_(1 + 1e-6)
    found = deviations(built.construction, built.transformer, problem)
    assert [off > 1e-10 for off in found.step] == [False, True, False]
    assert [off > 1e-10 for off in found.free] == [False, True, True]
    assert found.broken == "in step 2, register y"


class Beyond(LinearGradientDescent):
    """Says of each state in turn what share of its range it uses."""

    shares: ClassVar[list[float]] = []

    def usage(self, stream: torch.Tensor) -> float:
        return self.shares.pop(0)


def test_data_outside_the_range_break_the_certificate_by_themselves() -> None:
    beyond = Beyond(d=3, n=5, steps=3)
    Beyond.shares = [0.0, 2.0, 0.5, 0.1]
    problem = LinearRegression(d=3, n=5).sample(2)
    found = deviations(beyond, beyond.transformer, problem)
    assert found.usage == 2.0, "the largest over all states counts"
    assert found.largest < 1e-12

    class Outside(LinearGradientDescent):
        def usage(self, stream: torch.Tensor) -> float:
            return 2.0

    outside = Outside()
    certificate = certify(outside, outside.transformer)
    assert certificate.max_deviation <= certificate.tolerance
    assert not certificate.holds


def test_deviation_is_elementwise_and_the_largest() -> None:
    zeros = torch.zeros(1000, dtype=torch.float64)
    one_off = zeros.clone()
    one_off[7] = 1e-9
    assert _deviation(one_off, zeros) == 1e-9
    reference = torch.tensor([1e6, 1.0], dtype=torch.float64)
    assert _deviation(torch.tensor([1e6, 1.1]).double(), reference) == pytest.approx(0.1)
    assert _deviation(torch.tensor([1e6 + 1, 1.0]).double(), reference) == pytest.approx(1e-6)
    assert _deviation(torch.tensor([torch.nan, 1.0]), reference) == float("inf")
    assert _deviation(torch.tensor([torch.inf, 1.0]), reference) == float("inf")


class Short(LinearGradientDescent):
    """Loses every query but the first two."""

    def decode(self, problem, stream):
        return super().decode(problem, stream)[..., :2]


def test_an_answer_of_the_wrong_shape_breaks_the_law_and_is_no_limit() -> None:
    problem = LinearRegression(d=3, n=5, queries=4).sample(2)
    short = Short(d=3, n=5, steps=2)
    assert deviations(short, short.transformer, problem).largest == float("inf")


ROUGH = 1e-6


class Rough(LinearGradientDescent):
    """Every step goes a little too far, by nearly what it declares."""

    exact = False
    error = "1e-6"

    def tolerance(self, dtype: torch.dtype) -> float:
        return ROUGH

    def body(self, k: int):
        head = Head({("x", "x"): -self.algorithm.preconditioners[k]}, {("y", "y"): 1 + 2e-6})
        return [Block(Attention.of(self.layout, [head]))]


def rough() -> tuple[Rough, RegressionProblem]:
    steps = 0.05 * torch.eye(3, dtype=torch.float64)
    problem = LinearRegression(d=3, n=8).sample(4, generator=torch.Generator().manual_seed(0))
    return Rough(d=3, n=8, steps=12, preconditioners=steps), problem


def test_the_free_run_may_be_off_by_twice_what_errors_grow_to() -> None:
    construction, problem = rough()
    found = deviations(construction, construction.transformer, problem)
    algorithm, limits = construction.algorithm, []
    states = list(algorithm.states(problem, 12))
    growth = Growth(states[0], torch.Size([4]))
    for k in range(12):
        growth.advance(
            lambda s, k=k: algorithm.step(problem, s, k), states[k], after := states[k + 1]
        )
        told = growth.read(lambda s: algorithm.predict(problem, s), after)
        limits.append(2 * ROUGH * max(growth.grown, told))
    beyond = [off > ROUGH for off in found.free]
    assert max(found.step) <= ROUGH
    assert sum(beyond) >= 6, "errors add up"
    for limit, expected, asked in zip(found.limit, limits, beyond, strict=True):
        assert limit == pytest.approx(expected if asked else ROUGH, rel=1e-12)
        assert ROUGH <= limit < 1e-2
    assert not found.broken


@pytest.mark.parametrize(("most", "says"), [(3, ""), (2, "running free, by step")])
def test_large_states_have_to_do_with_the_tolerance(monkeypatch, most: int, says: str) -> None:
    """The state has three entries: where no more than two are allowed, nothing is granted."""
    monkeypatch.setattr(law, "MOST_ENTRIES", most)
    construction, problem = rough()
    found = deviations(construction, construction.transformer, problem)
    assert found.broken.startswith(says)
    assert bool(found.broken) == bool(says)
    assert (set(found.limit) == {ROUGH}) == bool(says)
