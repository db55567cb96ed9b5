"""Run the tutorials when the site is built, and make a page and a notebook from each.

A tutorial is a Markdown file with these kinds of fences:

```python                      a cell: the page shows its output and the value of its last line
steps = 300  # tiny: 20        the tests use 20 in place of 300
```
```python title="mine.py"      a file, written to the tutorial's folder
```console                     commands, one `$ innerloop …` per line
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r'^```(python|console)(?: title="([^"]+)")?\n(.*?)^```\n?', flags=re.M | re.S)
_TINY = re.compile(r"^(\s*\w+ = )(.+?)  # tiny: (.+)$", flags=re.M)
_HEADER = "from tools.docs import cells as _cells\n"


class Cell(NamedTuple):
    """A piece of a tutorial: text, code, a file, or commands."""

    kind: Literal["text", "python", "file", "console"]
    text: str
    name: str = ""


class Run(NamedTuple):
    """The output and figures of a tutorial, cell by cell, and its duration."""

    outputs: list[dict[str, Any]]
    seconds: float


def parse(markdown: str) -> list[Cell]:
    """Split a tutorial into text and executable cells."""
    cells, place = [], 0
    for fence in _FENCE.finditer(markdown):
        kind, name, code = fence.groups()
        cells.append(Cell("text", markdown[place : fence.start()]))
        cells.append(Cell("file" if name else cast(Any, kind), code, name or ""))
        place = fence.end()
    return [*cells, Cell("text", markdown[place:])]


def make_script(cells: list[Cell], tiny: bool = False) -> str:
    """Write the script that runs a tutorial."""
    lines = [_HEADER]
    for cell in cells:
        if cell.kind == "text":
            continue
        lines.append("_cells.begin()\n")
        if cell.kind == "python":
            lines.append(_show_last(_TINY.sub(r"\1\3" if tiny else r"\1\2", cell.text)))
        elif cell.kind == "file":
            lines.append(f"_cells.write({cell.name!r}, {cell.text!r})\n")
        else:
            lines += [f"_cells.command({line!r})\n" for line in list_commands(cell)]
    return "".join(lines)


def list_commands(cell: Cell) -> list[str]:
    """List the commands of a console fence."""
    return [line.removeprefix("$ ") for line in cell.text.splitlines() if line.startswith("$ ")]


def _show_last(code: str) -> str:
    """Wrap the last expression of a cell in `show`."""
    last = ast.parse(code).body[-1]
    if not isinstance(last, ast.Expr):
        return code
    lines = code.splitlines(keepends=True)
    start = last.lineno - 1
    return "".join([*lines[:start], "_cells.show(\n", *lines[start:], ")\n"])


def run(markdown: str, tiny: bool = False) -> Run:
    """Run a tutorial in its own process and folder, or with tiny settings in this process."""
    script = make_script(parse(markdown), tiny)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tutorial.py"
        path.write_text(script, "utf-8")
        outputs = _record_here(path) if tiny else _record_apart(path)
    return Run(outputs, time.perf_counter() - start)


def _record_here(script: Path) -> list[dict[str, Any]]:
    """Run a script in this process, and return the output of each cell."""
    from tools.docs.cells import record

    before = Path.cwd()
    os.chdir(script.parent)
    try:
        return record(script)
    finally:
        os.chdir(before)


def _record_apart(script: Path) -> list[dict[str, Any]]:
    """Run a script in a new process, and return the output of each cell."""
    output = script.parent / "outputs.json"
    results = {"INNERLOOP_RESULTS": str(script.parent / "results")}
    done = subprocess.run(
        [sys.executable, "-m", "tools.docs.cells", str(script), str(output)],
        cwd=script.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT), **results},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"a tutorial broke:\n{done.stderr}")
    return json.loads(output.read_text("utf-8"))


def render_page(markdown: str, name: str, run: Run) -> tuple[str, dict[str, str]]:
    """Return the page with the outputs below each cell, and its figures by file name."""
    outputs, figures = iter(run.outputs), {}
    title, _, rest = markdown.partition("\n\n")
    note = f"*Run when this page was built, in {run.seconds:.0f} s.* "
    parts = [f"{title}\n\n{note}[Download it as a notebook]({name}.ipynb).\n\n"]
    for cell in parse(rest):
        if cell.kind == "text":
            parts.append(cell.text)
            continue
        output = next(outputs)
        if cell.kind == "console":
            parts.append(f"```console\n{output['text']}\n```\n")
            continue
        label = f' title="{cell.name}"' if cell.name else ""
        parts.append(f"```python{label}\n{clean(cell.text)}```\n")
        if output["text"]:
            printed = f"```text\n{output['text']}\n```"
            parts.append(f'\n<div class="output" markdown>\n{printed}\n</div>\n')
        for drawing in output["figures"]:
            number = len(figures) // 2 + 1
            for theme, svg in drawing.items():
                figures[f"{name}-{number}-{theme}.svg"] = svg
            parts.append(_refer_to_figure(f"{name}-{number}", f"figure {number}"))
    return "".join(parts), figures


def _refer_to_figure(stem: str, label: str) -> str:
    images = "".join(
        f'<img class="picture-{theme}" src="{stem}-{theme}.svg" alt="{label}">'
        for theme in ("light", "dark")
    )
    return f"\n<figure>{images}</figure>\n"


def clean(code: str) -> str:
    """Remove the comments that are only meant for the tests."""
    return _TINY.sub(r"\1\2", code)


def make_notebook(markdown: str, run: Run) -> str:
    """Write the notebook (format 4.5) with the same text, code and printed output."""
    outputs, cells = iter(run.outputs), []
    for number, cell in enumerate(parse(markdown)):
        base = {"id": f"cell-{number}", "metadata": {}}
        if cell.kind == "text":
            if cell.text.strip():
                source = cell.text.strip().splitlines(keepends=True)
                cells.append({"cell_type": "markdown", **base, "source": source})
            continue
        source, printed = _write_cell(cell), next(outputs)["text"]
        stream = {"output_type": "stream", "name": "stdout", "text": f"{printed}\n"}
        cells.append(
            {
                "cell_type": "code",
                **base,
                "execution_count": None,
                "outputs": [stream] if printed else [],
                "source": source.strip("\n").splitlines(keepends=True),
            }
        )
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    book = {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


def _write_cell(cell: Cell) -> str:
    if cell.kind == "file":
        return f"%%writefile {cell.name}\n{cell.text}"
    if cell.kind == "console":
        return "\n".join(f"!{line}" for line in list_commands(cell))
    return clean(cell.text)
