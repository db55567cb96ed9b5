"""Where results are: those that came with the package, and those that its user made.

Recorded weights and cells are read only: `innerloop/recorded` in an installed package, `results` in
a checkout. What is made here goes to the folder that `--results` or INNERLOOP_RESULTS names, else
to the checkout's `results`, else to the user's data folder: wherever a command is run from.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent
VARIABLE = "INNERLOOP_RESULTS"


def find_recorded() -> Path:
    """Return the folder of results that belong to the package; it may not exist."""
    installed = PACKAGE / "recorded"
    return installed if installed.is_dir() else PACKAGE.parent / "results"


def find_results(given: Path | None = None) -> Path:
    """Return the folder of the user's results: cells below `cells`, trainings below `runs`."""
    if given is not None:
        return given
    if named := os.environ.get(VARIABLE):
        return Path(named).expanduser()
    checkout = PACKAGE.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / "results").is_dir():
        return checkout / "results"
    return _find_user_data() / "innerloop"


def _find_user_data() -> Path:
    """Return the folder for a user's data, as each platform has it."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
