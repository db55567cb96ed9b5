"""Where a result came from: the versions it was made with, and the command that makes it again."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

from innerloop import __version__


def collect_versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    packages = {name: _read_version(name) for name in ("torch", "numpy")}
    return {"innerloop": __version__, **packages, "python": platform.python_version()}


@cache
def _read_version(package: str) -> str:
    """Read the version of an installed package from its metadata, a file to be parsed."""
    return version(package)


def spell_command(
    command: str,
    name: str,
    settings: Mapping[str, Any],
    defaults: Mapping[str, Any],
    options: Mapping[str, Any],
) -> str:
    """Spell the command line for a member: settings that differ from their defaults, options."""
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
