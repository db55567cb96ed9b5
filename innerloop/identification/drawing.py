"""Data of the figure of a verdict, as tidy rows: scores per layer and step, and errors."""

from __future__ import annotations

from typing import Any

from innerloop.identification.comparison import Tables, compare_candidates
from innerloop.identification.conclusion import Identification
from innerloop.identification.models import Model
from innerloop.identification.scores import Match

Rows = list[dict[str, Any]]
MAX_CANDIDATES = 4
"""Candidates shown in the figure: the best of this many different algorithms."""


def measure_layers(found: Identification, model: Model) -> list[dict[str, float]]:
    """Compute every measure for each layer, between the model and the layer's nearest candidate."""
    near = {layer.nearest for layer in found.layers}
    matches = {m.candidate.label: m for m in found.matches if m.candidate.label in near}
    steps = max(max(match.steps) for match in matches.values())
    tables = compare_candidates(model, list(matches.values()), found.problem, max(steps, 1))
    rows = []
    for k, layer in enumerate(found.layers):
        match = matches[layer.nearest]
        measures = tables[layer.nearest].items()
        own = found.family.measure(found.problem, found.model[k], match.predictions[k])
        rows.append({name: float(table[k, match.steps[k]]) for name, table in measures} | own)
    return rows


def collect_figure_rows(found: Identification, model: Model, steps: int) -> dict[str, Rows]:
    """Collect the rows of the heat maps (`scores`, best match marked) and curves (`errors`)."""
    matches = select_best(found)
    worth = 2 * max(max(match.steps) for match in matches) + 2
    tables = compare_candidates(model, matches, found.problem, min(steps, worth))
    known = [error for error in found.errors if error is not None]
    scores, errors = [], _make_curve_rows("the model", known, 1)
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
        if match.candidate.schedule != "exact":
            errors += _make_curve_rows(label, _list_errors(table, found.power), 0)
    return {"scores": scores, "errors": [row for row in errors if 0 < row["error"] < 1e3]}


def _list_errors(table: Tables, power: float) -> list[float]:
    """List a candidate's error after each step, as a share like the model's; none if unknown."""
    if "loss" in table:
        return (table["loss"][0] / power).sqrt().tolist()
    return table["error"][0].tolist() if "error" in table else []


def select_best(found: Identification, count: int = MAX_CANDIDATES) -> list[Match]:
    """Select the candidate of the verdict, then the best of each other algorithm."""
    means = found.score_table.scores.clamp(0, 1).mean(dim=-1).tolist()
    order = sorted(range(len(means)), key=lambda c: -means[c])
    named = (found.algorithm, found.schedule)
    order.sort(key=lambda c: _match_key(found.matches[c]) != named)
    best: dict[str, Match] = {}
    for c in order:
        best.setdefault(found.matches[c].candidate.name, found.matches[c])
    return list(best.values())[:count]


def _match_key(match: Match) -> tuple[str, str]:
    return match.candidate.name, match.candidate.schedule


def _make_curve_rows(label: str, errors: list[float], first: int) -> Rows:
    return [{"series": label, "at": k, "error": error} for k, error in enumerate(errors, first)]
