"""Fit mixtures of Gaussians by EM, with the conventions of scikit-learn's GaussianMixture.

    E   γ_ik ∝ π_k N(x_i; μ_k, Σ_k)       M   π, μ, Σ from γ, with `regularisation` on the diagonals

Covariances are full, tied, diag or spherical. EM ends when the mean log-likelihood changes by less
than the tolerance. Without initial means, k-means gives the first γ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.arrays import as_tensor
from innerloop.errors import InputError
from innerloop.limits import check_count
from innerloop.solving.base import Answers, Solver, check_positive
from innerloop.solving.data import Samples
from innerloop.solving.k_means import KMeans, assign
from innerloop.solving.quadratic import check_underflow
from innerloop.solving.starts import Centres, check_start, read_start

Covariance = Literal["full", "tied", "diag", "spherical"]
Shares = Float[Tensor, "problems n clusters"]


class Mixture(NamedTuple):
    """The weights, means and covariances (problems, K, d, d) of all mixtures."""

    weights: Float[Tensor, "problems clusters"]
    means: Centres
    covariances: Float[Tensor, "problems clusters d d"]

    def select(self, index: Tensor) -> Mixture:
        """Return the mixtures at the indices."""
        return Mixture(*(part[index] for part in self))


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianMixture(Solver):
    """Solver of Gaussian mixtures by EM.

    EM begins at `start` (means), if there are any, with optional weights and covariances.
    Otherwise it begins at the clusters of k-means, whose random start is drawn from `seed`.
    """

    measure: ClassVar[str] = "change of the mean log-likelihood in the last step"
    labelled: ClassVar[bool] = False
    weighted: ClassVar[bool] = False
    default_tolerance: ClassVar[float] = 1e-6

    clusters: int = 1
    covariance: Covariance = "full"
    start: Any = None
    start_weights: Any = None
    start_covariances: Any = None
    restarts: int = 1
    regularisation: float = 1e-6
    seed: int = 0
    max_steps: int = 1000

    def prepare(self, sizes: Sequence[int], d: int) -> GaussianMixture:
        check_count("clusters", self.clusters, 1)
        check_positive("regularisation", self.regularisation)
        if self.covariance not in ("full", "tied", "diag", "spherical"):
            raise InputError(
                f"covariance must be full, tied, diag or spherical, got {self.covariance!r}"
            )
        if min(sizes) < max(2, self.clusters):
            raise InputError(
                f"every problem must have at least {max(2, self.clusters)} rows, got one with "
                f"{min(sizes)}"
            )
        return self

    def count_numbers(self, d: int) -> tuple[int, int]:
        return 4 * self.clusters * (d + 1), 4 * self.clusters * d * d

    def solve(self, samples: Samples, tolerance: float) -> Answers:
        check_underflow(samples)
        mixture = self._first_mixture(samples)
        total = samples.totals
        bounds = torch.full_like(total, -torch.inf)
        changes = torch.full_like(total, torch.inf)
        steps = torch.zeros(len(total), dtype=torch.int64, device=total.device)
        active, part, state = torch.arange(len(total), device=total.device), samples, mixture
        for _ in range(self.max_steps):
            bound, shares = _expect(part, state)
            state = self._maximise(part, shares)
            changes[active] = (bound - bounds[active]).abs()
            bounds[active], steps[active] = bound, steps[active] + 1
            mixture = Mixture(
                *(
                    whole.index_copy(0, active, new)
                    for whole, new in zip(mixture, state, strict=True)
                )
            )
            unfinished = ~(changes[active] < tolerance)
            if not bool(unfinished.all()):
                active, state = active[unfinished], state.select(unfinished)
                if not len(active):
                    break
                part = samples.select(active)
        bound, shares = _expect(samples, mixture)
        return {
            "weights": mixture.weights,
            "means": mixture.means,
            "covariances": self._shape_covariances(mixture.covariances),
            "responsibilities": shares,
            "log_likelihood": bound,
            "optimality": changes,
            "converged": changes < tolerance,
            "steps": steps,
        }

    def _first_mixture(self, samples: Samples) -> Mixture:
        """Return the mixtures at which EM begins, from the initial values or from k-means."""
        if self.start is None:
            solution = KMeans(clusters=self.clusters, restarts=self.restarts, seed=self.seed).solve(
                samples, 0.0
            )
            labels = solution["labels"]
        else:
            labels = assign(samples.x, read_start(self.start, samples, self.clusters))
        shares = torch.nn.functional.one_hot(labels, self.clusters).to(samples.x)
        mixture = self._maximise(samples, shares)
        if self.start is not None:
            mixture = mixture._replace(means=read_start(self.start, samples, self.clusters).clone())
        k, d = mixture.means.shape[1:]
        if self.start_weights is not None:
            values = as_tensor(self.start_weights, "start_weights").double().to(samples.x)
            check_start("start_weights", values)
            if bool((values < 0).any()) or bool(((values.sum(dim=-1) - 1).abs() > 1e-6).any()):
                raise InputError("start_weights must be at least 0 and sum to 1")
            mixture = mixture._replace(weights=_spread(values, samples, (k,)).clone())
        if self.start_covariances is not None:
            values = as_tensor(self.start_covariances, "start_covariances").double().to(samples.x)
            check_start("start_covariances", values)
            mixture = mixture._replace(covariances=_spread(values, samples, (k, d, d)).clone())
        return mixture

    def _maximise(self, samples: Samples, shares: Shares) -> Mixture:
        """Run the M step: return the mixtures of largest likelihood for responsibilities γ."""
        shares = shares * samples.weights.unsqueeze(-1)
        counts = shares.sum(dim=1) + 10 * torch.finfo(shares.dtype).eps
        means = shares.mT @ samples.x / counts.unsqueeze(-1)
        differences = samples.x.unsqueeze(1) - means.unsqueeze(2)  # problems, K, n, d
        scatter = (shares.mT.unsqueeze(-1) * differences).mT @ differences
        d = means.shape[-1]
        identity = torch.eye(d, dtype=means.dtype, device=means.device)
        if self.covariance == "tied":
            scatter = scatter.sum(dim=1, keepdim=True) / counts.sum(dim=-1)[:, None, None, None]
            scatter = scatter.expand(-1, counts.shape[1], d, d)
        else:
            scatter = scatter / counts[..., None, None]
        if self.covariance in ("diag", "spherical"):
            diagonal = scatter.diagonal(dim1=-2, dim2=-1)
            if self.covariance == "spherical":
                diagonal = diagonal.mean(dim=-1, keepdim=True).expand(diagonal.shape)
            scatter = torch.diag_embed(diagonal)
        return Mixture(
            counts / counts.sum(dim=-1, keepdim=True),
            means,
            scatter + self.regularisation * identity,
        )

    def _shape_covariances(self, covariances: Tensor) -> Tensor:
        """Return covariances in the shape that scikit-learn uses for their type."""
        if self.covariance == "tied":
            return covariances[:, 0]
        diagonal = covariances.diagonal(dim1=-2, dim2=-1)
        return {"full": covariances, "diag": diagonal, "spherical": diagonal[..., 0]}[
            self.covariance
        ]


def _spread(values: Tensor, samples: Samples, shape: tuple[int, ...]) -> Tensor:
    """Return initial values for each problem of a batch.

    `values` has `shape` if all problems share them, and else one more dimension for the problems.
    """
    if tuple(values.shape) == shape:
        return values.expand(len(samples.x), *shape)
    if tuple(values.shape[1:]) != shape or int(samples.places.max()) >= len(values):
        raise InputError(
            f"a start must be {shape}, or one for each problem; got {tuple(values.shape)}"
        )
    return values[samples.places]


def _expect(samples: Samples, mixture: Mixture) -> tuple[Tensor, Shares]:
    """Return the mean log-likelihood of every problem, and the responsibilities γ of its rows."""
    d = samples.x.shape[-1]
    factor, failed = torch.linalg.cholesky_ex(mixture.covariances)
    differences = samples.x.unsqueeze(1) - mixture.means.unsqueeze(2)
    scaled = torch.linalg.solve_triangular(factor, differences.mT, upper=False)
    lengths = factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
    logs = -0.5 * (d * math.log(2 * math.pi) + scaled.square().sum(dim=-2)) - lengths.unsqueeze(-1)
    logs = logs.mT + mixture.weights.log().unsqueeze(1)
    # If a covariance is not positive definite, the problem is reported as not converged.
    logs = torch.where((failed == 0).all(dim=-1)[:, None, None], logs, torch.nan)
    norms = logs.logsumexp(dim=-1)
    return samples.average(norms), (logs - norms.unsqueeze(-1)).exp()
