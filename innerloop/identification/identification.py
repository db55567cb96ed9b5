"""`identify`: find the algorithm that each layer of a model runs, from its predictions.

Hyper-parameters and numbers of steps of the candidates are fitted on one set of random prompts. The
fitted candidates are scored on other prompts.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from innerloop.algorithms.base import Algorithm
from innerloop.certification.building import BuiltTransformer
from innerloop.constructions.base import Construction
from innerloop.devices import choose_device, default_to_cpu
from innerloop.errors import InputError
from innerloop.identification.candidates import Candidate, Given
from innerloop.identification.conclusion import Identification, conclude
from innerloop.identification.consistency import check_consistency
from innerloop.identification.families.queries import Queries
from innerloop.identification.fitting import (
    EQUATIONS_PER_UNKNOWN,
    FitTarget,
    estimate_memory,
)
from innerloop.identification.instances import copy_problem, draw_prompts, draw_sample
from innerloop.identification.listing import list_all_candidates
from innerloop.identification.measures import scale
from innerloop.identification.models import (
    ConstructionModel,
    FunctionModel,
    Model,
    answer_problem,
)
from innerloop.identification.modules import ModuleModel
from innerloop.identification.scores import Match, ScoreTable
from innerloop.identification.screening import find_fitting_steps, fit_candidates
from innerloop.identification.similarities import add_similarities, describe_growth
from innerloop.identification.symmetries import drop_unshared
from innerloop.identification.trained import TrainedModel
from innerloop.identification.trials import TrialCandidate, fit_trials
from innerloop.identification.verdict import LayerVerdict
from innerloop.limits import check_count, check_memory, check_seed
from innerloop.policies.base import Policy
from innerloop.problems.base import Distribution
from innerloop.progress import Progress
from innerloop.recipes.base import TrainedRun
from innerloop.registry import make_member

PROMPTS_PER_ENTRY = 6
"""Prompts that are drawn to fit on, at least, per entry of a d×d matrix."""
MIN_ANSWERED = 256
"""A model answers this many of them, or as many as a fit of such a matrix uses."""
STEPS_PER_LAYER, MIN_STEPS = 4, 32
"""Steps of an iteration that a fit of several layers considers: this many per layer, and at least
this many."""


def as_model(source: Any, label: str = "the model") -> Model:
    """Return a `Model` as it is; wrap what `build` or `train` gives or takes, and functions.

    A construction or a program is built as it is, or with its defaults if it is a class.
    """
    if isinstance(source, Model):
        return source
    if isinstance(source, BuiltTransformer):
        return ConstructionModel.from_built(source)
    if inspect.isclass(source) and issubclass(source, Construction):
        source = make_member("constructions", Construction, source, {})
    if isinstance(source, Construction):
        return ConstructionModel(source, source.transformer)
    if isinstance(source, TrainedRun):
        return TrainedModel.from_run(source)
    if isinstance(source, nn.Module):
        return ModuleModel(source)
    if callable(source) or isinstance(source, Policy):
        return FunctionModel(source, label)
    raise InputError(
        f"expected a Model, what build or train returned, a construction or program, a module, a "
        f"policy, or a function of X, "
        f"y and x_query; got {type(source).__name__}"
    )


def identify(
    model: Any,
    distribution: Distribution | None = None,
    *,
    algorithms: Sequence[Given] | None = None,
    prompts: int = 256,
    steps: int = 128,
    seed: int = 0,
    device: str | torch.device | None = None,
    progress: Progress | None = None,
) -> Identification:
    """Identify which algorithm each layer of a model runs on problems of a distribution.

    Args:
        model: A `Model`, a result of `build` or `train`, a construction, a program, an `nn.Module`,
            a policy, or a function as for `FunctionModel`.
        distribution: The distribution of problems. It may be omitted for a result of `build` or
            `train`, which has its own.
        algorithms: The candidates: names, classes or objects of algorithms or programs. By default,
            all algorithms that solve the problem.
        prompts: Number of prompts on which the candidates are scored. Their hyper-parameters are
            fitted on other prompts.
        steps: Largest number of steps of an iteration with which a layer is compared.
        seed: Seed of the prompts.
        device: Device for a result of `build` or `train`. Candidates are computed on the CPU in
            float64.
        progress: Function that is called with the completed share of the work, from 0 to 1.

    Returns:
        A verdict for each layer and one for the model. It prints as a table; `to_frame` returns a
        pandas data frame.

    Raises:
        InputError: The format of the model's prompts is not clear, or a candidate does not solve
            the problem.

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
    check_request(distribution, algorithms)
    assert distribution is not None
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
    if isinstance(target.family, Queries):
        fit_target = FitTarget.weigh(fitting, target.vectors, truth)
    else:
        fit_target = FitTarget(fitting, target.vectors, scale(target.vectors, truth))
    found = list_all_candidates(target.family, fitting, target.shape, target.vectors[0], algorithms)
    for candidate in found:
        needed = estimate_memory(candidate.guesses[0], candidate.schedule, fit_target)
        check_memory(needed, f"fitting {candidate.label}")
    some = max(STEPS_PER_LAYER * len(labels), MIN_STEPS)
    most = steps if len(labels) == 1 else max(min(steps, some), len(labels))
    matches = drop_unshared(_fit_all(found, fit_target, scoring, most, progress), seen, scoring)
    truth = answered.find_truth(scoring)
    scored = ScoreTable.from_matches(answered.vectors, matches, truth, generator)
    declared = seen.get_declared_algorithm()
    # Last, so that a model whose first calls differ from later ones is noticed.
    batches = [(fitting, target.vectors), (scoring, answered.vectors)]
    consistency = check_consistency(seen, batches)
    concluded = conclude(
        matches, scored, labels, scoring, answered, len(fitting), declared, consistency
    )
    layers = _add_fitting_steps(concluded.layers, matches, fit_target, most)
    layers = add_similarities(layers, matches, scoring, seen, most)
    growth = describe_growth(layers)
    notes = [*concluded.notes, *([growth] if growth else [])]
    return replace(concluded, layers=layers, notes=notes)


def _add_fitting_steps(
    layers: list[LayerVerdict], matches: Sequence[Match], target: FitTarget, steps: int
) -> list[LayerVerdict]:
    """Add to a single output which other numbers of steps fit it as well."""
    (layer, *others) = layers
    if others or layer.step is None:
        return layers
    match = next(match for match in matches if match.candidate.label == layer.nearest)
    if isinstance(match.candidate, TrialCandidate):
        return layers
    return [replace(layer, fitting_steps=find_fitting_steps(match, target, steps))]


def check_request(distribution: Any, algorithms: Any) -> None:
    """Refuse anything but a distribution, and candidates outside of a list."""
    if distribution is None:
        raise InputError("pass a distribution: this model does not declare one")
    if not isinstance(distribution, Distribution):
        raise InputError(
            "expected a distribution of problems such as LinearRegression(d=3, n=12), got "
            f"{distribution!r:.60}"
        )
    if isinstance(algorithms, str | Algorithm | type):
        raise InputError(f"algorithms must be a list of candidates, got {algorithms!r:.60} alone")


def _fit_all(
    found: Sequence[Candidate],
    fit_target: FitTarget,
    scoring: Any,
    steps: int,
    progress: Progress | None,
) -> list[Match]:
    """Fit all candidates on one set of prompts, and answer with them on another."""
    trials = [candidate for candidate in found if isinstance(candidate, TrialCandidate)]
    if not trials:
        return fit_candidates(found, fit_target, scoring, steps, progress)
    matches = []
    for k, candidate in enumerate(trials):
        if progress is not None:
            progress(k / len(trials), candidate.label)
        matches.append(fit_trials(candidate, fit_target, scoring, steps))
    return matches
