"""A shared result of a claim equals the result of computing it again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from remembered import mark, remember_calls
from torch import Tensor


def make_counted_function() -> tuple[Any, list[int]]:
    """A remembered function that draws numbers, and the list of the calls it computed."""
    calls: list[int] = []

    def draw(generator: torch.Generator, size: int, scale: Any = 1.0) -> list[Tensor]:
        calls.append(size)
        factor: Any = scale(2.0) if callable(scale) else scale
        return [factor * torch.randn(size, generator=generator)]

    return remember_calls(draw, {}), calls


def test_equal_calls_are_computed_once_and_advance_the_generator_alike() -> None:
    once, calls = make_counted_function()
    generator = torch.Generator()
    first = once(generator.manual_seed(3), 4)
    after = torch.randn(2, generator=generator)
    first[0].zero_()  # changing a returned value must not change the remembered one
    again = once(generator.manual_seed(3), 4)
    assert calls == [4]
    expected = torch.randn(4, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(again[0], expected)
    torch.testing.assert_close(torch.randn(2, generator=generator), after)


@pytest.mark.parametrize(
    ("seed", "rest"),
    [
        (4, {"size": 4}),
        (3, {"size": 5}),
        (3, {"size": 4, "scale": 1}),
        (3, {"size": 4, "scale": lambda x: x}),
        (3, {"size": 4, "scale": torch.ones(4)}),
    ],
)
def test_calls_that_differ_are_computed(seed: int, rest: dict[str, Any]) -> None:
    once, calls = make_counted_function()
    once(torch.Generator().manual_seed(3), size=4)
    once(torch.Generator().manual_seed(seed), **rest)
    assert len(calls) == 2


def test_calls_with_incomparable_or_changed_arguments_are_computed_every_time() -> None:
    calls: list[Any] = []

    def append_one(generator: torch.Generator, rows: Any) -> None:
        calls.append(rows)
        if isinstance(rows, list):
            rows.append(1)

    once = remember_calls(append_one, {})
    for _ in range(2):
        once(torch.Generator(), [])
        once(torch.Generator(), object())
    assert len(calls) == 4
    with pytest.raises(TypeError, match="cannot be compared"):
        mark({"a": [object()]})
