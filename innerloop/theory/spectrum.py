"""A Gauss rule for the mean spectrum of a Wishart matrix: exact for polynomials, with few nodes.

Setting    G = (1/n) Σ x xᵀ, n columns x ~ N(0, I) of d entries
Rule       E tr q(G) = Σ_i mass_i q(node_i) for polynomials q up to `degree`. The moments E tr W^k
           are integers, computed by the recursion of `innerloop.theory.wishart`; the rule follows
           from them in fractions (Chebyshev's algorithm), without rounding
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError


@cache
def spectral_rule(
    d: int, n: int, degree: int
) -> tuple[Float[Tensor, " nodes"], Float[Tensor, " nodes"]]:
    """Return nodes and masses of the Gauss rule; the masses sum to d."""
    if d < 1 or n < 1 or degree < 0:
        raise InputError(f"expected d, n ≥ 1 and degree ≥ 0, got {d}, {n} and {degree}")
    count = degree // 2 + 1
    diagonal, off_diagonal = _jacobi(_moments(d, n, 2 * count), count)
    J = np.diag([float(a / n) for a in diagonal])
    for k, b in enumerate(off_diagonal):
        J[k, k + 1] = J[k + 1, k] = float(b) ** 0.5 / n
    nodes, vectors = np.linalg.eigh(J)
    return torch.from_numpy(nodes), torch.from_numpy(d * vectors[0] ** 2)


def _moments(d: int, n: int, count: int) -> list[Fraction]:
    """Compute E tr W^k / d for k < count."""
    cache: dict[tuple[int, ...], int] = {}

    def mean(powers: tuple[int, ...]) -> int:
        """Compute E ∏ tr W^a over sorted powers a ≥ 1."""
        if not powers:
            return 1
        if powers not in cache:
            *rest, last = powers
            cache[powers] = reduce(tuple(rest), last - 1)
        return cache[powers]

    def reduce(rest: tuple[int, ...], k: int) -> int:
        total = (n + k) * with_trace(k, rest)
        for i in range(k):
            total += with_trace(k - 1 - i, (i + 1, *rest))
        for j, a in enumerate(rest):
            total += 2 * a * with_trace(a + k, rest[:j] + rest[j + 1 :])
        return total

    def with_trace(k: int, rest: tuple[int, ...]) -> int:
        """Compute E ∏ tr W^a with one more factor tr W^k."""
        return mean(tuple(sorted((*rest, k)))) if k else d * mean(tuple(sorted(rest)))

    return [Fraction(with_trace(k, ()), d) for k in range(count)]


def _jacobi(moments: list[Fraction], count: int) -> tuple[list[Fraction], list[Fraction]]:
    """Return the a, b of the orthogonal polynomials: p_{k+1} = (x − a_k) p_k − b_k p_{k−1}."""
    previous, current = [Fraction(0)] * len(moments), list(moments)
    a, b = [current[1] / current[0]], []
    for k in range(1, count):
        b_last = b[-1] if b else Fraction(0)
        following = [
            current[j + 1] - a[-1] * current[j] - b_last * previous[j]
            if k <= j < len(moments) - k
            else current[j]
            for j in range(len(moments))
        ]
        b.append(following[k] / current[k - 1])
        a.append(following[k + 1] / following[k] - current[k] / current[k - 1])
        previous, current = current, following
    return a, b
