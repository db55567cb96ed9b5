"""Errors for mistakes of the caller. Each message is one line that says how to fix the mistake."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MAX_NAMES = 40
"""The largest number of names that an error message lists."""
MAX_LENGTH = 100
"""The number of characters of an unknown name that an error message uses."""


class InputError(ValueError):
    """A mistake of the caller: the command line prints it without a traceback and exits with 2."""


class OutOfRangeError(InputError):
    """A problem outside the limits that a construction documents (a second query, another n, …)."""


class FileError(InputError):
    """A file that cannot be read, written or trusted."""


class MissingLibraryError(InputError):
    """A request that needs a library which is not installed."""


def unknown_name_error(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Make the error for a name that does not exist; it suggests the nearest one that does."""
    names = sorted(known)
    nearest = difflib.get_close_matches(name[:MAX_LENGTH], names, n=1, cutoff=0.0)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    listed = ", ".join(names) or "none"
    if len(names) > MAX_NAMES:
        listed = f"{len(names)} of them, see `innerloop list`"
    quoted = repr(name) if len(name) <= MAX_LENGTH else f"{name[:MAX_LENGTH]!r}…"
    return InputError(f"no {kind} called {quoted}{hint} (there is: {listed})")
