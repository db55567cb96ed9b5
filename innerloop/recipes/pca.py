"""A transformer learns principal components: the leading eigenvectors of XᵀX from X.

Loss       for directions: Σ_k min ‖v̂_k ∓ v_k‖², because a direction has no sign. As printed in the
           source: ‖V̂ − V‖₂ with a fixed sign of each v_k, which a convex loss needs. With P, the
           signs are such that ⟨p_k, v_k⟩ ≥ 0 for the vectors p_k of P (Theorem 7); without P, such
           that the sum of entries is not negative. For eigenvalues: Σ_k (λ̂_k − λ_k)² of XᵀX/n
Auxiliary  the matrix P of the source: e_j on token j ≤ d, and the starting vector of component k on
           token k. Without P, the weights must break the tie between v and −v
Read-out   W̃₀ H W̃₁, where W̃₁ is the mean over tokens or learned
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
"""Number of knots of the construction whose weights are the initial weights.

They are few enough to train, and the construction is exact to 1e-3.
"""


class PCARecipe(PointsRecipe):
    """An encoder of points whose mean stream is read out as k directions."""

    source: ClassVar[str] = "Q. Liu 2025, section 2; He et al. 2024"
    small: ClassVar = {"d": 2, "n": 4, "components": 1, "width": 8, "hidden": 4, "batch": 4}
    answer: ClassVar[str] = "v"

    d: int = parameter(5, "features", least=1, most=64)
    n: int = parameter(20, "points", least=1, most=10_000)
    components: int = parameter(1, "number of eigenvectors", least=1, most=16)
    gap: float = parameter(
        0.5, "ratio of each eigenvalue of Σ to the one before; 1: no gap", least=0.01, most=1
    )
    wanted: Literal["directions", "eigenvalues"] = parameter(
        "directions", "targets of the read-out"
    )
    fixed: bool = parameter(False, "fix the signs, as the source's loss ‖·‖₂ needs it")
    auxiliary: bool = parameter(False, "add the auxiliary matrix P to prompts")
    pooling: Literal["mean", "free"] = parameter("mean", "W̃₁ of the read-out")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.components > self.d:
            raise InputError(f"components must be at most d={self.d}, got {self.components}")
        if self.wanted == "eigenvalues" and (self.fixed or self.start != "random"):
            raise InputError(
                "eigenvalues have neither signs nor a construction: leave fixed and start out"
            )
        if self.auxiliary and self.start != "random":
            raise InputError(
                f"start={self.start} already adds starting vectors: leave auxiliary out"
            )
        if self.auxiliary and self.n < self.d:
            raise InputError(
                f"auxiliary needs n ≥ d={self.d}, one token for each e_j, got {self.n}"
            )

    def check(self, problem: PCAProblem) -> None:
        super().check(problem)
        rank = int(torch.linalg.matrix_rank(problem.x.double()).min())
        if rank < self.components:
            raise InputError(
                f"X has rank {rank} in some prompt, which leaves {self.components} leading "
                f"eigenvectors undetermined: use more points, or points in more directions"
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
        """Return the eigenvalues, or the eigenvectors with fixed signs for the printed loss."""
        values, vectors = solve_eigenproblem(problem)
        if self.wanted == "eigenvalues":
            return values
        if not self.fixed:
            return vectors
        side = vectors * problem.start if self.auxiliary else vectors
        return vectors * torch.where(side.sum(dim=-1, keepdim=True) < 0, -1.0, 1.0).to(vectors)

    def compare(self, read: Tensor, targets: Tensor) -> Float[Tensor, " batch"]:
        """Compute the loss of every instance."""
        guess = self.shape_answers(read)
        if self.wanted == "eigenvalues":
            return (guess - targets).square().sum(dim=-1)
        if self.fixed:
            return (guess - targets).flatten(1).norm(dim=-1)
        return least_over_signs(guess, targets)

    def measure(self, model: nn.Module, problem: PCAProblem) -> dict[str, float]:
        """Return angles between predicted and true eigenvectors, or errors of eigenvalues."""
        guess = self.shape_answers(self.predict(model, problem))
        values, vectors = solve_eigenproblem(problem)
        if self.wanted == "eigenvalues":
            return {"relative": float(((guess - values).abs() / values.clamp_min(1e-12)).mean())}
        cosine = torch.nn.functional.cosine_similarity(guess, vectors, dim=-1).abs()
        return {"cosine": float(cosine.mean()), "subspace": float(measure_sines(guess, vectors))}


def solve_eigenproblem(
    problem: PCAProblem,
) -> tuple[Float[Tensor, "*batch k"], Float[Tensor, "*batch k d"]]:
    """Compute the leading eigenvalues and eigenvectors of XᵀX/n by torch's eigh in float64."""
    values, vectors = torch.linalg.eigh(problem.covariance.double())
    k = problem.components
    leading = vectors[..., -k:].flip(-1).mT, values[..., -k:].flip(-1)
    return leading[1].to(problem.x), leading[0].to(problem.x)


def measure_sines(
    guess: Float[Tensor, "*batch k d"], truth: Float[Tensor, "*batch k d"]
) -> Float[Tensor, ""]:
    """Compute the mean squared sine of the principal angles between two spans."""
    basis = torch.linalg.qr(guess.double().mT)[0]
    cosines = torch.linalg.svdvals(truth.double() @ basis).clamp_max(1.0)
    return (1 - cosines.square()).mean()
