"""Derivations of what claims put in place of the print, tried at the ends of their range."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from innerloop.theory import sparse


class Corner(NamedTuple):
    """Sizes at which Theorem 5.1 of liu2025 speaks, with Lemma 3's widths a and b there."""

    c: float
    S: int
    d: int
    delta: float
    n: int
    gamma: float

    @property
    def widths(self) -> tuple[float, float]:
        a, b = (sparse.deviation_width(m, self.delta, self.n, self.c) for m in (self.S, self.d))
        return a, b if self.d > 1 else 0.0  # one column has no other to be coherent with

    def factor(self, step: float) -> float:
        """What a step of this size leaves of the error, on the event of Lemma 3, by Lemma 1."""
        a, b = self.widths
        ends = (1 - step * self.n / (self.n + 2) * (1 + sign * a) for sign in (1, -1))
        return step * (2 * self.S - 1) * b + max(map(abs, ends))

    def rates(self) -> list[float]:
        """e^(−α_n) of Theorem 5.1 and of Theorem D.1."""
        return [
            sparse.rate_factor(self.n, self.S, self.d, self.delta, self.c, self.gamma, weight)
            for weight in (1.0, None)
        ]


def list_corners() -> Iterator[Corner]:
    for c in (1.0, 0.25, 0.05):
        for S, d in ((1, 1), (1, 2), (2, 2), (1, 3), (3, 3), (2, 10), (3, 1000)):
            for delta in (0.999, 0.9, 0.7, 0.45, 0.1, 1e-6):
                least = math.ceil(sparse.least_examples(S, d, delta, c))
                for n in {max(least, 1), least + 1, 10 * least + 10}:
                    for gamma in (0.05, 0.3, 1.0, 1.2, 1.5):
                        yield Corner(c, S, d, delta, n, gamma)


def test_the_step_of_theorem_5_1_contracts_as_stated_from_the_least_n_on() -> None:
    """Also where d/δ is near 1: the plain step min(γ, 1) is too short there, though not above."""
    short = set()
    for corner in list_corners():
        g = min(corner.gamma, 1.0)
        least = min(corner.rates()) * (1 + 1e-12)
        assert corner.factor((1 + 2 / corner.n) * g) <= least, corner
        if corner.factor(g) > least:
            short.add(corner.d / corner.delta)
    assert short
    assert max(short) < 2.1
