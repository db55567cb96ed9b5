"""The best point of a small family of weights, and the slope and curvature of the loss around it.

Behind Theorems 4 and 5: weights A_i = a_i K and B_i = b_i J with given K and J, the numbers a and b
found on the exact loss; then the loss for all matrices A_i, B_i near that point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product

import torch
from torch import Tensor

from innerloop.claims.evidence import Check, Value
from innerloop.claims.prompts import draw_covariance, draw_normal
from innerloop.claims.searching import search_minimum
from innerloop.claims.trials import Equality, Inequality
from innerloop.theory.layers import LayeredLoss, restricted_loss

Family = Callable[[Tensor], Tensor]
"""Map Σ to the matrix of which all A_i, or all B_i, are multiples."""
Case = tuple[int, int, int]
"""d, n and the number of layers."""


def inverse_family(S: Tensor) -> Tensor:
    return torch.linalg.inv(S)


def identity_family(S: Tensor) -> Tensor:
    return torch.eye(len(S), dtype=S.dtype)


@dataclass(frozen=True, eq=False)
class Point:
    """A member of the family of weights, for one law of prompts."""

    law: LayeredLoss
    scales: Tensor
    """The numbers a_i, then (one fewer) b_i where x moves."""
    weights: Tensor
    """All entries of the A_i, then of those B_i that affect the loss."""

    def loss(self, weights: Tensor) -> Tensor:
        d, layers = len(self.law.covariance), self.law.layers
        matrices = weights.reshape(-1, d, d)
        return self.law.loss(matrices[:layers], matrices[layers:] if self.law.moving else None)

    @cached_property
    def slope(self) -> Tensor:
        """The gradient of the loss, one matrix for each A_i and B_i."""
        at = self.weights.clone().requires_grad_()
        (slope,) = torch.autograd.grad(self.loss(at), at)
        return slope.reshape(-1, *self.law.covariance.shape)

    def directional_derivative(self, direction: Tensor) -> float:
        """Derivative of the loss along the given matrices, d/dt f at t = 0."""
        return float((self.slope * direction).sum())

    @property
    def size(self) -> tuple[int, int, int]:
        return (self.law.layers, len(self.law.covariance), self.law.n)

    @property
    def description(self) -> str:
        layers, d, n = self.size
        return f"{layers} layer{'s' if layers > 1 else ''}, d = {d}, n = {n}"


def family_point(law: LayeredLoss, scales: Tensor, first: Family, second: Family) -> Point:
    """Build the point A_i = a_i K, B_i = b_i J."""
    S, layers = law.covariance, law.layers
    bases = [first(S)] * layers + [second(S)] * (len(scales) - layers)
    return Point(law, scales, (scales[:, None, None] * torch.stack(bases)).flatten())


def draw_point(
    generator: torch.Generator, law: LayeredLoss, first: Family, second: Family
) -> Point:
    count = 2 * law.layers - 1 if law.moving else law.layers
    return family_point(
        law, draw_normal(generator, count) / (4 if law.moving else 2), first, second
    )


def _starts(layers: int, moving: bool) -> Tensor:
    """Starts of the search: a_i = −2^i/2 alone; with B_i, a_i = −4^i/2 and each b_i 0.3 or 0.9."""
    a = [-0.5 * (4 if moving else 2) ** i for i in range(layers)]
    others = product((0.3, 0.9), repeat=layers - 1 if moving else 0)
    return torch.tensor([[*a, *b] for b in others], dtype=torch.float64)


def minimise_in_family(law: LayeredLoss, first: Family, second: Family) -> Point:
    """Minimise the exact loss inside the family: L-BFGS, then Newton's method to full precision."""

    def within(scales: Tensor) -> Tensor:
        point = family_point(law, scales, first, second)
        return point.loss(point.weights)

    scales, _, _ = search_minimum(within, _starts(law.layers, law.moving), iterations=300)
    for _ in range(8):
        slope = torch.as_tensor(torch.autograd.functional.jacobian(within, scales))
        curvature = torch.as_tensor(torch.autograd.functional.hessian(within, scales))
        scales = scales - torch.linalg.solve(curvature, slope)
    return family_point(law, scales, first, second)


@cache
def least_family_loss(d: int, n: int, layers: int, moving: bool) -> tuple[Tensor, float]:
    """The scales a and b of A_i = a_i Σ⁻¹, B_i = b_i I with the least loss, and that loss over d.

    The lowest of the minima that L-BFGS finds; it is the same for every Σ.
    """

    def loss(t: Tensor) -> Tensor:
        return 1e3 * restricted_loss(t[:layers], t[layers:] if moving else None, d, n) / d

    scales, value, _ = search_minimum(loss, _starts(layers, moving), iterations=120)
    return scales, value / 1e3


def find_best_points(
    generator: torch.Generator,
    cases: list[list[int]],
    moving: bool,
    first: Family,
    second: Family,
) -> list[Point]:
    """Find the best point of the family for a dense covariance of each size."""
    found = []
    for d, n, layers in cases:
        law = LayeredLoss(draw_covariance(generator, d, 10.0), n, layers, moving)
        found.append(minimise_in_family(law, first, second))
    return found


def check_gradient_vanishes(found: list[Point], statement: str) -> Check:
    trial = Equality(statement, tolerance=1e-8)
    for point in found:
        slope = point.slope
        trial.add(slope, torch.zeros_like(slope), size=point.size, about=point.description)
    return trial.check()


def check_local_minima(generator: torch.Generator, found: list[Point], statement: str) -> Check:
    """Check each point's loss against nearby weights and against the end of a search from there."""
    trial = Inequality(statement, rounding=1e-9)
    evaluations = 0
    for point in found:
        at = point.loss(point.weights)
        for spread in (0.1, 0.01, 0.001):
            near = point.weights + spread * draw_normal(generator, *point.weights.shape)
            about = f"{point.description}, weights {spread} away"
            trial.add(at, point.loss(near), size=point.size, about=about)
        start = point.weights + 0.02 * draw_normal(generator, *point.weights.shape)
        _, value, count = search_minimum(point.loss, start[None], iterations=60)
        evaluations += count
        about = f"{point.description}, where a search from nearby ended"
        trial.add(at, value, size=point.size, about=about)
    trial.search_note = (
        f"L-BFGS over all entries from {len(found)} starts, {evaluations} evaluations"
    )
    return trial.check()


def curvature(point: Point) -> float:
    """The least eigenvalue of the Hessian in all entries, relative to the largest."""
    hessian = torch.as_tensor(torch.autograd.functional.hessian(point.loss, point.weights))
    values = torch.linalg.eigvalsh(hessian)
    return float(values[0] / values[-1])


def tabulate_points(
    generator: torch.Generator, found: list[Point], free: int
) -> list[dict[str, Value]]:
    """Tabulate the best points, and the least loss that searches over all entries found."""
    rows = []
    for point in found:
        (layers, d, n), law = point.size, point.law
        told = [f"{value:.4f}" for value in point.scales.tolist()]
        row: dict[str, Value] = {"layers": layers, "d": d, "n": n, "a": ", ".join(told[:layers])}
        if law.moving:
            row["b"] = ", ".join(told[layers:])
        row["loss / d"] = float(point.loss(point.weights)) / d
        row["‖∇f‖"] = float(point.slope.norm())
        row["least curvature / largest"] = curvature(point)
        if free:
            starts = 0.4 * draw_normal(generator, free, len(point.weights))
            row["least of free searches / d"] = (
                search_minimum(point.loss, starts, iterations=400)[1] / d
            )
        rows.append(row)
    return rows
