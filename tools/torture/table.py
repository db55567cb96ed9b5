"""The table of an attack: tries, survivors, refusals and defects, and its record on disk."""

from __future__ import annotations

import json
import os
import platform
import re
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from innerloop.files import write_atomically
from innerloop.provenance import collect_versions, digest_package
from innerloop.terminal import print_table
from tools.torture.isolation import Result

MAX_EXAMPLES = 3
"""The number of tries that are listed for each kind of defect."""


@dataclass
class Row:
    """The outcome of one attack."""

    name: str
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    defects: dict[str, dict[int, str]] = field(default_factory=dict)
    """The tries with each kind of defect.

    Defects whose descriptions differ in data only are one kind.
    """
    seconds: float = 0.0
    skipped: str = ""
    """The reason why the attack was left out, if it was."""

    def add(self, result: Result) -> None:
        self.counts[result.verdict] += 1
        if result.verdict == "defect":
            kind = simplify_defect(result.defect)
            self.defects.setdefault(kind, {})[result.number] = result.defect

    @property
    def tries(self) -> int:
        return self.counts.total()

    def as_dict(self) -> dict[str, Any]:
        """Return the row for JSON.

        Each kind of defect with its count and the command that repeats it.
        """
        return {
            "attack": self.name,
            "tries": self.tries,
            "survived": self.counts["survived"],
            "refused": self.counts["refused"],
            "defects": self.counts["defect"],
            "kinds": [
                {
                    "defect": tries[min(tries)],
                    "times": len(tries),
                    "repeat": [self.repeat(k) for k in sorted(tries)[:MAX_EXAMPLES]],
                }
                for _, tries in sorted(
                    self.defects.items(), key=lambda item: (-len(item[1]), item[0])
                )
            ],
            "seconds": round(self.seconds, 1),
            "code": digest_package()[:16],
            **({"skipped": self.skipped} if self.skipped else {}),
        }

    def repeat(self, number: int) -> str:
        """Return the command that repeats one try."""
        return f"python -m tools.torture --only {self.name} --seed {self.seed} --first {number}"


def simplify_defect(text: str) -> str:
    """Remove the parts that differ from try to try: the message of an exception, numbers, names."""
    head, colon, _ = text.partition(": ")
    if colon and re.match(r"\w+(Error|Warning|Exception)\b", head):
        return head
    return re.sub(r"'[^']*'|\S*/\S*|-?\d[\d.e+-]*", "…", re.sub(r" \(innerloop .*", "", text))


def print_rows(rows: list[dict[str, Any]]) -> None:
    """Print the table, then every kind of defect with the command that repeats it."""
    columns = ["attack", "tries", "survived", "refused", "defects", "seconds"]
    total = {name: sum(row[name] for row in rows) for name in columns[1:]}
    lines = [*rows, {"attack": "all", **total, "seconds": round(total["seconds"], 1)}]
    print_table("torture", columns, [[str(line[name]) for name in columns] for line in lines])
    for row in rows:
        if "skipped" in row:
            print(f"{row['attack']} was left out: {row['skipped']}")
        for kind in row["kinds"]:
            print(f"{row['attack']}, {kind['times']} times: {kind['defect']}")
            print(f"  {kind['repeat'][0]}")


def write_record(
    path: Path, rows: list[dict[str, Any]], settings: dict[str, Any], command: str
) -> None:
    """Write the table with the settings that are needed to make it again, completely or not at
    all.
    """
    contents = {
        "command": command,
        "settings": settings,
        "versions": collect_versions(),
        "machine": {"cores": os.cpu_count(), "processor": platform.machine()},
        "seconds": round(sum(row["seconds"] for row in rows), 1),
        "table": sorted(rows, key=lambda row: row["attack"]),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(contents, indent=2, ensure_ascii=False) + "\n").encode())


def read_finished(path: Path, seed: int) -> dict[tuple[str, int], dict[str, Any]]:
    """Read the attacks that a record has with this seed and no defect, by name and number of
    tries.
    """
    if not path.exists():
        return {}
    contents = json.loads(path.read_bytes())
    if contents["settings"]["seed"] != seed:
        return {}
    return {
        (row["attack"], row["tries"]): row
        for row in contents["table"]
        if not row["defects"] and "skipped" not in row
    }


def read_others(
    path: Path, names: Container[str]
) -> tuple[list[dict[str, Any]], dict[str, Any], str]:
    """Read the rows of other attacks than these from a record, its settings and its command."""
    record = json.loads(path.read_bytes())
    rows = [row for row in record["table"] if row["attack"] not in names]
    return rows, record["settings"], record["command"]
