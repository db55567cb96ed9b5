"""The page about data is run: its examples, one after another, print what it says."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from test_readme import assert_prints

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "guide" / "data.md").read_text("utf-8")
FENCES = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, flags=re.M | re.S)
pytestmark = pytest.mark.usefixtures("law_alone")


def test_every_example_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shared: dict[str, Any] = {"__name__": "__main__"}
    ran = 0
    for (kind, code), (next_kind, expected) in itertools.pairwise(FENCES):
        if kind == "python":
            assert next_kind == "text", "each example says what it prints"
            exec(compile(code, "data.md", "exec"), shared)
            assert_prints(expected, capsys.readouterr().out)
            ran += 1
    assert ran == 3
    assert (tmp_path / "steps.svg").read_text("utf-8").startswith("<svg")


def test_the_table_is_what_the_benchmark_recorded() -> None:
    rows = json.loads((ROOT / "results" / "benchmarks" / "solve.json").read_bytes())["rows"]
    found = {}
    for row in rows:
        if row["rows"] == 40:
            found.setdefault(row["method"], []).append(f"{row['cpu_us']:,.0f}")
        if row["method"] not in ("lista-vm", "transformer") and "reached" in row:
            assert row["reached"] == 1.0, "at equal accuracy"
    del found["lista-vm"]  # approximate: told in words
    table = re.findall(r"^\| .* \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$", PAGE, re.M)
    assert [list(cells) for cells in table[1:]] == list(found.values())
