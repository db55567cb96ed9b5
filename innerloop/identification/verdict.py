"""Verdicts from scores: which candidates fit a layer, which are tied, and which is named.

Two questions have two numbers. How much of what the model says does a candidate say: its share,
1 − E‖m − c‖²/E‖m‖². Does it make the model's errors too: the cosine of m − t and c − t. Neither is
enough. Every solver that converges has a share near 1 with every other; errors alone are those of
rounding where a model is exact, and all alike where it has hardly begun. So a candidate
    matches   where 1 − E‖m − c‖²/min(E‖m‖², E‖m − t‖²), the score, is `MATCH_SCORE` for sure: what
              is left is nothing beside the answers and beside their errors
    is close  where share and similarity of errors are `CLOSE`; the share alone where the model's
              errors vanish or the truth is not known
    answers   where the share is `ANSWER_SHARE` and the errors are the model's own
All three fall with E‖m − c‖², so which candidate is nearest does not depend on which is asked. It
is tied with those whose score a bootstrap over prompts (the same draws for all) does not show to be
lower by `RESOLUTION`. Of these the one is named that fits most layers, then the one with the fewest
free numbers: gradient descent before its preconditioned form. Where a file declares an algorithm
and nothing that is measured speaks for another (EM of equal weights is soft k-means), it is named
as the file has it, unless it contains the other: a special case says more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.identification.candidates import Candidate
from innerloop.identification.measures import (
    FLOOR,
    LayerPredictions,
    Truth,
    pooled_similarity,
)

MATCH_SCORE, CLOSE, ANSWER_SHARE = 0.999, 0.99, 0.98
"""Smallest score of a match, share and similarity of what is close, share of what answers alike."""
RESOLUTION = 1e-3
"""Scores that differ by less count as equal."""
DIGITS, SAME_SCORE = 9, 1e-6
"""Decimals of a score that decide between two names: further ones are rounding errors; and scores
that differ by less do not speak against what a model declares, which fits may miss by as much."""
RESAMPLINGS, TAIL_SHARE = 400, 0.025
MAX_DISTANCE = 1e6
"""Cap on the distance of a prompt, in units of the scale: a diverged prompt counts as this."""
NEAREST = 3
"""Candidates named for information where none fits."""

Fit = Literal["match", "close", "answers", "none", "constant"]
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


@dataclass(frozen=True)
class Near:
    """A candidate near a layer: its label, step, share and similarity of errors."""

    candidate: str
    step: int | None
    share: float
    similarity: float | None


@dataclass(frozen=True)
class LayerVerdict:
    """The verdict on one layer; `nearest` is the best candidate also where none fits.

    A layer that answers a constant is compared with nothing: `answers` says which. `where` says on
    which prompts the candidate misses most, `alike` has the similarities that the literature
    measures, over all lengths of a prompt.
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
    share: float
    similarity: float | None
    nearest: str
    free_numbers: int
    runner_up: str | None
    runner_up_score: float | None
    runner_up_share: float | None
    also_fits: list[str]
    indistinguishable: list[str]
    by_numbers_alone: list[str]
    near: list[Near]
    answers: str | None = None
    where: str | None = None
    alike: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def describe(self) -> str:
        """Describe what the layer does, in words."""
        near = next((each for each in self.near if each.candidate == self.nearest), None)
        step = None if near is None else near.step
        label = self.nearest if step is None else f"{self.nearest}, step {step}"
        missed = format_share(max(1 - self.share, 0.0) ** 0.5)
        most = f", most where {self.where}" if self.where else ""
        if self.fit == "constant":
            return self.answers or "answers a constant"
        if self.fit == "match":
            return f"runs {label}"
        if self.fit == "close":
            return f"close to {label}: misses {missed}{most}"
        if self.fit == "answers":
            return f"gives the answers of {label} to {missed}, with errors of its own{most}"
        alike = "" if self.similarity is None else f": similarity of errors {self.similarity:.2f}"
        return f"none fits; nearest {label}{alike}"


def format_share(value: float) -> str:
    """Format a share as a percentage of two digits."""
    return f"{100 * value:.2g} %" if value < 1 else f"{100 * value:.0f} %"


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores, shares and similarities of all candidates at all layers; scores also resampled.

    `vanish` tells the layers without errors to compare; all of them where the truth is not known.
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
            similar = torch.stack(rows)
        return cls(
            score_shares(even)[0],
            score_shares(counts.to(model) / prompts),
            shares,
            similar,
            vanish.to(shares.device),
            truth is not None,
        )

    def select(self, kept: Sequence[int]) -> ScoreTable:
        """Select some of the candidates."""
        index = list(kept)
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
        if bool(self.vanish[layer]):
            return None
        return float(self.similarities[candidate, layer])

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

        Where some match, the others are not tied with them; and none is tied that scores below
        one that is not: what is named leads what is not.
        """
        best = self.scores.argmax(dim=0).expand(len(self.resampled), 1, -1)
        behind = self.resampled.gather(1, best) - self.resampled
        tied = torch.quantile(behind, TAIL_SHARE, dim=0) <= RESOLUTION
        matched = torch.quantile(self.resampled, TAIL_SHARE, dim=0) >= MATCH_SCORE
        tied &= matched | ~matched.any(dim=0)
        lead = torch.where(tied, -torch.inf, self.scores).amax(dim=0)
        return tied & (self.scores >= lead)


def select_candidate(
    matches: Sequence[Match],
    scored: ScoreTable,
    constants: Sequence[str | None],
    declared: str | None = None,
) -> int | None:
    """Select the candidate for the whole model: fits most layers, then fewest free numbers.

    Layers that answer a constant do not count. An algorithm that the model declares goes first
    where it fits as well, unless it contains the one selected so far.
    """
    varies = torch.tensor([constant is None for constant in constants]).to(scored.scores.device)
    fits = scored.find_ties() & scored.find_close() & varies
    counts, means = fits.sum(dim=-1), scored.scores.clamp_min(-1).mean(dim=-1)
    order = [
        (-int(counts[c]), m.parameter_count, -round(float(means[c]), DIGITS))
        for c, m in enumerate(matches)
    ]
    best = order.index(min(order))
    if not int(counts[best]):
        return None
    simplest = matches[best].candidate
    for c in sorted(range(len(matches)), key=lambda c: order[c]):
        candidate, behind = matches[c].candidate, scored.scores[best] - scored.scores[c]
        as_good = counts[c] == counts[best] and float(behind[fits[best]].max()) <= SAME_SCORE
        if candidate.name == declared and as_good:
            return best if candidate.contains(simplest) else c
    return best


def judge_layers(
    matches: Sequence[Match],
    scored: ScoreTable,
    names: Sequence[str],
    constants: Sequence[str | None],
    declared: str | None = None,
) -> list[LayerVerdict]:
    """Judge each layer, in favour of the candidate for the whole model where that fits."""
    overall, tied = select_candidate(matches, scored, constants, declared), scored.find_ties()
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
        runner_up_share=None,
        also_fits=[],
        indistinguishable=[],
        by_numbers_alone=[],
        near=[],
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
    scores, everyone = scored.scores[:, layer], range(len(matches))
    ties = [c for c in everyone if tied[c]]
    chosen = (
        overall
        if overall in ties
        else min(ties, key=lambda c: (matches[c].parameter_count, -round(float(scores[c]), DIGITS)))
    )
    fit = scored.grade(chosen, layer)
    if fit == "none":  # nothing is named, so nothing is preferred for being simple
        chosen = int(scores.argmax())
        ties = [chosen]
        fit = scored.grade(chosen, layer)
    low, high = scored.interval(chosen, layer)
    candidate, named = matches[chosen].candidate, fit in ("match", "close")
    others = [matches[c].candidate for c in ties if c != chosen]
    behind = [c for c in everyone if c not in ties and matches[c].candidate.name != candidate.name]
    second = max(behind, key=lambda c: float(scores[c]), default=None)
    contained = [matches[c].candidate for c in behind if candidate.contains(matches[c].candidate)]
    return LayerVerdict(
        layer=layer + 1,
        name=name,
        fit=fit,
        algorithm=candidate.name if named else None,
        schedule=candidate.schedule if named else None,
        step=_get_step(matches[chosen], layer) if named else None,
        score=float(scores[chosen]),
        low=low,
        high=high,
        share=float(scored.shares[chosen, layer]),
        similarity=scored.get_similarity(chosen, layer),
        nearest=candidate.label,
        free_numbers=matches[chosen].parameter_count,
        runner_up=None if second is None else matches[second].candidate.label,
        runner_up_score=None if second is None else float(scores[second]),
        runner_up_share=None if second is None else float(scored.shares[second, layer]),
        also_fits=[other.label for other in others],
        indistinguishable=[
            other.label
            for other in others
            if not other.contains(candidate) and other.name != candidate.name
        ],
        by_numbers_alone=[other.label for other in contained],
        near=_list_nearest(matches, scored, chosen, layer),
    )


def _get_step(match: Match, layer: int) -> int | None:
    return None if match.candidate.schedule == "exact" else match.steps[layer]


def _list_nearest(
    matches: Sequence[Match], scored: ScoreTable, chosen: int, layer: int
) -> list[Near]:
    """List the candidate that is chosen and the nearest of other algorithms."""
    order = sorted(range(len(matches)), key=lambda c: -float(scored.scores[c, layer]))
    kept: dict[str, int] = {matches[chosen].candidate.name: chosen}
    for c in order:
        kept.setdefault(matches[c].candidate.name, c)
    return [
        Near(
            matches[c].candidate.label,
            _get_step(matches[c], layer),
            float(scored.shares[c, layer]),
            scored.get_similarity(c, layer),
        )
        for c in list(kept.values())[:NEAREST]
    ]
