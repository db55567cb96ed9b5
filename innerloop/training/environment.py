"""The conditions of a training, other than settings and seed, that affect the last bits of weights.

The number of threads, the versions of libraries and the code determine the order of sums, so that
the same training ends with slightly different weights under other conditions. A run uses one thread
by default. It records its conditions and reports if it is resumed under other ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from innerloop.limits import check_count
from innerloop.provenance import collect_versions, digest_code

Environment = dict[str, Any]
"""Threads, device, versions and a digest of the code, as JSON values."""
MAX_THREADS = max(256, os.cpu_count() or 1)


def check_threads(threads: Any) -> int:
    """Return a number of threads as an `int`; raise `InputError` if torch could not start them."""
    return check_count("threads", threads, 1, MAX_THREADS)


@contextmanager
def use_threads(threads: int) -> Iterator[None]:
    """Let torch use this many threads in a `with` block; restore the previous number after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def describe_environment(
    threads: int, owner: type, device: torch.device, processes: int = 1
) -> Environment:
    """Return the conditions of a training; `owner` is the class whose code is digested."""
    where = {"threads": threads, "device": describe_device(device), "processes": processes}
    return {**where, "versions": collect_versions(), "code": digest_code(owner)}


def describe_device(device: torch.device) -> str:
    """Return the name of a device for the record, such as `cpu`, `mps` or `cuda (NVIDIA A100)`."""
    if device.type != "cuda":
        return device.type
    return f"cuda ({torch.cuda.get_device_name(device)})"


def is_environment(value: Any) -> bool:
    """Return whether a value from a file has the form of a result of `describe_environment`."""
    if not isinstance(value, dict):
        return False
    threads, versions, code = (value.get(name) for name in ("threads", "versions", "code"))
    texts = [*versions, *versions.values(), code] if isinstance(versions, dict) else [None]
    counts, texts = (threads, value.get("processes", 1)), [*texts, value.get("device", "cpu")]
    counted = all(type(count) is int and 1 <= count <= 10**6 for count in counts)
    return counted and all(isinstance(text, str) for text in texts)


def describe_differences(there: Environment, here: Environment) -> str:
    """Describe in one line how two environments differ; return "" if they are equal."""
    usual = {"threads": 1, "device": "cpu", "processes": 1}
    pairs = {name: (there.get(name, so), here.get(name, so)) for name, so in usual.items()}
    old, new = there["versions"], here["versions"]
    pairs |= {name: (old.get(name), new.get(name)) for name in {**old, **new}}
    parts = [
        f"{_shorten(name)} {_shorten(a)} then, {_shorten(b)} now"
        for name, (a, b) in pairs.items()
        if a != b
    ]
    parts += ["other code"] if there["code"] != here["code"] else []
    return ", ".join(parts)


def _shorten(value: Any) -> str:
    """Write a value from a file so that it stays short and on one line."""
    text = ascii(value)[1:-1] if isinstance(value, str) else str(value).lower()
    return text if len(text) <= 40 else f"{text[:39]}…"
