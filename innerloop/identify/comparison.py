"""Every measure for every layer of a model and every step of a fitted candidate, as tables.

All are taken on the same prompts. Induced weights and sensitivities come from further queries on
some of them; similarity of errors from the prefixes of their examples, or, where the model takes no
other length, from one vector over all prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import OutOfRange
from innerloop.identify import measures
from innerloop.identify.hyper import ran
from innerloop.identify.instances import asked, first, prefixes, truth
from innerloop.identify.models import Model, predicted
from innerloop.identify.verdict import Match
from innerloop.problems.linear_regression import RegressionProblem

Table = Float[Tensor, "layers steps"]
Tables = dict[str, Table]
Answers = Float[Tensor, "k batch outputs"]
PROBED, FRESH, STEP = 32, 2, 1e-4
"""Prompts with further queries, fresh queries per feature, and h of the central differences."""


def compared(model: Model, matches: Sequence[Match], problem: Any, steps: int) -> dict[str, Tables]:
    """The tables of each fitted candidate, by its label."""
    views = _views(model, problem)
    said = {name: view.of(lambda given: predicted(model, given)) for name, view in views.items()}
    return {match.candidate.label: _tables(match, views, said, steps) for match in matches}


class View:
    """Problems to be answered, and what to make of the answers."""

    def __init__(self, problems: list[Any], shape: Callable[[list[Answers]], Tensor]) -> None:
        self.problems = problems
        self.shape = shape

    def of(self, answer: Callable[[Any], Answers]) -> Tensor:
        return self.shape([answer(problem) for problem in self.problems])


def _views(model: Model, problem: Any) -> dict[str, View]:
    views = {"predictions": View([problem], lambda answers: answers[0])}
    if not isinstance(problem, RegressionProblem) or truth(problem) is None:
        return views
    few = first(problem, PROBED)
    count, d = len(few.x), problem.d
    generator = torch.Generator().manual_seed(0)
    fresh = _fresh(few, FRESH * d, generator)
    moved = STEP * torch.eye(d).to(few.x)
    around = torch.cat([few.x_query + moved, few.x_query - moved], dim=1)
    queries = torch.cat([fresh, around], dim=1)

    def split(answers: list[Answers]) -> Tensor:
        return answers[0].reshape(len(answers[0]), count, -1)

    views["probes"] = View([asked(few, queries)], split)
    ahead = prefixes(few)
    try:
        predicted(model, ahead[0])
    except OutOfRange:
        views["positions"] = View([problem], lambda answers: answers[0].transpose(1, 2))
    else:
        views["positions"] = View(ahead, lambda answers: torch.cat(answers, dim=-1))
    return views


def _fresh(problem: RegressionProblem, count: int, generator: torch.Generator) -> Tensor:
    """Queries drawn like the examples: each a random mixture of them, of their mean power."""
    mix = torch.randn(len(problem.x), count, problem.n, generator=generator, dtype=torch.float64)
    return mix.to(problem.x) @ problem.x / problem.n**0.5


def _tables(match: Match, views: dict[str, View], said: dict[str, Tensor], steps: int) -> Tables:
    """One candidate's tables; per step it has as many steps as the model has layers."""
    layers = len(match.algorithms)
    most = {"exact": 0, "per step": layers, "one for all": steps}[match.candidate.schedule]

    def answer(problem: Any) -> Answers:
        with torch.no_grad():
            view = match.candidate.view(problem)
            if match.candidate.schedule != "exact":
                return ran(match.algorithms[0], view, most)
            return torch.stack([ran(algorithm, view, 0)[0] for algorithm in match.algorithms])

    own = {name: view.of(answer) for name, view in views.items()}
    target = truth(views["predictions"].problems[0])
    model, candidate = said["predictions"], own["predictions"]
    found = {
        "squared distance": measures.squared_distance(model, candidate),
        "score": measures.score(model, candidate, target),
    }
    if target is not None:
        found["loss"] = measures.loss(candidate, target).expand(layers, -1)
    if "probes" in views:
        found |= _probed(views, said, own)
    return {name: _own_layer(table, match) for name, table in found.items()}


def _probed(views: dict[str, View], said: dict[str, Tensor], own: dict[str, Tensor]) -> Tables:
    probe = views["probes"].problems[0]
    d, count = probe.d, said["probes"].shape[1]
    queries = probe.x_query.reshape(count, -1, d)[:, : FRESH * d]
    (fresh_m, slope_m), (fresh_c, slope_c) = (_parted(each["probes"], d) for each in (said, own))
    positions = views["positions"].problems
    target = torch.cat([truth(each) for each in positions], dim=-1)  # pyright: ignore[reportArgumentType, reportCallIssue]
    target = target if len(positions) > 1 else target.mT
    errors = measures.error_similarity(said["positions"], own["positions"], target)
    return {
        "similarity of errors": errors,
        "similarity of induced weights": measures.weight_similarity(fresh_m, fresh_c, queries),
        "cosine of sensitivities": measures.sensitivity_cosine(slope_m, slope_c),
        "distance of sensitivities": measures.sensitivity_distance(slope_m, slope_c),
    }


def _parted(answers: Tensor, d: int) -> tuple[Tensor, Tensor]:
    """Predictions at the fresh queries, and the sensitivity to the given one."""
    fresh, ahead, behind = answers.split([FRESH * d, d, d], dim=-1)
    return fresh, measures.sensitivity(ahead, behind, STEP)


def _own_layer(table: Table, match: Match) -> Float[Tensor, "layers _"]:
    """Of a solution that is fitted to each layer, the one fitted to it."""
    return table.diagonal().unsqueeze(-1) if match.candidate.schedule == "exact" else table
