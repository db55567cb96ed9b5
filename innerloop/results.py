"""Locate the results that are part of the package, and the results of the user.

Recorded weights and cells are part of the package and only read: they are in `innerloop/recorded`
of an installed package and in `results` of a checkout. New results are written to the folder that
`--results` or INNERLOOP_RESULTS names. Without these, it is `results` of the checkout, or otherwise
the user's data folder. The current folder has no influence.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from innerloop.errors import InputError

PACKAGE = Path(__file__).parent
VARIABLE = "INNERLOOP_RESULTS"


def find_recorded() -> Path:
    """Return the folder of results that belong to the package; it may not exist."""
    installed = PACKAGE / "recorded"
    return installed if installed.is_dir() else PACKAGE.parent / "results"


def find_results(folder: Path | None = None) -> Path:
    """Return the folder of the user's results: cells below `cells`, trainings below `runs`."""
    if folder is not None:
        return _expand_home(folder)
    if named := os.environ.get(VARIABLE):
        return _expand_home(Path(named))
    checkout = PACKAGE.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / "results").is_dir():
        return checkout / "results"
    return _find_user_data() / "innerloop"


def _expand_home(path: Path) -> Path:
    """Expand `~` and `~user`, or raise `InputError` if there is no such home folder."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise InputError(
            f"{path} has no home folder: name the folder of results with --results or {VARIABLE}"
        ) from None


def _find_user_data() -> Path:
    """Return the platform's folder for a user's data."""
    if sys.platform == "win32":
        return _expand_home(Path(os.environ.get("LOCALAPPDATA") or "~/AppData/Local"))
    if sys.platform == "darwin":
        return _expand_home(Path("~/Library/Application Support"))
    return _expand_home(Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share"))
