"""Write `run.json`, which describes a run for people and for `innerloop runs`.

It is written when a run begins or goes on, and when it ends. Whether a run is under way is not in
it, since a kill could not change that: the lock of its folder says so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from innerloop.errors import FileError
from innerloop.files import write_atomically

RUN_FILE = "run.json"


class RunFile:
    """The `run.json` of one run; a failure to write it is reported to `notice` and ignored."""

    def __init__(self, folder: Path, notice: Callable[[str], None]) -> None:
        self._path, self._notice = folder / RUN_FILE, notice
        self.content: dict[str, Any] | None = None

    def write(self, content: dict[str, Any]) -> None:
        """Write the description of a run that has not ended."""
        began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        self.content = {**content, "began": began, "ended": None, "remark": ""}
        self._store()

    def finish(self, ended: str, remark: str) -> None:
        """Write the reason for which the run ended."""
        self.content = {**(self.content or {}), "ended": ended, "remark": remark}
        self._store()

    def _store(self) -> None:
        text = json.dumps(self.content, indent=2, ensure_ascii=False, allow_nan=False)
        try:
            write_atomically(self._path, f"{text}\n".encode())
        except FileError as error:
            self._notice(str(error))
