"""Run a command and report every failure except a bug by one line and an exit code.

    2     invalid input, too little memory, or output that cannot be written
    130   stopped by Ctrl-C
    141   the reader of the output ended (`innerloop list | head -1`); no line is printed
    143   ended by SIGTERM

A bug of this package prints a traceback. An error in the user's own code (`module:attribute`)
prints one line with the place of the error. If the environment variable INNERLOOP_TRACEBACK is set,
it prints a traceback.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import NamedTuple

import typer

from innerloop.errors import InputError
from innerloop.limits import is_out_of_memory
from innerloop.locations import describe_failure, find_own_frame
from innerloop.output import (
    discard_output,
    find_output_error,
    flush_output,
    prepare_streams,
    print_error,
)

MISTAKE, INTERRUPTED, READER_GONE, TERMINATED = 2, 130, 141, 143
TRACEBACK_VARIABLE = "INNERLOOP_TRACEBACK"
_ALLOCATION = re.compile(r"you tried to allocate (\d+) bytes")
"""Matches the number of requested bytes in torch's message."""
_SIZES = {
    "show": "the sizes that -s sets (d, n, steps, …)",
    "build": "the sizes that -s sets (d, n, steps, …) or --instances",
    "train": "the sizes that -s sets (d, n, batch, …)",
    "identify": "--prompts, --steps, or the problem's sizes (-s d=…, -s n=…)",
    "check": "--workers, or choose a smaller --preset",
    "report": "--workers, or choose a smaller --preset",
}
"""The options and settings that reduce the memory of each command."""


_running: ContextVar[bool] = ContextVar("running", default=False)
"""Whether a command is running; without it, `identify innerloop.cli:main` would never end."""


class Ending(NamedTuple):
    """The end of a command: its exit code, and an optional line with the reason."""

    code: int
    line: str = ""


def run_guarded(work: Callable[[], object]) -> int:
    """Run a command and return its exit code; only bugs raise exceptions."""
    if _running.get():
        raise InputError("the command line cannot be run from within itself")
    _running.set(True)
    try:
        return _run(work)
    finally:
        _running.set(False)


def _run(work: Callable[[], object]) -> int:
    if reason := prepare_streams() or _describe_missing_folder():
        print_error(reason)
        return MISTAKE
    with _end_by_signal() as terminated:
        try:
            ending = _read_code(work())
            flush_output()
        except BaseException as error:  # all but bugs become a line
            explanation = _explain(error)
            if explanation is None:
                raise
            ending = explanation
        if terminated and ending.code == INTERRUPTED:
            ending = Ending(TERMINATED, ending.line)
    if ending.line:
        print_error(ending.line)
    return _finish_output(ending.code)


def _read_code(returned: object) -> Ending:
    """Convert the return value of a command to its end; typer returns a code for Ctrl-C."""
    code = returned if isinstance(returned, int) else 0
    return Ending(code, "stopped" if code == INTERRUPTED else "")


def _finish_output(code: int) -> int:
    """Flush the output and return the exit code; report a failed flush if nothing failed before."""
    reason = find_output_error()
    if not reason:
        return code
    discard_output(sys.stdout)
    if code in (0, 1):
        print_error(f"cannot write to standard output: {reason}")
        return MISTAKE
    return code


def _describe_missing_folder() -> str:
    """Return a message if the current folder was deleted, and otherwise an empty text."""
    try:
        os.getcwd()
    except OSError as error:
        return f"there is no current folder ({error.strerror}): change to one that exists"
    return ""


@contextmanager
def _end_by_signal() -> Iterator[list[int]]:
    """Treat SIGTERM as Ctrl-C, so that work is saved and workers end; yield received signals."""
    arrived: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield arrived  # only the main thread receives signals
        return

    def handle(number: int, frame: FrameType | None) -> None:
        arrived.append(number)
        interrupt = signal.getsignal(signal.SIGINT)
        if callable(interrupt):
            interrupt(signal.SIGINT, frame)
        else:  # ignored, as in the background of a shell
            raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, handle)
    try:
        yield arrived
    finally:
        signal.signal(signal.SIGTERM, previous)


def _explain(error: BaseException) -> Ending | None:
    """Convert an error to the end of a command; None if the error is a bug."""
    endings = (explain(error) for explain in (_explain_stop, _explain_mistake, _explain_own))
    ending = next((ending for ending in endings if ending is not None), None)
    if ending is None and isinstance(error, SystemExit):
        return Ending(error.code if isinstance(error.code, int) else int(error.code is not None))
    if ending is None and isinstance(error, OSError):
        return Ending(MISTAKE, _describe_os_error(error))
    return ending


def _explain_stop(error: BaseException) -> Ending | None:
    """Convert an interrupt, a closed pipe or an exit code to the end of a command."""
    if _has_lost_reader(error):
        discard_output(sys.stdout)
        return Ending(READER_GONE)
    if isinstance(error, KeyboardInterrupt):
        return Ending(INTERRUPTED, "stopped")
    return Ending(error.exit_code) if isinstance(error, typer.Exit) else None


def _explain_mistake(error: BaseException) -> Ending | None:
    """Convert a user's mistake, or too little memory, to the end of a command."""
    if isinstance(error, InputError):
        wants_traceback = error.__cause__ is not None and os.environ.get(TRACEBACK_VARIABLE)
        return None if wants_traceback else Ending(MISTAKE, str(error))
    if isinstance(error, typer.Abort | EOFError):
        return Ending(MISTAKE, "standard input ended before a question was answered")
    if hasattr(error, "format_message"):  # a usage error of typer, or of the click that it uses
        return Ending(MISTAKE, _describe_usage(error))
    memory = _describe_memory(error)
    return Ending(MISTAKE, memory) if memory else None


def _explain_own(error: BaseException) -> Ending | None:
    """Convert an error in the user's own code, such as a model, to the end of a command."""
    if find_own_frame(error) is None or os.environ.get(TRACEBACK_VARIABLE):
        return None
    hint = f"set {TRACEBACK_VARIABLE}=1 to see the traceback"
    return Ending(MISTAKE, f"your own code failed: {describe_failure(error)}; {hint}")


def _has_lost_reader(error: BaseException) -> bool:
    """Return whether standard output is a closed pipe; typer turns that error into an exit."""
    cause = error.__context__ if isinstance(error, SystemExit) else error
    return isinstance(cause, BrokenPipeError)


def _describe_usage(error: BaseException) -> str:
    """Describe a usage error; return an empty text if the command printed its help instead."""
    message = str(getattr(error, "format_message")()).strip().rstrip(".")  # noqa: B009
    command = getattr(getattr(error, "ctx", None), "command_path", "") or "innerloop"
    return f"{message}; see `{command} --help`" if message else ""


def _describe_os_error(error: OSError) -> str:
    """Describe an error of the operating system, such as a full disk."""
    reason = error.strerror or str(error)
    if error.filename is not None:
        return f"{error.filename}: {reason}"
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
    return f"cannot write to standard output: {reason}" if full else reason


def _describe_memory(error: BaseException) -> str:
    """Describe an out-of-memory error and what to reduce; return an empty text for other errors."""
    if not is_out_of_memory(error):
        return ""
    match = _ALLOCATION.search(str(error))
    amount = f" ({int(match[1]) / 1e9:.3g} GB were requested at once)" if match else ""
    command = next((word for word in sys.argv[1:] if word in _SIZES), "build")
    return f"out of memory{amount}: reduce {_SIZES[command]}"
