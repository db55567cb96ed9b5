"""The README and the pages of the documentation, run: each example prints what it says."""

from __future__ import annotations

import itertools
import json
import re
import runpy
import shlex
import tomllib
from pathlib import Path

import pytest

import innerloop
from innerloop.ledger.tables import unpack_tables

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
ELSEWHERE = ("data", "language")
"""Pages that are run by the tests of what they are about."""
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "command-line.txt",
    *(path for path in sorted((ROOT / "docs").glob("guide/*.md")) if path.stem not in ELSEWHERE),
    *sorted((ROOT / "docs").glob("concepts/*.md")),
]


def list_fences(path: Path) -> list[tuple[str, str]]:
    """List the fenced blocks of a page with their kinds."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", path.read_text("utf-8"), flags=re.M | re.S)


def list_examples(path: Path) -> list[tuple[str, str]]:
    """List the programs of a page that are followed by what they print."""
    pairs = itertools.pairwise(list_fences(path))
    return [(code, text) for (kind, code), (after, text) in pairs if (kind, after) == PRINTS]


def list_commands(path: Path) -> list[tuple[str, str]]:
    """List the commands of a page with what they print."""
    blocks = [block for kind, block in list_fences(path) if kind == "console"]
    pattern = r"^\$ (.*)\n((?:(?!\$ ).*\n)*)"
    return [found for block in blocks for found in re.findall(pattern, block, flags=re.M)]


PRINTS = ("python", "text")
EXAMPLES = [
    pytest.param(code, text, id=f"{path.name}-{number}")
    for path in PAGES
    for number, (code, text) in enumerate(list_examples(path), 1)
]
WITH_COMMANDS = [path for path in PAGES if list_commands(path)]


def tidy(text: str) -> str:
    """Lines without trailing space and without blank ones."""
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def assert_prints(expected: str, found: str) -> None:
    """`...` stands for anything in its line, or, alone on a line, for any lines."""
    pattern = ""
    for line in tidy(expected).splitlines():
        parts = ".*".join(re.escape(part) for part in line.split("..."))
        pattern += r"(?:.*\n)*?" if line == "..." else parts + r"\n"
    assert re.fullmatch(pattern, tidy(found) + "\n"), found


def test_there_are_examples_and_none_is_without_its_output() -> None:
    assert len(EXAMPLES) >= 6
    assert len(list_examples(ROOT / "README.md")) == 1
    for path in PAGES:
        programs = [kind for kind, _ in list_fences(path) if kind == "python"]
        assert len(programs) == len(list_examples(path)), path


@pytest.mark.parametrize(("code", "expected"), EXAMPLES)
def test_python_examples_print_what_they_say(
    code: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "example.py"
    script.write_text(code, "utf-8")
    runpy.run_path(str(script))
    assert_prints(expected, capsys.readouterr().out)


@pytest.mark.parametrize("path", WITH_COMMANDS, ids=lambda path: path.stem)
def test_commands_print_what_they_say(
    path: Path, run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for command, expected in list_commands(path):
        program, *words = shlex.split(command)
        assert program == "innerloop"
        found = run(*words)
        assert found.code == 0, found.err
        assert_prints(expected, found.out)


def test_the_table_of_systems_names_what_there_is() -> None:
    members = {
        kind: {row["name"] for row in rows} for kind, rows in innerloop.list_members().items()
    }
    table = re.search(r"^\| system \|.*?\n\n", README, flags=re.M | re.S)
    assert table
    rows = [row.strip("| ").split(" | ") for row in table[0].strip().splitlines()[2:]]
    assert len(rows) == 10
    for _, *columns in rows:
        build, train, identify, check = (re.findall(r"`([^`]+)`", cell) for cell in columns)
        assert build, "every system can be built"
        assert set(build) <= members["constructions"]
        assert set(train) <= members["recipes"]
        assert set(identify) <= members["algorithms"] | members["policies"]
        (source,) = check
        assert any(id.startswith(f"{source}.") for id in members["claims"])


def test_the_table_of_extras_is_that_of_the_package() -> None:
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    listed = re.findall(r"^\| `([a-z]+)` \|", page, flags=re.M)
    assert sorted(listed) == sorted(extras["optional-dependencies"])


def test_tutorials_that_use_pandas_say_what_to_install() -> None:
    texts = [path.read_text("utf-8") for path in (ROOT / "docs" / "tutorials").glob("*.md")]
    using = [text for text in texts if "import pandas" in text]
    assert using
    for text in using:
        assert text.index("pip install '.[frames]'") < text.index("```python")


def test_the_table_of_sparse_recovery_is_what_was_recorded() -> None:
    page = (ROOT / "docs" / "guide" / "sparse-recovery.md").read_text("utf-8")
    paths = (ROOT / "results" / "cells" / "full" / "liu2025.figure-1a").glob("*.json")
    cells = [unpack_tables(json.loads(path.read_text("utf-8"))["content"]) for path in paths]
    cells.sort(key=lambda cell: cell["cell"]["settings"]["restart"])
    cell, *others = cells
    losses = cell["found"]["losses"]
    for name in ("Small TF", "Small TF (from near the construction)"):
        told = " and ".join(f"{other['found']['losses'][name][0]:.2f}" for other in others)
        assert told in page.replace("\n", " "), told
    rows = re.findall(r"^\| (.+) \| (\d+\.\d\d) ± (\d+\.\d\d) \|$", page, flags=re.M)
    assert len(rows) == 10
    for name, loss, error in rows:
        found = losses[name]
        assert (loss, error) == (f"{found[0]:.2f}", f"{2 * found[1]:.2f}")
    assert [float(loss) for _, loss, _ in rows] == sorted(float(loss) for _, loss, _ in rows)
    assert f"same {cell['cell']['settings']['examples']:,} prompts" in page.replace("\n", " ")
