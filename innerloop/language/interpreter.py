"""The interpreter: it replays a record on arrays, batched and differentiable, or of rationals.

It is the reference that compiled weights are compared with. Interpreter and compiler replay the
same record. Registers are arrays of shape (*batch, tokens, *shape); a shared register has one
token.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from innerloop.errors import InputError
from innerloop.language.conditions import MAX_ERROR, Condition, find_error, find_violations
from innerloop.language.errors import CannotCompile
from innerloop.language.knots import Knots
from innerloop.language.machine import Body, Machine
from innerloop.language.values import Array, Value, convert_like


def insert_axis(array: Array, place: int) -> Array:
    """Insert an axis of length 1."""
    shape = tuple(array.shape)
    return array.reshape((*shape[:place], 1, *shape[place:]))


class Interpreter(Machine):
    """Holds the registers of all tokens during a replay; the first `context` tokens are context.

    If it is `smooth`, it computes the functions themselves instead of the lines between their
    knots.
    """

    def __init__(
        self, registers: dict[str, Value], tokens: int, context: int, smooth: bool = False
    ) -> None:
        self.registers = registers
        self.smooth = smooth
        self.tokens = tokens
        self.context = context
        self._like = next(iter(registers.values())).array
        self._declared = {name: value.shape for name, value in registers.items()}

    def read(self, name: str, side: str) -> Value:
        value = self.registers[name]
        place = value.array.ndim - len(value.shape)
        array = insert_axis(value.array, place if side == "me" else place - 1)
        return Value(array, value.shape)

    def write(self, name: str, value: Any) -> None:
        if not isinstance(value, Value):
            value = Value(convert_like(self._like, value).reshape(1, 1), ())
        declared = self._declared.get(name, ())
        if value.shape == () and declared:  # one number is every entry's
            array = value.array.reshape((*value.array.shape, *(1 for _ in declared)))
            value = Value(_expand_entries(array, declared), declared)
        shape = tuple(value.array.shape)
        keys = len(shape) - len(value.shape) - 1
        self.registers[name] = Value(
            value.array.reshape(shape[:keys] + shape[keys + 1 :]), value.shape
        )

    def interpolate(self, value: Value, knots: Knots) -> Value:
        """Return the straight lines between knots, or the function itself if the interpreter is
        `smooth`.
        """
        if self.smooth:
            return Value(knots.evaluate(value.array), value.shape)
        return value.sum_hinges(*knots.net)

    def check_range(self, value: Any, low: Any, high: Any) -> None:
        """Do nothing: the construction's method `usage` checks ranges."""

    def check_number(self, number: Any, least: int, above: bool, name: str) -> None:
        """Do nothing: the compiler checks numbers, and `identify` may try any number in a fit."""

    def check_values(self, value: Value, condition: Condition, name: str) -> None:
        violated = find_violations(value.array, condition, self._error)
        if violated.any():
            entry = float(_pick(value.array, violated))
            raise CannotCompile(
                f"{name} must be {condition} in every token, and is {entry:.9g} in one: what it "
                "computes is then not what its name says"
            )

    @property
    def _error(self) -> float:
        """The largest error that a flag may have; 0 for rational numbers."""
        return find_error(self._like.dtype) if isinstance(self._like, Tensor) else 0.0

    def _find_keys(self, over: str) -> np.ndarray:
        """Return which tokens count, (tokens, keys), or (1, keys) if they are the same for all
        tokens.
        """
        keys = np.arange(self.tokens)
        if over == "causal":
            return keys[None, :] <= keys[:, None]
        return keys[None, :] < (self.context if over == "context" else self.tokens)

    def attend(
        self,
        summand: Body,
        over: str,
        average: bool,
        where: Body | None,
        reach: Any,
        mark: str | None,
        gap: Any,
    ) -> Value:
        value = _as_value(summand(), self._like)
        counted = convert_like(self._like, self._find_keys(over).astype(int))
        if where is not None:
            counted = counted * self._find_flags(where)
        if mark is not None:
            counted = counted * self._find_same_marks(mark, gap)
        if average:
            counts = self._find_keys(over).sum(-1, keepdims=True)
            shares = np.array([[Fraction(1, int(c))] for [c] in counts], dtype=object)
            counted = counted * convert_like(self._like, shares)
        rank = len(value.shape)
        counted = counted.reshape(tuple(counted.shape) + (1,) * rank)
        weighted = value.array * counted
        keys = weighted.ndim - rank - 1
        return Value(insert_axis(weighted.sum(keys), keys), value.shape)

    def _find_flags(self, where: Body) -> Array:
        """Return the flag of each pair of tokens; raise an error if one is neither 0 nor 1."""
        flags = _as_value(where(), self._like).array
        violated = find_violations(flags, "0 or 1", self._error)
        if violated.any():
            raise CannotCompile(
                "`where` must be 0 or 1 for every pair of tokens, and is "
                f"{float(_pick(flags, violated)):.9g} for one: a gate that is half open lets part "
                "of its score through"
            )
        return flags

    def _find_same_marks(self, mark: str, gap: Any) -> Array:
        """Return which pairs of tokens have the same mark.

        Raise an error if marks are too close.
        """
        marks, least = (
            self.registers[mark].array,
            float(gap.array if isinstance(gap, Value) else gap),
        )
        counts = not self.registers[mark].shape
        if counts:
            apart = abs(marks[..., :, None] - marks[..., None, :])
            same, unclear = apart == 0, (apart > 0) & (apart < least)
        else:
            apart = 1 - (marks[..., :, None, :] * marks[..., None, :, :]).sum(-1)
            same, error = apart < least / 2, MAX_ERROR * least
            unclear = (abs(apart) > error) & (apart < least - error)
        if unclear.any():
            raise CannotCompile(
                f"the marks {mark!r} of two tokens are neither the same nor {least:g} apart: "
                "own_total needs numbers of tokens, or marks with products of 1 and of at most "
                "1 − gap"
            )
        if not counts and not isinstance(self._like, Tensor) and (apart[same] != 0).any():
            raise InputError(
                f"the marks {mark!r} are points on circles, which are not rational: there is no "
                "exact certificate, the one of `build` holds the weights to rounding"
            )
        return convert_like(self._like, same)

    def attend_softmax(
        self, score: Body, value: Body, over: str, where: Body | None, reach: Any
    ) -> Value:
        if not isinstance(self._like, Tensor):
            raise InputError("softmax has no rational values: exp of a rational number is none")
        scores = _as_value(score(), self._like).array
        values = _as_value(value(), self._like)
        counted = torch.as_tensor(self._find_keys(over), device=self._like.device)
        if where is not None:
            counted = counted & (self._find_flags(where) > 0.5)
        scores, counted = torch.broadcast_tensors(scores, counted)
        weights = scores.masked_fill(~counted, -math.inf).softmax(-1)
        rank = len(values.shape)
        weighted = values.array * weights.reshape(tuple(weights.shape) + (1,) * rank)
        keys = weighted.ndim - rank - 1
        return Value(insert_axis(weighted.sum(keys), keys), values.shape)


def _pick(array: Array, marked: Array) -> Any:
    """Return the entry of an array at the first marked position."""
    return array.reshape(-1)[int(marked.reshape(-1).nonzero()[0].reshape(-1)[0])]


def _expand_entries(array: Array, shape: tuple[int, ...]) -> Array:
    """Repeat one number for every entry of a register, whose shape becomes the last dimensions."""
    whole = tuple(array.shape[: array.ndim - len(shape)]) + shape
    return array.expand(whole) if isinstance(array, Tensor) else np.broadcast_to(array, whole)


def _as_value(value: Any, like: Array) -> Value:
    """Return a value unchanged, and convert a plain number to a value."""
    if isinstance(value, Value):
        return value
    return Value(convert_like(like, value).reshape(1, 1), ())
