"""Make a counterexample one that a reader can check by hand: round entries, many of them zero."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

DIGITS = 4
"""Most significant digits that an entry is rounded to."""


def shrink(instance: Tensor, breaks: Callable[[Tensor], bool]) -> Tensor:
    """Round every entry as far as the instance still breaks the statement.

    Each entry in turn becomes the simplest number that keeps the violation: 0, 1, −1, an integer of
    few digits, else a decimal. `breaks` must be true of the instance itself.
    """
    if not breaks(instance):
        raise ValueError("nothing to shrink: this instance does not break the statement")
    best = instance.clone()
    for _ in range(3):
        before = best.clone()
        for k in range(best.numel()):
            best = _simplify_entry(best, k, breaks)
        if torch.equal(before, best):
            break
    return best


def _simplify_entry(instance: Tensor, k: int, breaks: Callable[[Tensor], bool]) -> Tensor:
    entry = float(instance.flatten()[k])
    for simple in _list_simpler(entry):
        changed = instance.clone()
        changed.view(-1)[k] = simple
        if breaks(changed):
            return changed
        if simple == entry:
            break
    return instance


def _list_simpler(entry: float) -> Iterator[float]:
    """List simpler numbers near an entry, the simplest first."""
    yield from (0.0, 1.0, -1.0)
    for digits in range(1, DIGITS + 1):
        rounded = float(f"{entry:.{digits - 1}e}")
        unit = 10.0 ** (int(f"{entry:.{digits - 1}e}".partition("e")[2]) - digits + 1)
        for simple in (rounded, rounded + unit, rounded - unit):
            yield float(f"{simple:.12g}")
