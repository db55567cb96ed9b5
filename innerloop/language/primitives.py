"""The functions that a program may call; each says what it becomes in a transformer.

Sums over other tokens become heads, `relu` becomes hidden units, affine maps are fused into what
reads them. What is derived here from others is written in the language itself.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from innerloop.language.errors import CannotCompile
from innerloop.language.knots import Knots
from innerloop.language.machine import Function, get_machine
from innerloop.language.refusals import Refusing, describe_kind


def _check_value(given: Any, name: str) -> None:
    """Refuse a plain number where a value of a token is expected."""
    if not isinstance(given, Refusing):
        instead = ": for numbers, max(x, 0)" if name == "relu" else ""
        raise CannotCompile(f"{name} is for values of tokens, got {describe_kind(given)}{instead}")


def _check_sign(given: Any, what: str) -> None:
    """Refuse a negative number of the program; one that `identify` fits may be anything."""
    if isinstance(given, numbers.Real) and given < 0:
        raise CannotCompile(f"{what} must be at least 0, got {float(given):g}")


def _check_positive(given: Any, what: str) -> None:
    if isinstance(given, numbers.Real) and given <= 0:
        raise CannotCompile(f"{what} must be above 0, got {float(given):g}")


def mean(
    summand: Function, over: str = "context", where: Function | None = None, reach: Any = None
) -> Any:
    """Average `summand(j)` over the tokens j of the context, `all` tokens, or `causal` ones.

    Args:
        summand: A function of a token j: a score, bilinear in me and j, or relu of one, times a
            value, linear in j.
        over: "context", "all" or "causal".
        where: A function of j that is 0 or 1 for each pair of tokens: only some count. The divisor
            stays.
        reach: With `where`, the largest |score| of the tokens that do not count.
    """
    _check_positive(reach, "reach")
    return get_machine().attend(summand, over, True, where, reach, None, 1)


def total(
    summand: Function, over: str = "context", where: Function | None = None, reach: Any = None
) -> Any:
    """Sum `summand(j)` over other tokens.

    Args:
        summand: A function of a token j, as in `mean`.
        over: "context", "all" or "causal".
        where: Which pairs of tokens count, as in `mean`.
        reach: The largest |score| of the others, as in `mean`.
    """
    _check_positive(reach, "reach")
    return get_machine().attend(summand, over, False, where, reach, None, 1)


def own_total(summand: Function, mark: str, reach: Any, gap: Any = 1, over: str = "all") -> Any:
    """Sum over the tokens with my mark, which is me alone where marks differ: products inside me.

    Args:
        summand: A function of a token j, as in `mean`.
        mark: The register whose inner product tells tokens apart: it is 1 for those that count. Or
            a single number that counts the tokens: the sum is then over those before me, and me.
        reach: The largest |score| of the tokens that do not count.
        gap: Their inner product of marks is at most 1 − gap.
        over: "all", or "causal" where later tokens must not be seen.
    """
    _check_positive(reach, "reach")
    _check_positive(gap, "gap")
    return get_machine().attend(summand, over, False, None, reach, mark, gap)


def softmax(
    score: Function,
    value: Function,
    over: str = "all",
    where: Function | None = None,
    reach: Any = None,
) -> Any:
    """Average `value(j)` with weights proportional to exp(score(j)): one softmax head.

    Args:
        score: A function of a token j, bilinear in me and j.
        value: A function of a token j, linear in it.
        over: "all", "context" or "causal".
        where: A function of j that is 0 or 1 for each pair of tokens: only some count.
        reach: What the scores of the others are lowered by: it must exceed the range of scores by
            40.
    """
    _check_positive(reach, "reach")
    return get_machine().attend_softmax(score, value, over, where, reach)


def dot(a: Any, b: Any) -> Any:
    """Compute ⟨a, b⟩ of two vectors.

    Args:
        a: A vector.
        b: Another, of the same length.
    """
    _check_value(a, "dot")
    return a.contract(b, "dot")


def matvec(a: Any, b: Any) -> Any:
    """Multiply a matrix (k, d) and a vector (d).

    Args:
        a: The matrix.
        b: The vector.
    """
    _check_value(a, "matvec")
    return a.contract(b, "matvec")


def outer(a: Any, b: Any) -> Any:
    """Compute the matrix a bᵀ of two vectors.

    Args:
        a: A vector.
        b: A vector.
    """
    _check_value(a, "outer")
    return a.contract(b, "outer")


def transposed(a: Any) -> Any:
    """Transpose a matrix.

    Args:
        a: The matrix.
    """
    _check_value(a, "transposed")
    return a.transpose()


def entry_sum(a: Any) -> Any:
    """Sum the entries of a vector.

    Args:
        a: A vector.
    """
    _check_value(a, "entry_sum")
    return a.sum_entries()


def stack(rows: Sequence[Any]) -> Any:
    """Make the matrix with these rows, or the vector with these entries.

    Args:
        rows: Vectors of one length, or numbers.
    """
    for row in rows:
        _check_value(row, "stack")
    if not len(rows):
        raise CannotCompile("stack of nothing: give one value or more")
    return rows[0].stack(rows)


def relu(x: Any) -> Any:
    """Compute max(x, 0) on every entry: hidden units, or the activation of a head inside of a sum.

    Args:
        x: A value.
    """
    _check_value(x, "relu")
    return x.rectify()


def hinges(x: Any, slope: Sequence[Any], bias: Sequence[Any], weight: Sequence[Any]) -> Any:
    """Compute Σ_k weight_k relu(slope_k x + bias_k) on every entry.

    Args:
        x: A value.
        slope: A number per hinge.
        bias: A number per hinge.
        weight: A number per hinge.
    """
    _check_value(x, "hinges")
    if not len(slope) == len(bias) == len(weight) > 0:
        raise CannotCompile("hinges needs as many slopes as biases and weights, and at least one")
    return x.sum_hinges(slope, bias, weight)


def soft_threshold(x: Any, theta: Any) -> Any:
    """Compute sign(x)·max(|x| − θ, 0) on every entry.

    Args:
        x: A value.
        theta: θ, at least 0.
    """
    _check_sign(theta, "the threshold of soft_threshold")
    return relu(x - theta) - relu(-x - theta)


def clip(x: Any, bound: Any) -> Any:
    """Compute min(max(x, −bound), bound) on every entry.

    Args:
        x: A value.
        bound: The largest magnitude that is left.
    """
    _check_sign(bound, "the bound of clip")
    return x - relu(x - bound) + relu(-x - bound)


def gate(flag: Any, x: Any, bound: Any) -> Any:
    """Compute flag · x for a flag that is 0 or 1.

    Args:
        flag: 0 or 1.
        x: A value.
        bound: The largest |x|.
    """
    _check_positive(bound, "the bound of gate")
    get_machine().require(x, -1 * bound, bound)
    return relu(x + bound * (flag - 1)) - relu(-x + bound * (flag - 1))


def closed(x: Any, off: Any, bound: Any) -> Any:
    """Keep x where `off` is 0, and give 0 where it is at least 1.

    Args:
        x: A value.
        off: 0 to keep it, 1 or more to clear it.
        bound: The largest |x|.
    """
    _check_positive(bound, "the bound of closed")
    get_machine().require(x, -1 * bound, bound)
    return relu(x - bound * off) - relu(-x - bound * off)


def geometric_knots(low: Any, high: Any, count: int) -> Tensor:
    """Place knots from `low` to `high`, each the same multiple of the one before.

    Args:
        low: The first knot, above 0.
        high: The last knot.
        count: The number of knots.
    """
    first, last = float(low), float(high)
    shares = torch.linspace(0.0, 1.0, count, dtype=torch.float64)
    knots = first * (last / first) ** shares
    knots[-1] = last
    return knots


def piecewise(x: Any, function: Callable[[Tensor], Tensor], knots: Sequence[float] | Tensor) -> Any:
    """Follow a function at knots, with straight lines between them, on every entry.

    The program means these straight lines, and so do its weights. How far they are from the
    function is measured between the knots; how that grows through a step is bounded when a
    certificate is made, and compared with a step by the function itself.

    Args:
        x: A value, which must stay between the first and the last knot.
        function: The function, of a tensor of knots.
        knots: Where it is met.
    """
    return get_machine().interpolate(
        x, Knots(function, torch.as_tensor(knots, dtype=torch.float64))
    )
