"""Lemma A.2: moments of the sample covariance of standard normals, and how they are counted.

Printed    n ≥ 4k²d²: E[(1/n) Σ xᵢxᵢᵀ] = αI with 1 ≤ α ≤ 1 + 4kd/√n (a power k is missing);
           proof: n^kα = Σ_p n^{C(G_p)} d^{C(G'_p) − 1} over the pairings p of 2k ends, with
           C(G_p) + C(G'_p) ≤ k + 1; 2m ends have (2m)!! pairings; Σ_s (2kd/√n)^s ≤ 1 + 4kd/√n
Tested     exact moments in fractions, k ≤ 12, d ≤ 50, n = 4k²d² and more; pairings listed for k ≤ 5
Correction E[Σ^k] = αI (as printed the statement is true, α = 1, and says nothing about k);
           (2m − 1)!! pairings; the sum needs n ≥ 16k²d² for its bound: at n = 4k²d² it is k + 1
           and the bound 3. The lemma holds all the same: at n = 4k²d² and k ≤ 12 the excess
           α − 1 is 0.254 at most where 2 is allowed
Note       (18) and (19) sum to n where d is meant: (19) is d^{C(G') − 1} I
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from math import prod

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.trials import Equality, Inequality
from innerloop.theory.looped import isotropic_moments

Pairing = list[tuple[int, int]]


@claim(
    "gatmiry2024.lemma-A.2",
    "For n ≥ 4k²d² the k-th moment of the sample covariance of standard normals is αI with "
    "1 ≤ α ≤ 1 + 4kd/√n.",
    where="Appendix A.1, Lemma A.2 and its proof, (14) to (20)",
    kind="inequality",
    quick={"most": 12, "listed": 5},
    full={"most": 24, "listed": 6},
    tiny={"most": 6, "listed": 4},
    falsified={
        "a hundredth of the width": {"scale": 0.01},
        "α below 1": {"sign": -1},
        "a cycle too many": {"spare": -1},
        "d to the cycles": {"power": 0},
        "2m − 3": {"less": 3},
        "n ≥ 9k²d² in the sum": {"needed": 9},
    },
)
def lemma_a_2(
    generator: torch.Generator,
    *,
    most: int,
    listed: int,
    scale: float = 1.0,
    sign: int = 1,
    spare: int = 1,
    power: int = 1,
    less: int = 1,
    needed: int = 16,
) -> Evidence:
    found, excess = _bounds(most, scale, sign)
    parts = [*found, *_check_pairings(listed, spare, power, less), _geometric(most, needed)]
    numbers = {
        "largest k": most,
        "largest k with all pairings listed": listed,
        "largest α − 1 at n = 4k²d²": excess,
        "4kd/√n there": 2.0,
    }
    return Evidence(parts=parts, numbers=numbers)


def _bounds(most: int, scale: float, sign: int) -> tuple[list[Part], float]:
    """Check the bounds as printed, without a power, and with it."""
    bare = Inequality("1 ≤ α ≤ 1 + 4kd/√n with E[Σ] = αI, as printed: no power k, and α = 1")
    low = Inequality("1 ≤ α with E[Σ^k] = αI")
    high = Inequality("α ≤ 1 + 4kd/√n with E[Σ^k] = αI, n ≥ 4k²d²")
    excess = 0.0
    for k in range(1, most + 1):
        for d in (1, 2, 3, 10, 50):
            for times in (1, 3, 1000):
                n = 4 * k * k * d * d * times
                alphas = isotropic_moments(d, n, k)
                width, about = scale * 4 * k * d / n**0.5, f"k = {k}, d = {d}, n = {n}"
                size = (k, d, n)
                bare.add(float(alphas[1]), sign * (1 + width), size=size, about=about)
                low.add(float(sign), sign * float(alphas[k]), size=size, about=about)
                high.add(float(alphas[k] - 1), width, size=size, about=about)
                excess = max(excess, float(alphas[k] - 1))
    return [Part(printed=trial.check()) for trial in (bare, low, high)], excess


def _check_pairings(listed: int, spare: int, power: int, less: int) -> list[Part]:
    """Check the proof's sum over pairings, its bound on cycles, and the number of pairings."""
    total = Equality("n^kα = Σ_p n^{C(G_p)} d^{C(G'_p) − 1}")
    cycles = Inequality("C(G_p) + C(G'_p) ≤ k + 1")
    even = Equality("2m ends have (2m)!! pairings")
    odd = Equality("2m ends have (2m − 1)!! pairings")
    for k in range(1, listed + 1):
        pairings = list(_pairings(list(range(2 * k))))
        # Ends 2i and 2i + 1 are x and xᵀ of one factor; 2i + 1 and 2i + 2 meet in a product.
        counts = [(_loops(p, _factor), _loops(p, partial(_neighbour_node, k))) for p in pairings]
        for one, other in counts:
            cycles.add(one + other, k + spare, size=(k,), about=f"k = {k}")
        for d, n in ((1, 1), (2, 3), (3, 2), (5, 7)):
            stated = sum(n**one * Fraction(d) ** (other - power) for one, other in counts)
            alpha = float(isotropic_moments(d, n, k)[k] * n**k)
            total.add(alpha, float(stated), size=(k, d, n), about=f"k = {k}, d = {d}, n = {n}")
        told = f"m = {k}: {len(pairings)} pairings"
        even.add(len(pairings), prod(range(2 * k, 0, -2)), size=(k,), about=told)
        odd.add(len(pairings), prod(range(2 * k - less, 0, -2)), size=(k,), about=told)
    return [
        Part(printed=total.check()),
        Part(printed=cycles.check()),
        Part(printed=even.check(), corrected=odd.check()),
    ]


def _factor(end: int) -> int:
    return end // 2


def _neighbour_node(k: int, end: int) -> int:
    return (end + 1) // 2 % k


def _pairings(ends: list[int]) -> Iterator[Pairing]:
    if not ends:
        yield []
        return
    first, *rest = ends
    for k, other in enumerate(rest):
        for later in _pairings(rest[:k] + rest[k + 1 :]):
            yield [(first, other), *later]


def _loops(pairing: Pairing, node: Callable[[int], int]) -> int:
    """Count cycles of the graph whose nodes are `node(end)` and whose edges are the pairs."""
    group = {node(end): node(end) for pair in pairing for end in pair}

    def leader(at: int) -> int:
        while group[at] != at:
            at = group[at]
        return at

    for one, other in pairing:
        group[leader(node(one))] = leader(node(other))
    return len({leader(at) for at in group})


def _geometric(most: int, needed: int) -> Part:
    """Check the last step of the proof, a geometric sum."""
    printed = Inequality("Σ_{s≤k} (2kd/√n)^s ≤ 1 + 4kd/√n for n ≥ 4k²d²")
    right = Inequality("Σ_{s≤k} (2kd/√n)^s ≤ 1 + 4kd/√n for n ≥ 16k²d²")
    for trial, least in ((printed, 4), (right, needed)):
        for k in range(1, most + 1):
            for times in (1, 2, 10):
                q = (4 / (least * times)) ** 0.5
                about = f"k = {k}, n = {least * times}k²d², 2kd/√n = {q:.3g}"
                left = sum(q**s for s in range(k + 1))
                trial.add(left, 1 + 2 * q, size=(k, times), about=about)
    return Part(printed=printed.check(), corrected=right.check())
