"""The functions that a program may call; each says what it becomes in a transformer.

Sums over other tokens become heads, `relu` becomes hidden units, affine maps are fused into what
reads them. What is derived here from others is written in the language itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from innerloop.language.machine import Function, get_machine
from innerloop.transformer.pieces import Elementwise, piecewise_linear


def mean(
    summand: Function, over: str = "context", where: Function | None = None, reach: Any = None
) -> Any:
    """Average `summand(j)` over the tokens j of the context, `all` tokens, or `causal` ones.

    The summand is a score, bilinear in me and j, or relu of one, times a value, linear in j. With
    `where`, which is 0 or 1 for each pair of tokens, only some count (the divisor stays): |score|
    must be at most `reach` for the others.
    """
    return get_machine().attend(summand, over, True, where, reach, None, 1)


def total(
    summand: Function, over: str = "context", where: Function | None = None, reach: Any = None
) -> Any:
    """Sum `summand(j)` over other tokens: see `mean`."""
    return get_machine().attend(summand, over, False, where, reach, None, 1)


def own_total(summand: Function, mark: str, reach: Any, gap: Any = 1) -> Any:
    """Sum over the tokens with my mark, which is me alone where marks differ: products inside me.

    Tokens with ⟨mark, mark of j⟩ = 1 count; for all others it must be at most 1 − gap, and |score|
    at most `reach`.
    """
    return get_machine().attend(summand, "all", False, None, reach, mark, gap)


def softmax(
    score: Function,
    value: Function,
    over: str = "all",
    where: Function | None = None,
    reach: Any = None,
) -> Any:
    """Average `value(j)` with weights proportional to exp(score(j)): one softmax head.

    Tokens j with `where(j)` = 0 are lowered by `reach`: it must exceed the range of scores by 40.
    """
    return get_machine().attend_softmax(score, value, over, where, reach)


def dot(a: Any, b: Any) -> Any:
    """⟨a, b⟩ of two vectors."""
    return a.contract(b, "dot")


def matvec(a: Any, b: Any) -> Any:
    """The product of a matrix (k, d) and a vector (d)."""
    return a.contract(b, "matvec")


def outer(a: Any, b: Any) -> Any:
    """The matrix a bᵀ of two vectors."""
    return a.contract(b, "outer")


def transposed(a: Any) -> Any:
    """The transpose of a matrix."""
    return a.transpose()


def entry_sum(a: Any) -> Any:
    """The sum of a vector's entries."""
    return a.sum_entries()


def stack(rows: Sequence[Any]) -> Any:
    """The matrix with these rows, or the vector with these entries."""
    return rows[0].stack(rows)


def relu(x: Any) -> Any:
    """max(x, 0) on every entry: hidden units, or the activation of a head inside of a sum."""
    return x.rectify()


def hinges(x: Any, slope: Sequence[Any], bias: Sequence[Any], weight: Sequence[Any]) -> Any:
    """Σ_k weight_k relu(slope_k x + bias_k) on every entry."""
    return x.sum_hinges(slope, bias, weight)


def soft_threshold(x: Any, theta: Any) -> Any:
    """sign(x)·max(|x| − θ, 0) on every entry."""
    return relu(x - theta) - relu(-x - theta)


def clip(x: Any, bound: Any) -> Any:
    """min(max(x, −bound), bound) on every entry."""
    return x - relu(x - bound) + relu(-x - bound)


def gate(flag: Any, x: Any, bound: Any) -> Any:
    """flag · x for a flag that is 0 or 1, and |x| ≤ bound."""
    get_machine().require(x, -1 * bound, bound)
    return relu(x + bound * (flag - 1)) - relu(-x + bound * (flag - 1))


def closed(x: Any, off: Any, bound: Any) -> Any:
    """x where `off` is 0, and 0 where it is at least 1, for |x| ≤ bound."""
    get_machine().require(x, -1 * bound, bound)
    return relu(x - bound * off) - relu(-x - bound * off)


def geometric_knots(low: Any, high: Any, count: int) -> Tensor:
    """Knots from `low` to `high`, each the same multiple of the one before."""
    first, last = float(low), float(high)
    shares = torch.linspace(0.0, 1.0, count, dtype=torch.float64)
    knots = first * (last / first) ** shares
    knots[-1] = last
    return knots


def piecewise(x: Any, function: Callable[[Tensor], Tensor], knots: Sequence[float] | Tensor) -> Any:
    """f at the knots and linear between them, on every entry; x must stay between the ends.

    The program means these straight lines: how far they are from f is for its author to bound.
    """
    places = torch.as_tensor(knots, dtype=torch.float64)
    piece = piecewise_linear("x", "y", function, places)
    assert isinstance(piece, Elementwise)
    get_machine().require(x, float(places[0]), float(places[-1]))
    return hinges(x, *(part.tolist() for part in (piece.slope, piece.bias, piece.weight)))
