"""Handle Ctrl-C in a training at the end of a step, so that the step is not lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def watch_interrupts() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether SIGINT arrived.

    The first SIGINT only has this effect; a second one raises KeyboardInterrupt at once.
    """
    signals: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def handle(number: int, frame: Any) -> None:
        if signals:
            raise KeyboardInterrupt
        signals.append(number)

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: bool(signals)
    finally:
        signal.signal(signal.SIGINT, previous)
