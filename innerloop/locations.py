"""Load what stands at `module:attribute` or `file.py:attribute`, and say where a file failed.

Loading imports the module, and so runs its code: only what a user names is ever loaded this way,
never what a file of results or weights names.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from innerloop.errors import InputError, unknown_name_error

_FILES: dict[str, str] = {}
"""Module name → the path it was loaded from, for files given as `file.py:attribute`."""


def load_object(location: str) -> Any:
    """Load what stands at `module:attribute` or `file.py:attribute`. This imports and runs it."""
    place, _, attribute = location.rpartition(":")
    if not place or not attribute:
        raise InputError(
            f"expected module:attribute or file.py:attribute, got {location!r}; "
            "for instance my_model:predict"
        )
    value: Any = load_module(place)
    for name in attribute.split("."):
        if not hasattr(value, name):
            public = [known for known in dir(value) if not known.startswith("_")]
            raise unknown_name_error("attribute", name, public)
        value = getattr(value, name)
    return value


def load_module(place: str) -> ModuleType:
    """Import a module by its name (also from the current folder), or a file by its path."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        if place.endswith(".py"):
            return _load_file(Path(place))
        return importlib.import_module(place)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        hint = "" if place.endswith(".py") else "; expected module:attribute or file.py:attribute"
        raise InputError(f"cannot import {place!r}: {describe_failure(error)}{hint}") from None


def get_location(module: str) -> str:
    """Return what `load_module` takes to load a module again, in this or another process."""
    if module == "__main__":
        path = getattr(sys.modules[module], "__file__", None)
        return module if path is None else str(path)
    return _FILES.get(module, module)


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError(f"cannot import {path}: there is no such file")
    whole = path.resolve()
    name = f"{whole.stem}_{sha256(str(whole).encode()).hexdigest()[:8]}"
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


def describe_failure(error: BaseException) -> str:
    """Say in one line where and why a file failed: `heavy_ball.py, line 12: SyntaxError: …`."""
    if isinstance(error, SyntaxError):
        place, line, reason = error.filename, error.lineno, error.msg
    else:
        frames = [
            f for f in traceback.extract_tb(error.__traceback__) if "<frozen" not in f.filename
        ]
        outside = [f for f in frames if f.filename not in (__file__, importlib.__file__)]
        frame = outside[-1] if outside else None
        place, line = (frame.filename, frame.lineno) if frame else (None, None)
        reason = str(error).partition("\n")[0]
    where = f"{_shorten(place)}, line {line}: " if place else ""
    return f"{where}{type(error).__name__}: {reason}"


def _shorten(path: str) -> str:
    """A path as seen from the current folder, where it lies below it."""
    try:
        return str(Path(path).resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return path
