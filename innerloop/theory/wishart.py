"""Exact moments of the Wishart matrix W = Σᵢ xᵢxᵢᵀ, n columns xᵢ ~ N(0, Σ), any n and Σ.

Both recursions apply Gaussian integration by parts, E[x f(x)] = Σ E[∇f(x)], to one end of the first
W = Σᵢ xᵢxᵢᵀ. This end pairs with the other end of the same W (n ways), or with either end of
another W in the same or another trace. Each step removes one W.

    powers  E[∏ tr(W^a) W^(k+1)] = Σ { (n+k) E[∏ tr(W^a) W^k]
                + Σ_{i<k} E[tr(W^(i+1)) ∏ tr(W^a) W^(k−1−i)]
                + Σ_j 2a_j E[∏_{l≠j} tr(W^{a_l}) W^(a_j+k)] }
    words   E[∏ tr(W B₁ W B₂ … W B_m)] with any matrices in between, (2m−1)!! terms
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError

Word = Sequence[Tensor]
"""Matrices B₁, …, B_m that represent tr(W B₁ W B₂ … W B_m); leading dimensions are a batch."""


@dataclass(frozen=True, eq=False)
class Wishart:
    """The distribution of W, determined by Σ (d×d) and the number n of columns."""

    covariance: Float[Tensor, "d d"]
    n: int
    _cache: dict[tuple[tuple[int, ...], int], Tensor] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.n < 1:
            raise InputError(f"a Wishart matrix needs n ≥ 1 columns, got {self.n}")

    def power(self, k: int, traces: Sequence[int] = ()) -> Float[Tensor, "d d"]:
        """Compute E[∏ tr(W^a) W^k], where a runs over `traces`."""
        if k < 0 or any(a < 0 for a in traces):
            raise InputError(f"powers must be at least 0, got {k} and {list(traces)}")
        factors = tuple(sorted(traces))
        key = (factors, k)
        if key not in self._cache:
            self._cache[key] = self._compute_power(k, factors)
        return self._cache[key]

    def _compute_power(self, k: int, traces: tuple[int, ...]) -> Tensor:
        identity = torch.eye(len(self.covariance), dtype=self.covariance.dtype)
        if k == 0:
            if not traces:
                return identity
            return self.power(traces[0], traces[1:]).trace() * identity
        k -= 1
        total = (self.n + k) * self.power(k, traces)
        for i in range(k):
            total = total + self.power(k - 1 - i, (i + 1, *traces))
        for j, a in enumerate(traces):
            total = total + 2 * a * self.power(a + k, traces[:j] + traces[j + 1 :])
        return self.covariance @ total

    def trace(self, *words: Word) -> Tensor:
        """Compute E[∏ tr(W B₁ W B₂ … W B_m)] over the words, each of at least one matrix."""
        if not words:
            return torch.ones((), dtype=self.covariance.dtype)
        (*rest, last), others = words[0], words[1:]
        S = self.covariance
        # Pair the column at the end of the first word with its other end, at the beginning.
        total = self.n * self._trace_from_sigma([*rest, last], others)
        for i in range(1, len(words[0])):
            before, after = list(words[0][:i]), list(words[0][i:])
            turned = _join(before, S, [B.mT for B in reversed(after)])
            total = (
                total
                + self.trace(turned, *others)
                + self._trace_from_sigma(after, (before, *others))
            )
        for j, other in enumerate(others):
            apart = others[:j] + others[j + 1 :]
            for i in range(len(other)):
                ring = [*other[i:], *other[:i]]
                turned = [B.mT for B in reversed(ring)]
                total = total + self.trace(_join(words[0], S, ring), *apart)
                total = total + self.trace(_join(words[0], S, turned), *apart)
        return total

    def _trace_from_sigma(self, matrices: Word, others: Sequence[Word]) -> Tensor:
        """Compute E[tr(Σ B₁ W B₂ … W B_m) · others], where the first W of a word has become Σ."""
        first, *rest = matrices
        if not rest:
            value = (self.covariance @ first).diagonal(dim1=-2, dim2=-1).sum(-1)
            return value * self.trace(*others)
        return self.trace([*rest[:-1], rest[-1] @ self.covariance @ first], *others)


def _join(one: Word, covariance: Tensor, other: Word) -> Word:
    """Join two chains that share a column: … W B_m Σ C₁ W C₂ …"""
    return [*one[:-1], one[-1] @ covariance @ other[0], *other[1:]]
