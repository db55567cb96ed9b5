"""What the figure of a verdict shows, as tidy rows: scores layer × step, and errors."""

from __future__ import annotations

from typing import Any

from innerloop.identify.comparison import compared
from innerloop.identify.identification import Identified
from innerloop.identify.models import Model
from innerloop.identify.verdict import Match

Rows = list[dict[str, Any]]
SHOWN = 4
"""Candidates that are drawn: the best of different names."""


def measured(found: Identified, model: Model) -> list[dict[str, float]]:
    """Every measure for each layer, between the model and the candidate that is nearest there."""
    near = {layer.nearest for layer in found.layers}
    matches = {m.candidate.label: m for m in found.matches if m.candidate.label in near}
    steps = max(max(match.steps) for match in matches.values())
    tables = compared(model, list(matches.values()), found.problem, max(steps, 1))
    rows = []
    for k, layer in enumerate(found.layers):
        step = matches[layer.nearest].steps[k]
        measures = tables[layer.nearest].items()
        rows.append({name: float(table[k, step]) for name, table in measures})
    return rows


def drawing(found: Identified, model: Model, steps: int) -> dict[str, Rows]:
    """Rows of the heat maps (`scores`, best match marked) and of the curves (`errors`)."""
    matches = _best(found)
    worth = 2 * max(max(match.steps) for match in matches) + 2
    tables = compared(model, matches, found.problem, min(steps, worth))
    scores, errors = [], _curve("the model", found.errors, 1)
    for match in matches:
        label, table = match.candidate.label, tables[match.candidate.label]
        for k, row in enumerate(table["score"].tolist()):
            scores += [
                {
                    "candidate": label,
                    "layer": k + 1,
                    "step": step,
                    "score": max(value, 0.0),
                    "best": step == match.steps[k],
                }
                for step, value in enumerate(row)
            ]
        if "loss" in table and match.candidate.schedule != "exact":
            relative = (table["loss"][0] / found.power).sqrt().tolist()
            errors += _curve(label, relative, 0)
    return {"scores": scores, "errors": [row for row in errors if 0 < row["error"] < 1e3]}


def _best(found: Identified) -> list[Match]:
    """The candidate that is named, and the best of other names."""
    means = found.scored.score.clamp(0, 1).mean(dim=-1).tolist()
    order = sorted(range(len(means)), key=lambda c: -means[c])
    named = (found.algorithm, found.schedule)
    order.sort(key=lambda c: _key(found.matches[c]) != named)
    kept: dict[str, Match] = {}
    for c in order:
        kept.setdefault(found.matches[c].candidate.name, found.matches[c])
    return list(kept.values())[:SHOWN]


def _key(match: Match) -> tuple[str, str]:
    return match.candidate.name, match.candidate.schedule


def _curve(label: str, errors: list[float], first: int) -> Rows:
    return [{"series": label, "at": k, "error": error} for k, error in enumerate(errors, first)]
