"""From scores to verdicts: which candidates fit a layer, which are alike, and which is named.

A candidate cannot be told from the best one where its score is not lower by more than `RESOLUTION`,
as far as the bootstrap over prompts can say (both see the same draws). Of those the one that fits
most layers is named, and of these the one with the fewest free numbers: gradient descent before its
preconditioned form. Where it is named it matches (score at least `MATCH`), or is close (`CLOSE`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.identify.candidates import Candidate
from innerloop.identify.measures import FLOOR, Layers, Truth

MATCH, CLOSE = 0.999, 0.9
"""Scores from which on a candidate matches a layer, or is close to it."""
RESOLUTION = 1e-3
"""Scores that differ by less are the same."""
RESAMPLED, TAIL = 400, 0.025
WORST = 1e6
"""The largest distance that counts, in scales: a diverged prompt is as bad as that."""

Fit = Literal["match", "close", "none"]
Scores = Float[Tensor, "candidates layers"]


@dataclass(frozen=True, eq=False)
class Match:
    """A fitted candidate: for each layer its algorithm, step, free numbers, and predictions."""

    candidate: Candidate
    algorithms: list[Algorithm[Any, Any]]
    steps: list[int]
    numbers: int
    predictions: Layers


@dataclass(frozen=True)
class LayerVerdict:
    """What a layer does; `algorithm` is the nearest also where none fits."""

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

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores of all candidates at all layers, also on resampled prompts."""

    score: Scores
    drawn: Float[Tensor, "resampled candidates layers"]

    @classmethod
    def of(
        cls,
        model: Layers,
        matches: Sequence[Match],
        truth: Truth | None,
        generator: torch.Generator,
    ) -> Scored:
        """See `measures.score`; every resampling draws prompts, the same for all candidates."""
        prompts = model.shape[1]
        done = model.square().sum(dim=-1)
        left = done if truth is None else (model - truth).square().sum(dim=-1)
        power = done[-1:] if truth is None else truth.square().sum(dim=-1).unsqueeze(0)
        apart = torch.stack([(m.predictions - model).square().sum(dim=-1) for m in matches])

        def scale(share: Float[Tensor, "k prompts"]) -> Float[Tensor, "k layers"]:
            least = torch.minimum(share @ done.mT, share @ left.mT)
            return torch.maximum(least, FLOOR * (share @ power.mT)).clamp_min(1e-300)

        even = torch.full((1, prompts), 1 / prompts).to(model)
        ceiling = WORST * scale(even).mT
        bounded = torch.minimum(apart.nan_to_num(torch.inf, torch.inf), ceiling)

        def scored(share: Float[Tensor, "k prompts"]) -> Float[Tensor, "k candidates layers"]:
            return 1 - torch.einsum("kp,clp->kcl", share, bounded) / scale(share).unsqueeze(1)

        draws = torch.randint(prompts, (RESAMPLED, prompts), generator=generator)
        counts = torch.zeros(RESAMPLED, prompts).scatter_add_(1, draws, torch.ones(draws.shape))
        return cls(scored(even)[0], scored(counts.to(model) / prompts))

    def interval(self, candidate: int, layer: int) -> tuple[float, float]:
        """The middle 95 % of the resampled scores."""
        edges = torch.tensor([TAIL, 1 - TAIL]).to(self.drawn)
        low, high = torch.quantile(self.drawn[:, candidate, layer], edges).tolist()
        return low, high

    def tied(self) -> Bool[Tensor, "candidates layers"]:
        """Which candidates cannot be told from the best one of a layer."""
        best = self.score.argmax(dim=0).expand(len(self.drawn), 1, -1)
        behind = self.drawn.gather(1, best) - self.drawn
        sure = torch.quantile(behind, TAIL, dim=0)
        return sure <= RESOLUTION


def named(matches: Sequence[Match], scored: Scored) -> int | None:
    """The candidate for the whole model: fits most layers, then fewest free numbers."""
    fits = scored.tied() & (scored.score >= CLOSE)
    counts, means = fits.sum(dim=-1), scored.score.clamp_min(-1).mean(dim=-1)
    order = [(-int(counts[c]), m.numbers, -float(means[c])) for c, m in enumerate(matches)]
    best = order.index(min(order))
    return best if int(counts[best]) else None


def layer_verdicts(
    matches: Sequence[Match], scored: Scored, names: Sequence[str]
) -> list[LayerVerdict]:
    """A verdict for each layer, in favour of the candidate for the whole model where that fits."""
    overall, tied = named(matches, scored), scored.tied()
    return [
        _layer_verdict(matches, scored, tied[:, layer], overall, layer, name)
        for layer, name in enumerate(names)
    ]


def _layer_verdict(
    matches: Sequence[Match],
    scored: Scored,
    tied: Bool[Tensor, " candidates"],
    overall: int | None,
    layer: int,
    name: str,
) -> LayerVerdict:
    scores = scored.score[:, layer]
    ties = [c for c in range(len(matches)) if tied[c]]
    chosen = (
        overall
        if overall in ties
        else min(ties, key=lambda c: (matches[c].numbers, -float(scores[c])))
    )
    assert chosen is not None
    low, high = scored.interval(chosen, layer)
    fit: Fit = "match" if low >= MATCH else "close" if float(scores[chosen]) >= CLOSE else "none"
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
