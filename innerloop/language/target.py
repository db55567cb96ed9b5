"""The target of a compilation: the kind of attention, numbers of tokens, and the savings to
make.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Peepholes(NamedTuple):
    """The savings to make; all of them, unless the effect of one is measured.

    Only `reuse` is off by default: an MLP may then write to a place that it clears, and a small
    number there has the absolute rounding error of the large number before it.
    """

    in_place: bool = True
    early_clear: bool = True
    reduce: bool = True
    merge: bool = True
    early_write: bool = True
    reuse: bool = False


@dataclass(frozen=True)
class Target:
    """The target: ReLU or linear attention, and the numbers of tokens that are fixed."""

    relu: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)
    peepholes: Peepholes = Peepholes()
