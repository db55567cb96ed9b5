"""Write to standard output and standard error safely, also if they are closed or full.

Text from files, names and errors may contain characters that control a terminal. Such characters
are escaped, and so are characters that the encoding of the stream does not support.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sys
from typing import Any, TextIO

MAX_LINE = 2000
"""The largest number of characters of an error line."""
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters, line separators, changes of the writing direction, and lone surrogates."""


def escape_text(text: str, keep: str = "") -> str:
    """Escape characters that control a terminal or cannot be encoded, except those in `keep`."""
    return _UNSAFE.sub(lambda match: match[0] if match[0] in keep else _escape(match[0]), text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def print_text(text: str = "") -> None:
    """Print text on standard output, with its line breaks."""
    print(escape_text(text, keep="\n\t"))


def print_error(message: str) -> None:
    """Print one line on standard error; ignore a failure to write it."""
    line = escape_text(message)
    if len(line) > MAX_LINE:
        line = f"{line[:MAX_LINE]}… ({len(line)} characters)"
    try:
        print(f"innerloop: {line}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        discard_output(sys.stderr)


def print_json(value: Any) -> None:
    """Print a value as JSON, with null for numbers that are not finite."""
    encoding = (sys.stdout.encoding or "utf-8").lower()
    plain = json.dumps(
        _replace_nonfinite(value),
        indent=2,
        ensure_ascii=not encoding.startswith("utf"),
        allow_nan=False,
    )
    print(_UNSAFE.sub(lambda f: f[0] if f[0] == "\n" else f"\\u{ord(f[0]):04x}", plain))


def _replace_nonfinite(value: Any) -> Any:
    """Replace numbers that are not finite by None, because JSON has no infinity."""
    if isinstance(value, dict):
        return {key: _replace_nonfinite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_nonfinite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def prepare_streams() -> str:
    """Make the standard streams usable; return an error message, or an empty text if output
    works."""
    closed = sys.stdout is None
    # The lowest free descriptor is taken: without this, the next file that is opened would get a
    # standard stream's, and be written into.
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # pyright: ignore
    return "standard output is closed: send it to a file, or to /dev/null" if closed else ""


def flush_output() -> None:
    """Flush standard output, so that a full disk is noticed before the process exits."""
    sys.stdout.flush()


def find_output_error() -> str:
    """Return the reason why standard output cannot be written, or an empty text."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return error.strerror or str(error)
    except ValueError as error:
        return str(error)
    return ""


def discard_output(stream: TextIO) -> None:
    """Discard the buffer of a stream, because flushing it at the exit would fail again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
