"""Load objects from `module:attribute` or `file.py:attribute`, and explain failures.

Loading imports the module, which runs its code. Only names that a user passes are loaded this way,
never names in files of results or weights.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from innerloop.errors import InputError, unknown_name_error

_FILES: dict[str, str] = {}
"""Maps module names to the paths of files that were loaded as `file.py:attribute`."""
_OWN: set[str] = set()
"""Files of the modules that were loaded because a user named them."""


def load_object(location: str) -> Any:
    """Load the object at `module:attribute` or `file.py:attribute`; this runs the module's code."""
    place, _, attribute = location.rpartition(":")
    if not place or not attribute:
        raise InputError(
            f"expected module:attribute or file.py:attribute, got {location!r}; "
            "for instance my_model:predict"
        )
    value: Any = load_module(place)
    for name in attribute.split("."):
        value = _get_attribute(value, name, location)
    return value


def _get_attribute(value: Any, name: str, location: str) -> Any:
    """Return an attribute, or raise `InputError` with the nearest name if it does not exist."""
    try:
        return getattr(value, name)
    except AttributeError:
        public = [known for known in dir(value) if not known.startswith("_")]
        raise unknown_name_error("attribute", name, public) from None
    except (Exception, SystemExit) as error:
        raise InputError(f"cannot read {location}: {describe_failure(error)}") from None


def load_module(place: str) -> ModuleType:
    """Import a module by its name (also from the current folder), or a file by its path."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    if "\0" in place:
        raise InputError(f"cannot import {place!r}: a name cannot hold a NUL character")
    if place.startswith(".") and not place.endswith(".py"):
        raise InputError(
            f"cannot import {place!r}: expected an absolute module name, without a leading dot"
        )
    try:
        if place.endswith(".py"):
            module = _load_file(Path(place))
        else:
            module = importlib.import_module(place)
    except (InputError, KeyboardInterrupt):
        raise
    except BaseException as error:  # imported code may raise whatever it likes
        hint = "" if place.endswith(".py") else "; expected module:attribute or file.py:attribute"
        raise InputError(f"cannot import {place!r}: {describe_failure(error)}{hint}") from None
    if file := getattr(module, "__file__", None):
        _OWN.add(str(file))
    return module


def get_location(module: str) -> str:
    """Return the argument with which `load_module` loads a module again, also in another
    process."""
    if module == "__main__":
        path = getattr(sys.modules[module], "__file__", None)
        return module if path is None else str(path)
    return _FILES.get(module, module)


def _load_file(path: Path) -> ModuleType:
    try:
        there, usable = path.exists(), path.is_file()
    except OSError as error:
        raise InputError(f"cannot import {path}: {error.strerror or error}") from None
    if not usable:
        what = "it is not a file" if there else "there is no such file"
        raise InputError(f"cannot import {path}: {what}")
    whole = path.resolve()
    name = f"{whole.stem}_{sha256(os.fsencode(whole)).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    if str(whole.parent) not in sys.path:
        sys.path.insert(0, str(whole.parent))  # as for a script: files beside it can be imported
    spec = importlib.util.spec_from_file_location(name, whole)
    assert spec is not None, f"{path} ends in .py, so it has a loader"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name], _FILES[name] = module, str(path)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name], _FILES[name]
        raise
    return module


def find_own_frame(error: BaseException) -> traceback.FrameSummary | None:
    """Return the innermost frame of a user's own module in a traceback, or None.

    A module counts as a user's own if `load_module` loaded it, and not if this package imports it.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f.filename in _OWN and not _is_inside_package(f.filename)]
    return own[-1] if own else None


def describe_failure(error: BaseException) -> str:
    """Describe a failure of a file in one line: `heavy_ball.py, line 12: SyntaxError: …`."""
    if isinstance(error, SyntaxError):
        place, line, reason = error.filename, error.lineno, error.msg
    else:
        frames = [
            f for f in traceback.extract_tb(error.__traceback__) if "<frozen" not in f.filename
        ]
        outside = [f for f in frames if f.filename not in (__file__, importlib.__file__)]
        frame = find_own_frame(error) or (outside[-1] if outside else None)
        place, line = (frame.filename, frame.lineno) if frame else (None, None)
        reason = _get_message(error).partition("\n")[0]
    where = f"{_shorten(place)}, line {line}: " if place else ""
    return f"{where}{type(error).__name__}: {reason}"


def _get_message(error: BaseException) -> str:
    """Return an error's text, also if the method of its class that creates the text fails."""
    try:
        return str(error)
    except Exception as failure:
        return f"(no message: {type(failure).__name__})"


def _is_inside_package(path: str) -> bool:
    return Path(path).is_relative_to(Path(__file__).parent)


def _shorten(path: str) -> str:
    """Return a path relative to the current folder if it lies below that folder."""
    try:
        return str(Path(path).resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return path
