"""Tables of all measures: every layer of a model against every step of a fitted candidate.

All measures use the same prompts. Induced weights and sensitivities use further queries on some of
them. Similarity of errors uses the prefixes of their examples, or, if the model accepts no other
length, one vector over all prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.identification import measures
from innerloop.identification.answers import mark_diverged
from innerloop.identification.families.base import Family
from innerloop.identification.families.queries import Queries
from innerloop.identification.hyper import predict_steps
from innerloop.identification.instances import find_targets
from innerloop.identification.models import Model, answer_problem, predict_layers
from innerloop.identification.scores import Match
from innerloop.identification.trials import cap_steps
from innerloop.problems.linear_regression import RegressionProblem

Table = Float[Tensor, "layers steps"]
Tables = dict[str, Table]
PredictionStack = Float[Tensor, "k batch outputs"]
PROBED_PROMPTS, QUERIES_PER_FEATURE, DIFFERENCE_STEP = 32, 2, 1e-4
"""Prompts that get further queries, fresh queries per feature, and h of central differences."""


def compare_candidates(
    model: Model, matches: Sequence[Match], problem: Any, steps: int
) -> dict[str, Tables]:
    """Return the tables of each fitted candidate, by its label."""
    answered = answer_problem(model, problem)
    truth = answered.find_truth(problem)
    at_query = isinstance(answered.family, Queries) and truth is not None
    views = _build_problem_sets(model, problem, at_query)
    model_answers = {
        name: view.evaluate(lambda each: predict_layers(model, each))
        for name, view in views.items()
    }
    return {
        match.candidate.label: _measure_candidate(
            match, views, model_answers, truth, steps, answered.family
        )
        for match in matches
    }


class ProblemSet:
    """Problems to predict on, and how the predictions are combined into one tensor."""

    def __init__(
        self, problems: list[Any], shape: Callable[[list[PredictionStack]], Tensor]
    ) -> None:
        self.problems = problems
        self.combine = shape

    def evaluate(self, answer: Callable[[Any], PredictionStack]) -> Tensor:
        return self.combine([answer(problem) for problem in self.problems])


def _build_problem_sets(model: Model, problem: Any, at_query: bool) -> dict[str, ProblemSet]:
    views = {"predictions": ProblemSet([problem], lambda answers: answers[0])}
    if not isinstance(problem, RegressionProblem) or not at_query:
        return views
    few = problem[:PROBED_PROMPTS]
    count, d = len(few), problem.d
    generator = torch.Generator().manual_seed(0)
    fresh = _draw_queries(few, QUERIES_PER_FEATURE * d, generator)
    moved = DIFFERENCE_STEP * torch.eye(d).to(few.x)
    around = torch.cat([few.x_query + moved, few.x_query - moved], dim=1)
    queries = torch.cat([fresh, around], dim=1)

    def split(answers: list[PredictionStack]) -> Tensor:
        return answers[0].reshape(len(answers[0]), count, -1)

    views["probes"] = ProblemSet([few.with_queries(queries)], split)
    ahead = few.prefixes()
    try:
        predict_layers(model, ahead[0])
    except InputError:  # a model of one length
        views["positions"] = ProblemSet([problem], lambda answers: answers[0].transpose(1, 2))
    else:
        views["positions"] = ProblemSet(ahead, lambda answers: torch.cat(answers, dim=-1))
    return views


def _draw_queries(problem: RegressionProblem, count: int, generator: torch.Generator) -> Tensor:
    """Draw queries like the examples: random mixtures of them with their mean power."""
    mix = torch.randn(len(problem.x), count, problem.n, generator=generator, dtype=torch.float64)
    return mix.to(problem.x) @ problem.x / problem.n**0.5


def _measure_candidate(
    match: Match,
    views: dict[str, ProblemSet],
    model_answers: dict[str, Tensor],
    target: Tensor | None,
    steps: int,
    family: Family,
) -> Tables:
    """Compute one candidate's tables; per step, those that it was fitted with."""
    layers = len(match.algorithms)
    most = {"exact": 0, "per step": max(match.steps), "one for all": steps}[
        match.candidate.schedule
    ]
    most = cap_steps(match.algorithms[0], views["predictions"].problems[0], most)

    def answer(problem: Any) -> PredictionStack:
        with torch.no_grad():
            view = match.candidate.view(problem)
            if match.candidate.schedule != "exact":
                return mark_diverged(predict_steps(match.algorithms[0], view, most), problem)
            rows = [predict_steps(algorithm, view, 0)[0] for algorithm in match.algorithms]
            return mark_diverged(torch.stack(rows), problem)

    own = {name: view.evaluate(answer) for name, view in views.items()}
    model, candidate = model_answers["predictions"], own["predictions"]
    found = {
        "squared distance": measures.squared_distance(model, candidate),
        "score": measures.score(model, candidate, target),
        "share": measures.share(model, candidate),
    }
    if target is not None:
        found["loss"] = measures.loss(candidate, target).expand(layers, -1)
        found["similarity of errors at the query"] = measures.pooled_similarity(
            model, candidate, target
        )
    else:  # shares and labels have errors of their own kind
        errors = family.measure_errors(views["predictions"].problems[0], candidate)
        if errors is not None:
            found["error"] = model.new_tensor(errors).expand(layers, -1)
    if "probes" in views:
        found |= _compare_probes(views, model_answers, own)
    return {name: _keep_own_layer(table, match) for name, table in found.items()}


def _compare_probes(
    views: dict[str, ProblemSet], model_answers: dict[str, Tensor], own: dict[str, Tensor]
) -> Tables:
    probe = views["probes"].problems[0]
    d, count = probe.d, model_answers["probes"].shape[1]
    queries = probe.x_query.reshape(count, -1, d)[:, : QUERIES_PER_FEATURE * d]
    (fresh_m, slope_m), (fresh_c, slope_c) = (
        _split_probes(each["probes"], d) for each in (model_answers, own)
    )
    positions = views["positions"].problems
    target = torch.cat([find_targets(each) for each in positions], dim=-1)  # pyright: ignore[reportArgumentType, reportCallIssue]
    target = target if len(positions) > 1 else target.mT
    errors = measures.error_similarity(model_answers["positions"], own["positions"], target)
    return {
        "similarity of errors": errors,
        "similarity of induced weights": measures.weight_similarity(fresh_m, fresh_c, queries),
        "cosine of sensitivities": measures.sensitivity_cosine(slope_m, slope_c),
        "distance of sensitivities": measures.sensitivity_distance(slope_m, slope_c),
    }


def _split_probes(answers: Tensor, d: int) -> tuple[Tensor, Tensor]:
    """Split predictions into those at fresh queries and the sensitivity to the given query."""
    fresh, ahead, behind = answers.split([QUERIES_PER_FEATURE * d, d, d], dim=-1)
    return fresh, measures.sensitivity(ahead, behind, DIFFERENCE_STEP)


def _keep_own_layer(table: Table, match: Match) -> Float[Tensor, "layers _"]:
    """For candidates fitted per layer, keep each layer's own fit (the diagonal)."""
    return table.diagonal().unsqueeze(-1) if match.candidate.schedule == "exact" else table
