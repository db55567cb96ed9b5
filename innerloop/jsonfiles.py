"""Read JSON files from untrusted authors, within limits of size and nesting depth.

`json.loads` follows nested values until the interpreter's stack overflows. Code that traverses the
result or writes it again can overflow too. All JSON files, and the metadata of tensor files, are
therefore read by this module.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from innerloop.errors import FileError
from innerloop.links import read_file

MAX_DEPTH = 100
"""The largest nesting depth of lists and objects; files of this package have about 20."""
MAX_BYTES = 256 * 2**20
"""The largest number of bytes of a JSON text; files of this package have a few megabytes."""


def parse_json(text: str | bytes) -> Any:
    """Parse JSON, or raise `FileError` if the text is invalid, too long or nested too deeply."""
    if len(text) > MAX_BYTES:
        raise FileError(f"its JSON has {len(text):,} bytes, expected at most {MAX_BYTES:,}")
    too_deep = FileError(f"its JSON is nested deeper than {MAX_DEPTH} levels")
    try:
        value = json.loads(text)
    except RecursionError:
        raise too_deep from None
    except (ValueError, TypeError) as error:  # TypeError: an entry that is not text
        raise FileError(f"it is not JSON ({error})") from None
    if _is_deeper(value, MAX_DEPTH):
        raise too_deep
    return value


def parse_object(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object, or raise `FileError`."""
    value = parse_json(text)
    if not isinstance(value, dict):
        raise FileError(f"its JSON is a {type(value).__name__}, expected an object")
    return value


def read_object(path: Path) -> dict[str, Any]:
    """Read a file that contains one JSON object; raise `OSError` if it cannot be opened."""
    return parse_object(read_file(path, MAX_BYTES + 1))


def _is_deeper(value: Any, limit: int) -> bool:
    """Return whether lists and objects are nested deeper than a limit."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        parts = (part for whole in level for part in _list_parts(whole))
        level = [part for part in parts if isinstance(part, dict | list)]
        if not level:
            return False
    return bool(level)


def _list_parts(whole: dict[str, Any] | list[Any]) -> Any:
    return whole.values() if isinstance(whole, dict) else whole
