"""`identify`: a model, the problems it is for, and candidate algorithms → a verdict per layer.

Hyper-parameters are fitted, and steps chosen, on prompts of their own; other prompts score them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from innerloop.constructions.certificate import Built
from innerloop.errors import InputError
from innerloop.identify.candidates import Candidate, candidates
from innerloop.identify.comparison import Tables, compared
from innerloop.identify.fitting import Wanted, fitted
from innerloop.identify.hyper import packed, ran
from innerloop.identify.instances import drawn, truth
from innerloop.identify.measures import Layers, loss, scale
from innerloop.identify.models import ConstructionModel, FunctionModel, Model, predicted
from innerloop.identify.relation import order_of_convergence, steps_against_layers
from innerloop.identify.verdict import LayerVerdict, Match, Scored, layer_verdicts, named
from innerloop.problems.base import Distribution

Progress = Callable[[float, str], object]
NONE = "none fits"
SPARE = 6
"""Prompts to fit on for every entry of a d×d matrix, at least."""
PER_LAYER, AT_LEAST = 4, 32
"""The steps of an iteration that a fit looks at: so many per layer, and so many in all."""


@dataclass(frozen=True, eq=False)
class Identified:
    """The verdict on a model, and the numbers behind it."""

    layers: list[LayerVerdict]
    algorithm: str | None
    schedule: str | None
    verdict: str
    hyperparameters: dict[str, Any]
    relation: dict[str, Any] | None
    order: dict[str, float] | None
    matches: list[Match]
    scored: Scored
    errors: list[float]
    power: float
    problem: Any
    model: Layers

    def without(self, *names: str) -> Identified:
        """The verdict if these algorithms had not been among the candidates."""
        kept = [c for c, match in enumerate(self.matches) if match.candidate.name not in names]
        if not kept:
            raise InputError("no candidate is left: there is nothing to compare with")
        scored = Scored(self.scored.score[kept], self.scored.drawn[:, kept])
        matches = [self.matches[c] for c in kept]
        labels = [layer.name for layer in self.layers]
        return concluded(matches, scored, labels, self.problem, self.model)

    def tables(self, model: Model, steps: int = 64) -> dict[str, Tables]:
        """Every measure for every layer and step of every candidate, by the candidate's label."""
        return compared(model, self.matches, self.problem, steps)

    def as_dict(self) -> dict[str, Any]:
        """As JSON can hold it; `fitted` has the hyper-parameters of all that some layer does."""
        named_somewhere = {layer.nearest for layer in self.layers if layer.fit != "none"}
        return {
            "verdict": self.verdict,
            "algorithm": self.algorithm,
            "schedule": self.schedule,
            "hyperparameters": self.hyperparameters,
            "fitted": {
                match.candidate.label: _values(match)
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


def model_of(given: Any) -> Model:
    """A model from a model, from what `build` gives, or from a function (X, y, x_query)."""
    if isinstance(given, Model):
        return given
    if isinstance(given, Built):
        return ConstructionModel.of(given)
    if callable(given):
        return FunctionModel(given)
    raise InputError(
        f"expected a Model, what build gives, or a function of X, y and x_query; "
        f"got {type(given).__name__}"
    )


def identify(
    model: Any,
    distribution: Distribution | None = None,
    *,
    algorithms: Sequence[str] | None = None,
    prompts: int = 256,
    steps: int = 64,
    seed: int = 0,
    progress: Progress | None = None,
) -> Identified:
    """Which algorithm each layer of a model runs on problems of a distribution.

    `model` is a `Model`, what `build` gives, or a function (X, y, x_query) → prediction;
    `algorithms` names the candidates, by default all that solve the problem; `prompts` score them;
    at most `steps` steps of an iteration are matched with a layer.
    """
    for what, value, least in (("prompts", prompts, 2), ("steps", steps, 1), ("seed", seed, 0)):
        if value < least:
            raise InputError(f"{what} must be at least {least}, got {value}")
    seen = model_of(model)
    distribution = seen.distribution() if distribution is None else distribution
    if distribution is None:
        raise InputError("say which problems the model is for: it does not know itself")
    generator = torch.Generator().manual_seed(seed)
    d = getattr(distribution, "d", 1)
    fitting = drawn(distribution, max(prompts, SPARE * d**2), generator)
    scoring = drawn(distribution, prompts, generator)
    target, labels = predicted(seen, fitting), seen.layers
    answers = predicted(seen, scoring)
    wanted = Wanted(fitting, target, scale(target, truth(fitting)))
    found = candidates(fitting, target[0], algorithms)
    most = max(min(steps, max(PER_LAYER * len(labels), AT_LEAST)), len(labels))
    matches = []
    for k, candidate in enumerate(found):
        if progress is not None:
            progress(k / len(found), candidate.label)
        matches.append(_match(candidate, wanted, scoring, most))
    scored = Scored.of(answers, matches, truth(scoring), generator)
    return concluded(matches, scored, labels, scoring, answers)


def concluded(
    matches: list[Match], scored: Scored, labels: Sequence[str], problem: Any, model: Layers
) -> Identified:
    """The verdict that follows from the scores."""
    layers, best = layer_verdicts(matches, scored, labels), named(matches, scored)
    target = truth(problem)
    against = torch.zeros_like(model[-1]) if target is None else target
    power = float((model[-1] if target is None else target).square().sum(dim=-1).mean())
    errors = (loss(model, against) / power).sqrt().tolist()
    relation, hyperparameters = None, {}
    if best is not None:
        match = matches[best]
        fits = [v for v in layers if v.nearest == match.candidate.label and v.fit != "none"]
        if match.candidate.schedule == "one for all":
            relation = steps_against_layers([v.layer for v in fits], [v.step or 0 for v in fits])
        hyperparameters = _values(match)
    return Identified(
        layers=layers,
        algorithm=None if best is None else matches[best].candidate.name,
        schedule=None if best is None else matches[best].candidate.schedule,
        verdict=_told(layers, None if best is None else matches[best].candidate),
        hyperparameters=hyperparameters,
        relation=relation,
        order=None if target is None else order_of_convergence(errors),
        matches=matches,
        scored=scored,
        errors=errors,
        power=power,
        problem=problem,
        model=model,
    )


def _match(candidate: Candidate, wanted: Wanted, scoring: Any, steps: int) -> Match:
    """Fit a candidate on some prompts, let it predict on others."""
    seen = Wanted(candidate.view(wanted.problem), wanted.model, wanted.scale)
    algorithms, matched = fitted(candidate.guesses, candidate.schedule, seen, steps)
    view = candidate.view(scoring)
    with torch.no_grad():
        if candidate.schedule == "exact":
            rows = [ran(algorithm, view, 0)[0] for algorithm in algorithms]
        else:
            rows = list(ran(algorithms[0], view, max(matched))[matched])
    each = len(packed(algorithms[0]))
    numbers = each * len(matched) if candidate.schedule == "exact" else each
    return Match(candidate, algorithms, matched, numbers, torch.stack(rows))


def _values(match: Match) -> dict[str, Any]:
    """The hyper-parameters as JSON can hold them; for a solution without steps, those of each
    layer."""

    def plain(value: Any) -> Any:
        return value.tolist() if isinstance(value, Tensor) else value

    each = [{k: plain(v) for k, v in vars(a).items()} for a in match.algorithms]
    if match.candidate.schedule != "exact":
        return each[0]
    return {name: [values[name] for values in each] for name in each[0]}


def _told(layers: Sequence[LayerVerdict], candidate: Candidate | None) -> str:
    """The verdict in a line."""
    if candidate is None:
        return NONE
    fits = [v for v in layers if v.nearest == candidate.label and v.fit != "none"]
    least = min(v.score for v in fits)
    close = "" if all(v.fit == "match" for v in fits) else f"close to (score from {least:.3f} on) "
    where = "" if len(fits) == len(layers) else f" at layers {_ranges([v.layer for v in fits])}"
    rest = "" if len(fits) == len(layers) else f" of {len(layers)}"
    return f"{close}{candidate.label}{where}{rest}"


def _ranges(numbers: Sequence[int]) -> str:
    """1, 2, 3, 7 → 1–3, 7."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    return ", ".join(str(s[0]) if len(s) == 1 else f"{s[0]}–{s[-1]}" for s in spans)
