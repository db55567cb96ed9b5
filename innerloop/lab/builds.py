"""Build the transformers of the scenes and cache them, because scenes use them repeatedly."""

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
"""The number of random instances of a scene's certificate: few, but they reveal a wrong weight."""
MAX_KEPT = 64
"""The number of cached builds; if there are more, the least recently used one is removed."""


class _Slot:
    """A place of the cache: a build, or None, and the lock that a thread holds while it builds."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.built: BuiltTransformer | None = None


_slots: OrderedDict[str, _Slot] = OrderedDict()
_guard = threading.Lock()


def get_build(
    name: str, progress: Progress | None = None, instances: int = INSTANCES, **parameters: Any
) -> BuiltTransformer:
    """Return the transformer of a construction with its certificate; build it on the first call."""
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
    """Return a certificate's description for the page; `here` is about the displayed problem."""
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
    """Describe how far transformer and algorithm differ on the displayed problem."""
    largest = float((ours - reference).abs().max())
    return f"On what you see, transformer and algorithm differ by at most {largest:.1g}."


def format_count(count: int, noun: str) -> str:
    """Format a number with its noun, for example `1 layer` or `2 layers`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
