"""The callback through which long computations report their progress."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Progress(Protocol):
    """A callback that receives the completed share and a description of the current work."""

    def __call__(self, share: float, doing: str = "") -> object: ...


def ignore_progress(share: float, doing: str = "") -> None:
    """Ignore the progress; this is the default callback."""
