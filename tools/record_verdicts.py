"""Record verdicts and findings for the documentation and the README's picture of verdicts.

    innerloop check --json > outcomes.json
    python tools/record_verdicts.py outcomes.json         writes results/verdicts.json

Checking takes minutes and the documentation is built often, so the documentation uses this file. A
test checks that the file contains every claim with its current statement.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import innerloop
from innerloop.files import write_atomically
from innerloop.report.findings import summarise

TARGET = Path(__file__).resolve().parents[1] / "results" / "verdicts.json"


def summarise_outcomes(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """Summarise outcomes: the claims, their presets, verdicts and findings."""
    claims = {
        outcome["id"]: {name: outcome[name] for name in ("verdict", "label", "preset", "statement")}
        for outcome in outcomes
    }
    made = max((outcome["made"] for outcome in outcomes), default="")
    return {"version": innerloop.__version__, "made": made, "claims": claims, **summarise(outcomes)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("outcomes", type=Path, help="what `innerloop check --json` printed")
    parser.add_argument("-o", "--output", type=Path, default=TARGET)
    options = parser.parse_args()
    summary = summarise_outcomes(json.loads(options.outcomes.read_text("utf-8")))
    text = json.dumps(summary, ensure_ascii=False, indent=1)
    write_atomically(options.output.resolve(), f"{text}\n".encode())
    counts = ", ".join(f"{count} {verdict}" for verdict, count in summary["verdicts"].items())
    print(f"{options.output}: {counts}; {len(summary['findings'])} findings")


if __name__ == "__main__":
    main()
