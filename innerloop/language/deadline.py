"""A limit on the running time of functions that users wrote.

A second thread raises an exception in the calling thread. Python delivers it between two bytecode
instructions, so an endless loop is interrupted anywhere. Three cases cannot be interrupted: a call
into compiled code that does not return (`time.sleep`, one huge array operation), a loop that
catches every `BaseException`, and excessive use of memory before the limit.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

PAUSE = 1.0
"""Seconds after which the exception is raised again, in case the function caught it."""


class TimeLimitExceeded(BaseException):
    """A call exceeded its time limit.

    It is not a subclass of `Exception`, so that `except Exception` does not catch it.
    """


def call_within(seconds: float, function: Callable[[], Any]) -> Any:
    """Call a function; after `seconds`, raise `TimeLimitExceeded` in it until it ends."""
    watch = _Watch(seconds)
    watch.start()
    try:
        return function()
    finally:
        watch.stop()


class _Watch:
    """A thread that interrupts the thread that created it, unless it is stopped before."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._caller = threading.get_ident()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._interrupt, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop watching, and cancel an exception that has not been delivered yet."""
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
    """Make a thread raise an exception at its next instruction; None cancels a pending one."""
    raised = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)
