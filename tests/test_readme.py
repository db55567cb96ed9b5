"""The README, run: each example prints what it says."""

from __future__ import annotations

import itertools
import json
import re
import runpy
from pathlib import Path

import pytest

from innerloop.constructions.base import Construction
from innerloop.registry import load_members

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
FENCES = re.findall(r"^```(\w+)\n(.*?)^```$", README, flags=re.M | re.S)
EXAMPLES = [
    (code, following)
    for (kind, code), (next_kind, following) in itertools.pairwise(FENCES)
    if kind == "python" and next_kind == "text"
]
COMMANDS = [
    (command, output)
    for kind, block in FENCES
    if kind == "console"
    for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, flags=re.M)
]


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


def test_the_readme_has_examples() -> None:
    assert len(EXAMPLES) == len([kind for kind, _ in FENCES if kind == "python"]) == 9
    assert len(COMMANDS) == 8


@pytest.mark.parametrize(("code", "expected"), EXAMPLES)
def test_python_examples_print_what_they_say(
    code: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "example.py"
    script.write_text(code, "utf-8")
    runpy.run_path(str(script))
    assert_prints(expected, capsys.readouterr().out)


def test_commands_print_what_they_say(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command, expected in COMMANDS:
        program, *words = command.split()
        assert program == "innerloop"
        found = run(*words)
        assert found.code == 0, found.err
        assert_prints(expected, found.out)


def test_the_table_names_constructions_that_there_are() -> None:
    named = set(re.findall(r"^\| `([a-z-]+)` \|", README, flags=re.M))
    assert named <= set(load_members("constructions", Construction))


def test_the_table_of_sparse_recovery_is_what_was_recorded() -> None:
    (path,) = (ROOT / "results" / "cells" / "full" / "liu2025.figure-1a").glob("*.json")
    cell = json.loads(path.read_text("utf-8"))["content"]
    losses = cell["found"]["losses"]
    rows = re.findall(r"^\| (.+) \| (\d+\.\d\d) ± (\d+\.\d\d) \|$", README, flags=re.M)
    assert len(rows) == 10
    for name, loss, error in rows:
        found = losses[name]
        assert (loss, error) == (f"{found[0]:.2f}", f"{2 * found[1]:.2f}")
    assert [float(loss) for _, loss, _ in rows] == sorted(float(loss) for _, loss, _ in rows)
    assert f"the same {cell['cell']['settings']['examples']:,} prompts" in README.replace("\n", " ")
