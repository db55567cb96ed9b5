"""Generate the page of findings from results/verdicts.json."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from innerloop.mathtext import to_html
from innerloop.report.findings import HEADINGS
from innerloop.report.verdicts import phrase_verdict

RECORDED = Path(__file__).parents[2] / "results" / "verdicts.json"
LABELS = {
    "printed": "printed",
    "counterexample": "counterexample",
    "corrected": "corrected",
    "weaker": "weaker, and true",
    "meant": "meant",
    "summary": "tested",
    "decided_by": "would decide it",
    "missing": "not printed",
}
"""The displayed fields of a finding, with their labels."""
CORRECTIONS = {"undecided": "correction, open", "fails": "correction, refuted"}
"""The label of a correction that is not confirmed, by its outcome."""


def make_page() -> str:
    """Write the page: the verdicts per source, and each finding as printed and corrected."""
    if not RECORDED.exists():
        return "# Findings\n\nNo results are recorded. `make report` checks every claim.\n"
    recorded = json.loads(RECORDED.read_text("utf-8"))
    total = sum(recorded["verdicts"].values())
    counts = ", ".join(
        f"{count} {phrase_verdict(verdict, count)}"
        for verdict, count in recorded["verdicts"].items()
    )
    parts = [
        "# Findings\n",
        f"innerloop tests {total} statements of {len(recorded['sources'])} documents: {counts}. "
        "A verdict is computed from the checks of a statement, and errata do not change it: see "
        "[verdicts and fairness](concepts/verdicts.md). `innerloop check ID` repeats the "
        "check of a "
        "statement. Authors can [object to a verdict](reproducibility.md#object-to-a-verdict).\n",
        _write_pictures(),
        _write_sources(recorded["sources"]),
    ]
    for kind, heading in HEADINGS.items():
        findings = [each for each in recorded["findings"] if each["kind"] == kind]
        if findings:
            parts.append(f"## {heading}\n")
            parts += [_write_finding(each) for each in findings]
    return "\n".join(parts)


def _write_pictures() -> str:
    images = "".join(
        f'<img class="picture-{theme}" src="pictures/verdicts-{theme}.svg" '
        'alt="verdicts for each source">'
        for theme in ("light", "dark")
    )
    return f"<figure>{images}</figure>\n"


def _write_sources(sources: list[dict[str, Any]]) -> str:
    lines = []
    for source in sources:
        links = [f"[{name}]({address})" for name, address in source.get("links", {}).items()]
        lines.append("- " + " · ".join([source["citation"], *links]))
    return "\n".join(lines) + "\n"


def _write_finding(finding: dict[str, Any]) -> str:
    """Write a finding with its statement and source, so that it can be read alone."""
    place = finding.get("place") or finding["where"]
    correction = CORRECTIONS.get(finding.get("outcome", ""), LABELS["corrected"])
    labels = {**LABELS, "corrected": correction}
    rows = "".join(
        f"<dt>{label}</dt><dd>{to_html(str(finding[name]))}</dd>"
        for name, label in labels.items()
        if finding.get(name)
    )
    return (
        f'<div class="finding"><p><strong>{escape(finding["source"])}, {to_html(place)}</strong> '
        f"<code>{escape(finding['id'])}</code><br>{to_html(finding['claim'])}</p>"
        f'<dl class="law">{rows}</dl></div>\n'
    )
