"""Values are named for what they hold: the number of private words per folder only falls.

`tests/words.json` has the limit of each folder. `python tests/test_words.py` writes it anew.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIMITS = Path(__file__).with_name("words.json")
FOLDERS = ("benchmarks", "docs", "examples", "innerloop", "tests", "tools")
WORDS = ("asked", "found", "given", "kept", "said", "shown", "told", "wanted")
"""Participles that say how a value came about, and not what it holds."""
PRIVATE = re.compile(
    r"\b(?:(?:is|are|was|were) told|tells? (?:how|what|whether|where|which)|but for|so many|"
    r"is no [a-z]+|are no [a-z]+|of which (?:nothing|one)|what is (?:asked|wanted))\b"
)
"""Phrases of clipped English, in docstrings, comments, messages and documentation."""


def name_folder(path: Path) -> str:
    """Name the room of a file: `innerloop/lab`, `tests`, or `.` for files of the checkout."""
    parts = path.relative_to(ROOT).parent.parts
    return "/".join(parts[:2] if parts[:1] in (("innerloop",), ("tools",)) else parts[:1]) or "."


def count_names(text: str) -> Counter[str]:
    """Count assignments, arguments and fields that are named by one of the words."""
    bound = (
        node.id if isinstance(node, ast.Name) else node.arg
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.arg)
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    )
    return Counter(name for name in bound if name.strip("_") in WORDS)


def count_words() -> dict[str, dict[str, int]]:
    """Count private names and phrases per folder."""
    totals: dict[str, Counter[str]] = {}
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.[pm][yd]")]
    for path in sorted([*files, *ROOT.glob("*.md")]):
        if path == Path(__file__).resolve():
            continue
        text = path.read_text("utf-8")
        counts = totals.setdefault(name_folder(path), Counter())
        counts["phrases"] += len(PRIVATE.findall(text))
        if path.suffix == ".py":
            counts += count_names(text)
            totals[name_folder(path)] = counts
    return {
        folder: {word: counts[word] for word in sorted(counts)}
        for folder, counts in sorted(totals.items())
        if counts.total()
    }


def test_private_words_only_become_fewer() -> None:
    limits = json.loads(LIMITS.read_text("utf-8"))
    rises = {
        f"{folder}: {word}": (count, limits.get(folder, {}).get(word, 0))
        for folder, words in count_words().items()
        for word, count in words.items()
        if count > limits.get(folder, {}).get(word, 0)
    }
    assert not rises, f"name what a value holds, in plain English (count, limit): {rises}"


def test_names_and_phrases_are_counted() -> None:
    text = "def f(told, *, shown=1):\n    found = [kept for kept in told]\n    return found\n"
    assert count_names(text) == {"told": 1, "shown": 1, "found": 1, "kept": 1}
    assert PRIVATE.findall("it is told, and is no file; said but not for this")
    assert not PRIVATE.findall("the expected value is not a file")


if __name__ == "__main__":
    LIMITS.write_text(json.dumps(count_words(), indent=1) + "\n", "utf-8")
