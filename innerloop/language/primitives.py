"""The functions that a program may call, each with the part of a transformer that it becomes.

Sums over other tokens become heads, and `relu` becomes hidden units. Affine maps are fused into the
operation that reads them. Functions that can be derived from others are written in the language
itself.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from innerloop.language.conditions import Condition, check_number, find_violations
from innerloop.language.errors import CannotCompile
from innerloop.language.knots import Knots, check_knots
from innerloop.language.machine import Function
from innerloop.language.recorded_values import RecordedNumber, is_value
from innerloop.language.recorder import get_recorder
from innerloop.language.refusals import describe_kind
from innerloop.language.types import to_fraction


def _check_value(value: Any, name: str) -> None:
    """Raise an error for a number where a value of a token is expected."""
    if not is_value(value):
        instead = ": for numbers, max(x, 0)" if name == "relu" else ""
        raise CannotCompile(f"{name} is for values of tokens, got {describe_kind(value)}{instead}")


def _check_number(number: Any, least: int, above: bool, name: str) -> None:
    """Raise an error if a number is too small.

    A number of the program is compared when it is compiled; `identify` may try any number in a fit.
    """
    if isinstance(number, RecordedNumber):
        get_recorder().add("check_number", number, least, above, name)
    elif isinstance(number, numbers.Real):
        check_number(number, least, above, name)
    else:
        raise CannotCompile(f"{name} must be a number, got {describe_kind(number)}")


def _check_reach(reach: Any) -> None:
    if reach is not None:
        _check_number(reach, 0, True, "reach")


def _check_threshold(threshold: Any, name: str) -> None:
    """Raise an error for a negative number; a value of a token is checked when it is computed."""
    if is_value(threshold):
        get_recorder().add("check_values", threshold, "at least 0", name)
    else:
        _check_number(threshold, 0, False, name)


def mean(
    summand: Function, over: str = "context", where: Function | None = None, reach: Any = None
) -> Any:
    """Average `summand(j)` over the tokens j of the context, `all` tokens, or `causal` ones.

    Args:
        summand: A function of a token j: a score, bilinear in me and j, or relu of one, times a
            value, linear in j.
        over: "context", "all" or "causal".
        where: A function of j that is 0 or 1 for each pair of tokens: only tokens with 1 count. The
            divisor stays the number of all tokens.
        reach: With `where`, the largest |score| of the tokens that do not count.
    """
    _check_reach(reach)
    return get_recorder().attend("mean", summand, over, True, where, reach)


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
    _check_reach(reach)
    return get_recorder().attend("total", summand, over, False, where, reach)


def own_total(summand: Function, mark: str, reach: Any, gap: Any = 1, over: str = "all") -> Any:
    """Sum over the tokens with the same mark as this token.

    If all marks differ, this token is the only one, and the sum is a product inside of the token.

    Args:
        summand: A function of a token j, as in `mean`.
        mark: The register whose inner product tells tokens apart: it is 1 for those that count, or
            a single number that counts the tokens: the attention is then causal.
        reach: The largest |score| of the tokens that do not count.
        gap: The inner product of different marks is at most 1 − gap.
        over: "all", or "causal" if later tokens must not be seen.
    """
    _check_reach(reach)
    _check_number(gap, 0, True, "gap")
    return get_recorder().attend("own_total", summand, over, False, None, reach, mark, gap)


def softmax(
    score: Function,
    value: Function,
    over: str = "all",
    where: Function | None = None,
    reach: Any = None,
) -> Any:
    """Average `value(j)` with weights proportional to exp(score(j)), in one softmax head.

    Args:
        score: A function of a token j, bilinear in me and j.
        value: A function of a token j, linear in it.
        over: "all", "context" or "causal".
        where: A function of j that is 0 or 1 for each pair of tokens: only tokens with 1 count.
        reach: The number that is subtracted from the scores of the other tokens. It must exceed the
            range of scores by 40.
    """
    _check_reach(reach)
    return get_recorder().attend_softmax(score, value, over, where, reach)


def dot(a: Any, b: Any) -> Any:
    """Compute ⟨a, b⟩ of two vectors.

    Args:
        a: A vector.
        b: Another, of the same length.
    """
    _check_value(a, "dot")
    return a.contract(b, "dot")


def matvec(a: Any, b: Any) -> Any:
    """Multiply a matrix of shape (k, d) and a vector of length d.

    Args:
        a: The matrix.
        b: The vector.
    """
    _check_value(a, "matvec")
    return a.contract(b, "matvec")


def outer(a: Any, b: Any) -> Any:
    """Return the matrix a bᵀ of two vectors.

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
    """Return the matrix with these rows, or the vector with these entries.

    Args:
        rows: Vectors of one length, or numbers.
    """
    for row in rows:
        _check_value(row, "stack")
    if not len(rows):
        raise CannotCompile("stack of nothing: give one value or more")
    return rows[0].stack(rows)


def relu(x: Any) -> Any:
    """Return max(x, 0) for every entry: hidden units, or inside of a sum the activation of a head.

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
    _check_threshold(theta, "the threshold of soft_threshold")
    return relu(x - theta) - relu(-x - theta)


def clip(x: Any, bound: Any) -> Any:
    """Compute min(max(x, −bound), bound) on every entry.

    Args:
        x: A value.
        bound: The largest magnitude that is left.
    """
    _check_threshold(bound, "the bound of clip")
    return x - relu(x - bound) + relu(-x - bound)


def gate(flag: Any, x: Any, bound: Any) -> Any:
    """Compute flag · x for a flag that is 0 or 1 in every token, which is checked.

    Args:
        flag: 0 or 1.
        x: A value.
        bound: The largest |x|.
    """
    _check_gate("gate", flag, "0 or 1", x, bound)
    return relu(x + bound * (flag - 1)) - relu(-x + bound * (flag - 1))


def closed(x: Any, off: Any, bound: Any) -> Any:
    """Return x if `off` is 0, and 0 if it is at least 1; other values of `off` raise an error.

    Args:
        x: A value.
        off: 0 to return x, 1 or more to return 0.
        bound: The largest |x|.
    """
    _check_gate("closed", off, "0 or at least 1", x, bound)
    return relu(x - bound * off) - relu(-x - bound * off)


def _check_gate(name: str, flag: Any, condition: Condition, x: Any, bound: Any) -> None:
    """Check the arguments of a gate: numbers now, and values of a token when they are computed."""
    _check_number(bound, 0, True, f"the bound of {name}")
    _check_range(x, -1 * bound, bound)
    if is_value(flag):
        get_recorder().add("check_values", flag, condition, f"the flag of {name}")
    elif bool(find_violations(to_fraction(flag), condition, 0.0)):
        raise CannotCompile(f"the flag of {name} must be {condition}, got {describe_kind(flag)}")


def _check_range(x: Any, low: Any, high: Any) -> None:
    """Record that a value of a token must be between `low` and `high` whenever the program runs."""
    if not is_value(x):
        raise CannotCompile(f"a gate or knots on {describe_kind(x)}: give a value of me")
    get_recorder().add("check_range", x, low, high)


def geometric_knots(low: Any, high: Any, count: int) -> Tensor:
    """Return knots from `low` to `high`, each the same multiple of the one before.

    Args:
        low: The first knot, above 0.
        high: The last knot.
        count: The number of knots.
    """
    first, last = float(low), float(high)
    if not 0 < first < last or count < 2:
        raise CannotCompile(
            f"geometric_knots needs 0 < low < high and 2 knots or more, got {first:g}, {last:g} "
            f"and {count}"
        )
    shares = torch.linspace(0.0, 1.0, count, dtype=torch.float64)
    knots = first * (last / first) ** shares
    knots[-1] = last
    return knots


def piecewise(x: Any, function: Callable[[Tensor], Tensor], knots: Sequence[float] | Tensor) -> Any:
    """Replace a function by straight lines between knots, and evaluate them on every entry.

    Both the program and its weights compute these straight lines. Their distance from the function
    is measured between the knots. When a certificate is made, its effect on a step is bounded, and
    compared with a step that uses the function itself.

    Args:
        x: A value, which must stay between the first and the last knot.
        function: The function, which receives a tensor of knots.
        knots: The places at which the lines are equal to the function.
    """
    if not is_value(x):
        raise CannotCompile(f"a gate or knots on {describe_kind(x)}: give a value of me")
    lines = Knots(function, torch.as_tensor(knots, dtype=torch.float64).clone())
    check_knots(lines)
    return get_recorder().make("interpolate", x, lines, shape=x.shape)
