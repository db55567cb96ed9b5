"""Check the sizes of a request before random numbers are drawn or memory is allocated."""

from __future__ import annotations

import os
import sys
from numbers import Integral
from typing import Any

from innerloop.errors import InputError

MAX_COUNT = 10_000_000
"""The default of the largest accepted number of prompts, steps and so on."""
VARIABLE, DEFAULT_GIGABYTES = "INNERLOOP_MEMORY", 4.0
"""The environment variable that limits the memory of one computation."""
SEED_BITS = 32
"""Seeds are below 2³², because torch's generator ignores higher bits: 2³² would equal seed 0."""


def check_seed(seed: Any) -> int:
    """Return a seed as an `int`, or raise `InputError` unless it is in 0 … 2³² − 1."""
    number = _require_whole("seed", seed)
    if not 0 <= number < 2**SEED_BITS:
        raise InputError(
            f"seed must be at least 0 and below 2^{SEED_BITS}, got {format_number(number)}"
        )
    return number


def check_count(name: str, value: Any, least: int, most: int = MAX_COUNT) -> int:
    """Return a count as an `int`, or raise `InputError` unless it is in least … most."""
    number = _require_whole(name, value)
    if number < least:
        raise InputError(f"{name} must be at least {least}, got {format_number(number)}")
    if number > most:
        raise InputError(f"{name} must be at most {most}, got {format_number(number)}")
    return number


def _require_whole(name: str, value: Any) -> int:
    """Return a whole number (also NumPy's) as an `int`, or raise `InputError`."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise InputError(f"{name} must be a whole number, got {value!r}")
    return int(value)


def check_memory(needed: int, what: str) -> None:
    """Raise `InputError` if the object that `what` names needs more bytes than the limit."""
    limit = find_memory_limit()
    if needed > limit:
        raise InputError(
            f"{what} would take about {_format_bytes(needed)} of memory, and the limit is "
            f"{_format_bytes(limit)}: choose smaller sizes, or set {VARIABLE} to more gigabytes"
        )


def find_memory_limit() -> int:
    """Return the memory limit of one computation in bytes: `INNERLOOP_MEMORY` gigabytes, or 4."""
    text = os.environ.get(VARIABLE, "")
    try:
        gigabytes = float(text or DEFAULT_GIGABYTES)
    except ValueError:
        gigabytes = 0.0
    if not 0 < gigabytes < 1e9:
        raise InputError(f"{VARIABLE} must be a number of gigabytes above 0, got {text!r}")
    return int(gigabytes * 1e9)


def _format_bytes(size: int) -> str:
    gigabytes = size // 10**8 / 10 if size < 10**30 else float("inf")
    return f"{gigabytes:.3g} GB"


def format_number(number: int) -> str:
    """Format a whole number; for more than 20 digits, format its order of magnitude."""
    # Python refuses to write more than 4,300 digits, and nobody reads them.
    if abs(number) < 10**20:
        return str(number)
    sign = "−" if number < 0 else ""
    return f"about {sign}2^{abs(number).bit_length() - 1}"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether Python or torch raised this error because memory ran out."""
    # torch has a class of its own for devices alone; what its CPU allocator says is fixed in C++.
    torch = sys.modules.get("torch")  # where it was never imported, it raised nothing
    classes = (MemoryError, torch.OutOfMemoryError) if torch else (MemoryError,)
    return isinstance(error, classes) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator: " in str(error)
    )
