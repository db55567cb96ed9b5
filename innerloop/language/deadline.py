"""A limit on the time that a call may take, for functions that other people wrote.

A second thread raises an exception in the one that calls. It is delivered between two instructions
of Python, so a loop without an end is stopped wherever it is. What cannot be stopped: a call into
compiled code that does not return (`time.sleep`, one huge operation on arrays), a loop that catches
every `BaseException`, and the use of memory before the time is up.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

PAUSE = 1.0
"""Seconds after which the exception is raised again, if the function caught it."""


class TimeLimitExceeded(BaseException):
    """A call took too long. It is no `Exception`, so that `except Exception` does not catch it."""


def call_within(seconds: float, function: Callable[[], Any]) -> Any:
    """Call a function; raise `TimeLimitExceeded` in it after some seconds, until it ends."""
    watch = _Watch(seconds)
    watch.start()
    try:
        return function()
    finally:
        watch.stop()


class _Watch:
    """A thread that interrupts the one that made it, unless it is stopped before."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._caller = threading.get_ident()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._interrupt, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; an exception that is under way is taken back."""
        while True:
            try:
                with self._lock:
                    self._stopped.set()
                _set_exception(self._caller, None)
                return
            except TimeLimitExceeded:
                continue  # it came while this method ran: the call had ended by itself

    def _interrupt(self) -> None:
        pause = self._seconds
        while not self._stopped.wait(pause):
            with self._lock:
                if not self._stopped.is_set():
                    _set_exception(self._caller, TimeLimitExceeded)
            pause = PAUSE


def _set_exception(thread: int, kind: type[BaseException] | None) -> None:
    """Let a thread raise an exception at its next instruction; None takes one back."""
    raised = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)
