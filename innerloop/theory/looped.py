"""The exact in-context loss of a looped block of linear attention: value, gradient, minimum.

Setting    x ~ N(0, Σ*), w* ~ N(0, Σ*⁻¹), Σ = (1/n) Σᵢ xᵢxᵢᵀ; L loops leave the error
           (w* + u)ᵀ(I − ΣA)^L x_q − uᵀx_q on a query
Whitened   with B = Σ*^½ A Σ*^½, v = Σ*^½ u and S the Σ of standard normals, the loss does not
           depend on Σ*: E‖(I − SB)^L‖² + E‖vᵀ(I − (I − SB)^L)‖²
Rule       S = TTᵀ/n with T lower triangular, T_jj² chi-squared and the other entries normal
           (Bartlett). A Gauss rule for each is exact for polynomials in S. The rule computes
           E = S − I, so that no digits are lost for large n
Isotropic  B = bI: d Σ_j C(2L, j) (−b)^j α_j with E[S^j] = α_j I, rational in n and d of any size
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from math import comb

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.theory.gaussian import MAX_POINTS


def deviation_rule(
    d: int, n: int, degree: int
) -> tuple[Float[Tensor, "points d d"], Float[Tensor, " points"]]:
    """Return points E = S − I and weights that are exact for polynomials of this degree in S.

    It needs n ≥ d.
    """
    if not 1 <= d <= n or degree < 0:
        raise InputError(
            f"expected 1 ≤ d ≤ n and degree ≥ 0, got d = {d}, n = {n}, degree = {degree}"
        )
    below = [(i, j) for i in range(d) for j in range(i)]
    radial, angular = degree // 2 + 1, degree + 1
    if radial**d * angular ** len(below) > MAX_POINTS:
        raise InputError(f"degree {degree} at d = {d} takes more than {MAX_POINTS} points")
    nodes, weights = np.polynomial.hermite_e.hermegauss(angular)
    rules = [_chi_squared_rule(n - j, n, radial) for j in range(d)]
    rules += [(nodes / n**0.5, weights / weights.sum())] * len(below)
    points = _product_grid([torch.from_numpy(values) for values, _ in rules])
    mass = _product_grid([torch.from_numpy(values) for _, values in rules]).prod(dim=1)
    lower = torch.zeros(len(points), d, d, dtype=torch.float64)
    for k, (i, j) in enumerate(below):
        lower[:, i, j] = points[:, d + k]
    # With D the diagonal of T and N its part below: TTᵀ − I = (D² − I) + ND + DNᵀ + NNᵀ.
    diagonal = torch.diag_embed((1 + points[:, :d]).sqrt())
    crossed = lower @ diagonal
    return torch.diag_embed(points[:, :d]) + crossed + crossed.mT + lower @ lower.mT, mass


def _chi_squared_rule(m: int, n: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the Gauss rule for χ²_m/n − 1, by the eigenvalues of a shifted Jacobi matrix."""
    k = np.arange(count, dtype=np.float64)
    off_diagonal = 2 * np.sqrt(k[1:] * (k[1:] + m / 2 - 1)) / n
    jacobi = np.diag((4 * k + (m - n)) / n) + np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1)
    values, vectors = np.linalg.eigh(jacobi)
    return values, vectors[0] ** 2


def _product_grid(values: list[Tensor]) -> Tensor:
    return torch.cartesian_prod(*values).reshape(-1, len(values))


@dataclass(frozen=True, eq=False)
class LoopedLoss:
    """The loss of L loops as a function of whitened weights.

    Leading dimensions of B are a batch.
    """

    d: int
    n: int
    loops: int

    @cached_property
    def rule(self) -> tuple[Tensor, Tensor]:
        return deviation_rule(self.d, self.n, 2 * self.loops)

    def residual(self, B: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch points d d"]:
        """Compute I − SB at every point of the quadrature rule."""
        B = B.unsqueeze(-3)
        return torch.eye(self.d, dtype=B.dtype) - B - self.rule[0] @ B

    def loss(
        self, B: Float[Tensor, "*batch d d"], v: Float[Tensor, "*batch d"] | None = None
    ) -> Float[Tensor, "*batch"]:
        """Compute the transformer's expected squared error, for any B, symmetric or not."""
        R = torch.linalg.matrix_power(self.residual(B), self.loops)
        total = (R**2).sum((-2, -1))
        if v is not None:
            row = v[..., None, None, :] @ (torch.eye(self.d, dtype=B.dtype) - R)
            total = total + (row**2).sum((-2, -1))
        return total @ self.rule[1]

    def trace_loss(self, B: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch"]:
        """Compute E tr((I − SB)^{2L}), which equals the loss only if B is a multiple of I."""
        R = torch.linalg.matrix_power(self.residual(B), self.loops)
        return (R @ R).diagonal(dim1=-2, dim2=-1).sum(-1) @ self.rule[1]

    def minimum_deviation(self) -> float:
        """Return 1 − b at the minimum of the loss over B = bI."""
        return isotropic_minimum(self.d, self.n, self.loops)


@cache
def isotropic_moments(d: int, n: int, most: int) -> tuple[Fraction, ...]:
    """Return α_0, …, α_most with E[S^k] = α_k I, by the recursion of `innerloop.theory.wishart`."""
    values: dict[tuple[tuple[int, ...], int], int] = {}

    def power(k: int, traces: tuple[int, ...]) -> int:
        key = (traces, k)
        if key not in values:
            values[key] = expand_power(k, traces)
        return values[key]

    def expand_power(k: int, traces: tuple[int, ...]) -> int:
        """Return E[∏ tr(W^a) · W^k] as a multiple of I, from lower powers."""
        if k == 0:
            return d * power(traces[0], traces[1:]) if traces else 1
        total = (n + k - 1) * power(k - 1, traces)
        for i in range(k - 1):
            total += power(k - 2 - i, tuple(sorted((i + 1, *traces))))
        for j, a in enumerate(traces):
            total += 2 * a * power(a + k - 1, traces[:j] + traces[j + 1 :])
        return total

    return tuple(Fraction(power(k, ()), n**k) for k in range(most + 1))


def isotropic_loss(d: int, n: int, loops: int, b: Fraction, derivative: int = 0) -> Fraction:
    """Compute the loss at B = bI, or its derivative of some order in b, as an exact fraction."""
    total = Fraction(0)
    for j, moment in enumerate(isotropic_moments(d, n, 2 * loops)):
        if j >= derivative:
            falling = Fraction(1)
            for i in range(derivative):
                falling *= j - i
            total += comb(2 * loops, j) * (-1) ** j * falling * b ** (j - derivative) * moment
    return d * total


@cache
def isotropic_minimum(d: int, n: int, loops: int) -> float:
    """Return 1 − b at the minimum of the loss over B = bI, which is convex with 0 < b < 1."""
    low, high = Fraction(0), Fraction(1)
    for _ in range(160):
        middle = (low + high) / 2
        if isotropic_loss(d, n, loops, 1 - middle, 1) > 0:
            low = middle
        else:
            high = middle
        if float(low) == float(high):
            break
    return float(low)
