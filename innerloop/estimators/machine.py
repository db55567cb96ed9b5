"""Build the transformers of estimators, and certify them once per algorithm and size.

A construction repeats the blocks of a step. The certified transformer has at most
`CERTIFIED_STEPS` steps; the transformer of an estimator repeats the same blocks for as many steps
as the data need. If a construction accepts smaller data as well, its size is rounded up to a power
of two, so that a few certificates suffice for many data sets.
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
"""The largest number of steps, and the number of random instances, of a certificate."""
MAX_STEPS = 2000
"""The largest depth that `steps="auto"` chooses."""
MAX_CERTIFICATES = 256
_certificates: dict[str, Certificate] = {}


def make_construction(name: str, **parameters: Any) -> Construction[Any, Any]:
    """Make one of the package's constructions by name."""
    return make_member("constructions", Construction, name, parameters)


def certify_once(construction: Construction[Any, Any], **changes: Any) -> Certificate:
    """Return the certificate of a construction's blocks; it is measured once and cached.

    The certified construction has fewer steps. `changes` are its parameters that depend on the
    number of steps.
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
    """Make the transformer of a construction; steps with the same blocks share them.

    Steps have the same blocks if `block_key` returns the same value for them. Without `block_key`,
    all steps are the same, and the transformer loops over the blocks of one step.
    """
    ends = {"prologue": construction.prologue(), "epilogue": construction.epilogue()}
    if block_key is None:
        body, loops = [construction.body(0)], construction.steps
    else:
        blocks: dict[Hashable, Any] = {}
        body, loops = [], 1
        for k in range(construction.steps):
            key = block_key(k)
            blocks[key] = blocks[key] if key in blocks else construction.body(k)
            body.append(blocks[key])
    return Transformer(construction.layout, body, **ends, loops=loops).to(torch.float64)


def round_up(count: int, least: int = 8, most: int = 10_000) -> int:
    """Round up to a power of two, between `least` and `most`."""
    return min(most, max(least, 1 << math.ceil(math.log2(max(count, 1)))))


def check_steps(steps: Any) -> int | None:
    """Return the number of steps that the user chose, or None for "auto"."""
    if isinstance(steps, str) and steps == "auto":
        return None
    return check_count("steps", steps, 1, 10_000)


def warn_gap(name: str, steps: int, needed: float, gap: float, what: str) -> None:
    """Warn that the data need more steps than were taken; `what` names the error `gap`."""
    required = "infinitely many" if math.isinf(needed) else f"{needed:,.0f}"
    warnings.warn(
        f"{name}: the data need {required} steps, {steps:,} were taken; {what} is {gap:.2g}",
        ConvergenceWarning,
        stacklevel=4,
    )
