"""Write `run.json`, which describes a run for people and for `innerloop runs`.

It is written when a run starts or is resumed, and when it ends. It does not state whether the run
is in progress, because it cannot be updated when the process is killed: see the lock of the folder.
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
        """Write the reason why the run ended."""
        self.content = {**(self.content or {}), "ended": ended, "remark": remark}
        self._store()

    def _store(self) -> None:
        text = json.dumps(self.content, indent=2, ensure_ascii=False, allow_nan=False)
        try:
            write_atomically(self._path, f"{text}\n".encode())
        except FileError as error:
            self._notice(str(error))
