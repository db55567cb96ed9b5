"""Draw values of Hypothesis strategies with the random numbers of a try."""

from __future__ import annotations

import random
from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")
SUPPRESSED = [
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.large_base_example,
    HealthCheck.too_slow,
]
"""Health checks that are meant for tests, and that do not matter for a single draw."""


def draw(strategy: SearchStrategy[T], chance: random.Random) -> T:
    """Draw one value; the same random numbers give the same value.

    Hypothesis draws up to about 1,000 numbers. For a larger array, draw its shape and a seed.
    """
    values: list[T] = []

    @seed(chance.getrandbits(64))
    @settings(
        max_examples=2,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=SUPPRESSED,
    )
    @given(st.integers(0, 2**64 - 1), strategy)
    def collect(number: int, value: T) -> None:
        # The first example is the simplest value of each strategy. The second example differs from
        # the first, so without the number it could never be the simplest value.
        values.append(value)

    collect()
    return values[-1]
