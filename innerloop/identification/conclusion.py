"""The result of `identify`: a verdict that follows from the scores, as text and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from innerloop.errors import InputError
from innerloop.identification.answers import describe_constants
from innerloop.identification.candidates import Candidate
from innerloop.identification.comparison import Tables, compare_candidates
from innerloop.identification.consistency import Consistency
from innerloop.identification.families.base import Family
from innerloop.identification.measures import LayerPredictions
from innerloop.identification.misses import describe_misses
from innerloop.identification.models import Answered, Model
from innerloop.identification.relation import fit_step_growth, order_of_convergence
from innerloop.identification.scores import Match, ScoreTable
from innerloop.identification.tables import format_html, format_identification, make_frame
from innerloop.identification.verdict import (
    LayerVerdict,
    format_share,
    judge_layers,
    select_candidate,
)

NONE_FITS = "none fits"


@dataclass(frozen=True, eq=False)
class Identification:
    """The verdict on a model with the scores that it follows from; it prints as a table."""

    layers: list[LayerVerdict]
    algorithm: str | None
    schedule: str | None
    verdict: str
    hyperparameters: dict[str, Any]
    relation: dict[str, Any] | None
    order: dict[str, float] | None
    matches: list[Match]
    score_table: ScoreTable
    errors: list[float | None]
    power: float
    problem: Any
    model: LayerPredictions
    family: Family
    fitting_prompts: int
    notes: list[str]
    declared: str | None = None
    """The algorithm that the model declares, or None."""
    consistency: Consistency | None = None
    """Whether each layer repeats itself and treats prompts one by one; None if not checked."""

    def without(self, *names: str) -> Identification:
        """Return the verdict with these algorithms removed from the candidates."""
        places = [c for c, match in enumerate(self.matches) if match.candidate.name not in names]
        if not places:
            raise InputError("no candidate is left to compare with: exclude fewer algorithms")
        matches = [self.matches[c] for c in places]
        labels = [layer.name for layer in self.layers]
        answered = Answered(self.family, (), self.model)
        scored = self.score_table.select(places)
        count, declared = self.fitting_prompts, self.declared
        return conclude(
            matches, scored, labels, self.problem, answered, count, declared, self.consistency
        )

    def compute_tables(self, model: Model, steps: int = 64) -> dict[str, Tables]:
        """Compute every measure for every layer and step; the keys are candidates' labels."""
        return compare_candidates(model, self.matches, self.problem, steps)

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON values; `fitted` has the values of all fitting candidates."""
        named_somewhere = {layer.nearest for layer in self.layers if layer.algorithm is not None}
        return {
            "verdict": self.verdict,
            "algorithm": self.algorithm,
            "schedule": self.schedule,
            "hyperparameters": self.hyperparameters,
            "fitted": {
                match.candidate.label: _export_values(match)
                for match in self.matches
                if match.candidate.label in named_somewhere
            },
            "relation": self.relation,
            "order_of_convergence": self.order,
            "answers": self.family.name,
            "fitting_prompts": self.fitting_prompts,
            "notes": self.notes,
            "layers": [
                {**layer.as_dict(), "does": layer.describe(), "error": error}
                for layer, error in zip(self.layers, self.errors, strict=True)
            ],
        }

    def __str__(self) -> str:
        return format_identification(self.as_dict())

    def __repr__(self) -> str:
        return f"<Identification: {self.verdict}>"

    def _repr_html_(self) -> str:
        return format_html(self.as_dict())

    def to_frame(self) -> Any:
        """Return a row per layer as a pandas data frame."""
        return make_frame(self.as_dict())


def conclude(
    matches: list[Match],
    scored: ScoreTable,
    labels: Sequence[str],
    problem: Any,
    answered: Answered,
    fitting_prompts: int,
    declared: str | None = None,
    consistency: Consistency | None = None,
) -> Identification:
    """Return the verdict that follows from the scores."""
    broken = [None] * len(labels) if consistency is None else consistency.layers
    model, family = answered.vectors, answered.family
    target = answered.find_truth(problem)
    constants = describe_constants(model, problem, family, target)
    layers = judge_layers(matches, scored, labels, constants, declared, broken)
    layers = [_locate_misses(layer, matches, problem, model) for layer in layers]
    unnamed = [b or c for b, c in zip(broken, constants, strict=True)]
    best = None if broken[-1] else select_candidate(matches, scored, unnamed, declared)
    power = float((model[-1] if target is None else target).square().sum(dim=-1).mean())
    errors = family.measure_errors(problem, model)
    relation, hyperparameters = None, {}
    if best is not None:
        match = matches[best]
        fits = _list_fits(layers, match.candidate)
        if match.candidate.schedule == "one for all":
            known = [(v.layer, v.step) for v in fits if v.step is not None]
            relation = fit_step_growth([k for k, _ in known], [step for _, step in known])
        hyperparameters = _export_values(match)
    chosen = None if best is None else matches[best].candidate
    return Identification(
        layers=layers,
        algorithm=None if chosen is None else chosen.name,
        schedule=None if chosen is None else chosen.schedule,
        verdict=_describe_verdict(layers, chosen),
        hyperparameters=hyperparameters,
        relation=relation,
        order=None if target is None or errors is None else order_of_convergence(errors),
        matches=matches,
        score_table=scored,
        errors=[None] * len(layers) if errors is None else list(errors),
        power=power,
        problem=problem,
        model=model,
        family=family,
        fitting_prompts=fitting_prompts,
        notes=[
            *_list_notes(layers, chosen, family, problem, fitting_prompts),
            *([] if consistency is None else consistency.notes),
        ],
        declared=declared,
        consistency=consistency,
    )


def _locate_misses(
    layer: LayerVerdict, matches: Sequence[Match], problem: Any, model: LayerPredictions
) -> LayerVerdict:
    """Describe the prompts on which a candidate differs most from a layer."""
    if layer.fit not in ("close", "answers"):
        return layer
    near = next(match for match in matches if match.candidate.label == layer.nearest)
    k = layer.layer - 1
    return replace(layer, where=describe_misses(problem, model[k], near.predictions[k]))


def _list_notes(
    layers: Sequence[LayerVerdict],
    chosen: Candidate | None,
    family: Family,
    problem: Any,
    prompts: int,
) -> list[str]:
    """List the remarks that a reader of the verdict needs."""
    notes = [note for note in [family.note(problem)] if note is not None]
    if chosen is not None:
        fits = _list_fits(layers, chosen)
        beaten = sorted({name for layer in fits for name in layer.by_numbers_alone})
        if beaten:
            notes.append(
                f"{chosen.label} contains {', '.join(beaten)}, and fits better by its free "
                f"numbers: {fits[0].free_numbers} of them, fitted to {prompts} prompts"
            )
    return notes


def _export_values(match: Match) -> dict[str, Any]:
    """Convert hyper-parameters to plain values; for a solution without steps, one per layer."""

    if match.values is not None:
        return match.values

    def plain(value: Any) -> Any:
        return value.tolist() if isinstance(value, Tensor) else value

    each = [{k: plain(v) for k, v in vars(a).items()} for a in match.algorithms]
    if match.candidate.schedule != "exact":
        return each[0]
    return {name: [values[name] for values in each] for name in each[0]}


def _describe_verdict(layers: Sequence[LayerVerdict], candidate: Candidate | None) -> str:
    """Describe the verdict in one line."""
    if candidate is None:
        return _describe_strangers(layers)
    fits = _list_fits(layers, candidate)
    missed = max(1 - min(v.share for v in fits), 0.0) ** 0.5
    matched = all(v.fit == "match" for v in fits)
    close = "" if matched else f"close to (misses up to {format_share(missed)}) "
    return f"{close}{candidate.label}{_describe_place(fits, layers)}"


def _describe_strangers(layers: Sequence[LayerVerdict]) -> str:
    """Describe a model that no candidate fits: the limit of its answers, or a constant."""
    last = layers[-1]
    if last.fit == "inconsistent":
        return f"the model {last.answers}"
    constants = {layer.answers for layer in layers}
    if None not in constants and len(constants) == 1:
        return str(constants.pop())
    if last.fit != "answers":
        return NONE_FITS
    return f"gives the answers of {last.nearest}, with errors of its own"


def _describe_place(some: Sequence[LayerVerdict], layers: Sequence[LayerVerdict]) -> str:
    """Describe a selection of layers; empty if it has all of them."""
    if len(some) == len(layers):
        return ""
    return f" at layers {_format_ranges([v.layer for v in some])} of {len(layers)}"


def _list_fits(layers: Sequence[LayerVerdict], candidate: Candidate) -> list[LayerVerdict]:
    """List the layers for which a candidate is named."""
    return [v for v in layers if v.nearest == candidate.label and v.algorithm is not None]


def _format_ranges(numbers: Sequence[int]) -> str:
    """Format numbers as ranges: 1, 2, 3, 7 → 1–3, 7."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    return ", ".join(str(s[0]) if len(s) == 1 else f"{s[0]}–{s[-1]}" for s in spans)
