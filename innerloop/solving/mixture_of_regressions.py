"""Mixtures of linear regressions by EM: several lines through one set of points.

    y_i = ⟨β_k, x_i⟩ + b_k + N(0, σ²) with probability π_k
    E   γ_ik ∝ π_k N(y_i; ⟨β_k, x_i⟩ + b_k, σ²)       M   weighted least squares, π and σ² from γ

Local optima are common: the best of several starts by likelihood is kept. A start is each
component's least-squares fit to a few random rows, or given. Source: De Veaux 1989, Mixtures of
linear regressions. There is no counterpart in scikit-learn.
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
"""σ² stays above this share of the labels' variance: exact fits would make it 0."""
RIDGE_SHARE = 1e-12
"""On the diagonal of the normal equations, as a share of their largest entry."""


class Lines(NamedTuple):
    """β with b last, π and σ² of every problem."""

    betas: Float[Tensor, "problems components size"]
    proportions: Float[Tensor, "problems components"]
    variance: Float[Tensor, " problems"]

    def select(self, index: Tensor) -> Lines:
        """Keep some of the problems."""
        return Lines(*(part[index] for part in self))


@dataclass(frozen=True, kw_only=True, eq=False)
class MixtureOfRegressions(Solver):
    """EM from `start` (components × d, intercepts 0), or the best of `restarts` draws by `seed`."""

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
        there, back = _whiten(x, samples.weights)
        x = x @ back
        if self.fit_intercept:
            x = torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)
        rows = Samples(x, y, samples.weight, samples.places)
        if self.start is not None:
            slopes = read_start(self.start, samples, self.components)
            own = (slopes * mean.unsqueeze(1)).sum(dim=-1, keepdim=True) - y_mean[:, None, None]
            slopes = slopes @ there.mT
            betas = torch.cat([slopes, own], dim=-1) if self.fit_intercept else slopes
            best = self._iterate(rows, betas, tolerance)
        else:
            generator, best = torch.Generator().manual_seed(check_seed(self.seed)), {}
            for _ in range(self.restarts):
                found = self._iterate(rows, self._draw(rows, generator), tolerance)
                score = "log_likelihood"
                best = keep_better(best, found, found[score] > best[score] if best else None)
        betas = best.pop("betas")
        slopes = betas[..., : mean.shape[-1]] @ back.mT
        intercept = torch.zeros_like(slopes[..., 0])
        if self.fit_intercept:
            shift = (slopes * mean.unsqueeze(1)).sum(dim=-1)
            intercept = betas[..., -1] + y_mean.unsqueeze(-1) - shift
        return {"coef": slopes, "intercept": intercept, **best}

    def _centre(self, samples: Samples) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return rows and labels, centred if there is an intercept, with their means."""
        if not self.fit_intercept:
            nothing = torch.zeros_like(samples.x[:, 0]), torch.zeros_like(samples.labels[:, 0])
            return samples.x, samples.labels, *nothing
        x, mean = centre_carefully(samples)
        y_mean = samples.average(samples.labels)
        return x, samples.labels - y_mean.unsqueeze(-1), mean, y_mean

    def _draw(self, rows: Samples, generator: torch.Generator) -> Tensor:
        """Fit each component to as many random rows as it has weights, and one more."""
        shape = (self.components, *rows.weights.shape)
        order = torch.rand(shape, generator=generator, dtype=torch.float64).to(rows.x)
        order = torch.where(rows.weights > 0, order, -1.0)
        least = order.topk(rows.x.shape[-1] + 1, dim=-1).values[..., -1:]
        return _regress(rows, (order >= least).to(rows.x).permute(1, 2, 0))

    def _iterate(self, rows: Samples, betas: Tensor, tolerance: float) -> Answers:
        total = rows.totals
        y_mean = rows.average(rows.labels)
        spread = rows.average((rows.labels - y_mean.unsqueeze(-1)).square())
        least = LEAST_SHARE * torch.where(spread > 0, spread, 1.0)
        equal = torch.full_like(betas[..., 0], 1 / self.components)
        lines = Lines(betas.clone(), equal, torch.where(spread > 0, spread, 1.0))
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
            left = ~(changes[active] < tolerance)
            if not bool(left.all()):
                active, state = active[left], state.select(left)
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
    """Return the matrices of a change to columns that are uncorrelated, and of the way back.

    Rows become `x @ back`, slopes `slopes @ there.mT`. Collinear directions are left out.
    """
    x = x * weights.sqrt().unsqueeze(-1)
    scale = x.square().sum(dim=1).sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    _, values, directions = torch.linalg.svd(x / scale.unsqueeze(1), full_matrices=False)
    least = max(x.shape[1:]) * torch.finfo(x.dtype).eps * values[:, :1]
    independent = values > least
    stretch = torch.where(independent, values, 0.0).unsqueeze(-1) * directions * scale.unsqueeze(1)
    inverse = torch.where(independent, 1 / torch.where(independent, values, 1.0), 0.0)
    back = (inverse.unsqueeze(-1) * directions).mT / scale.unsqueeze(-1)
    root = weights.sum(dim=-1)[:, None, None].sqrt()
    return stretch / root, back * root


def expect(rows: Samples, lines: Lines) -> tuple[Tensor, Tensor]:
    """Return the mean log-likelihood of every problem, and the share of each line in each row."""
    residuals = rows.labels.unsqueeze(-1) - rows.x @ lines.betas.mT
    variance = lines.variance[:, None, None]
    logs = -0.5 * (residuals.square() / variance + (2 * math.pi * variance).log())
    logs = logs + lines.proportions.clamp_min(1e-300).log().unsqueeze(1)
    norms = logs.logsumexp(dim=-1)
    return rows.average(norms), (logs - norms.unsqueeze(-1)).exp()


def _maximise(rows: Samples, shares: Tensor, least: Tensor) -> Lines:
    shares = shares * rows.weights.unsqueeze(-1)
    betas = _regress(rows, shares)
    squares = (rows.labels.unsqueeze(-1) - rows.x @ betas.mT).square()
    variance = torch.maximum((shares * squares).sum(dim=(1, 2)) / rows.totals, least)
    return Lines(betas, shares.sum(dim=1) / rows.totals.unsqueeze(-1), variance)


def _regress(rows: Samples, shares: Tensor) -> Tensor:
    """Weighted least squares for every component: problems × components × size."""
    weighted = shares.mT.unsqueeze(-1) * rows.x.unsqueeze(1)  # problems, K, n, size
    gram = weighted.mT @ rows.x.unsqueeze(1)
    moment = (weighted.mT @ rows.labels[:, None, :, None]).squeeze(-1)
    largest = gram.diagonal(dim1=-2, dim2=-1).amax(dim=-1).clamp_min(1e-300)
    gram.diagonal(dim1=-2, dim2=-1).add_(RIDGE_SHARE * largest.unsqueeze(-1))
    solved, _ = torch.linalg.solve_ex(gram, moment)
    return torch.where(solved.isfinite(), solved, 0.0)
