"""What a program is compiled for: kinds of attention, numbers of tokens, and which savings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Peepholes(NamedTuple):
    """Which savings are made; all of them unless their effect is to be measured.

    All but `reuse`: an MLP may write to a place that it clears, but a small number there is then as
    exact as the large one before it.
    """

    in_place: bool = True
    early_clear: bool = True
    reduce: bool = True
    merge: bool = True
    early_write: bool = True
    reuse: bool = False


@dataclass(frozen=True)
class Target:
    """What to compile for: ReLU or linear attention, and numbers of tokens where they are fixed."""

    relu: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)
    peepholes: Peepholes = Peepholes()
