"""Fit mixtures of linear regressions by EM: several lines through one set of points.
    y_i = ⟨β_k, x_i⟩ + b_k + N(0, σ²) with probability π_k
    E   γ_ik ∝ π_k N(y_i; ⟨β_k, x_i⟩ + b_k, σ²)       M   weighted least squares, π and σ² from γ

Local optima are common. EM therefore runs from several random starts, and the result of largest
likelihood is returned. In a random start, each component is the least-squares fit to a few random
rows. Source: De Veaux 1989, Mixtures of linear regressions. scikit-learn has no such estimator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.limits import check_count, check_seed
from innerloop.solving.base import Answers, Solver
from innerloop.solving.data import Samples
from innerloop.solving.k_means import keep_better
from innerloop.solving.quadratic import centre_carefully, check_underflow
from innerloop.solving.starts import read_start

LEAST_SHARE = 1e-12
"""The least σ², as a share of the labels' variance; an exact fit would make σ² = 0."""
RIDGE_SHARE = 1e-12
"""The number added to the diagonal of the normal equations, as a share of its largest entry."""


class Lines(NamedTuple):
    """The parameters of every problem: β with the intercept b as last entry, π and σ²."""

    betas: Float[Tensor, "problems components size"]
    proportions: Float[Tensor, "problems components"]
    variance: Float[Tensor, " problems"]

    def select(self, index: Tensor) -> Lines:
        """Return the parameters of the problems at the indices."""
        return Lines(*(part[index] for part in self))


@dataclass(frozen=True, kw_only=True, eq=False)
class MixtureOfRegressions(Solver):
    """Solver of mixtures of regressions by EM.

    EM begins at the slopes `start` (components × d) with intercepts 0. Without them, it runs from
    `restarts` random starts by `seed`, and the result of largest likelihood is returned.
    """

    measure: ClassVar[str] = "change of the mean log-likelihood in the last step"
    default_tolerance: ClassVar[float] = 1e-8
    weighted: ClassVar[bool] = False

    components: int = 2
    fit_intercept: bool = True
    start: Any = None
    restarts: int = 10
    seed: int = 0
    max_steps: int = 2000

    def prepare(self, sizes: Sequence[int], d: int) -> MixtureOfRegressions:
        check_count("components", self.components, 1)
        check_count("restarts", self.restarts, 1)
        if min(sizes) < d + 2:
            raise InputError(
                f"every problem must have at least d + 2 = {d + 2} rows, got one with {min(sizes)}"
            )
        return self

    def count_numbers(self, d: int) -> tuple[int, int]:
        return (4 + self.components) * (d + 1), 4 * self.components * (d + 1) ** 2

    def solve(self, samples: Samples, tolerance: float) -> Answers:
        check_underflow(samples)
        x, y, mean, y_mean = self._centre(samples)
        unwhitening, whitening = _whiten(x, samples.weights)
        x = x @ whitening
        if self.fit_intercept:
            x = torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)
        rows = Samples(x, y, samples.weight, samples.places)
        if self.start is not None:
            slopes = read_start(self.start, samples, self.components)
            offsets = (slopes * mean.unsqueeze(1)).sum(dim=-1, keepdim=True) - y_mean[:, None, None]
            slopes = slopes @ unwhitening.mT
            betas = torch.cat([slopes, offsets], dim=-1) if self.fit_intercept else slopes
            best = self._iterate(rows, betas, tolerance)
        else:
            generator, best = torch.Generator().manual_seed(check_seed(self.seed)), {}
            for _ in range(self.restarts):
                candidate = self._iterate(rows, self._draw(rows, generator), tolerance)
                score = "log_likelihood"
                best = keep_better(
                    best, candidate, candidate[score] > best[score] if best else None
                )
        betas = best.pop("betas")
        slopes = betas[..., : mean.shape[-1]] @ whitening.mT
        intercept = torch.zeros_like(slopes[..., 0])
        if self.fit_intercept:
            shift = (slopes * mean.unsqueeze(1)).sum(dim=-1)
            intercept = betas[..., -1] + y_mean.unsqueeze(-1) - shift
        return {"coef": slopes, "intercept": intercept, **best}

    def _centre(self, samples: Samples) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return rows, labels and their means; rows and labels are centred with an intercept."""
        if not self.fit_intercept:
            no_shift = torch.zeros_like(samples.x[:, 0]), torch.zeros_like(samples.labels[:, 0])
            return samples.x, samples.labels, *no_shift
        x, mean = centre_carefully(samples)
        y_mean = samples.average(samples.labels)
        return x, samples.labels - y_mean.unsqueeze(-1), mean, y_mean

    def _draw(self, rows: Samples, generator: torch.Generator) -> Tensor:
        """Return random initial weights.

        Each component is a least-squares fit to random rows, whose number is that of its weights
        plus 1.
        """
        shape = (self.components, *rows.weights.shape)
        order = torch.rand(shape, generator=generator, dtype=torch.float64).to(rows.x)
        order = torch.where(rows.weights > 0, order, -1.0)
        least = order.topk(rows.x.shape[-1] + 1, dim=-1).values[..., -1:]
        return _regress(rows, (order >= least).to(rows.x).permute(1, 2, 0))

    def _iterate(self, rows: Samples, betas: Tensor, tolerance: float) -> Answers:
        """Run EM from initial weights; problems that have converged leave the batch."""
        total = rows.totals
        y_mean = rows.average(rows.labels)
        label_variance = rows.average((rows.labels - y_mean.unsqueeze(-1)).square())
        least = LEAST_SHARE * torch.where(label_variance > 0, label_variance, 1.0)
        equal = torch.full_like(betas[..., 0], 1 / self.components)
        lines = Lines(betas.clone(), equal, torch.where(label_variance > 0, label_variance, 1.0))
        bounds = torch.full_like(total, -torch.inf)
        changes = torch.full_like(total, torch.inf)
        steps = torch.zeros(len(total), dtype=torch.int64, device=total.device)
        active, part, state = torch.arange(len(total), device=total.device), rows, lines
        for _ in range(self.max_steps):
            bound, shares = expect(part, state)
            state = _maximise(part, shares, least[active])
            changes[active] = (bound - bounds[active]).abs()
            bounds[active], steps[active] = bound, steps[active] + 1
            pairs = zip(lines, state, strict=True)
            lines = Lines(*(whole.index_copy(0, active, new) for whole, new in pairs))
            unfinished = ~(changes[active] < tolerance)
            if not bool(unfinished.all()):
                active, state = active[unfinished], state.select(unfinished)
                if not len(active):
                    break
                part = rows.select(active)
        bound, shares = expect(rows, lines)
        return {
            "betas": lines.betas,
            "weights": lines.proportions,
            "noise": lines.variance.sqrt(),
            "responsibilities": shares,
            "log_likelihood": bound,
            "optimality": changes,
            "converged": changes < tolerance,
            "steps": steps,
        }


def _whiten(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the matrices of a change to uncorrelated columns: unwhitening, whitening.

    The new rows are `x @ whitening`, and the new slopes `slopes @ unwhitening.mT`. Collinear
    directions are left out.
    """
    x = x * weights.sqrt().unsqueeze(-1)
    scale = x.square().sum(dim=1).sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    _, values, directions = torch.linalg.svd(x / scale.unsqueeze(1), full_matrices=False)
    least = max(x.shape[1:]) * torch.finfo(x.dtype).eps * values[:, :1]
    independent = values > least
    stretch = torch.where(independent, values, 0.0).unsqueeze(-1) * directions * scale.unsqueeze(1)
    inverse = torch.where(independent, 1 / torch.where(independent, values, 1.0), 0.0)
    whitening = (inverse.unsqueeze(-1) * directions).mT / scale.unsqueeze(-1)
    root = weights.sum(dim=-1)[:, None, None].sqrt()
    return stretch / root, whitening * root


def expect(rows: Samples, lines: Lines) -> tuple[Tensor, Tensor]:
    """Return the mean log-likelihood of every problem, and the responsibilities γ of its rows."""
    residuals = rows.labels.unsqueeze(-1) - rows.x @ lines.betas.mT
    variance = lines.variance[:, None, None]
    logs = -0.5 * (residuals.square() / variance + (2 * math.pi * variance).log())
    logs = logs + lines.proportions.clamp_min(1e-300).log().unsqueeze(1)
    norms = logs.logsumexp(dim=-1)
    return rows.average(norms), (logs - norms.unsqueeze(-1)).exp()


def _maximise(rows: Samples, shares: Tensor, least: Tensor) -> Lines:
    """Run the M step: return the parameters of largest likelihood, with σ² of at least `least`."""
    shares = shares * rows.weights.unsqueeze(-1)
    betas = _regress(rows, shares)
    squares = (rows.labels.unsqueeze(-1) - rows.x @ betas.mT).square()
    variance = torch.maximum((shares * squares).sum(dim=(1, 2)) / rows.totals, least)
    return Lines(betas, shares.sum(dim=1) / rows.totals.unsqueeze(-1), variance)


def _regress(rows: Samples, shares: Tensor) -> Tensor:
    """Return the weighted least-squares fit of every component: problems × components × size."""
    weighted = shares.mT.unsqueeze(-1) * rows.x.unsqueeze(1)  # problems, K, n, size
    gram = weighted.mT @ rows.x.unsqueeze(1)
    moment = (weighted.mT @ rows.labels[:, None, :, None]).squeeze(-1)
    largest = gram.diagonal(dim1=-2, dim2=-1).amax(dim=-1).clamp_min(1e-300)
    gram.diagonal(dim1=-2, dim2=-1).add_(RIDGE_SHARE * largest.unsqueeze(-1))
    solved, _ = torch.linalg.solve_ex(gram, moment)
    return torch.where(solved.isfinite(), solved, 0.0)
