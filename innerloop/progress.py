"""How long work reports its progress: one callback for everything that takes a while."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Progress(Protocol):
    """A callback that takes the share of the work that is done, and what is being done now."""

    def __call__(self, share: float, doing: str = "") -> object: ...


def ignore_progress(share: float, doing: str = "") -> None:
    """Report nothing: the callback of callers who do not watch."""
