"""The Chebyshev iteration on least squares, in one block with one linear head per step.

Program    w ← w + p;   p ← r/θ at first, then p ← ρ' ρ p + (2ρ'/δ) r,   ρ' = 1/(2θ/δ − ρ) from
           ρ = δ/θ,   r = −∇R(w),   θ and δ the middle and half the length of [lower, upper]
Registers  every token holds w and p; a query answers ⟨w, x⟩
Agrees     with the algorithm `chebyshev`; the numbers ρ are those of the weights, one pair per step
Exact for  every n, d, number of queries and interval with lower < upper
"""

from typing import Any

from innerloop.language import Data, Number, State, dot, mean, program


@program(
    source="Saad 2003, Iterative methods for sparse linear systems, Algorithm 12.1",
    x=Data("d"),
    y=Data(),
    w=State("d", shared=True),
    p=State("d", shared=True),
    lower=Number(0.25, "the least eigenvalue of XᵀX/n that counts", least=1e-9),
    upper=Number(2.5, "the largest eigenvalue of XᵀX/n that counts", least=1e-9),
)
def chebyshev(me: Any, k: int, lower: Any, upper: Any) -> None:
    """Take step k of the iteration that is optimal for an interval of curvatures."""
    middle, half = (upper + lower) / 2, (upper - lower) / 2
    # ρ of the steps before and of this one; numbers, which the compiler evaluates.
    before, ratio = None, half / middle
    for _ in range(k):
        before, ratio = ratio, 1 / (2 * middle / half - ratio)
    slope = -mean(lambda j: (dot(me.w, j.x) - j.y) * j.x)
    if before is None:
        me.p = slope / middle
    else:
        me.p = (ratio * before) * me.p + (2 * ratio / half) * slope
    me.w = me.w + me.p
