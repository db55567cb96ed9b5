"""A transformer learns principal components: the leading eigenvectors of XᵀX from X.

Loss       directions: Σ_k min ‖v̂_k ∓ v_k‖², a direction has no sign; printed: ‖V̂ − V‖₂ with the
           sign of each v_k fixed, as a convex loss needs it: so that ⟨p_k, v_k⟩ ≥ 0 for the vectors
           p_k of P (Theorem 7), without them so that its sum of entries is not negative;
           eigenvalues: Σ_k (λ̂_k − λ_k)² of XᵀX/n
Auxiliary  P of the source: e_j on token j ≤ d, and the starting vector of component k on token k;
           or none of it, so that the weights themselves must break the tie between v and −v
Read-out   W̃₀ H W̃₁, with W̃₁ the mean over tokens, or free
Measures   cosine: the mean |cos| of the angles between v̂_k and v_k; subspace: the mean squared sine
           of the principal angles between both spans
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.constructions.base import Construction
from innerloop.constructions.pca import PCAConstruction
from innerloop.errors import InputError
from innerloop.models.encoder import Reading
from innerloop.parameters import parameter
from innerloop.problems.principal_components import PCAProblem, PrincipalComponents
from innerloop.recipes.points import PointsRecipe, least_over_signs

KNOTS = 128
"""Knots of a construction to start from: few enough to train, exact to 1e-3."""


class PCARecipe(PointsRecipe):
    """An encoder of points whose mean stream is read out as k directions."""

    source: ClassVar[str] = "Q. Liu 2025, section 2; He et al. 2024"
    small: ClassVar = {"d": 2, "n": 4, "components": 1, "width": 8, "hidden": 4, "batch": 4}
    answer: ClassVar[str] = "v"

    d: int = parameter(5, "features", least=1, most=64)
    n: int = parameter(20, "points", least=1, most=10_000)
    components: int = parameter(1, "eigenvectors wanted", least=1, most=16)
    gap: float = parameter(
        0.5, "ratio of each eigenvalue of Σ to the one before; 1: no gap", least=0.01, most=1
    )
    wanted: Literal["directions", "eigenvalues"] = parameter("directions", "what is read out")
    fixed: bool = parameter(False, "fix the signs, as the printed loss ‖·‖₂ needs them")
    auxiliary: bool = parameter(False, "give the auxiliary matrix P beside X")
    pooling: Literal["mean", "free"] = parameter("mean", "W̃₁ of the read-out")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.components > self.d:
            raise InputError(f"components must be at most d={self.d}, got {self.components}")
        if self.wanted == "eigenvalues" and (self.fixed or self.start != "random"):
            raise InputError("eigenvalues have no signs and no construction to start from")
        if self.auxiliary and self.start != "random":
            raise InputError(f"start={self.start} has vectors of its own: leave auxiliary out")
        if self.auxiliary and self.n < self.d:
            raise InputError(f"auxiliary needs n ≥ d={self.d}, a token for each e_j; got {self.n}")

    def check(self, problem: PCAProblem) -> None:
        super().check(problem)
        rank = int(torch.linalg.matrix_rank(problem.x.double()).min())
        if rank < self.components:
            raise InputError(
                f"X has rank {rank} in some prompt, which leaves {self.components} leading "
                f"eigenvectors undetermined: give more points, or points in more directions"
            )

    def build_distribution(self) -> PrincipalComponents:
        return PrincipalComponents(d=self.d, n=self.n, components=self.components, gap=self.gap)

    @property
    def registers(self) -> dict[str, Any]:
        extra = {"id": self.d, "v": self.d} if self.auxiliary else {}
        return {"x": self.d, "one": (), **extra}

    @property
    def reading(self) -> Reading:
        return "pooled"

    @property
    def outputs(self) -> int:
        return self.components * (self.d if self.wanted == "directions" else 1)

    @property
    def pooled_tokens(self) -> int | None:
        return self.n if self.pooling == "free" else None

    def fill_registers(self, problem: PCAProblem) -> Tensor:
        if not self.auxiliary:
            return self.layout.make_tokens(x=problem.x, one=1.0)
        start = torch.zeros_like(problem.x)
        start[..., : problem.components, :] = problem.start
        return self.layout.make_tokens(
            x=problem.x, one=1.0, id=torch.eye(problem.n, problem.d).to(problem.x), v=start
        )

    def build_construction(self) -> Construction:
        return PCAConstruction(
            d=self.d,
            n=self.n,
            components=self.components,
            steps=max(self.blocks, self.components),
            knots=KNOTS,
            least=1e-2,
            most=100.0,
        )

    def shape_answers(self, read: Tensor) -> Tensor:
        if self.wanted == "eigenvalues":
            return read
        return read.unflatten(-1, (self.components, self.d))

    def find_targets(self, problem: PCAProblem) -> Tensor:
        """The eigenvalues, or the eigenvectors, with the sign of the printed loss if it is used."""
        values, vectors = solve_eigenproblem(problem)
        if self.wanted == "eigenvalues":
            return values
        if not self.fixed:
            return vectors
        side = vectors * problem.start if self.auxiliary else vectors
        return vectors * torch.where(side.sum(dim=-1, keepdim=True) < 0, -1.0, 1.0).to(vectors)

    def compare(self, read: Tensor, targets: Tensor) -> Float[Tensor, " batch"]:
        """The loss of every instance."""
        guess = self.shape_answers(read)
        if self.wanted == "eigenvalues":
            return (guess - targets).square().sum(dim=-1)
        if self.fixed:
            return (guess - targets).flatten(1).norm(dim=-1)
        return least_over_signs(guess, targets)

    def measure(self, model: nn.Module, problem: PCAProblem) -> dict[str, float]:
        """Angles between what was found and the eigenvectors, or relative errors of eigenvalues."""
        guess = self.shape_answers(self.predict(model, problem))
        values, vectors = solve_eigenproblem(problem)
        if self.wanted == "eigenvalues":
            return {"relative": float(((guess - values).abs() / values.clamp_min(1e-12)).mean())}
        cosine = torch.nn.functional.cosine_similarity(guess, vectors, dim=-1).abs()
        return {"cosine": float(cosine.mean()), "subspace": float(measure_sines(guess, vectors))}


def solve_eigenproblem(
    problem: PCAProblem,
) -> tuple[Float[Tensor, "*batch k"], Float[Tensor, "*batch k d"]]:
    """The leading eigenvalues and eigenvectors of XᵀX/n, by torch's eigh in float64."""
    values, vectors = torch.linalg.eigh(problem.covariance.double())
    k = problem.components
    leading = vectors[..., -k:].flip(-1).mT, values[..., -k:].flip(-1)
    return leading[1].to(problem.x), leading[0].to(problem.x)


def measure_sines(
    guess: Float[Tensor, "*batch k d"], truth: Float[Tensor, "*batch k d"]
) -> Float[Tensor, ""]:
    """The mean squared sine of the principal angles between two spans."""
    basis = torch.linalg.qr(guess.double().mT)[0]
    cosines = torch.linalg.svdvals(truth.double() @ basis).clamp_max(1.0)
    return (1 - cosines.square()).mean()
