"""Exact arithmetic: run planned blocks, or the float64 weights of a transformer, in rationals.

A stream is a NumPy array (tokens, width) of Fractions. `Activity` records which ReLU units and
heads were active, because a point of a piecewise linear function represents its own pattern only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, cast

import numpy as np
from torch import Tensor

from innerloop.errors import InputError
from innerloop.language.plan import Plan, PlannedBlock, PlannedHead, Unit
from innerloop.transformer import Block, Layout
from innerloop.transformer.mlp import ElementwiseUnits

ROUNDING = Fraction(1, 1 << 50)
"""The relative error that the rounding of weights may cause: a float64 weight is within 2⁻⁵³ of
its rational, and scores are products of two of them.
"""
Stream = Any
"""A NumPy array (tokens, width) of Fractions."""


@dataclass
class Activity:
    """The ReLUs that were observed active and silent, and the distinct patterns of all of them."""

    active: set[Any] = field(default_factory=set)
    silent: set[Any] = field(default_factory=set)
    patterns: set[bytes] = field(default_factory=set)
    _now: list[bytes] = field(default_factory=list)

    def note(self, key: Any, numbers: Any) -> None:
        """Record the inputs of one ReLU."""
        on = numbers > 0
        self._now.append(on.tobytes())
        if on.any():
            self.active.add(key)
        if not on.all():
            self.silent.add(key)

    def note_columns(self, keys: list[Any], numbers: Any) -> None:
        """Record the inputs of several ReLUs, one column for each."""
        on = numbers > 0
        self._now.append(on.tobytes())
        self.active |= {key for key, some in zip(keys, on.any(0), strict=True) if some}
        self.silent |= {key for key, every in zip(keys, on.all(0), strict=True) if not every}

    def finish_point(self) -> None:
        """Count the pattern of the point that was run."""
        if self._now:
            self.patterns.add(b"|".join(self._now))
        self._now = []

    def count_sides(self) -> int:
        """Return the number of sides from which ReLUs were observed."""
        return len(self.active) + len(self.silent)

    @property
    def one_sided(self) -> list[Any]:
        """The ReLUs that were never observed active, or never silent."""
        return sorted(self.active ^ self.silent, key=str)


def rectify(numbers: Any) -> Any:
    """Return max(x, 0) for every entry."""
    zero: Any = Fraction(0)
    return np.maximum(numbers, zero)


def run_plan(
    plan: Plan, layout: Layout, stream: Stream, context: int, activity: Activity | None = None
) -> Stream:
    """Run planned blocks in exact arithmetic, without rounding."""
    for number, block in enumerate(plan.blocks):
        check_kind(block.kind, bool(block.heads))
        stream = _attend_planned(block, layout, stream, context, activity, number)
        update = np.full(stream.shape, Fraction(0), dtype=object)
        for index, unit in enumerate(block.units):
            numbers = np.full(len(stream), unit.bias, dtype=object)
            for entry, c in unit.reads.items():
                numbers = numbers + c * stream[:, _find_place(layout, entry)]
            if activity is not None and unit.reads:
                activity.note((number, "unit", index), numbers)
            for entry, c in unit.writes.items():
                update[:, _find_place(layout, entry)] += c * rectify(numbers)
        before = 0
        for hinges in block.hinges:
            slope, bias, weight = (np.array(part, dtype=object) for part in hinges.net)
            for source, target in zip(hinges.sources, hinges.targets, strict=True):
                numbers = stream[:, _find_place(layout, source), None] * slope + bias
                if activity is not None:
                    keys = [(number, "hinge", before + k) for k in range(len(slope))]
                    activity.note_columns(keys, numbers)
                update[:, _find_place(layout, target)] += (rectify(numbers) * weight).sum(-1)
            before += len(slope)
        stream = stream + update
    return stream


def bound_rounding(plan: Plan, layout: Layout, stream: Stream, context: int) -> Stream:
    """Bound the change of one stream's results if each weight has a relative error of ROUNDING.

    All weights and numbers are replaced by positive ones. Then nothing cancels, every ReLU is open,
    and the effect of slightly larger weights bounds that of any change of this size.
    """
    positive = abs(stream)
    runs = [run_plan(_enlarge(plan, 1 + e), layout, positive, context) for e in (0, ROUNDING)]
    return runs[1] - runs[0]


def _enlarge(plan: Plan, factor: Fraction | int) -> Plan:
    """Return a plan with all weights positive and multiplied by a factor."""

    def change(row: dict[Any, Fraction]) -> dict[Any, Fraction]:
        return {key: abs(c) * factor for key, c in row.items()}

    blocks = [
        replace(
            block,
            kind="linear",
            heads=[PlannedHead(*map(change, head)) for head in block.heads],
            units=[
                Unit(change(u.reads), abs(u.bias) * factor, change(u.writes)) for u in block.units
            ],
            hinges=[
                h._replace(net=tuple([abs(c) * factor for c in part] for part in h.net))
                for h in block.hinges
            ],
        )
        for block in plan.blocks
    ]
    return replace(plan, blocks=blocks)


def _find_place(layout: Layout, entry: tuple[str, int]) -> int:
    return layout[entry[0]].places[entry[1]]


def _attend_planned(
    block: PlannedBlock,
    layout: Layout,
    stream: Stream,
    context: int,
    activity: Activity | None,
    number: int,
) -> Stream:
    if not block.heads:
        return stream
    counted = count_keys(block.mask, block.normalisation, len(stream), context)
    out = stream.copy()
    for index, head in enumerate(block.heads):
        scores = np.full((len(stream),) * 2, Fraction(0), dtype=object)
        for (query, key), c in head.score.items():
            a, b = (stream[:, _find_place(layout, entry)] for entry in (query, key))
            scores = scores + np.outer(c * a, b)
        if block.kind == "relu":
            if activity is not None:
                activity.note((number, "head", index), scores[counted != 0])
            scores = rectify(scores)
        weights = scores * counted
        for (key, target), c in head.value.items():
            out[:, _find_place(layout, target)] += c * (
                weights @ stream[:, _find_place(layout, key)]
            )
    return out


def count_keys(mask: str, normalisation: str, tokens: int, context: int) -> Any:
    """Return the weight of every key for every token: 0, or the normalisation."""
    i, j = np.arange(tokens)[:, None], np.arange(tokens)[None, :]
    limit = {"all": tokens + 0 * i, "context": context + 0 * i, "causal": i + 1}[mask]
    inside = (j < limit).astype(object) * Fraction(1)
    divisors = {"1/n": [context] * tokens, "1/N": [tokens] * tokens, "1/i": range(1, tokens + 1)}
    shares = [Fraction(1, c) for c in divisors.get(normalisation, [1] * tokens)]
    return inside * np.array(shares, dtype=object)[:, None]


def check_kind(kind: str, attends: bool = True) -> None:
    """Raise an error for softmax attention."""
    if attends and kind == "softmax":
        raise InputError(
            "softmax has no exact certificate: exp of a rational number is not rational; the "
            "certificate of `build` holds it to rounding"
        )


def to_fractions(weights: Tensor | np.ndarray) -> Any:
    """Convert floats to the rational numbers that they represent."""
    if isinstance(weights, Tensor):
        weights = weights.detach().double().numpy()
    numbers = [Fraction(v) for v in weights.flatten().tolist()]
    return np.array(numbers, dtype=object).reshape(tuple(weights.shape))


def _apply(weights: Tensor, stream: Stream) -> Stream:
    """Return stream @ weights.T for a matrix of floats most of which are 0."""
    out = np.full((len(stream), len(weights)), Fraction(0), dtype=object)
    for row, column in weights.nonzero().tolist():
        out[:, row] += Fraction(float(weights[row, column])) * stream[:, column]
    return out


def run_blocks(blocks: Iterable[Any], stream: Stream, context: int) -> Stream:
    """Run the blocks of a transformer in rational arithmetic, with its float64 weights as
    rationals.
    """
    for each in blocks:
        block = cast(Block, each)
        if (attention := block.attention) is not None:
            check_kind(attention.kind)
            counted = count_keys(attention.mask, attention.normalisation, len(stream), context)
            out, targets = stream.copy(), attention.targets.numpy()
            for q, k, v in zip(attention.query, attention.key, attention.value, strict=True):
                scores = _apply(q, stream) @ _apply(k, stream).T
                weights = (rectify(scores) if attention.kind == "relu" else scores) * counted
                out[:, targets] += weights @ _apply(v, stream)
            stream = out
        if (mlp := block.mlp) is not None:
            out = stream.copy()
            if len(mlp.bias):
                hidden = rectify(_apply(mlp.inner, stream) + to_fractions(mlp.bias))
                out[:, mlp.targets.numpy()] += _apply(mlp.outer, hidden)
            for piece in mlp.everywhere:
                units = cast(ElementwiseUnits, piece)
                slope, bias, weight = map(to_fractions, (units.slope, units.bias, units.weight))
                numbers = stream[:, units.source.numpy()][..., None] * slope + bias
                added = (rectify(numbers) * weight).sum(-1)
                for place, column in zip(units.target.tolist(), added.T, strict=True):
                    out[:, place] += column  # several units may add to one place
            stream = out
    return stream
