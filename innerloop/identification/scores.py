"""Scores of fitted candidates at every layer, and how they grade: matches, is close, or answers.

verdict.py says what the grades mean. Scores are resampled over prompts, the same draws for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.identification.candidates import Candidate
from innerloop.identification.measures import (
    FLOOR,
    ROUNDING,
    LayerPredictions,
    Truth,
    pooled_similarity,
)

MATCH_SCORE, CLOSE, ANSWER_SHARE = 0.999, 0.99, 0.98
"""Smallest score of a match, share and similarity of what is close, share of what answers alike."""
RESOLUTION = 1e-3
"""Scores that differ by less count as equal, unless one of them is exact."""
EXACT_MISS, ROUNDING_MISS, ROUNDING_FACTOR = 1e-9, 1e-10, 10.0
"""A candidate is exact where its score misses 1 by less than the first. Where some candidate is,
only those are tied with it that miss by less than the second, or than this many times what the best
one misses, which leaves room for rounding."""
RESAMPLINGS, TAIL_SHARE = 400, 0.025
MAX_DISTANCE = 1e6
"""Cap on the distance of a prompt, in units of the scale: a diverged prompt counts as this."""

Fit = Literal["match", "close", "answers", "none", "constant", "inconsistent"]
Scores = Float[Tensor, "candidates layers"]


@dataclass(frozen=True, eq=False)
class Match:
    """A fitted candidate: its algorithm, step and predictions per layer, and free numbers."""

    candidate: Candidate
    algorithms: list[Algorithm[Any, Any]]
    steps: list[int]
    parameter_count: int
    predictions: LayerPredictions
    values: dict[str, Any] | None = None
    """The fitted numbers by name, where the algorithm's fields do not show them."""


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores, shares and similarities of all candidates at all layers; scores also resampled.

    `vanish` tells the layers without errors to compare; all of them where the truth is not known.
    The similarity of a candidate without errors is NaN.
    """

    scores: Scores
    resampled: Float[Tensor, "resampled candidates layers"]
    shares: Scores
    similarities: Scores
    vanish: Bool[Tensor, " layers"]
    known: bool

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

        def score_shares(share: Float[Tensor, "k prompts"]) -> Float[Tensor, "k candidates layers"]:
            return 1 - torch.einsum("kp,clp->kcl", share, bounded) / scale(share).unsqueeze(1)

        draws = torch.randint(prompts, (RESAMPLINGS, prompts), generator=generator)
        counts = torch.zeros(RESAMPLINGS, prompts).scatter_add_(1, draws, torch.ones(draws.shape))
        shares = 1 - bounded.mean(dim=-1) / done.mean(dim=-1).clamp_min(1e-300)
        similar, vanish = torch.zeros_like(shares), torch.ones(len(model), dtype=torch.bool)
        if truth is not None:
            vanish = left.mean(dim=-1) <= FLOOR * power.mean()
            rows = [pooled_similarity(model, m.predictions, truth).diagonal() for m in matches]
            errors = torch.stack(
                [(m.predictions - truth).square().sum(dim=(1, 2)) for m in matches]
            )
            exact = errors <= ROUNDING**2 * truth.square().sum()
            similar = torch.stack(rows).masked_fill(exact, torch.nan)
        return cls(
            score_shares(even)[0],
            score_shares(counts.to(model) / prompts),
            shares,
            similar,
            vanish.to(shares.device),
            truth is not None,
        )

    def select(self, places: Sequence[int]) -> ScoreTable:
        """Select some of the candidates."""
        index = list(places)
        return replace(
            self,
            scores=self.scores[index],
            resampled=self.resampled[:, index],
            shares=self.shares[index],
            similarities=self.similarities[index],
        )

    def find_close(self) -> Bool[Tensor, "candidates layers"]:
        """Find the candidates that are close to a layer, or match it."""
        alike = (self.similarities >= CLOSE) | self.vanish
        return (self.scores >= MATCH_SCORE) | ((self.shares >= CLOSE) & alike)

    def get_similarity(self, candidate: int, layer: int) -> float | None:
        """Return the similarity of errors; None where there are none to compare."""
        similarity = float(self.similarities[candidate, layer])
        return None if bool(self.vanish[layer]) or math.isnan(similarity) else similarity

    def grade(self, candidate: int, layer: int) -> Fit:
        """Grade how a candidate fits a layer."""
        if self.interval(candidate, layer)[0] >= MATCH_SCORE:
            return "match"
        if bool(self.find_close()[candidate, layer]):
            return "close"
        answers = float(self.shares[candidate, layer]) >= ANSWER_SHARE
        return "answers" if answers and self.known and not bool(self.vanish[layer]) else "none"

    def interval(self, candidate: int, layer: int) -> tuple[float, float]:
        """Return the middle 95 % of the resampled scores."""
        edges = torch.tensor([TAIL_SHARE, 1 - TAIL_SHARE]).to(self.resampled)
        low, high = torch.quantile(self.resampled[:, candidate, layer], edges).tolist()
        return low, high

    def find_ties(self) -> Bool[Tensor, "candidates layers"]:
        """Find the candidates that are tied with the best one of each layer.

        Where some match, the others are not tied with them, and where some are exact, neither are
        those that only come near. No candidate is tied that scores below one that is not.
        """
        best = self.scores.argmax(dim=0).expand(len(self.resampled), 1, -1)
        behind = self.resampled.gather(1, best) - self.resampled
        tied = torch.quantile(behind, TAIL_SHARE, dim=0) <= RESOLUTION
        matched = torch.quantile(self.resampled, TAIL_SHARE, dim=0) >= MATCH_SCORE
        tied &= matched | ~matched.any(dim=0)
        missed = 1 - self.scores
        least = missed.amin(dim=0)
        rounding = (ROUNDING_FACTOR * least).clamp_min(ROUNDING_MISS)
        tied &= (missed <= rounding) | (least > EXACT_MISS)
        lead = torch.where(tied, -torch.inf, self.scores).amax(dim=0)
        return tied & (self.scores >= lead)
