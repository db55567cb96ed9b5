"""Cache the built transformers, because a scene requests the same few many times."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from typing import Any

from torch import Tensor

from innerloop.certification.building import BuiltTransformer, build
from innerloop.certification.certificate import Certificate
from innerloop.progress import Progress

INSTANCES = 16
"""Random instances of a scene's certificate: enough to tell any wrong weight, and quick."""
MAX_KEPT = 64
"""Builds that are kept; the least recently used goes first."""


class _Slot:
    """One build, or the lock of the thread that makes it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.built: BuiltTransformer | None = None


_slots: OrderedDict[str, _Slot] = OrderedDict()
_guard = threading.Lock()


def get_build(
    name: str, progress: Progress | None = None, instances: int = INSTANCES, **parameters: Any
) -> BuiltTransformer:
    """Return a construction's transformer with its certificate, and build it on the first call."""
    key = json.dumps([name, instances, parameters], sort_keys=True)
    with _guard:
        slot = _slots.setdefault(key, _Slot())
        _slots.move_to_end(key)
        while len(_slots) > MAX_KEPT:
            _slots.popitem(last=False)
    with slot.lock:
        if slot.built is None:

            def report(share: float, doing: str = "") -> None:
                if progress is not None:
                    progress(share, f"building and certifying {name}")

            slot.built = build(name, instances=instances, progress=report, **parameters)
        return slot.built


def describe_certificate(certificate: Certificate, here: str) -> dict[str, Any]:
    """Describe a certificate in one line; `here` describes the result on the displayed problem."""
    size = (
        f"{format_count(certificate.layers, 'layer')}, {format_count(certificate.heads, 'head')} "
        f"in each, width {certificate.width}, {certificate.parameters:,} weights"
    )
    if certificate.holds:
        deviation = max(certificate.step_deviation)
        line = (
            f"{certificate.name}: holds. {size}. On {certificate.instances} random instances a "
            f"step deviates from the algorithm by at most {deviation:.1g} "
            f"(allowed {certificate.tolerance:.1g})."
        )
    else:
        why = certificate.explain()
        line = f"{certificate.name}: does not hold. {why[0].upper()}{why[1:]}. {size}."
    return {
        "holds": certificate.holds,
        "line": line,
        "here": here,
    }


def describe_difference(ours: Tensor, reference: Tensor) -> str:
    """Describe the difference of transformer and algorithm on the displayed problem."""
    largest = float((ours - reference).abs().max())
    return f"On what you see, transformer and algorithm differ by at most {largest:.1g}."


def format_count(count: int, noun: str) -> str:
    """Format a number of things: `1 layer`, `2 layers`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
