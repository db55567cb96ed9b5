"""Similarities as the literature measures them, for layers that no candidate matches.

Fu et al. 2023 compare the errors that a model and an iteration make over all lengths of a prompt,
and the weights that their predictions induce. Each layer is compared with its most similar step.
Exact solvers have errors too if examples are fewer than features, so the similarity is informative
also for models without errors at full length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from innerloop.errors import InputError
from innerloop.identification.comparison import compare_candidates
from innerloop.identification.models import Model
from innerloop.identification.relation import fit_step_growth
from innerloop.identification.scores import Match
from innerloop.identification.tables import LEAST_R2
from innerloop.identification.verdict import NEAR_SHARE, LayerVerdict

ERRORS, WEIGHTS = "similarity of errors", "similarity of induced weights"
MAX_CANDIDATES = 4
"""Candidates that are compared this way: those that are near most of the layers."""
COMPARED_PROMPTS = 32


def add_similarities(
    layers: list[LayerVerdict], matches: Sequence[Match], problem: Any, model: Model, steps: int
) -> list[LayerVerdict]:
    """Add to each layer without a match the candidate with the most similar errors, if measurable.

    A layer that no candidate is near is left out, because the errors of all algorithms are similar
    at the start.
    """
    open_layers = [
        v for v in layers if v.fit in ("close", "answers", "none") and v.share >= NEAR_SHARE
    ]
    labels = {match.candidate.label: match.candidate.name for match in matches}
    counts = Counter(labels[near.candidate] for layer in open_layers for near in layer.near)
    names = {name for name, _ in counts.most_common(MAX_CANDIDATES)}
    # As in the literature, with the same values at every step.
    some = [m for m in matches if m.candidate.name in names and m.candidate.schedule != "per step"]
    if not some:
        return layers
    most = min(steps, 2 * max(max(match.steps) for match in some) + 2)
    try:
        tables = compare_candidates(model, some, problem[:COMPARED_PROMPTS], most)
    except InputError:  # a model that takes no other prompts than these
        return layers
    if not all(ERRORS in table for table in tables.values()):
        return layers
    return [
        replace(layer, alike=_list_alike(layer, some, tables)) if layer in open_layers else layer
        for layer in layers
    ]


def _list_alike(
    layer: LayerVerdict, matches: list[Match], tables: dict[str, dict[str, torch.Tensor]]
) -> list[dict[str, Any]]:
    rows = []
    for match in matches:
        table = tables[match.candidate.label]
        errors = table[ERRORS][layer.layer - 1]
        step = int(errors.argmax())
        rows.append(
            {
                "candidate": match.candidate.label,
                "step": None if match.candidate.schedule == "exact" else step,
                ERRORS: float(errors[step]),
                WEIGHTS: float(table[WEIGHTS][layer.layer - 1, step]),
            }
        )
    return sorted(rows, key=lambda row: -row[ERRORS])


def describe_growth(layers: Sequence[LayerVerdict]) -> str | None:
    """Name the iteration whose errors are most similar, and describe how its steps grow with
    layers.
    """
    found: dict[str, list[tuple[int, int, float]]] = {}
    for layer in layers:
        for row in layer.alike:
            if row["step"] is not None:
                entry = (layer.layer, row["step"], row[ERRORS])
                found.setdefault(row["candidate"], []).append(entry)
    if not found:
        return None
    means = {name: sum(e for *_, e in rows) / len(rows) for name, rows in found.items()}
    name = max(means, key=lambda each: means[each])
    growth = fit_step_growth([k for k, *_ in found[name]], [s for _, s, _ in found[name]])
    text = f"of all iterations the layers err most like {name}, mean similarity {means[name]:.2f}"
    if growth is None:
        return text
    fit = growth[growth["better"]]
    if fit["r2"] < LEAST_R2:
        return text
    return f"{text}; its steps grow {growth['better']}ly with layers (R² {fit['r2']:.2f})"
