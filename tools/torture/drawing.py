"""Draw values of Hypothesis strategies with the random numbers of a try."""

from __future__ import annotations

import random
from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")


def draw(strategy: SearchStrategy[T], chance: random.Random) -> T:
    """Draw one value; the same random numbers give the same value."""
    values: list[T] = []

    @seed(chance.getrandbits(64))
    @settings(
        max_examples=2,  # the first example is the simplest one, whatever the seed
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck.__members__.values()],
    )
    @given(strategy)
    def collect(value: T) -> None:
        values.append(value)

    collect()
    return values[-1]
