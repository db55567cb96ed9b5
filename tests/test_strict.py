"""The type checker of the tests: shapes in annotations are enforced in every test."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import strict
import torch
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float
from torch import Tensor

from innerloop.problems.tabular_games import TabularGameProblem
from innerloop.transformer import Layout
from innerloop.transformer.layout import join
from innerloop.transformer.mlp import ElementwiseUnits

checked = strict.jaxtyped(typechecker=strict.check)


@checked
def multiply(a: Float[Tensor, "m k"], b: Float[Tensor, "k n"]) -> Float[Tensor, "m n"]:
    return a @ b


@checked
def return_wrong_shape(a: Float[Tensor, "m k"]) -> Float[Tensor, "k m"]:
    return multiply(a, a.new_ones(a.shape[1], a.shape[1]))


@checked
def iterate_rows(a: Float[Tensor, "m k"]) -> Iterator[Tensor]:
    yield from a


@checked
def repeat(name: str, size: float = 1.0, later: NotThereYet | None = None) -> str:  # pyright: ignore
    return name * int(size)


@checked
@dataclasses.dataclass(frozen=True)
class Pair:
    x: Float[Tensor, "n d"]
    y: Float[Tensor, " n"]


def test_the_first_calls_in_a_test_are_checked() -> None:
    for _ in range(strict.MOST - 1):
        multiply(torch.ones(2, 3), torch.ones(3, 4))
    with pytest.raises(BeartypeCallHintViolation):
        multiply(torch.ones(2, 3).int(), torch.ones(3, 4).int())
    assert multiply(torch.ones(2, 3).int(), torch.ones(3, 4).int()).sum() == 24
    strict.next_test()
    with pytest.raises(BeartypeCallHintViolation):
        multiply(torch.ones(2, 3).int(), torch.ones(3, 4).int())


def test_shapes_of_arguments_and_return_values_must_agree() -> None:
    assert multiply(torch.ones(2, 3), torch.ones(3, 4)).shape == (2, 4)
    assert multiply(b=torch.ones(5, 1), a=torch.ones(1, 5)).shape == (1, 1), "nothing is remembered"
    assert return_wrong_shape(torch.ones(2, 2)).shape == (2, 2)
    assert len(list(iterate_rows(torch.ones(3, 2)))) == 3
    with pytest.raises(BeartypeCallHintViolation):
        multiply(torch.ones(2, 3), torch.ones(2, 3))
    with pytest.raises(BeartypeCallHintViolation):
        multiply(torch.ones(2, 3).int(), torch.ones(3, 4))
    with pytest.raises(BeartypeCallHintViolation, match="return"):
        return_wrong_shape(torch.ones(2, 3))


def test_fields_and_arguments_without_shapes_are_checked_too() -> None:
    assert Pair(torch.ones(2, 3), torch.ones(2)).x.shape == (2, 3)
    with pytest.raises(BeartypeCallHintViolation):
        Pair(torch.ones(2, 3), torch.ones(3))
    assert repeat("a", 2) == "aa", "a whole number counts as a float"
    assert repeat("a", later="anything")
    with pytest.raises(BeartypeCallHintViolation):
        repeat(3)  # pyright: ignore


def test_the_whole_package_is_checked() -> None:
    layout, one = Layout(x=2), torch.ones(3)
    with pytest.raises(BeartypeCallHintViolation):  # a function
        join(one)
    with pytest.raises(BeartypeCallHintViolation):  # a method
        layout.read(one, "x")
    with pytest.raises(BeartypeCallHintViolation):  # an __init__, and lengths that disagree
        ElementwiseUnits(one, one, torch.ones(2), torch.zeros(1).long(), torch.zeros(1).long())
    with pytest.raises(BeartypeCallHintViolation):  # a dataclass
        TabularGameProblem(one.long(), one.long(), torch.ones(1, 3), (1, 1))
