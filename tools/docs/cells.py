"""Run a tutorial's script and record the output and the figures of each cell.

`tools.docs.tutorials` converts a page to a script: the code of its fences, with calls of `begin`,
`show`, `write` and `command` between them. `python -m tools.docs.cells SCRIPT OUTPUT` runs a script
in the current folder and writes the record as JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from tools.docs.drawing import draw_chart, is_chart

_outputs: list[dict[str, Any]] = []
_printed = io.StringIO()


def record(script: Path) -> list[dict[str, Any]]:
    """Run a script in the current folder, and return the output and the figures of each cell."""
    _outputs.clear()
    _printed.seek(0)
    _printed.truncate()
    with (
        contextlib.redirect_stdout(_printed),
        mock.patch.object(sys, "path", [os.getcwd(), *sys.path]),
        mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"}),
    ):
        runpy.run_path(script.name, run_name="tutorial")  # errors and proofs name it shortly
        _close()
    return list(_outputs)


def begin() -> None:
    """Start to collect the output of the next code cell of the page."""
    _close()
    _outputs.append({"text": "", "figures": []})


def show(value: Any) -> None:
    """Show the value of a cell's last expression, as a notebook does."""
    if is_chart(value):
        _outputs[-1]["figures"].append(draw_chart(value))
    elif value is not None:
        print(value)


def write(name: str, text: str) -> None:
    """Write a file to the current folder, so that the following cells can import it."""
    Path(name).write_text(text, "utf-8")


def command(line: str) -> None:
    """Run a command of innerloop in this process."""
    from innerloop.cli import main

    program, *words = shlex.split(line)
    if program != "innerloop":
        raise ValueError(f"a tutorial runs commands of innerloop, not {program!r}")
    print(f"$ {line}")
    with mock.patch.object(sys, "argv", ["innerloop", *words]):
        try:
            main()
        except SystemExit as stop:
            if stop.code:
                print(f"exit code {stop.code}")


def _close() -> None:
    """Store the output of the current cell, and clear the buffer for the next one."""
    if _outputs:
        lines = _printed.getvalue().splitlines()
        _outputs[-1]["text"] = "\n".join(line.rstrip() for line in lines).strip("\n")
    _printed.seek(0)
    _printed.truncate()


if __name__ == "__main__":
    from tools.docs import cells  # the module that the script imports, not this `__main__`

    Path(sys.argv[2]).write_text(json.dumps(cells.record(Path(sys.argv[1]))), "utf-8")
