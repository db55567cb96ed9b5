"""What a user got wrong, said in one line: what was expected, what came, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST_NAMES = 40
"""More than that are not read in an error message."""


class InputError(ValueError):
    """The caller's mistake. The command line prints it without a traceback and exits with 2."""


class OutOfRange(InputError):
    """A request beyond a limit that a construction documents (a second query, another n, …)."""


class FileError(InputError):
    """A file that cannot be read, written or trusted."""


class MissingLibrary(InputError):
    """What is asked for needs a library that is not installed."""


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that does not exist; it names the nearest one that does."""
    names = sorted(known)
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    there = ", ".join(names) or "none"
    if len(names) > MOST_NAMES:
        there = f"{len(names)} of them, see `innerloop list`"
    return InputError(f"no {kind} called {name!r}{hint} (there is: {there})")
