"""Verdicts from scores: which candidates fit a layer, which are tied, and which is named.

A candidate with the answers c is compared with a layer's answers m and the true answers t by two
numbers. The share 1 − E‖m − c‖²/E‖m‖² is the part of the layer's answers that the candidate
explains. The similarity of errors is the cosine of m − t and c − t. Neither number is enough alone.
All solvers that converge have shares near 1 with each other. The errors of an exact model are only
rounding errors, and at the first steps the errors of all candidates are alike. Therefore a
candidate
    matches   if 1 − E‖m − c‖²/min(E‖m‖², E‖m − t‖²), the score, is certainly at least
              `MATCH_SCORE`: the difference is negligible compared with the answers and their errors
    is close  if share and similarity of errors are at least `CLOSE`; the share alone, if the
              model's errors vanish or the truth is unknown
    answers   if the share is at least `ANSWER_SHARE` but the errors differ. Then only the limit is
              named, a solution in closed form, because many iterations converge to it
All three numbers decrease with E‖m − c‖², so all of them rank candidates in the same order. The
nearest candidate is tied with every candidate whose score is not lower by `RESOLUTION`, according
to a bootstrap over prompts with the same draws for all. Among tied candidates, the one that fits
most layers is named, then the one with the fewest free numbers, for example gradient descent before
its preconditioned form. If a file declares an algorithm, and no measurement contradicts it, the
declared algorithm is named, unless it is a generalisation of the other. An example is EM with
equal weights, which equals soft k-means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from innerloop.identification.scores import ANSWER_SHARE, RESOLUTION, Fit, Match, ScoreTable

DIGITS, SAME_SCORE = 9, 1e-6
"""Decimals of a score that decide between two names: further ones are rounding errors; and scores
that differ by less do not speak against what a model declares, which fits may miss by as much."""
ALMOST_AS_NEAR = 1.5
"""Where a layer gives the answers of several closed forms, the simplest is named among those that
miss at most this many times what the nearest one misses."""
NEAR_SHARE = 0.5
"""Share of what a layer says below which a candidate is not near, and is not printed."""
NEAREST = 3
"""Candidates named for information where none fits."""


@dataclass(frozen=True)
class Near:
    """A candidate that is near a layer: its label, step, share and similarity of errors."""

    candidate: str
    step: int | None
    share: float
    similarity: float | None


@dataclass(frozen=True)
class LayerVerdict:
    """The verdict on one layer; `nearest` is the best candidate, even if none fits.

    answers        what the layer does instead, if it is not compared: it always gives the same
                   answer, or its answers are not those of single prompts (consistency.py)
    where          the prompts on which the candidate differs most
    alike          the similarities that the literature measures, over all lengths of a prompt
    fitting_steps  the smallest and the largest number of steps that fit a single output as well as
                   `step` does, if there are others
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
    fitting_steps: tuple[int, int] | None = None
    alike: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def describe(self) -> str:
        """Describe in words what the layer does."""
        near = next((each for each in self.near if each.candidate == self.nearest), None)
        step = None if near is None else near.step
        label = self.nearest if step is None else f"{self.nearest}, step {step}"
        missed = format_share(max(1 - self.share, 0.0) ** 0.5)
        most = f", most where {self.where}" if self.where else ""
        if self.fit in ("constant", "inconsistent"):
            return self.answers or "answers a constant"
        if self.fit == "match":
            return f"runs {label}{self._describe_fitting_steps()}"
        if self.fit == "close":
            return f"close to {label}{self._describe_fitting_steps()}: misses {missed}{most}"
        if self.fit == "answers":
            return f"gives the answers of {label} to {missed}, with errors of its own{most}"
        if self.share < NEAR_SHARE:
            return "none fits, and none is near"
        # Which iteration is nearest depends on the prompts, so only solutions are named.
        nearest = f"nearest {self.nearest}, which" if step is None else "the nearest iteration"
        return f"none fits; {nearest} explains {100 * self.share:.0f} % of the answers"

    def _describe_fitting_steps(self) -> str:
        if self.fitting_steps is None:
            return ""
        fewest, most = self.fitting_steps
        return f" ({fewest} to {most} steps fit)"


def format_share(value: float) -> str:
    """Format a share as a percentage of two digits."""
    return f"{100 * value:.2g} %" if value < 1 else f"{100 * value:.0f} %"


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
        (-int(counts[c]), *rank_simplicity(m), -round(float(means[c]), DIGITS), m.candidate.label)
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


def rank_simplicity(match: Match) -> tuple[int, bool]:
    """Return the rank of a match by its free numbers, with closed forms first.

    The step of an iteration is chosen too, and counts as a number. An iteration that has converged
    is therefore not preferred to the solution that it converges to.
    """
    iterates = match.candidate.schedule != "exact"
    return match.parameter_count + iterates, iterates


def judge_layers(
    matches: Sequence[Match],
    scored: ScoreTable,
    names: Sequence[str],
    constants: Sequence[str | None],
    declared: str | None = None,
    inconsistencies: Sequence[str | None] | None = None,
) -> list[LayerVerdict]:
    """Judge each layer, and prefer the candidate for the whole model if it fits.

    Layers with a text in `constants` or `inconsistencies` are described by it.
    """
    broken = [None] * len(names) if inconsistencies is None else inconsistencies
    constants = [b or c for b, c in zip(broken, constants, strict=True)]
    overall, tied = select_candidate(matches, scored, constants, declared), scored.find_ties()
    judged = [
        _judge_layer(matches, scored, tied[:, layer], overall, layer, name)
        for layer, name in enumerate(names)
    ]
    judged = [
        layer if constant is None else _judge_without_candidates(layer, constant)
        for layer, constant in zip(judged, constants, strict=True)
    ]
    # Scores of answers that change are scores of nothing.
    without = {"score": 0.0, "low": 0.0, "high": 0.0, "share": 0.0, "similarity": None}
    return [
        layer if text is None else replace(layer, fit="inconsistent", **without)
        for layer, text in zip(judged, broken, strict=True)
    ]


def _judge_without_candidates(layer: LayerVerdict, answers: str) -> LayerVerdict:
    """Replace the verdict on a layer that is compared with nothing by a description."""
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

    def rank(c: int) -> tuple[int, bool, float, str]:
        rounded = round(float(scores[c]), DIGITS)
        return *rank_simplicity(matches[c]), -rounded, matches[c].candidate.label

    chosen = overall if overall in ties else min(ties, key=rank)
    fit = scored.grade(chosen, layer)
    if fit == "none":  # nothing is named, so nothing is preferred for being simple
        chosen = int(scores.argmax())
        ties = [chosen]
        fit = scored.grade(chosen, layer)
    if fit == "answers" and _have_closed_forms(matches):
        # Iterations that have converged are alike, and which is nearest is chance.
        limits = _find_limits(matches, scored, layer)
        ties = limits or ties
        chosen = min(limits, key=lambda c: rank_simplicity(matches[c])) if limits else chosen
        fit = "answers" if limits else "none"
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


def _have_closed_forms(matches: Sequence[Match]) -> bool:
    return any(match.candidate.schedule == "exact" for match in matches)


def _find_limits(matches: Sequence[Match], scored: ScoreTable, layer: int) -> list[int]:
    """Find the closed forms whose answers a layer gives, the nearest and those almost as near."""
    shares = {
        c: float(scored.shares[c, layer])
        for c, match in enumerate(matches)
        if match.candidate.schedule == "exact"
    }
    least = 1 - max(shares.values())
    return [
        c
        for c, share in shares.items()
        if share >= ANSWER_SHARE and 1 - share <= ALMOST_AS_NEAR * least + RESOLUTION
    ]


def _get_step(match: Match, layer: int) -> int | None:
    return None if match.candidate.schedule == "exact" else match.steps[layer]


def _list_nearest(
    matches: Sequence[Match], scored: ScoreTable, chosen: int, layer: int
) -> list[Near]:
    """List the candidate that is chosen and the nearest of other algorithms."""
    order = sorted(range(len(matches)), key=lambda c: -float(scored.scores[c, layer]))
    nearest: dict[str, int] = {matches[chosen].candidate.name: chosen}
    for c in order:
        nearest.setdefault(matches[c].candidate.name, c)
    return [
        Near(
            matches[c].candidate.label,
            _get_step(matches[c], layer),
            float(scored.shares[c, layer]),
            scored.get_similarity(c, layer),
        )
        for c in list(nearest.values())[:NEAREST]
    ]
