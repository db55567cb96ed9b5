"""The opening of a training run: the losses of its first steps, and a digest of its first batch.

The opening is stored with a recorded run, and a test repeats it. It changes if the initial model,
the batches, the loss or the optimiser change. Later steps are less informative, because training
amplifies rounding errors until two correct runs differ completely.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from torch import Tensor

from innerloop.training.restoring import is_number, require

OPENING = "opening"
"""The key of the opening, in a state and in the description of a model file."""
STEPS = 5
TOLERANCE = 1e-5
"""Largest relative difference of the first three losses that is attributed to rounding."""
LATER_TOLERANCE = 1e-4
"""Largest relative difference of the other two losses that is attributed to rounding.

On another kind of processor, the fourth loss of one of 64 recorded runs differed by 1.05e-5,
because training amplified the last digit. The first three losses never differed by 1e-6.
"""


@dataclass(frozen=True)
class Opening:
    """The losses before each of the first steps, and the SHA-256 of the first batch."""

    losses: tuple[float, ...]
    batch: str

    def as_dict(self) -> dict[str, Any]:
        """Return the opening as JSON values."""
        return {"losses": list(self.losses), "batch": self.batch}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Opening:
        return cls(tuple(content["losses"]), content["batch"])

    def describe_difference(self, other: Opening) -> str:
        """Describe in one line how another opening differs; return "" for one of the same run."""
        if self.batch != other.batch:
            return f"the first batch is {self.batch[:12]}… here, {other.batch[:12]}… there"
        if len(self.losses) != len(other.losses):
            return f"{len(self.losses)} losses here, {len(other.losses)} there"
        for step, (here, there) in enumerate(zip(self.losses, other.losses, strict=True)):
            allowed = TOLERANCE if step < 3 else LATER_TOLERANCE
            if not math.isclose(here, there, rel_tol=allowed):
                return f"the loss of step {step} is {here:.9g} here, {there:.9g} there"
        return ""


def is_opening(value: Any, most: int = STEPS) -> bool:
    """Return whether a value has the form of a saved `Opening`: first losses, digest of a batch."""
    if not isinstance(value, dict) or value.keys() != {"losses", "batch"}:
        return False
    losses, batch = value["losses"], value["batch"]
    listed = isinstance(losses, list) and len(losses) <= most and all(map(is_number, losses))
    word = isinstance(batch, str) and (len(batch) == 64 if losses else not batch)
    return listed and word and set(batch) <= set("0123456789abcdef")


def read_opening(state: Mapping[str, Any]) -> Opening | None:
    """Return the opening in the state of a run, which has as many losses as steps."""
    if OPENING not in state:
        return None if state["step"] else Opening((), "")
    known = min(state["step"], STEPS)
    opening = state[OPENING]
    require(
        is_opening(opening) and len(opening["losses"]) == known,
        "its opening is not valid for this run",
    )
    return Opening.from_dict(opening)


def digest_batch(batch: Any) -> str:
    """Compute the SHA-256 of the tensors of a batch: dtypes, shapes and bytes, in a fixed order."""
    digest = hashlib.sha256()
    for part in _iterate_parts(batch):
        digest.update(part)
    return digest.hexdigest()


def _iterate_parts(value: Any) -> Iterator[bytes]:
    """Iterate over the parts of a batch: fields in declared order, keys of dictionaries sorted."""
    if isinstance(value, Tensor):
        plain = value.detach().to("cpu").contiguous()
        yield json.dumps([str(plain.dtype), list(plain.shape)]).encode()
        yield plain.numpy().tobytes()
    elif is_dataclass(value):
        yield from (p for each in fields(value) for p in _iterate_parts(getattr(value, each.name)))
    elif isinstance(value, Mapping):
        for name in sorted(value):
            yield json.dumps(name).encode()
            yield from _iterate_parts(value[name])
    elif isinstance(value, list | tuple):
        yield from (part for each in value for part in _iterate_parts(each))
    else:
        yield repr(value).encode()
