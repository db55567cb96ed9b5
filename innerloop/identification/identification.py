"""`identify`: which algorithm each layer of a model runs, from predictions on random problems.

Candidates' hyper-parameters are fitted, and steps chosen, on one set of prompts; others score them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from innerloop.certification.building import BuiltTransformer
from innerloop.devices import choose_device, default_to_cpu
from innerloop.errors import InputError
from innerloop.identification.answers import describe_constants
from innerloop.identification.candidates import Candidate, Given
from innerloop.identification.comparison import Tables, compare_candidates
from innerloop.identification.families.base import Family
from innerloop.identification.fitting import (
    EQUATIONS_PER_UNKNOWN,
    FitTarget,
    estimate_memory,
)
from innerloop.identification.instances import copy_problem, draw_prompts, draw_sample
from innerloop.identification.listing import list_all_candidates
from innerloop.identification.measures import LayerPredictions, scale
from innerloop.identification.misses import describe_misses
from innerloop.identification.models import (
    Answered,
    ConstructionModel,
    FunctionModel,
    Model,
    answer_problem,
)
from innerloop.identification.modules import ModuleModel
from innerloop.identification.relation import fit_step_growth, order_of_convergence
from innerloop.identification.screening import fit_candidates
from innerloop.identification.similarities import add_similarities, describe_growth
from innerloop.identification.tables import format_html, format_identification, make_frame
from innerloop.identification.trained import TrainedModel
from innerloop.identification.trials import TrialCandidate, fit_trials
from innerloop.identification.verdict import (
    LayerVerdict,
    Match,
    ScoreTable,
    format_share,
    judge_layers,
    select_candidate,
)
from innerloop.limits import check_count, check_memory, check_seed
from innerloop.policies.base import Policy
from innerloop.problems.base import Distribution
from innerloop.progress import Progress
from innerloop.recipes.base import TrainedRun

NONE_FITS = "none fits"
PROMPTS_PER_ENTRY = 6
"""Prompts that are drawn to fit on, at least, per entry of a d×d matrix."""
MIN_ANSWERED = 256
"""A model answers this many of them, or as many as a fit of such a matrix uses."""
STEPS_PER_LAYER, MIN_STEPS = 4, 32
"""Steps of an iteration that a fit considers: this many per layer, and at least this many."""


@dataclass(frozen=True, eq=False)
class Identification:
    """The verdict on a model, and the numbers behind it; printed, it is a table."""

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
    """The algorithm that the model says it runs, if it says so."""

    def without(self, *names: str) -> Identification:
        """Return the verdict without these algorithms among the candidates."""
        kept = [c for c, match in enumerate(self.matches) if match.candidate.name not in names]
        if not kept:
            raise InputError("no candidate is left to compare with: exclude fewer algorithms")
        matches = [self.matches[c] for c in kept]
        labels = [layer.name for layer in self.layers]
        answered = Answered(self.family, (), self.model)
        scored = self.score_table.select(kept)
        count, declared = self.fitting_prompts, self.declared
        return conclude(matches, scored, labels, self.problem, answered, count, declared)

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


def as_model(given: Any, label: str = "the model") -> Model:
    """Return a `Model` as it is; wrap a result of `build` or `train`, a module or a function."""
    if isinstance(given, Model):
        return given
    if isinstance(given, BuiltTransformer):
        return ConstructionModel.from_built(given)
    if isinstance(given, TrainedRun):
        return TrainedModel.from_run(given)
    if isinstance(given, nn.Module):
        return ModuleModel(given)
    if callable(given) or isinstance(given, Policy):
        return FunctionModel(given, label)
    raise InputError(
        f"expected a Model, what build or train returned, a module, a policy, or a function of X, "
        f"y and x_query; got {type(given).__name__}"
    )


def identify(
    model: Any,
    distribution: Distribution | None = None,
    *,
    algorithms: Sequence[Given] | None = None,
    prompts: int = 256,
    steps: int = 64,
    seed: int = 0,
    device: str | torch.device | None = None,
    progress: Progress | None = None,
) -> Identification:
    """Identify which algorithm each layer of a model runs on problems of a distribution.

    Args:
        model: A `Model`, a result of `build` or `train`, an `nn.Module`, a policy, or a function:
            of X, y and x_query; of points; of a game so far.
        distribution: The problems to ask it about. What `build` and `train` return knows its own.
        algorithms: The candidates, by name, class or object; all that solve the problem if None.
        prompts: Prompts that score the candidates; their free numbers are fitted on others.
        steps: Steps of an iteration that a layer is matched with, at most.
        seed: Seed of the prompts.
        device: Where a model of `build` or `train` answers, if not where it is; candidates are
            compared with it on the CPU, in float64.
        progress: Called with the share that is done.

    Returns:
        A verdict for each layer and one for all; it prints as a table, and `to_frame` gives
        pandas'.

    Raises:
        InputError: The model's prompts cannot be guessed, or a candidate does not solve the
            problem.

    Example:
        ```python
        found = innerloop.identify(my_model, innerloop.LinearRegression(d=3, n=12))
        print(found.verdict)
        ```
    """
    prompts, steps = check_count("prompts", prompts, 2), check_count("steps", steps, 1)
    options = {"algorithms": algorithms, "prompts": prompts, "steps": steps}
    with default_to_cpu():
        seen = as_model(model)
        seen = seen if device is None else seen.place(choose_device(device))
        return _identify(seen, distribution, **options, seed=check_seed(seed), progress=progress)


def _identify(
    seen: Model,
    distribution: Distribution | None,
    *,
    algorithms: Sequence[Given] | None,
    prompts: int,
    steps: int,
    seed: int,
    progress: Progress | None,
) -> Identification:
    """Fit every candidate to every layer, score the fits on other prompts, and conclude."""
    distribution = seen.distribution() if distribution is None else distribution
    if distribution is None:
        raise InputError("pass a distribution: this model does not declare one")
    sample = copy_problem(draw_sample(distribution, prompts))
    seen.check(sample)
    generator = torch.Generator().manual_seed(seed)
    entries = getattr(distribution, "d", 1) ** 2 if hasattr(sample, "x_query") else 1
    fitting = draw_prompts(distribution, max(prompts, PROMPTS_PER_ENTRY * entries), generator)
    fitting = fitting[: max(prompts, MIN_ANSWERED, EQUATIONS_PER_UNKNOWN * entries)]
    scoring = draw_prompts(distribution, prompts, generator)
    target, labels = answer_problem(seen, fitting), seen.layers
    answered = answer_problem(seen, scoring)
    truth = target.find_truth(fitting)
    wanted = FitTarget(fitting, target.vectors, scale(target.vectors, truth))
    found = list_all_candidates(target.family, fitting, target.shape, target.vectors[0], algorithms)
    for candidate in found:
        needed = estimate_memory(candidate.guesses[0], candidate.schedule, wanted)
        check_memory(needed, f"fitting {candidate.label}")
    most = max(min(steps, max(STEPS_PER_LAYER * len(labels), MIN_STEPS)), len(labels))
    matches = _fit_all(found, wanted, scoring, most, progress)
    truth = answered.find_truth(scoring)
    scored = ScoreTable.from_matches(answered.vectors, matches, truth, generator)
    declared = seen.get_declared_algorithm()
    concluded = conclude(matches, scored, labels, scoring, answered, len(fitting), declared)
    layers = add_similarities(concluded.layers, matches, scoring, seen, most)
    growth = describe_growth(layers)
    notes = [*concluded.notes, *([growth] if growth else [])]
    return replace(concluded, layers=layers, notes=notes)


def conclude(
    matches: list[Match],
    scored: ScoreTable,
    labels: Sequence[str],
    problem: Any,
    answered: Answered,
    fitting_prompts: int,
    declared: str | None = None,
) -> Identification:
    """Conclude the verdict from the scores."""
    model, family = answered.vectors, answered.family
    target = answered.find_truth(problem)
    constants = describe_constants(model, problem, family, target)
    layers = judge_layers(matches, scored, labels, constants, declared)
    layers = [_locate_misses(layer, matches, problem, model) for layer in layers]
    best = select_candidate(matches, scored, constants, declared)
    power = float((model[-1] if target is None else target).square().sum(dim=-1).mean())
    errors = family.measure_errors(problem, model)
    relation, hyperparameters = None, {}
    if best is not None:
        match = matches[best]
        fits = _list_fits(layers, match.candidate)
        if match.candidate.schedule == "one for all":
            relation = fit_step_growth([v.layer for v in fits], [v.step or 0 for v in fits])
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
        notes=_list_notes(layers, chosen, family, problem, fitting_prompts),
        declared=declared,
    )


def _locate_misses(
    layer: LayerVerdict, matches: Sequence[Match], problem: Any, model: LayerPredictions
) -> LayerVerdict:
    """Say on which prompts a candidate misses a layer that it does not match."""
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
    """List what a reader of the verdict should know."""
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


def _fit_all(
    found: Sequence[Candidate],
    wanted: FitTarget,
    scoring: Any,
    steps: int,
    progress: Progress | None,
) -> list[Match]:
    """Fit all candidates on one set of prompts, and answer with them on another."""
    trials = [candidate for candidate in found if isinstance(candidate, TrialCandidate)]
    if not trials:
        return fit_candidates(found, wanted, scoring, steps, progress)
    matches = []
    for k, candidate in enumerate(trials):
        if progress is not None:
            progress(k / len(trials), candidate.label)
        matches.append(fit_trials(candidate, wanted, scoring, steps))
    return matches


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
    """Describe a model that no candidate fits: whose answers it gives, or a constant."""
    constants = {layer.answers for layer in layers}
    if None not in constants and len(constants) == 1:
        return str(constants.pop())
    last = layers[-1]
    if last.fit != "answers":
        return NONE_FITS
    alike = [v for v in layers if v.fit == "answers" and v.nearest == last.nearest]
    missed = format_share(max(1 - last.share, 0.0) ** 0.5)
    place = _describe_place(alike, layers)
    return f"gives the answers of {last.nearest} to {missed}{place}, with errors of its own"


def _describe_place(some: Sequence[LayerVerdict], layers: Sequence[LayerVerdict]) -> str:
    """Describe which of the layers these are; empty for all."""
    if len(some) == len(layers):
        return ""
    return f" at layers {_format_ranges([v.layer for v in some])} of {len(layers)}"


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
