"""In-context linear regression: n examples (x, y) with y = ⟨w, x⟩ + noise, and queries x to label.

Rows x are N(0, Σ). Σ is the identity, a positive definite matrix, or has fixed eigenvalues and a
new random rotation for every instance. Weights w are N(0, I), N(0, Σ⁻¹) or set by the user.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.arrays import as_tensor
from innerloop.errors import InputError, OutOfRangeError
from innerloop.parameters import parameter
from innerloop.problems.base import Distribution, normal_sampler
from innerloop.problems.problem import Problem


@dataclass(frozen=True, eq=False)
class RegressionProblem(Problem):
    """A batch of instances: context examples, queries, and the true weights if they are known."""

    contents: ClassVar[str] = "example, feature and query"

    x: Float[Tensor, "*batch n d"]
    y: Float[Tensor, "*batch n"]
    x_query: Float[Tensor, "*batch queries d"]
    weights: Float[Tensor, "*batch d"] | None = None

    @classmethod
    def from_arrays(cls, x: Any, y: Any, x_query: Any, weights: Any = None) -> RegressionProblem:
        """Return a problem made from tensors, NumPy arrays or lists.

        A single query may omit its axis. Tensors keep their precision, except that half precision
        becomes float32. Everything else becomes float64.
        """
        x, y, x_query = as_tensor(x, "x"), as_tensor(y, "y"), as_tensor(x_query, "x_query")
        if x_query.ndim == x.ndim - 1 > 0:
            x_query = x_query.unsqueeze(-2)
        return cls(x, y, x_query, None if weights is None else as_tensor(weights, "weights"))

    @property
    def n(self) -> int:
        return self.x.shape[-2]

    @property
    def d(self) -> int:
        return self.x.shape[-1]

    @property
    def queries(self) -> int:
        return self.x_query.shape[-2]

    @property
    def targets(self) -> Float[Tensor, "*batch queries"]:
        """The noiseless labels of the queries."""
        if self.weights is None:
            raise InputError(
                "expected a problem with true weights, from which targets are computed, got one "
                "without: pass weights"
            )
        return (self.x_query @ self.weights.unsqueeze(-1)).squeeze(-1)

    def to_encoder_format(self) -> dict[str, Tensor]:
        """Return the registers of Q. Liu's encoder prompt: x and y in one token, the queries last.

        They are `x`, `y` (0 on queries), `one` (always 1), and `t` (1 on context tokens, 0 on
        queries).
        """
        t = torch.cat([self.y.new_ones(self.n), self.y.new_zeros(self.queries)])
        return {
            "x": torch.cat([self.x, self.x_query], dim=-2),
            "y": torch.cat([self.y, torch.zeros_like(self.x_query[..., 0])], dim=-1),
            "one": torch.ones_like(t),
            "t": t,
        }

    def to_decoder_format(self) -> dict[str, Tensor]:
        """Return the registers of Q. Liu's decoder prompt: alternating x and y, the query last.

        They are `x` (0 on even tokens), `y` (0 on odd tokens), `pos` = ⌈i/2⌉, `one` (always 1) and
        `par` = (i+1) mod 2, for token i = 1, 2, …
        """
        x, y, i = self._alternate_tokens(torch.zeros_like(self.x))
        return {
            "x": x,
            "y": y,
            "pos": ((i + 1) // 2).to(x.dtype),
            "one": torch.ones_like(i, dtype=x.dtype),
            "par": ((i + 1) % 2).to(x.dtype),
        }

    def to_paired_decoder_format(self) -> dict[str, Tensor]:
        """Return the registers of R. Liu et al.'s decoder prompt (4.2): even tokens hold x and y.

        They are `x`, `y` (0 on odd tokens), and `odd` (1 on odd tokens, 0 on even tokens).
        """
        x, y, i = self._alternate_tokens(self.x)
        return {"x": x, "y": y, "odd": (i % 2).to(x.dtype)}

    def _alternate_tokens(self, even: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return x, y and the number i of each of the tokens x₁, (even₁, y₁), x₂, …, query."""
        if self.queries != 1:
            raise OutOfRangeError(
                f"expected one query in the decoder format, got {self.queries}: put the others "
                "into the batch"
            )
        pairs = torch.stack([self.x, even], dim=-2).flatten(-3, -2)
        labels = torch.stack([torch.zeros_like(self.y), self.y], dim=-1).flatten(-2)
        x = torch.cat([pairs, self.x_query], dim=-2)
        y = torch.cat([labels, torch.zeros_like(self.x_query[..., 0])], dim=-1)
        return x, y, torch.arange(1, 2 * self.n + 2, device=x.device)


class LinearRegression(Distribution):
    """A distribution over `RegressionProblem`s."""

    source: ClassVar[str] = "Ahn et al. 2023, section 3; Gatmiry et al. 2024, section 3.2"
    problem_type: ClassVar[type[Any]] = RegressionProblem
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"d": 3, "n": 7},
        {"d": 4, "n": 4, "noise": 0.5},
        {"d": 5, "n": 3, "weights": "inverse", "kappa": 10.0},
        {"d": 2, "n": 1},
        {"d": 1, "n": 5},
        {"d": 3, "n": 40, "kappa": 100.0},
        {"d": 3, "n": 6, "queries": 4, "noise": 0.1},
        {"d": 2, "n": 5, "covariance": torch.tensor([[2.0, 0.6], [0.6, 0.5]])},
    )

    d: int = parameter(5, "features", least=1, most=4096)
    n: int = parameter(20, "context examples", least=1, most=10_000_000)
    queries: int = parameter(1, "queries per prompt", least=1, most=1_000_000)
    noise: float = parameter(0.0, "standard deviation of the context labels' noise", least=0)
    covariance: Tensor | None = parameter(None, "Σ of the rows, d×d; none means the identity")
    kappa: float = parameter(1.0, "condition number: geometric spectrum 1 … 1/κ, rotated", least=1)
    spectrum: Tensor | None = parameter(None, "eigenvalues of Σ, d of them, randomly rotated")
    weights: Tensor | Literal["identity", "inverse"] = parameter(
        "identity", "w ~ N(0, I), w ~ N(0, Σ⁻¹), or d weights"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        spectra = [self.covariance is not None, self.kappa != 1.0, self.spectrum is not None]
        if sum(spectra) > 1:
            raise InputError(
                "expected at most one of covariance, kappa and spectrum, got more: set only one"
            )
        if self.kappa != 1.0 and self.d == 1:
            raise InputError(f"kappa must be 1 for d=1, got {self.kappa}")
        if self.covariance is not None:
            _check_covariance(self.covariance, self.d)
        if self.spectrum is not None and (
            self.spectrum.shape != (self.d,) or not bool((self.spectrum > 0).all())
        ):
            raise InputError(
                f"spectrum must be {self.d} positive numbers, got {self.spectrum.tolist()}"
            )
        if isinstance(self.weights, Tensor) and self.weights.shape != (self.d,):
            raise InputError(
                f"weights must be {self.d} numbers, got shape {tuple(self.weights.shape)}"
            )

    def sample(
        self,
        *batch: int,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> RegressionProblem:
        """Draw a batch of instances, in float64 so that every precision sees the same data."""
        normal = normal_sampler(batch, generator)
        root, inverse = self._covariance_roots(normal)
        rows = normal(self.n + self.queries, self.d) @ root.mT
        if isinstance(self.weights, Tensor):
            weights = self.weights.expand(*batch, self.d)
        elif self.weights == "inverse":
            weights = (inverse.mT @ normal(self.d, 1)).squeeze(-1)
        else:
            weights = normal(self.d)
        x, x_query = rows[..., : self.n, :], rows[..., self.n :, :]
        y = (x @ weights.unsqueeze(-1)).squeeze(-1)
        if self.noise:
            y = y + self.noise * normal(self.n)
        return RegressionProblem(x, y, x_query, weights).to(dtype)

    def _covariance_roots(self, normal: Any) -> tuple[Tensor, Tensor]:
        """Return R with Σ = R Rᵀ, and R⁻¹; one per instance if Σ is random."""
        if self.covariance is not None:
            root = torch.linalg.cholesky(self.covariance)
            return root, torch.linalg.inv(root)
        spectrum = self.spectrum
        if self.kappa != 1.0:
            spectrum = self.kappa ** -torch.linspace(0, 1, self.d, dtype=torch.float64)
        if spectrum is None:
            identity = torch.eye(self.d, dtype=torch.float64)
            return identity, identity
        q, r = torch.linalg.qr(normal(self.d, self.d))
        # Q is uniform (Haar) only if the signs of R's diagonal are moved into it.
        rotation = q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
        return rotation * spectrum.sqrt(), (rotation / spectrum.sqrt()).mT


def _check_covariance(covariance: Tensor, d: int) -> None:
    if covariance.shape != (d, d):
        raise InputError(f"covariance must be {d}×{d}, got shape {tuple(covariance.shape)}")
    if not torch.allclose(covariance, covariance.mT):
        raise InputError("covariance must be symmetric")
    least = float(torch.linalg.eigvalsh(covariance).min())
    if not least > 0 or bool(torch.linalg.cholesky_ex(covariance).info):
        raise InputError(
            f"covariance must be positive definite, got a least eigenvalue of {least:.3g}"
        )
