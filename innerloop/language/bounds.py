"""Bounds on the errors of a step: straight lines instead of functions, and gates that leak.

The bounds are computed on one stream, with affine arithmetic. The value that the program would have
with the exact functions is

    middle + Σ_s slopes[s]·ε_s ± rest    for some ε_s in [−1, 1],

with one symbol ε for every number that a function on knots returns (one for all tokens if it is
shared). A symbol is the same in all values that depend on it. Errors that cancel to first order, as
in a Newton step, therefore cancel here too. A step starts from the exact state. Forms are linear.
The other operations are bounded as follows:

    knots    lines in the intervals within reach, and a new ε for the lines' own error (knots.py)
    units    the chord of max(x, 0) over the interval of x; half of its error is added to `rest`
    heads    products: slopes by the product rule; products of two errors are added to `rest`
    softmax  for scores off by s, |s| ≤ a, weights p and values v with mean m and spread R:
             Σ p (v − m) s, to R a²/√27, since |E (v − m)(s − E s)²| is at most 2R a²/√27;
             for a ≥ 1, tanh(a/2) R alone. Closed tokens leak their share of the spread

The bounds are rigorous in exact arithmetic under three conditions: the error bounds of the
intervals of knots hold (knots.py), flags of gates are 0 or 1, and functions are evaluated within
their knots, which the range checks require. Rounding errors are not included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.language.forms import Entry, Pairs, Row
from innerloop.language.nodes import Node, Part
from innerloop.language.plan import Plan
from innerloop.language.ranges import RangeCheck, count_keys
from innerloop.transformer import Layout

MOST_NUMBERS = 2**24
"""If the slopes of a value would have more entries than this, the errors are added to `rest`
instead.
"""
CURVATURE = 27**-0.5
"""Half of the largest |E (v − m)(s − E s)²| for |s| ≤ 1 and spread 1.

Two tokens with the scores 1 and −1 attain it.
"""
Tensors = dict[str, Tensor]


def has_knots(plan: Plan) -> bool:
    """Return whether a plan contains functions on knots."""
    return any(part.knots is not None for node in plan.nodes for part in node.parts)


class Affine(NamedTuple):
    """Values with error symbols: middle + Σ_s slopes[..., s]·ε_s ± rest.

    If two values have different numbers of symbols, the symbols that come first are the common
    ones.
    """

    middle: Tensor
    slopes: Tensor
    rest: Tensor

    @classmethod
    def of(cls, exact: Tensor) -> Affine:
        return cls(exact, exact.new_zeros(*exact.shape, 0), torch.zeros_like(exact))

    @property
    def radius(self) -> Tensor:
        """The largest distance of the value from `middle`."""
        return self.slopes.abs().sum(-1) + self.rest

    def fold(self) -> Affine:
        """Replace all error symbols by an interval; common errors are not recognised any more."""
        return Affine(self.middle, self.slopes[..., :0], self.radius)

    def scale(self, factor: Tensor) -> Affine:
        """Multiply by exact numbers."""
        return Affine(
            self.middle * factor, self.slopes * factor.unsqueeze(-1), self.rest * factor.abs()
        )

    def __add__(self, other: Affine) -> Affine:  # pyright: ignore[reportIncompatibleMethodOverride]
        slopes = _add_slopes(self.slopes, other.slopes)
        return Affine(self.middle + other.middle, slopes, self.rest + other.rest)

    def rectify(self) -> Affine:
        """Return bounds on max(x, 0).

        It lies between share·x and the chord share·x + share·(radius − middle).
        """
        radius = self.radius
        share = torch.where(
            self.middle.abs() < radius,
            (self.middle + radius) / (2 * radius).clamp_min(1e-300),
            (self.middle > 0).to(radius),
        )
        half = share * (radius - self.middle).clamp_min(0.0) / 2
        return self.scale(share) + Affine.of(half)._replace(rest=half)

    def multiply(self, other: Affine, sides: str) -> Affine:
        """Multiply two values and sum over entries; `sides` is an einsum string without batch
        and symbols.
        """
        inputs, out = sides.split("->")
        left, right = inputs.split(",")

        def contract(a: Tensor, b: Tensor, symbols: tuple[str, str, str] = ("", "", "")) -> Tensor:
            p, q, r = (f"...{side}{s}" for side, s in zip((left, right, out), symbols, strict=True))
            return torch.einsum(f"{p},{q}->{r}", a, b)

        slopes = _add_slopes(
            contract(self.slopes, other.middle, ("s", "", "s")),
            contract(self.middle, other.slopes, ("", "s", "s")),
        )
        common = min(self.slopes.shape[-1], other.slopes.shape[-1])
        p, q = self.slopes[..., :common], other.slopes[..., :common]
        # ε² is between 0 and 1: half of it is in the middle.
        squares, sizes = (contract(*each, ("s", "s", "")) for each in ((p, q), (p.abs(), q.abs())))
        rest = contract(self.middle.abs(), other.rest) + contract(self.rest, other.middle.abs())
        both = contract(self.radius, other.radius)
        middle = contract(self.middle, other.middle) + squares / 2
        return Affine(middle, slopes, rest + both - sizes / 2)


Affines = Mapping[str, Affine]


class ErrorBound(RangeCheck):
    """The values of all results of one plan on a stream, with bounds on their errors."""

    def __init__(self, plan: Plan, layout: Layout) -> None:
        super().__init__(plan, layout)
        self.plan = plan
        self._symbols = 0

    def compute(self, stream: Tensor, context: int) -> tuple[Tensors, Tensors]:
        """Return all results and their radii by name, each of shape (*batch, tokens, entries)."""
        self._symbols = 0
        values = self.read_registers(stream)
        meant = {name: Affine.of(value) for name, value in values.items()}
        for node in self.plan.nodes:
            values[node.name], _ = self.compute_node(node, values, context)
            if node.attends:
                meant[node.name] = self._attend(node, meant, context)
            else:
                meant[node.name] = self._rectify(node, meant)
        results, radii = {}, {}
        for name, form in self.plan.results.items():
            results[name], enclosed = self.combine(form.rows, values), combine(form.rows, meant)
            radius = (enclosed.middle - results[name]).abs() + enclosed.radius
            radii[name] = radius.masked_fill(radius.isnan(), math.inf)
        return results, radii

    def _rectify(self, node: Node, meant: Affines) -> Affine:
        total = Affine.of(meant["one"].middle.new_zeros(1))
        for part in node.parts:
            numbers = combine(part.rows, meant)
            numbers = _take_first(numbers) if node.shared else numbers
            if part.knots is None:
                total = total + _add_units(part, numbers)
                continue
            value, slope, half = part.knots.enclose(numbers.middle, numbers.radius)
            lines = numbers.scale(slope)
            followed = self._add_symbols(lines._replace(middle=value), half)
            total = total + followed.scale(half.new_tensor(float(part.factor)))
        return total

    def _add_symbols(self, known: Affine, half: Tensor) -> Affine:
        """Add errors of at most `half`, each with a symbol of its own, or to `rest` if there
        are too many.
        """
        after = self._symbols + half.shape[-2:].numel()
        if half.numel() * after > MOST_NUMBERS:
            return known._replace(rest=known.rest + half)
        own = torch.diag_embed(half.flatten(-2)).unflatten(-2, half.shape[-2:])
        own = torch.nn.functional.pad(own, (self._symbols, 0))
        self._symbols = after
        return known._replace(slopes=_add_slopes(known.slopes, own))

    def _attend(self, node: Node, meant: Affines, context: int) -> Affine:
        one = meant["one"].middle
        counted = count_keys(node, one.shape[-2], context, one)
        counted = counted[-1:] if node.shared else counted
        if one[..., 0, 0].numel() * counted.numel() * self._symbols > MOST_NUMBERS:
            meant = {name: each.fold() for name, each in meant.items()}
        firsts = {name: _take_first(each) for name, each in meant.items()}
        queries = firsts if node.shared else meant
        gate = score(node.gate, queries, meant)
        closed = (gate.middle < -float(node.reach or 0) / 2) & (counted > 0)
        total = Affine.of(one.new_zeros(*closed.shape[:-1], node.size))
        for term in node.terms:
            rows: list[Row] = [{} for _ in range(node.size)]
            for (index, entry), c in term.value.items():
                rows[index][entry] = c
            sent, scores = combine(rows, meant), score(term.score, queries, meant)
            if node.kind == "softmax":
                total = total + _average(scores, gate.middle, closed, counted, sent)
            else:
                weights = (scores.rectify() if term.active else scores).scale(counted * ~closed)
                total = total + weights.multiply(sent, "tk,ke->te")
        if bool((gate.radius > 0).any()):  # no flag, which is 0 or 1
            return total._replace(rest=torch.full_like(total.rest, math.inf))
        return total


def combine(rows: list[Row], meant: Affines) -> Affine:
    """Evaluate forms of a token; the result has shape (*batch, tokens, rows)."""
    like = meant["one"].middle
    total = Affine.of(like.new_zeros(*like.shape[:-2], 1, len(rows)))
    matrices: Tensors = {}
    for index, row in enumerate(rows):
        for (name, i), c in row.items():
            if name not in matrices:
                matrices[name] = like.new_zeros(len(rows), meant[name].middle.shape[-1])
            matrices[name][index, i] = float(c)
    for name, matrix in matrices.items():
        middle, slopes, rest = meant[name]
        slopes = torch.einsum("...es,re->...rs", slopes, matrix)
        total = total + Affine(middle @ matrix.mT, slopes, rest @ matrix.abs().mT)
    return total


def score(pairs: Pairs, queries: Affines, keys: Affines) -> Affine:
    """Evaluate a score for all pairs of tokens, as one form of the query for every entry of the
    key.
    """
    forms: dict[Entry, Row] = {}
    for (query, key), c in pairs.items():
        forms.setdefault(key, {})[query] = c
    left = combine(list(forms.values()), queries)
    right = combine([{key: Fraction(1)} for key in forms], keys)
    every = torch.ones_like(keys["one"].middle)
    return left.multiply(right.scale(every), "tr,kr->tk")


def _add_slopes(*parts: Tensor) -> Tensor:
    """Add slopes that may have different numbers of symbols."""
    most = max(part.shape[-1] for part in parts)
    padded = [torch.nn.functional.pad(part, (0, most - part.shape[-1])) for part in parts]
    return torch.stack(torch.broadcast_tensors(*padded)).sum(0)


def _take_first(each: Affine) -> Affine:
    """Return the first token's value if the value is the same in all tokens."""
    return Affine(each.middle[..., :1, :], each.slopes[..., :1, :, :], each.rest[..., :1, :])


def _add_units(part: Part, numbers: Affine) -> Affine:
    """Bound the values that hidden units add to every entry."""
    total = Affine.of(torch.zeros_like(numbers.middle))
    for slope, bias, weight in zip(*part.net, strict=True):
        s, b, w = (numbers.middle.new_tensor(float(c)) for c in (slope, bias, weight))
        inputs = numbers.scale(s)
        total = total + inputs._replace(middle=inputs.middle + b).rectify().scale(w)
    return total


def _average(values: Affine, gate: Tensor, closed: Tensor, counted: Tensor, sent: Affine) -> Affine:
    """Bound an average with softmax weights."""
    masked = values.middle.masked_fill(counted == 0, -math.inf)
    weights = masked.masked_fill(closed, -math.inf).softmax(-1)
    alive = (counted > 0) & ~closed
    # Weights do not change with what all scores have in common.
    apart = values.slopes - _find_common(values.slopes, alive)
    off = (apart.abs().sum(-1) + values.rest).masked_fill(~alive, 0.0).amax(-1, keepdim=True)
    near, turned = off < 1, torch.tanh(off / 2)
    mean = Affine.of(weights).multiply(sent, "tk,ke->te")
    aside = weights.unsqueeze(-1) * (sent.middle.unsqueeze(-3) - mean.middle.unsqueeze(-2))
    moved = torch.einsum("...tks,...tke->...tes", apart * near.unsqueeze(-1), aside)
    rest = torch.einsum("...tk,...tke->...te", values.rest, aside.abs())
    spread = _find_spread(sent.middle, sent.middle, alive)
    rest = torch.where(near, rest + CURVATURE * spread * off**2, turned * spread)
    both = 2 * turned * (alive.to(spread).unsqueeze(-1) * sent.radius.unsqueeze(-3)).amax(-2)
    leaked = ((masked + gate).softmax(-1) * closed).sum(-1, keepdim=True)
    leaked = (leaked * (2 * off).exp()).clamp_max(1.0)
    ends = sent.middle - sent.radius, sent.middle + sent.radius
    rest = rest + both + leaked * _find_spread(*ends, (counted > 0).expand_as(alive))
    return mean + Affine(torch.zeros_like(rest), moved, rest)


def _find_common(slopes: Tensor, alive: Tensor) -> Tensor:
    """Return, for each token and symbol, the middle of the slopes of all scores that count."""
    shut = ~alive.unsqueeze(-1)
    highest = slopes.masked_fill(shut, -math.inf).amax(-2, keepdim=True)
    lowest = slopes.masked_fill(shut, math.inf).amin(-2, keepdim=True)
    return ((highest + lowest) / 2).nan_to_num(0.0)  # infinite minus infinite where none counts


def _find_spread(low: Tensor, high: Tensor, alive: Tensor) -> Tensor:
    """Return the largest minus the smallest value among the tokens that each token attends to."""
    shut = ~alive.unsqueeze(-1)
    highest = high.unsqueeze(-3).masked_fill(shut, -math.inf).amax(-2)
    lowest = low.unsqueeze(-3).masked_fill(shut, math.inf).amin(-2)
    return (highest - lowest).clamp_min(0.0)
