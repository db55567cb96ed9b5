"""What may be asked for, checked before anything is drawn or memory is taken."""

from __future__ import annotations

from typing import Any

import numpy as np

from innerloop.errors import InputError

SEED_BITS = 63
"""Seeds are below 2 to this power: they fit into the signed 64 bits that torch and files have."""


def check_seed(seed: Any) -> int:
    """Return a seed as an `int`; refuse all but whole numbers from 0 to 2⁶³ − 1."""
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not whole:
        raise InputError(f"seed must be a whole number, got {seed!r}")
    if not 0 <= seed < 2**SEED_BITS:
        raise InputError(
            f"seed must be at least 0 and below 2^{SEED_BITS}, got {format_number(int(seed))}"
        )
    return int(seed)


def format_number(number: int) -> str:
    """Write a whole number; one of more than 20 digits by its size."""
    # Python refuses to write more than 4,300 digits, and nobody reads them.
    if abs(number) < 10**20:
        return str(number)
    sign = "−" if number < 0 else ""
    return f"about {sign}2^{abs(number).bit_length() - 1}"
