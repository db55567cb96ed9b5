"""Newton's iteration for least squares, run exactly by ReLU attention over all tokens.

Algorithm  M ← 2M − M S M,   S = XᵀX,   M₀ = αS,   ŵ = M Xᵀy
Invariant  register `m` of every token holds M x; `x`, `xk`, `y` hold the prompt, `yhat` is 0
Proof      as for `newton`, with a signed pair for each head, σ(s)·v − σ(−s)·v = s·v. A mask is not
           needed: keys read `xk`, a copy of x that is 0 on queries, so a query has score 0 as a key
Exact for  everything for which `newton` is exact
Source     yang2025.fu.newton. The sign inside the pair matters: σ(s) + σ(−s) would be |s|
"""

from typing import Any

from innerloop.constructions.newton import NewtonConstruction
from innerloop.language import Data, State, define, dot, total
from innerloop.language.classes import Cost


@define(x=Data("d"), xk=Data("d"), m=State("d"), y=Data())
def iterate(me: Any) -> None:
    me.m = 2 * me.m - total(lambda j: dot(me.m, j.xk) * j.m, over="all")


@iterate.init
def _(me: Any, alpha: Any) -> None:
    me.m = total(lambda j: dot(me.x, j.xk) * (alpha * j.x), over="all")


@iterate.answer
def yhat(me: Any) -> Any:
    return total(lambda j: dot(me.m, j.xk) * j.y, over="all")


class ReLUNewtonConstruction(NewtonConstruction):
    """Newton's iteration by ReLU attention, in k + 2 blocks with two heads each.

    The block of a step has an MLP of 2d hidden units.
    """

    definition = iterate
    cost = Cost("k + 2", "2", "3d + 2", "k + O(1) layers, width O(d)")
    attention = "relu"
