"""`identify`: which algorithm each layer of a model runs, from predictions on random problems.

Candidates' hyper-parameters are fitted, and steps chosen, on one set of prompts; others score them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from innerloop.certification.building import BuiltTransformer
from innerloop.errors import InputError
from innerloop.identification.answers import describe_constants
from innerloop.identification.candidates import Candidate, Given, list_candidates
from innerloop.identification.comparison import Tables, compare_candidates
from innerloop.identification.fitting import FitTarget, estimate_memory
from innerloop.identification.instances import (
    copy_problem,
    draw_prompts,
    draw_sample,
    find_targets,
)
from innerloop.identification.measures import LayerPredictions, loss, scale
from innerloop.identification.models import ConstructionModel, FunctionModel, Model, predict_layers
from innerloop.identification.relation import fit_step_growth, order_of_convergence
from innerloop.identification.screening import fit_candidates
from innerloop.identification.verdict import (
    LayerVerdict,
    Match,
    ScoreTable,
    judge_layers,
    select_candidate,
)
from innerloop.limits import check_count, check_memory, check_seed
from innerloop.problems.base import Distribution
from innerloop.progress import Progress

NONE_FITS = "none fits"
PROMPTS_PER_ENTRY = 6
"""Prompts to fit on, at least, per entry of a d×d matrix."""
STEPS_PER_LAYER, MIN_STEPS = 4, 32
"""Steps of an iteration that a fit considers: this many per layer, and at least this many."""


@dataclass(frozen=True, eq=False)
class Identification:
    """The verdict on a model, and the numbers behind it."""

    layers: list[LayerVerdict]
    algorithm: str | None
    schedule: str | None
    verdict: str
    hyperparameters: dict[str, Any]
    relation: dict[str, Any] | None
    order: dict[str, float] | None
    matches: list[Match]
    score_table: ScoreTable
    errors: list[float]
    power: float
    problem: Any
    model: LayerPredictions

    def without(self, *names: str) -> Identification:
        """Return the verdict without these algorithms among the candidates."""
        kept = [c for c, match in enumerate(self.matches) if match.candidate.name not in names]
        if not kept:
            raise InputError("no candidate is left to compare with: exclude fewer algorithms")
        scored = ScoreTable(self.score_table.scores[kept], self.score_table.resampled[:, kept])
        matches = [self.matches[c] for c in kept]
        labels = [layer.name for layer in self.layers]
        return conclude(matches, scored, labels, self.problem, self.model)

    def compute_tables(self, model: Model, steps: int = 64) -> dict[str, Tables]:
        """Compute every measure for every layer and step, by the candidate's label."""
        return compare_candidates(model, self.matches, self.problem, steps)

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict for JSON; `fitted` has the values of all that fit some layer."""
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
            "layers": [
                {**layer.as_dict(), "error": error}
                for layer, error in zip(self.layers, self.errors, strict=True)
            ],
        }


def as_model(given: Any) -> Model:
    """Return a `Model` as it is; wrap a built transformer or a function (X, y, x_query)."""
    if isinstance(given, Model):
        return given
    if isinstance(given, BuiltTransformer):
        return ConstructionModel.from_built(given)
    if callable(given):
        return FunctionModel(given)
    raise InputError(
        f"expected a Model, a built transformer, or a function of X, y and x_query; "
        f"got {type(given).__name__}"
    )


def identify(
    model: Any,
    distribution: Distribution | None = None,
    *,
    algorithms: Sequence[Given] | None = None,
    prompts: int = 256,
    steps: int = 64,
    seed: int = 0,
    progress: Progress | None = None,
) -> Identification:
    """Identify which algorithm each layer of a model runs on problems of a distribution.

    `model` is a `Model`, the result of `build`, or a function (X, y, x_query) → prediction;
    `algorithms` names the candidates, by default all that solve the problem; `prompts` score them;
    at most `steps` steps of an iteration are matched with a layer.
    """
    prompts, steps = check_count("prompts", prompts, 2), check_count("steps", steps, 1)
    seed = check_seed(seed)
    seen = as_model(model)
    distribution = seen.distribution() if distribution is None else distribution
    if distribution is None:
        raise InputError("pass a distribution: this model does not declare one")
    seen.check(copy_problem(draw_sample(distribution, prompts)))
    generator = torch.Generator().manual_seed(seed)
    d = getattr(distribution, "d", 1)
    fitting = draw_prompts(distribution, max(prompts, PROMPTS_PER_ENTRY * d**2), generator)
    scoring = draw_prompts(distribution, prompts, generator)
    target, labels = predict_layers(seen, fitting), seen.layers
    answers = predict_layers(seen, scoring)
    wanted = FitTarget(fitting, target, scale(target, find_targets(fitting)))
    found = list_candidates(fitting, target[0], algorithms)
    for candidate in found:
        needed = estimate_memory(candidate.guesses[0], candidate.schedule, wanted)
        check_memory(needed, f"fitting {candidate.label}")
    most = max(min(steps, max(STEPS_PER_LAYER * len(labels), MIN_STEPS)), len(labels))
    matches = fit_candidates(found, wanted, scoring, most, progress)
    scored = ScoreTable.from_matches(answers, matches, find_targets(scoring), generator)
    return conclude(matches, scored, labels, scoring, answers)


def conclude(
    matches: list[Match],
    scored: ScoreTable,
    labels: Sequence[str],
    problem: Any,
    model: LayerPredictions,
) -> Identification:
    """Conclude the verdict from the scores."""
    constants = describe_constants(model, problem)
    layers = judge_layers(matches, scored, labels, constants)
    best = select_candidate(matches, scored, constants)
    target = find_targets(problem)
    against = torch.zeros_like(model[-1]) if target is None else target
    power = float((model[-1] if target is None else target).square().sum(dim=-1).mean())
    errors = (loss(model, against) / max(power, 1e-300)).sqrt().tolist()
    relation, hyperparameters = None, {}
    if best is not None:
        match = matches[best]
        fits = _list_fits(layers, match.candidate)
        if match.candidate.schedule == "one for all":
            relation = fit_step_growth([v.layer for v in fits], [v.step or 0 for v in fits])
        hyperparameters = _export_values(match)
    return Identification(
        layers=layers,
        algorithm=None if best is None else matches[best].candidate.name,
        schedule=None if best is None else matches[best].candidate.schedule,
        verdict=_describe_verdict(layers, None if best is None else matches[best].candidate),
        hyperparameters=hyperparameters,
        relation=relation,
        order=None if target is None else order_of_convergence(errors),
        matches=matches,
        score_table=scored,
        errors=errors,
        power=power,
        problem=problem,
        model=model,
    )


def _export_values(match: Match) -> dict[str, Any]:
    """Convert hyper-parameters to plain values; for a solution without steps, one per layer."""

    def plain(value: Any) -> Any:
        return value.tolist() if isinstance(value, Tensor) else value

    each = [{k: plain(v) for k, v in vars(a).items()} for a in match.algorithms]
    if match.candidate.schedule != "exact":
        return each[0]
    return {name: [values[name] for values in each] for name in each[0]}


def _describe_verdict(layers: Sequence[LayerVerdict], candidate: Candidate | None) -> str:
    """Describe the verdict in one line."""
    if candidate is None:
        answers = {layer.answers for layer in layers}
        return next(iter(answers)) or NONE_FITS if len(answers) == 1 else NONE_FITS
    fits = _list_fits(layers, candidate)
    least = min(v.score for v in fits)
    close = "" if all(v.fit == "match" for v in fits) else f"close to (score at least {least:.3f}) "
    where = (
        "" if len(fits) == len(layers) else f" at layers {_format_ranges([v.layer for v in fits])}"
    )
    rest = "" if len(fits) == len(layers) else f" of {len(layers)}"
    return f"{close}{candidate.label}{where}{rest}"


def _list_fits(layers: Sequence[LayerVerdict], candidate: Candidate) -> list[LayerVerdict]:
    """List the layers that a candidate is named for."""
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
