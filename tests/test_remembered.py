"""What is remembered is what would have been computed, and no more than that."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from remembered import mark, remembered
from torch import Tensor


def called() -> tuple[Any, list[int]]:
    calls: list[int] = []

    def drawn(generator: torch.Generator, size: int, scale: Any = 1.0) -> list[Tensor]:
        calls.append(size)
        factor: Any = scale(2.0) if callable(scale) else scale
        return [factor * torch.randn(size, generator=generator)]

    return remembered(drawn, {}), calls


def test_the_same_is_computed_once_and_leaves_the_generator_as_it_would() -> None:
    once, calls = called()
    generator = torch.Generator()
    first = once(generator.manual_seed(3), 4)
    after = torch.randn(2, generator=generator)
    first[0].zero_()  # what one caller does to it, no other sees
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
def test_whatever_differs_is_computed(seed: int, rest: dict[str, Any]) -> None:
    once, calls = called()
    once(torch.Generator().manual_seed(3), size=4)
    once(torch.Generator().manual_seed(seed), **rest)
    assert len(calls) == 2


def test_what_cannot_be_compared_or_is_changed_is_computed_every_time() -> None:
    counted: list[Any] = []

    def fills(generator: torch.Generator, rows: Any) -> None:
        counted.append(rows)
        if isinstance(rows, list):
            rows.append(1)

    once = remembered(fills, {})
    for _ in range(2):
        once(torch.Generator(), [])
        once(torch.Generator(), object())
    assert len(counted) == 4
    with pytest.raises(TypeError, match="cannot be compared"):
        mark({"a": [object()]})
