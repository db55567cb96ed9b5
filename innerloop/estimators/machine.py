"""Transformers for estimators: certified once per algorithm and size, looped as deep as needed.

A construction repeats the blocks of a step. What is certified is a transformer of at most
`CERTIFIED_STEPS` steps with those blocks; what runs has the same blocks as often as the data need.
Sizes are rounded up to powers of two where a construction takes smaller data too, so that few
certificates serve many data sets.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning

from innerloop.certification.building import build
from innerloop.certification.certificate import Certificate
from innerloop.constructions.base import Construction
from innerloop.errors import InputError
from innerloop.limits import check_count
from innerloop.registry import make_member
from innerloop.transformer import Transformer

CERTIFIED_STEPS, INSTANCES = 4, 8
"""Depth and number of random instances of a certificate."""
MAX_STEPS = 2000
"""The largest depth that `steps="auto"` chooses."""
MAX_CERTIFICATES = 256
_certificates: dict[str, Certificate] = {}


def make_construction(name: str, **parameters: Any) -> Construction[Any, Any]:
    """Make a construction of the package by name."""
    return make_member("constructions", Construction, name, parameters)


def certify_once(construction: Construction[Any, Any], **changes: Any) -> Certificate:
    """Return the certificate of a construction's blocks, measured only the first time.

    `changes` are parameters of the certified one that differ, where they depend on the depth.
    """
    steps = min(construction.steps, CERTIFIED_STEPS)
    sibling = replace(construction, **{"steps": steps, **changes})
    key = json.dumps([sibling.name, sibling.values()], sort_keys=True)
    if key not in _certificates:
        certificate = build(sibling, instances=INSTANCES).certificate
        if not certificate.holds:
            raise InputError(f"the certificate of {sibling.name} fails: {certificate.explain()}")
        if len(_certificates) >= MAX_CERTIFICATES:
            _certificates.pop(next(iter(_certificates)))
        _certificates[key] = certificate
    return _certificates[key]


def make_transformer(
    construction: Construction[Any, Any], block_key: Callable[[int], Hashable] | None = None
) -> Transformer:
    """Make the transformer of a construction with each distinct step built once.

    Steps with equal `block_key` have equal blocks; without one, all steps are the same, and the
    body is looped.
    """
    ends = {"prologue": construction.prologue(), "epilogue": construction.epilogue()}
    if block_key is None:
        body, loops = [construction.body(0)], construction.steps
    else:
        made: dict[Hashable, Any] = {}
        body, loops = [], 1
        for k in range(construction.steps):
            key = block_key(k)
            made[key] = made[key] if key in made else construction.body(k)
            body.append(made[key])
    return Transformer(construction.layout, body, **ends, loops=loops).to(torch.float64)


def round_up(count: int, least: int = 8, most: int = 10_000) -> int:
    """Round up to a power of two, between `least` and `most`."""
    return min(most, max(least, 1 << math.ceil(math.log2(max(count, 1)))))


def check_steps(steps: Any) -> int | None:
    """Return a given depth; None for "auto"."""
    if isinstance(steps, str) and steps == "auto":
        return None
    return check_count("steps", steps, 1, 10_000)


def warn_gap(name: str, steps: int, needed: float, gap: float, what: str) -> None:
    """Warn that a depth is not enough, with what was reached."""
    wanted = "infinitely many" if math.isinf(needed) else f"{needed:,.0f}"
    warnings.warn(
        f"{name}: the data need {wanted} steps, {steps:,} were taken; {what} is {gap:.2g}",
        ConvergenceWarning,
        stacklevel=4,
    )
