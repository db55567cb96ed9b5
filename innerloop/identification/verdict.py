"""Verdicts from scores: which candidates fit a layer, which are tied, and which is named.

A candidate is tied with the best one of a layer unless a bootstrap over prompts (the same draws for
both) shows its score to be lower by more than `RESOLUTION`. Among tied candidates the one that
fits most layers is named, and among these the one with the fewest free numbers: gradient descent
before its preconditioned form. A named candidate matches (score at least `MATCH_SCORE`) or is close
(`CLOSE_SCORE`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.identification.candidates import Candidate
from innerloop.identification.measures import FLOOR, LayerPredictions, Truth

MATCH_SCORE, CLOSE_SCORE = 0.999, 0.9
"""Smallest scores at which a candidate matches a layer, or is close to it."""
RESOLUTION = 1e-3
"""Scores that differ by less count as equal."""
RESAMPLINGS, TAIL_SHARE = 400, 0.025
MAX_DISTANCE = 1e6
"""Cap on the distance of a prompt, in units of the scale: a diverged prompt counts as this."""

Fit = Literal["match", "close", "none", "constant"]
Scores = Float[Tensor, "candidates layers"]


@dataclass(frozen=True, eq=False)
class Match:
    """A fitted candidate: its algorithm, step and predictions per layer, and free numbers."""

    candidate: Candidate
    algorithms: list[Algorithm[Any, Any]]
    steps: list[int]
    parameter_count: int
    predictions: LayerPredictions


@dataclass(frozen=True)
class LayerVerdict:
    """The verdict on one layer; `nearest` is the best candidate also where none fits.

    A layer that answers a constant is compared with nothing: `answers` says which.
    """

    layer: int
    name: str
    fit: Fit
    algorithm: str | None
    schedule: str | None
    step: int | None
    score: float
    low: float
    high: float
    nearest: str
    runner_up: str | None
    runner_up_score: float | None
    also_fits: list[str]
    indistinguishable: list[str]
    answers: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores of all candidates at all layers, on all prompts and on resampled ones."""

    scores: Scores
    resampled: Float[Tensor, "resampled candidates layers"]

    @classmethod
    def from_matches(
        cls,
        model: LayerPredictions,
        matches: Sequence[Match],
        truth: Truth | None,
        generator: torch.Generator,
    ) -> ScoreTable:
        """Compute `measures.score` of all matches; resampled prompts are the same for all."""
        prompts = model.shape[1]
        done = model.square().sum(dim=-1)
        left = done if truth is None else (model - truth).square().sum(dim=-1)
        power = done[-1:] if truth is None else truth.square().sum(dim=-1).unsqueeze(0)
        apart = torch.stack([(m.predictions - model).square().sum(dim=-1) for m in matches])

        def scale(share: Float[Tensor, "k prompts"]) -> Float[Tensor, "k layers"]:
            least = torch.minimum(share @ done.mT, share @ left.mT)
            return torch.maximum(least, FLOOR * (share @ power.mT)).clamp_min(1e-300)

        even = torch.full((1, prompts), 1 / prompts).to(model)
        ceiling = MAX_DISTANCE * scale(even).mT
        bounded = torch.minimum(apart.nan_to_num(torch.inf, torch.inf), ceiling)

        def scored(share: Float[Tensor, "k prompts"]) -> Float[Tensor, "k candidates layers"]:
            return 1 - torch.einsum("kp,clp->kcl", share, bounded) / scale(share).unsqueeze(1)

        draws = torch.randint(prompts, (RESAMPLINGS, prompts), generator=generator)
        counts = torch.zeros(RESAMPLINGS, prompts).scatter_add_(1, draws, torch.ones(draws.shape))
        return cls(scored(even)[0], scored(counts.to(model) / prompts))

    def interval(self, candidate: int, layer: int) -> tuple[float, float]:
        """Return the middle 95 % of the resampled scores."""
        edges = torch.tensor([TAIL_SHARE, 1 - TAIL_SHARE]).to(self.resampled)
        low, high = torch.quantile(self.resampled[:, candidate, layer], edges).tolist()
        return low, high

    def find_ties(self) -> Bool[Tensor, "candidates layers"]:
        """Find the candidates that are tied with the best one of each layer."""
        best = self.scores.argmax(dim=0).expand(len(self.resampled), 1, -1)
        behind = self.resampled.gather(1, best) - self.resampled
        sure = torch.quantile(behind, TAIL_SHARE, dim=0)
        return sure <= RESOLUTION


def select_candidate(
    matches: Sequence[Match], scored: ScoreTable, constants: Sequence[str | None]
) -> int | None:
    """Select the candidate for the whole model: fits most layers, then fewest free numbers.

    Layers that answer a constant do not count.
    """
    varies = torch.tensor([constant is None for constant in constants]).to(scored.scores.device)
    fits = scored.find_ties() & (scored.scores >= CLOSE_SCORE) & varies
    counts, means = fits.sum(dim=-1), scored.scores.clamp_min(-1).mean(dim=-1)
    order = [(-int(counts[c]), m.parameter_count, -float(means[c])) for c, m in enumerate(matches)]
    best = order.index(min(order))
    return best if int(counts[best]) else None


def judge_layers(
    matches: Sequence[Match],
    scored: ScoreTable,
    names: Sequence[str],
    constants: Sequence[str | None],
) -> list[LayerVerdict]:
    """Judge each layer, in favour of the candidate for the whole model where that fits."""
    overall, tied = select_candidate(matches, scored, constants), scored.find_ties()
    judged = [
        _judge_layer(matches, scored, tied[:, layer], overall, layer, name)
        for layer, name in enumerate(names)
    ]
    return [
        layer if constant is None else _judge_constant(layer, constant)
        for layer, constant in zip(judged, constants, strict=True)
    ]


def _judge_constant(layer: LayerVerdict, answers: str) -> LayerVerdict:
    """Take back what was said of a layer that answers a constant."""
    return replace(
        layer,
        fit="constant",
        algorithm=None,
        schedule=None,
        step=None,
        runner_up=None,
        runner_up_score=None,
        also_fits=[],
        indistinguishable=[],
        answers=answers,
    )


def _judge_layer(
    matches: Sequence[Match],
    scored: ScoreTable,
    tied: Bool[Tensor, " candidates"],
    overall: int | None,
    layer: int,
    name: str,
) -> LayerVerdict:
    scores = scored.scores[:, layer]
    ties = [c for c in range(len(matches)) if tied[c]]
    chosen = (
        overall
        if overall in ties
        else min(ties, key=lambda c: (matches[c].parameter_count, -float(scores[c])))
    )
    assert chosen is not None
    low, high = scored.interval(chosen, layer)
    fit: Fit = (
        "match"
        if low >= MATCH_SCORE
        else "close"
        if float(scores[chosen]) >= CLOSE_SCORE
        else "none"
    )
    candidate, step = matches[chosen].candidate, matches[chosen].steps[layer]
    others = [matches[c].candidate for c in ties if c != chosen] if fit != "none" else []
    behind = (
        [c for c in range(len(matches)) if c not in ties]
        if fit != "none"
        else [c for c in range(len(matches)) if c != chosen]
    )
    behind = [c for c in behind if matches[c].candidate.name != candidate.name]
    second = max(behind, key=lambda c: float(scores[c]), default=None)
    return LayerVerdict(
        layer=layer + 1,
        name=name,
        fit=fit,
        algorithm=candidate.name if fit != "none" else None,
        schedule=candidate.schedule if fit != "none" else None,
        step=None if fit == "none" or candidate.schedule == "exact" else step,
        score=float(scores[chosen]),
        low=low,
        high=high,
        nearest=candidate.label,
        runner_up=None if second is None else matches[second].candidate.label,
        runner_up_score=None if second is None else float(scores[second]),
        also_fits=[other.label for other in others],
        indistinguishable=[
            other.label
            for other in others
            if not other.contains(candidate) and other.name != candidate.name
        ],
    )
