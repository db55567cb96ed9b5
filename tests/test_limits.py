"""Limits: seeds, sizes and memory that may be asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from innerloop.errors import InputError
from innerloop.limits import check_seed


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**63 - 1, np.int64(7), np.uint64(2**63 - 1)])
def test_a_seed_is_a_whole_number_below_two_to_the_63(seed: Any) -> None:
    assert check_seed(seed) == int(seed)
    assert type(check_seed(seed)) is int


@pytest.mark.parametrize(
    ("seed", "message"),
    [
        (-1, "at least 0 and below 2^63, got -1"),
        (2**63, "at least 0 and below 2^63, got 9223372036854775808"),
        (np.uint64(2**64 - 1), "below 2^63, got 18446744073709551615"),
        pytest.param(10**5000, "got about 2^16609", id="5000 digits"),
        (-(2**100), "got about −2^100"),
        (True, "a whole number, got True"),
        (1.0, "a whole number, got 1.0"),
        ("3", "a whole number, got '3'"),
        (None, "a whole number, got None"),
    ],
)
def test_another_seed_is_refused_in_one_line(seed: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        check_seed(seed)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
