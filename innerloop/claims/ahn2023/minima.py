"""Minima of the loss of one layer: searches from random starts, and whether they are unique.

Behind Theorem 1: what its introduction and its proof say about uniqueness, of f(b, A) and of each
component f_j(X) = E[(⟨C, X⟩ + w*_j)²].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.ahn2023.hard_instances import build_covariances
from innerloop.claims.cases import Case, format_entry
from innerloop.claims.evidence import Erratum, Value
from innerloop.claims.prompts import draw_covariance, draw_normal
from innerloop.claims.searching import search_minimum
from innerloop.claims.trials import Equality, as_erratum
from innerloop.theory.single_layer import SingleLayerLoss

Weights = tuple[Tensor, Tensor]
GLOBAL = 1e-9
"""An end with less than this excess, relative to the least loss, is a global minimum."""


class End(NamedTuple):
    """End of a search: the setting, the weights, and the relative excess over the least loss."""

    S: Tensor
    n: int
    b: Tensor
    A: Tensor
    excess: float
    evaluations: int = 0

    @property
    def case(self) -> Case:
        return Case(d=len(self.S), n=self.n, Σ=self.S, b=self.b, A=self.A)


class Component(NamedTuple):
    """The least-norm minimiser of f_j, and how many directions leave f_j as it is."""

    case: Case
    stated: Tensor
    least: Tensor
    free: int


def product(b: Tensor, A: Tensor) -> Tensor:
    """The product b ⊗ A, invariant under (γb, A/γ); the prediction depends on nothing else."""
    return torch.einsum("i,jk->ijk", b, A)


def search_minima(generator: torch.Generator, starts: int) -> list[End]:
    """Search minima over all of b and A by L-BFGS, from random starts and on hard instances.

    On those first at the mirror image of (8), the second family of one feature.
    """
    ends = []
    for _, S in build_covariances(definite=True):
        layer = SingleLayerLoss(S, 1)
        (b, A), least = layer.optimum(), float(layer.loss(*layer.optimum()))
        mirrored = b.flip(0), A.flip(0)
        ends.append(End(S, 1, *mirrored, float(layer.loss(*mirrored)) / least - 1))
        for one, other in ((b, A), mirrored):
            start = 1.5 * torch.cat([one, other.flatten()])
            ends.append(_search_minimum(S, 1, start[None], 200))
    for d, n in ((1, 1), (1, 1), (1, 6), (2, 3), (2, 20), (3, 4)):
        for _ in range(starts):
            S = draw_covariance(generator, d, 3.0)
            ends.append(_search_minimum(S, n, draw_normal(generator, 1, (d + 1) ** 2)))
    return ends


def _search_minimum(S: Tensor, n: int, start: Tensor, iterations: int = 2000) -> End:
    layer = SingleLayerLoss(S, n)
    least = float(layer.loss(*layer.optimum()))

    def excess(point: Tensor) -> Tensor:
        # The factor makes the search go on to the last digits.
        return 1e6 * (layer.loss(*_split_point(point, layer.d)) / least - 1)

    point, value, evaluations = search_minimum(excess, start, iterations=iterations)
    return End(S, n, *_split_point(point, layer.d), value / 1e6, evaluations)


def _split_point(point: Tensor, d: int) -> Weights:
    return point[: d + 1], point[d + 1 :].reshape(d + 1, d)


def check_uniqueness(ends: list[End], stated: Callable[[Tensor, int], Weights]) -> Erratum:
    """Check whether every global minimum found is the stated one, up to (γb, A/γ)."""
    printed = Equality("the global optimum $(b, A)$ is unique up to $(γb, A/γ)$", tolerance=1e-4)
    corrected = Equality(
        "for $Σ ≻ 0$ and $d ≥ 2$ the global optimum $(b, A)$ is unique up to $(γb, A/γ)$; "
        "for $d = 1$ there is one further family, $b = γe_1$, "
        "$A = −e_2/(γ((n+1)/n + 1/n)λ)$",
        tolerance=1e-4,
    )
    for end in ends:
        if end.excess > GLOBAL:
            continue
        b, A = stated(end.S, end.n)
        found, known = product(end.b, end.A), product(b, A)
        note = f"has the loss of $b = {format_entry(b)}$, $A = {format_entry(A)}$"
        if len(end.S) == 1:
            note += "; other weights, the same predictions"
        printed.add(found, known, end.case.extend(note=note))
        if len(end.S) == 1:
            swapped = product(b.flip(0), A.flip(0))
            known = min(known, swapped, key=lambda form: float((form - found).abs().max()))
        corrected.add(found / known.norm(), known / known.norm(), end.case)
    return as_erratum("Section 1, first contribution", printed, corrected)


def measure_components(
    generator: torch.Generator, stated: Callable[[Tensor, int], Weights]
) -> list[Component]:
    """Solve the normal equations of each f_j, Λ ≻ 0 diagonal."""
    found, spectra = [], []
    for d, n in ((1, 1), (1, 5), (2, 1), (2, 4), (3, 2), (4, 10)):
        spectrum = 0.2 + torch.rand(d, generator=generator, dtype=torch.float64)
        spectra.append((spectrum if d > 1 else torch.ones(1, dtype=torch.float64), n))
    spectra += [(torch.linalg.eigvalsh(S), 1) for _, S in build_covariances(definite=True)]
    for spectrum, n in spectra:
        d = len(spectrum)
        layer = SingleLayerLoss(torch.diag(spectrum), n)
        units = torch.eye((d + 1) ** 2, dtype=torch.float64).reshape(-1, d + 1, d + 1)
        operator = torch.stack([layer.second_moment(unit).flatten() for unit in units], dim=1)
        free = (d + 1) ** 2 - int(torch.linalg.matrix_rank(operator))
        b, A = stated(layer.covariance, n)
        for j in range(d):
            side = -layer.linear_moment(torch.eye(d, dtype=torch.float64)[j]).flatten()
            least = (torch.linalg.pinv(operator) @ side).reshape(d + 1, d + 1)
            X = torch.outer(b, A[:, j])
            found.append(Component(Case(d=d, n=n, j=j + 1, Λ=spectrum, X=X), X, least, free))
    return found


def check_component_minimisers(components: list[Component]) -> Erratum:
    """Check the minimisers of each f_j: the least-norm one is the symmetric part of X_j."""
    printed = Equality("$X_j$ is the unique global minimum of $f_j$", tolerance=1e-8)
    exactly = "for $Λ ≻ 0$, $f_j$ is least exactly on $X_j$ plus antisymmetric matrices"
    corrected = Equality(f"{exactly}, $C$ being symmetric", tolerance=1e-8)
    for case, X, least, free in components:
        d = case["d"]
        printed.add(least, X, case.extend(note="$Xᵀ$ and $(X + Xᵀ)/2$ have the same $f_j$"))
        # As many solutions as antisymmetric matrices, no more.
        left = torch.cat([least.flatten(), torch.tensor([float(free)])])
        right = torch.cat([((X + X.mT) / 2).flatten(), torch.tensor([d * (d + 1) / 2])])
        corrected.add(left, right, case)
    where = "proof of Theorem 1, after Lemma 6 (A.2, step 3) and after Lemma 7"
    return as_erratum(where, printed, corrected)


def summarise_searches(ends: list[End]) -> dict[str, Value]:
    """Summarise the other ends: those above the least loss, and whether they are minima."""
    second = [
        end
        for end in ends
        if len(end.S) == 1 and end.excess < GLOBAL and abs(end.b[0]) > abs(end.b[1])
    ]
    return {
        "searches": sum(end.evaluations > 0 for end in ends),
        "minima of the second family of d = 1": len(second),
        "searches that ended above the least loss": sum(end.excess > 1e-3 for end in ends),
        **_describe_second_minimum(),
    }


def _describe_second_minimum() -> dict[str, Value]:
    """A minimum that is not global, at Σ = diag(2, 1) and n = 2.

    The query's first coordinate is weighted by the context's labels, the second by nothing.
    """
    layer = SingleLayerLoss(torch.diag(torch.tensor([2.0, 1.0], dtype=torch.float64)), 2)
    b, A = layer.optimum()
    low = A[0, 0]
    point = torch.zeros(9, dtype=torch.float64)
    # b = √|low| e₁ and the last row of A = −√|low| e₁ᵀ: of one size, so that curvatures compare.
    point[0], point[7] = (-low).sqrt(), -(-low).sqrt()

    def loss(point: Tensor) -> Tensor:
        return layer.loss(*_split_point(point, layer.d))

    slope = torch.autograd.functional.jacobian(loss, point)
    values = torch.linalg.eigvalsh(torch.as_tensor(torch.autograd.functional.hessian(loss, point)))
    return {
        "Σ = diag(2, 1), n = 2: least loss": float(layer.loss(b, A)),
        "loss at b = (1, 0, 0), A = [0; 0; (−1/4.5, 0)]": float(loss(point)),
        "the gradient there": float(torch.as_tensor(slope).norm()),
        "the least curvature there (along γ)": float(values[0]),
        "the next curvature there": float(values[1]),
    }
