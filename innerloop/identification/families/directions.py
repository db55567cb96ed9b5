"""Principal components: directions up to sign, subspaces by their principal angles.

A direction v is compared as v vᵀ/‖v‖², which has no sign: ‖vvᵀ − uuᵀ‖² = 2 sin² of the angle. Where
two of the eigenvalues that are asked for agree, or the last of them with the next, eigenvectors are
not determined: then the subspace is compared, by its projection, ‖P − Q‖² = 2 Σ sin² of the
principal angles, and the truth is not known.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.identification.families.base import Answers, Family
from innerloop.problems.principal_components import PCAProblem

MIN_GAP = 1e-6
"""Eigenvalues that differ by less than this share of the largest are equal."""
MOST = 0.5


class Directions(Family):
    """Projections on the directions, or on their span where the spectra are degenerate."""

    name: ClassVar[str] = "directions"
    rank: ClassVar[int] = 2

    def flatten(self, problem: PCAProblem, answers: Tensor) -> Answers:
        if is_degenerate(problem):
            basis = torch.linalg.qr(answers.mT).Q
            return (basis @ basis.mT).flatten(-2)
        units = answers / answers.norm(dim=-1, keepdim=True).clamp_min(1e-300)
        return (units.unsqueeze(-1) * units.unsqueeze(-2)).flatten(-3)

    def find_targets(self, problem: PCAProblem) -> Float[Tensor, "batch outputs"] | None:
        if is_degenerate(problem):
            return None
        vectors = torch.linalg.eigh(problem.covariance).eigenvectors.flip(-1)
        return self.flatten(problem, vectors[..., : problem.components].mT)

    def note(self, problem: PCAProblem) -> str | None:
        if not is_degenerate(problem):
            return None
        return (
            "eigenvalues coincide: directions inside an eigenspace cannot be told apart, and only "
            "the subspace is compared"
        )


def is_degenerate(problem: PCAProblem) -> bool:
    """Return whether the required eigenvectors are not unique, on most prompts."""
    values = torch.linalg.eigvalsh(problem.covariance.detach()).flip(-1)
    leading = values[..., : problem.components + 1]
    gaps = leading[..., :-1] - leading[..., 1:]
    return float((gaps <= MIN_GAP * values[..., :1]).any(dim=-1).double().mean()) > MOST


def principal_angles(
    first: Float[Tensor, "*batch components d"], second: Float[Tensor, "*batch components d"]
) -> Float[Tensor, "*batch components"]:
    """Return the angles between two subspaces, smallest first."""
    bases = [torch.linalg.qr(each.mT).Q for each in (first, second)]
    return torch.linalg.svdvals(bases[0].mT @ bases[1]).clamp(-1, 1).acos()


def fits_directions(problem: PCAProblem, shape: Any) -> bool:
    """Return whether an answer of this shape is a direction for each starting vector."""
    return tuple(shape) == (problem.components, problem.d)
