"""Problems on which two candidates differ most, for models that fit both on the original problems.

The candidates keep their fitted numbers, because a model's weights do not change with the problem.
The search covers the settings that the distribution declares. First, it combines a few values of n,
noise, κ and settings that are words (w ~ N(0, I) or N(0, Σ⁻¹)), if the distribution has them. Then
it tries finer values around the best, and further numbers one at a time; d is not changed. The
difference of two candidates on a setting is

    mean over layers of E‖c₁ − c₂‖² / ½(E‖c₁‖² + E‖c₂‖²)

A setting is left out if a candidate's or the model's answers become too large, or if the model does
not accept it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal, get_args, get_origin

import torch
from jaxtyping import Float
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from innerloop.algorithms.base import Algorithm
from innerloop.errors import InputError
from innerloop.identification.hyper import predict_steps
from innerloop.identification.instances import copy_problem, draw_prompts
from innerloop.identification.models import Model, predict_layers
from innerloop.limits import check_count, check_seed
from innerloop.problems.base import Distribution

REACH = 10.0
"""Answers are in reach up to this many times the labels' root mean square."""
MIN_PROMPTS_IN_REACH = 0.9
"""A setting counts if this share of its prompts is in reach; the others are left out."""
COARSE = {"noise": (0.0, 0.5), "kappa": (1.0, 10.0, 100.0)}
FINE = {"noise": (0.0, 0.1, 1.0), "kappa": (3.0, 30.0)}
COARSE_FACTORS, FACTORS = (0.25, 1.0, 4.0), (0.5, 2.0)
"""Values that are combined, those that are tried around the best, and the same as factors of n;
other numbers are multiplied by the last."""
WORTH = 0.95
"""Factor for each changed setting in the ranking: of equal differences, fewer changes are best."""
FIXED = {"d", "queries", "seed"}
AGREEMENT = 0.99
"""Least share of the model's power at which a candidate says what the model says."""

LayerAnswers = Float[Tensor, "layers batch outputs"]


@dataclass(frozen=True, eq=False)
class Rival:
    """A fitted candidate: the algorithm and step that match each layer of the model."""

    label: str
    algorithms: Sequence[Algorithm[Any, Any]]
    steps: Sequence[int]
    view: Callable[[Any], Any] = lambda problem: problem

    @classmethod
    def from_match(cls, match: Any) -> Rival:
        """Return a candidate with the fit of `identify`."""
        candidate = match.candidate
        return cls(candidate.label, match.algorithms, match.steps, candidate.view)

    def predict(self, problem: Any) -> LayerAnswers:
        """Return the predictions for each layer, in the order of the layers."""
        view, known = self.view(copy_problem(problem)), {}
        for algorithm in self.algorithms:
            if id(algorithm) not in known:
                pairs = zip(self.algorithms, self.steps, strict=True)
                last = max(step for each, step in pairs if each is algorithm)
                known[id(algorithm)] = predict_steps(algorithm, view, last)
        pairs = zip(self.algorithms, self.steps, strict=True)
        return torch.stack([known[id(each)][step].flatten(1) for each, step in pairs])


@dataclass(frozen=True, eq=False)
class Proposal:
    """Problems to run two candidates on, and how much they are expected to differ there."""

    distribution: Distribution
    changed: dict[str, Any]
    difference: float

    @property
    def text(self) -> str:
        words = ", ".join(f"{name}={value}" for name, value in self.changed.items())
        return f"{words or 'as given'}: expected difference {self.difference:.2g}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "settings": self.distribution.values(),
            "changed": self.changed,
            "difference": self.difference,
        }


@dataclass(frozen=True, eq=False)
class Discrimination:
    """Two candidates, the problems proposed for them, and their agreement with the model on the
    best one.
    """

    first: str
    second: str
    given: float
    """Difference on the problems at hand."""
    proposals: list[Proposal]
    shares: tuple[float, float] | None = None
    """The share of the model's power that each candidate explains, on the first of the proposed
    problems.
    """

    @property
    def winner(self) -> str | None:
        """The only candidate that explains the model's answers, or None."""
        agree = [share >= AGREEMENT for share in self.shares or (0.0, 0.0)]
        return None if agree[0] == agree[1] else self.first if agree[0] else self.second

    @property
    def text(self) -> str:
        """One line: the pair, the best problems, and the candidate that is right on them."""
        pair = f"{self.first} or {self.second}"
        if not self.proposals:
            return f"{pair}: no problems within reach tell them apart"
        line = f"{pair} (difference {self.given:.2g}): on {self.proposals[0].text}"
        if self.shares is None:
            return line
        shares = f"there they say {self.shares[0]:.4f} and {self.shares[1]:.4f} of the model"
        both = self.shares[0] >= AGREEMENT
        undecided = "both fit" if both else "neither fits"
        return f"{line}; {shares}: {self.winner or undecided}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "candidates": [self.first, self.second],
            "given": self.given,
            "proposals": [proposal.as_dict() for proposal in self.proposals],
            "shares": self.shares,
            "winner": self.winner,
            "text": self.text,
        }


def propose_problems(
    first: Rival,
    second: Rival,
    distribution: Distribution,
    model: Model | None = None,
    *,
    most: int = 3,
    prompts: int = 64,
    seed: int = 0,
) -> Discrimination:
    """Propose the settings of a distribution on which two candidates differ most, best first.

    With a model, only settings on which its answers stay bounded are proposed; at most `most` of
    them.
    """
    prompts, seed = check_count("prompts", prompts, 2), check_seed(seed)
    found: list[Proposal] = []
    known: list[dict[str, Any]] = []

    def search(settings: Sequence[dict[str, Any]]) -> None:
        for changed in settings:
            each = None if changed in known else _change(distribution, changed)
            known.append(changed)
            if each is not None:
                difference = _measure_difference(first, second, each, prompts, seed)
                if difference is not None:
                    found.append(Proposal(each, changed, difference))

    search([{}, *_combine_settings(distribution)])
    given = next((each.difference for each in found if not each.changed), 0.0)
    if found:
        search(_refine_settings(distribution, min(found, key=_rank).changed))
    # Settings that separate no better than those at hand are not proposed.
    better = [proposal for proposal in found if proposal.difference > given]
    chosen = []
    for proposal in sorted(better, key=_rank):
        if len(chosen) == most:
            break
        if model is None or _answer_in_reach(model, proposal.distribution, prompts, seed):
            chosen.append(proposal)
    return Discrimination(first.label, second.label, given, chosen)


def discriminate(
    model: Model,
    first: Rival,
    second: Rival,
    distribution: Distribution,
    *,
    prompts: int = 64,
    seed: int = 0,
) -> Discrimination:
    """Run two fitted candidates and the model on the problems that distinguish the candidates
    best.
    """
    found = propose_problems(first, second, distribution, model, prompts=prompts, seed=seed)
    if not found.proposals:
        return found
    problem = _draw(found.proposals[0].distribution, prompts, seed + 1)
    answers = predict_layers(model, problem).flatten(2)
    power = answers.square().sum().clamp_min(1e-300)
    shares = [
        1 - float((rival.predict(problem) - answers).square().sum().nan_to_num(torch.inf) / power)
        for rival in (first, second)
    ]
    return replace(found, shares=(shares[0], shares[1]))


def _rank(proposal: Proposal) -> float:
    return -proposal.difference * WORTH ** len(proposal.changed)


def _combine_settings(distribution: Distribution) -> list[dict[str, Any]]:
    """List combinations of coarse values, each as what differs from the given settings."""
    declared, values = distribution.declared_types(), {}
    for name in declared:
        value = getattr(distribution, name)
        if isinstance(value, str):
            values[name] = _list_words(declared[name])
        elif name in COARSE:
            values[name] = sorted({float(value), *COARSE[name]})
        elif name == "n":
            values[name] = [max(1, int(value * factor)) for factor in COARSE_FACTORS]
    combined = [dict(zip(values, each, strict=True)) for each in product(*values.values())]
    return [_keep_changes(distribution, settings) for settings in combined]


def _refine_settings(distribution: Distribution, best: dict[str, Any]) -> list[dict[str, Any]]:
    """List settings that differ from the best ones in one more number."""
    found = []
    for name in distribution.declared_types():
        value = best.get(name, getattr(distribution, name))
        if name in FINE:
            finer = [float(each) for each in FINE[name]]
        elif name == "n" or (isinstance(value, float) and name not in FIXED):
            finer = [type(value)(value * factor) for factor in FACTORS]
        else:
            continue
        found += [_keep_changes(distribution, {**best, name: each}) for each in finer if each >= 0]
    return found


def _keep_changes(distribution: Distribution, settings: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in settings.items() if v != getattr(distribution, k)}


def _change(distribution: Distribution, changed: dict[str, Any]) -> Distribution | None:
    """Change settings; None where they do not go together: a covariance and κ, κ with d = 1."""
    try:
        return replace(distribution, **changed)
    except InputError:
        return None


def _list_words(kind: Any) -> list[str]:
    """List the words that a declared type allows."""
    inner = get_args(kind)
    words = [word for word in inner if isinstance(word, str)] if get_origin(kind) is Literal else []
    return words + [word for part in inner if get_args(part) for word in _list_words(part)]


def _draw(distribution: Distribution, prompts: int, seed: int) -> Any:
    return draw_prompts(distribution, prompts, torch.Generator().manual_seed(seed))


def _measure_difference(
    first: Rival, second: Rival, distribution: Distribution, prompts: int, seed: int
) -> float | None:
    """Measure how much two candidates differ; None where one of them leaves reach."""
    try:
        problem = _draw(distribution, prompts, seed)
        answers = [rival.predict(problem) for rival in (first, second)]
    except (InputError, LinAlgError):
        return None
    in_reach = _find_in_reach(answers[0], problem) & _find_in_reach(answers[1], problem)
    if float(in_reach.double().mean()) < MIN_PROMPTS_IN_REACH:
        return None
    one, other = (answer[:, in_reach] for answer in answers)
    power = (one.square() + other.square()).sum(dim=(1, 2)) / 2
    apart = (one - other).square().sum(dim=(1, 2))
    return float((apart / power.clamp_min(1e-300)).mean())


def _find_in_reach(answers: LayerAnswers, problem: Any) -> Tensor:
    """Tell which prompts' answers are finite and not much larger than the problem's labels."""
    label = problem.y if hasattr(problem, "y") else problem.x
    limit = REACH * float(label.square().mean().sqrt()) + 1e-300
    return (answers.abs() <= limit).all(dim=-1).all(dim=0)


def _answer_in_reach(model: Model, distribution: Distribution, prompts: int, seed: int) -> bool:
    try:
        problem = _draw(distribution, prompts, seed)
        model.check(copy_problem(problem))
        answers = predict_layers(model, problem)
    except InputError:
        return False
    return float(_find_in_reach(answers, problem).double().mean()) >= MIN_PROMPTS_IN_REACH
