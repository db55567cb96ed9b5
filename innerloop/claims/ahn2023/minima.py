"""Minima of the loss of one layer: searches from random starts, and whether they are unique.

Behind Theorem 1: its statement that the optimum is unique, of f(b, A) and of each component
f_j(X) = E[(⟨C, X⟩ + w*_j)²] in the proof.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.evidence import Part, Value
from innerloop.claims.prompts import draw_covariance, draw_normal
from innerloop.claims.searching import search_minimum
from innerloop.claims.trials import Equality
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
    evaluations: int

    @property
    def d(self) -> int:
        return len(self.S)


def product(b: Tensor, A: Tensor) -> Tensor:
    """The product b ⊗ A, invariant under (γb, A/γ); the prediction depends on nothing else."""
    return torch.einsum("i,jk->ijk", b, A)


def search_minima(generator: torch.Generator, starts: int) -> list[End]:
    """Search minima over all of b and A by L-BFGS; for d = 1 first from starts of both families."""
    ends = []
    for d, n in ((1, 1), (1, 1), (1, 6), (2, 3), (2, 20), (3, 4)):
        for _ in range(starts):
            S = draw_covariance(generator, d, 3.0)
            layer = SingleLayerLoss(S, n)
            least = float(layer.loss(*layer.optimum()))

            def excess(
                point: Tensor, layer: SingleLayerLoss = layer, d: int = d, least: float = least
            ) -> Tensor:
                # The factor makes the search go on to the last digits.
                return 1e6 * (layer.loss(*_weights(point, d)) / least - 1)

            start = draw_normal(generator, 1, (d + 1) ** 2)
            point, value, evaluations = search_minimum(excess, start, iterations=2000)
            ends.append(End(S, n, *_weights(point, d), value / 1e6, evaluations))
    return ends


def _weights(point: Tensor, d: int) -> Weights:
    return point[: d + 1], point[d + 1 :].reshape(d + 1, d)


def describe_effort(ends: list[End]) -> str:
    far = max(abs(end.excess) for end in ends if end.excess < GLOBAL)
    total = sum(end.evaluations for end in ends)
    return f"{total} evaluations, {far:.1g} from the least loss where the least is reached"


def check_uniqueness(
    ends: list[End],
    stated: Callable[[Tensor, int], Weights],
    alike: Callable[[Tensor, Tensor], Tensor],
) -> Part:
    """Check whether every global minimum found is the stated one."""
    printed = Equality("the global optimum (b, A) is unique", tolerance=1e-4)
    corrected = Equality(
        "for Σ ≻ 0 and d ≥ 2, b ⊗ A is unique, so (b, A) up to (γb, A/γ); for d = 1 also with the "
        "two coordinates swapped",
        tolerance=1e-4,
    )
    for end in ends:
        if end.excess > GLOBAL:
            continue
        b, A = stated(end.S, end.n)
        told = f"b = {_format_vector(end.b)}, A = {_format_vector(end.A)} "
        told += f"instead of {_format_vector(b)}, {_format_vector(A)}"
        about = f"d = {end.d}, n = {end.n}, tr Σ = {float(end.S.trace()):.3g}, {told}, same loss"
        size = (end.d, end.n)
        printed.add(
            torch.cat([end.b, end.A.flatten()]), torch.cat([b, A.flatten()]), size=size, about=about
        )
        left, right = alike(end.b, end.A), alike(b, A)
        if end.d == 1:
            swapped = alike(b.flip(0), A.flip(0))
            right = min(right, swapped, key=lambda form: float((form - left).abs().max()))
        corrected.add(left, right, size=size, about=f"d = {end.d}, n = {end.n}")
    return Part(printed=printed.check(), corrected=corrected.check(), matters="result")


def _format_vector(values: Tensor) -> str:
    return "(" + ", ".join(f"{value:.4g}" for value in values.flatten().tolist()) + ")"


def check_component_minimisers(
    generator: torch.Generator, stated: Callable[[Tensor, int], Weights]
) -> Part:
    """Check the minimisers of each f_j: the least-norm one of the normal equations, symmetrised."""
    printed = Equality("X_j is the unique global minimum of f_j (proof)", tolerance=1e-8)
    corrected = Equality(
        "f_j is least exactly on X_j plus antisymmetric matrices: (X_j + X_jᵀ)/2 is unique",
        tolerance=1e-8,
    )
    for d, n in ((1, 1), (1, 5), (2, 1), (2, 4), (3, 2), (4, 10)):
        spectrum = 0.2 + torch.rand(d, generator=generator, dtype=torch.float64)
        spectrum = spectrum if d > 1 else torch.ones(1, dtype=torch.float64)
        layer = SingleLayerLoss(torch.diag(spectrum), n)
        units = torch.eye((d + 1) ** 2, dtype=torch.float64).reshape(-1, d + 1, d + 1)
        operator = torch.stack([layer.second_moment(unit).flatten() for unit in units], dim=1)
        b, A = stated(layer.covariance, n)
        for j in range(d):
            side = -layer.linear_moment(torch.eye(d, dtype=torch.float64)[j]).flatten()
            least = (torch.linalg.pinv(operator) @ side).reshape(d + 1, d + 1)
            X = torch.outer(b, A[:, j])
            size, about = (
                (d, n, j),
                f"d = {d}, n = {n}, j = {j + 1}, Λ = {_format_vector(spectrum)}",
            )
            both = f"{about}, X_j = {_format_vector(X)} row by row, "
            both += f"X_jᵀ and {_format_vector(least)} do as well"
            printed.add(least, X, size=size, about=both)
            # As many solutions as antisymmetric matrices, no more.
            free = (d + 1) ** 2 - int(torch.linalg.matrix_rank(operator))
            left = torch.cat([least.flatten(), torch.tensor([float(free)])])
            right = torch.cat([((X + X.mT) / 2).flatten(), torch.tensor([d * (d + 1) / 2])])
            corrected.add(left, right, size=size, about=about)
    return Part(printed=printed.check(), corrected=corrected.check())


def summarise_searches(ends: list[End]) -> dict[str, Value]:
    """Summarise the other ends: those above the least loss, and whether they are minima."""
    higher = [end for end in ends if end.excess > 1e-3]
    second = [
        end for end in ends if end.d == 1 and end.excess < GLOBAL and abs(end.b[0]) > abs(end.b[1])
    ]
    numbers: dict[str, Value] = {
        "searches": len(ends),
        "searches at the second family of d = 1": len(second),
        "searches that ended above the least loss": len(higher),
    }
    return {**numbers, **_second_minimum()}


def _second_minimum() -> dict[str, Value]:
    """A minimum that is not global, at Σ = diag(2, 1) and n = 2.

    The query's first coordinate is weighted by the context's labels, the second by nothing.
    """
    layer = SingleLayerLoss(torch.diag(torch.tensor([2.0, 1.0], dtype=torch.float64)), 2)
    b, A = layer.optimum()
    low = A[0, 0]
    point = torch.zeros(9, dtype=torch.float64)
    # b = √|low| e₁ and the last row of A = −√|low| e₁ᵀ: of one size, so that curvatures compare.
    point[0], point[7] = (-low).sqrt(), -(-low).sqrt()
    loss = _loss_at(layer)
    slope = torch.autograd.functional.jacobian(loss, point)
    values = torch.linalg.eigvalsh(torch.as_tensor(torch.autograd.functional.hessian(loss, point)))
    return {
        "Σ = diag(2, 1), n = 2: least loss": float(layer.loss(b, A)),
        "loss at b = (1, 0, 0), A = [0; 0; (−1/4.5, 0)]": float(loss(point)),
        "the gradient there": float(torch.as_tensor(slope).norm()),
        "the least curvature there (along γ)": float(values[0]),
        "the next curvature there": float(values[1]),
    }


def _loss_at(layer: SingleLayerLoss) -> Callable[[Tensor], Tensor]:
    return lambda point: layer.loss(*_weights(point, layer.d))
