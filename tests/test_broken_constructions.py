"""A construction that breaks its law reports the place, the values and the smallest size."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from innerloop.certification.certificate import certify
from innerloop.certification.cost import check_cost
from innerloop.certification.law import measure_deviations
from innerloop.certification.mismatch import describe_prediction_mismatch, describe_stream_mismatch
from innerloop.certification.shrink import MAX_ATTEMPTS, shrink
from innerloop.constructions.base import Cost
from innerloop.constructions.mixture_of_regressions import MixtureOfRegressionsConstruction
from innerloop.constructions.preconditioned_gradient_descent import (
    PreconditionedGradientDescentConstruction,
)
from innerloop.errors import OutOfRangeError
from innerloop.problems.linear_regression import LinearRegression
from innerloop.transformer import MLP, Attention, Block, Head, Layout, affine


class Transposed(PreconditionedGradientDescentConstruction):
    """Its first two steps are right, the others have A transposed: wrong from step 3 and d = 2."""

    def body(self, k: int) -> list[Block]:
        a = self.algorithm.preconditioners[k]
        head = Head({("x", "x"): -(a if k < 2 else a.mT)}, {("y", "y"): 1.0})
        return [Block(Attention.from_heads(self.layout, [head]))]


class Wordy(PreconditionedGradientDescentConstruction):
    """Runs its algorithm, in one layer more than it declares."""

    def epilogue(self) -> list[Block]:
        return [Block(mlp=MLP.from_pieces(self.layout, [affine("y", "y", 0.0)]))]


class Unexplained(PreconditionedGradientDescentConstruction):
    """Declares its heads with a letter that it does not explain."""

    cost: ClassVar[Cost] = Cost("k", "T", "d + 2")


def test_the_first_deviation_reports_place_and_both_values() -> None:
    construction = Transposed(d=3, n=4, steps=4)
    problem = LinearRegression(d=3, n=4, noise=0.5, queries=2).sample(5)
    found = measure_deviations(construction, construction.transformer, problem)
    says = re.fullmatch(
        r"in step 3, register y: expected (\S+), found (\S+) \(token (\d+) of instance (\d)\)",
        found.broken,
    )
    assert says is not None, found.broken
    token, instance = int(says[3]), int(says[4])
    *_, before, after = construction.algorithm.states(problem, 3)
    expected = construction.encode(problem, after)
    stepped = construction.transformer.step(construction.encode(problem, before), 2, 4)
    for number, stream in ((says[1], expected), (says[2], stepped)):
        assert float(number) == pytest.approx(float(stream[instance, token, 3]), rel=1e-2)
    off = (stepped - expected).abs() / expected.abs().clamp_min(1)
    assert float(off[instance, token, 3]) == float(off.max())


def test_certify_finds_the_smallest_size_that_breaks() -> None:
    construction = Transposed(d=7, n=30, steps=9)
    certificate = certify(construction, construction.transformer, seed=5)
    assert not certificate.holds
    assert certificate.broken.startswith("in step 3, register y: expected ")
    smallest = "; smallest found: -s steps=3 -s d=2 -s n=1 --instances 1 --seed 5"
    assert certificate.broken.endswith(smallest)
    again = Transposed(d=2, n=1, steps=3)
    assert not certify(again, again.transformer, instances=1, seed=5).holds
    right = Transposed(d=2, n=1, steps=2)
    assert certify(right, right.transformer, instances=1, seed=5).holds


def double_values(attention: Attention) -> None:
    attention.value.mul_(2.0)


def unmask(attention: Attention) -> None:
    attention.mask = "all"


@pytest.mark.parametrize("change", [double_values, unmask])
def test_only_own_weights_are_shrunk(change: Callable) -> None:
    """Weights that somebody changed have no smaller version, even of a construction that breaks."""
    construction = Transposed(d=3, n=8, steps=4)
    assert "smallest" in certify(construction, construction.transformer).broken
    changed = copy.deepcopy(construction.transformer)
    for block in changed.blocks():
        assert block.attention is not None
        change(block.attention)
    certificate = certify(construction, changed)
    assert not certificate.holds
    assert "smallest" not in certificate.broken


def test_a_smaller_size_stays_within_the_limits() -> None:
    """Numbers that are given outright fix d: it cannot be lowered."""
    given = 0.1 * torch.randn(3, 3, dtype=torch.float64)
    construction = Transposed(d=3, n=20, steps=5, preconditioners=given)
    broken = certify(construction, construction.transformer).broken
    assert "smallest found: -s steps=3 -s d=3 -s n=1 " in broken


def test_shrinking_ends_and_skips_errors() -> None:
    tried = []

    def breaks(construction: PreconditionedGradientDescentConstruction) -> bool:
        tried.append((construction.steps, construction.d, construction.n))
        if construction.d == 1:
            raise ZeroDivisionError
        if construction.n < 5:
            raise OutOfRangeError("too few")
        return construction.steps % 7 == 0

    start = PreconditionedGradientDescentConstruction(d=9, n=40, steps=70)
    smallest = shrink(start, breaks)
    assert (smallest.d, smallest.n) == (2, 5)
    assert smallest.steps == 35
    assert len(tried) <= MAX_ATTEMPTS
    assert shrink(start, lambda _: False) is start


def test_a_wrong_cost_is_reported() -> None:
    wordy = Wordy(d=3, n=4, steps=5)
    assert check_cost(wordy, wordy.transformer) == "cost: declares k = 5 layers, has 6"
    certificate = certify(wordy, wordy.transformer)
    assert certificate.max_deviation <= certificate.tolerance
    assert not certificate.holds
    assert certificate.broken == "cost: declares k = 5 layers, has 6"
    unexplained = Unexplained(d=3)
    says = "cost: 'T' has the letter T: let `where` explain it"
    assert check_cost(unexplained, unexplained.transformer) == says


def test_every_part_of_a_cost_is_compared() -> None:
    class Wide(PreconditionedGradientDescentConstruction):
        cost: ClassVar[Cost] = Cost("k", "2", "d + 2", where="A = d")

    wide = Wide(d=3, steps=2)
    says = "cost: declares 2 heads, has 1; declares width d + 2 = 5, has 4"
    assert check_cost(wide, wide.transformer) == says

    class Unknown(PreconditionedGradientDescentConstruction):
        cost: ClassVar[Cost] = Cost("k", "1", "d + 1", where="A = arms")

    unknown = Unknown(d=3, steps=2)
    assert "got 'A = arms'" in check_cost(unknown, unknown.transformer)


def test_a_cost_with_other_letters_is_compared() -> None:
    construction = MixtureOfRegressionsConstruction(d=2, n=6, components=2, steps=1)
    assert check_cost(construction, construction.transformer) == ""
    larger = replace(construction, components=3)
    assert check_cost(construction, larger.transformer).startswith("cost: declares 2K = 4 heads")


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        ((), "register z: expected 0, found 0.5 (token 1, entry (1, 0))"),
        ((2,), "register z: expected 0, found 0.5 (token 1, entry (1, 0) of instance 1)"),
        ((2, 3), "register z: expected 0, found 0.5 (token 1, entry (1, 0) of instance (1, 2))"),
    ],
)
def test_places_are_described(batch: tuple[int, ...], says: str) -> None:
    layout = Layout(x=2, z=(2, 2))
    exact, where = torch.zeros(*batch, 3, 6).double(), torch.ones(3, 6, dtype=torch.bool)
    stream = exact.clone()
    stream[(-1,) * len(batch)][1, 4] = 0.5
    stream[..., 2, 0] = 9.0
    where[2, 0] = False
    assert describe_stream_mismatch(layout, stream, exact, where) == says


@pytest.mark.parametrize(
    ("expected", "found", "says"),
    [
        (0.5, 0.7, "expected 0.5, found 0.7 (entry 1 of instance 0)"),
        (1 / 3, 1 / 3 + 1e-6, "expected 0.333333, found 0.333334"),
        (1.0, float("nan"), "expected 1, found nan (entry 1 of instance 0)"),
    ],
)
def test_different_numbers_have_different_texts(expected: float, found: float, says: str) -> None:
    answer = torch.zeros(1, 2).double()
    prediction = answer.clone()
    answer[0, 1], prediction[0, 1] = expected, found
    told = describe_prediction_mismatch(prediction, answer, 1)
    assert told.startswith(says)
    numbers = re.findall(r"(?:expected|found) ([^ ,]+)", told)
    assert numbers[0] != numbers[1]


def test_wrong_shapes_are_reported() -> None:
    def zeros(*shape: int) -> Tensor:
        return torch.zeros(*shape)

    said = describe_prediction_mismatch(zeros(2, 2), zeros(2, 4), 1)
    assert said == "expected shape (2, 4), found (2, 2)"
    mask = torch.ones(3, 2, dtype=torch.bool)
    streams = describe_stream_mismatch(Layout(x=2), zeros(4, 2), zeros(3, 2), mask)
    assert streams == "stream: expected shape (3, 2), found (4, 2)"
