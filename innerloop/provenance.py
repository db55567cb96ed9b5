"""Record the origin of a result: the versions used, and the command that repeats it."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from innerloop import __version__

ROOT = Path(__file__).parent


def collect_versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    packages = {name: _read_version(name) for name in ("torch", "numpy")}
    return {"innerloop": __version__, **packages, "python": platform.python_version()}


@cache
def _read_version(package: str) -> str:
    """Read the version of an installed package; the result is cached because parsing is slow."""
    return version(package)


@cache
def digest_package() -> str:
    """Return a digest of all files of innerloop, to compare two installations."""
    digest = hashlib.sha256()
    for path in sorted([*ROOT.rglob("*.py"), *ROOT.rglob("*.c")]):
        digest.update(f"{path.relative_to(ROOT).as_posix()}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def digest_code(owner: type) -> str:
    """Return a digest of the code of a class: innerloop, and the files of other base classes."""
    digest = hashlib.sha256(digest_package().encode())
    for base in owner.__mro__:
        first = base.__module__.partition(".")[0]
        path = getattr(sys.modules.get(base.__module__), "__file__", None)
        own = first != "innerloop" and first not in sys.stdlib_module_names
        if own and path and Path(path).is_file():
            digest.update(Path(path).read_bytes())
    return digest.hexdigest()[:16]


def spell_command(
    command: str,
    name: str,
    settings: Mapping[str, Any],
    defaults: Mapping[str, Any],
    options: Mapping[str, Any],
) -> str:
    """Return a command line for a member, with all options and settings that differ from the
    defaults."""
    words = [f"innerloop {command} {name}"]
    for key, value in settings.items():
        if key not in defaults or value != defaults[key]:
            words.append(f"-s {_spell_setting(key, value)}")
    return " ".join([*words, *(f"--{key} {value}" for key, value in options.items())])


def _spell_setting(key: str, value: Any) -> str:
    if isinstance(value, str):
        return f"{key}={value}"
    text = json.dumps(value, separators=(",", ":"))
    return f"'{key}={text}'" if "[" in text else f"{key}={text}"
