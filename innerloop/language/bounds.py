"""How far straight lines and leaking gates take a step from what it means, bounded on a stream.

Every value has a radius: the program with functions themselves is within it. Radii start from 0 in
the registers, since a step starts from the exact state, and are propagated with the values:

    forms    Σ|c|·radius
    knots    slope·radius + the lines' own error, in the intervals that the radius reaches
    units    the largest slope within the radius, times the radius
    heads    Σ_j |score|·r(value) + r(score)·|value| + r(score)·r(value), under the mask
    softmax  weights are off by factors within e^{±r}, so the mean of values by tanh(r/2) of their
             spread, and by the values' own radius; closed tokens leak their share of it

Rounding is apart. What cancels to first order, as in a Newton step, is not seen: such a bound is
larger than it need be.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from innerloop.language.forms import Form, Pairs, Row
from innerloop.language.nodes import Node, Part
from innerloop.language.plan import Plan
from innerloop.language.ranges import RangeCheck, count_keys
from innerloop.transformer import Layout

Tensors = dict[str, Tensor]


def has_knots(plan: Plan) -> bool:
    """Whether a plan follows functions on knots."""
    return any(part.knots is not None for node in plan.nodes for part in node.parts)


class ErrorBound(RangeCheck):
    """The results of one plan on a stream, each with the radius that holds what is meant."""

    def __init__(self, plan: Plan, layout: Layout) -> None:
        super().__init__(plan, layout)
        self.plan = plan

    def compute(self, stream: Tensor, context: int) -> tuple[Tensors, Tensors]:
        """Return all results and their radii, (*batch, tokens, entries) by name."""
        values = self.read_registers(stream)
        radii = {name: torch.zeros_like(value) for name, value in values.items()}
        for node in self.plan.nodes:
            find = self._attend if node.attends else self._rectify
            values[node.name], radii[node.name] = find(node, values, radii, context)
        forms = self.plan.results
        return (
            {name: self.combine(form.rows, values) for name, form in forms.items()},
            {name: self._spread(form, radii) for name, form in forms.items()},
        )

    def _spread(self, form: Form, radii: Tensors) -> Tensor:
        return self.combine(_drop_signs(form.rows), radii)

    def _rectify(
        self, node: Node, values: Tensors, radii: Tensors, context: int
    ) -> tuple[Tensor, Tensor]:
        value, radius = torch.zeros(()), torch.zeros(())
        for part in node.parts:
            value = value + self.rectify(part, values)
            spread = self.combine(_drop_signs(part.rows), radii)
            numbers = self.combine(part.rows, values)
            if part.knots is None:
                radius = radius + _bound_slopes(part, numbers, spread) * spread
            else:
                error = part.knots.bound_error(numbers, spread)
                radius = radius + abs(float(part.factor)) * error
        return value, radius

    def _attend(
        self, node: Node, values: Tensors, radii: Tensors, context: int
    ) -> tuple[Tensor, Tensor]:
        one = values["one"]
        counted = count_keys(node, one.shape[-2], context, one)
        gate = self.score(node.gate, values) if node.gate else torch.zeros_like(counted)
        closed = (gate < -float(node.reach or 0) / 2) & (counted > 0)
        value = one.new_zeros(*one.shape[:-1], node.size)
        radius = torch.zeros_like(value)
        for term in node.terms:
            score = self.score(term.score, values)
            off = self._spread_score(term.score, values, radii)
            rows: list[Row] = [{} for _ in range(node.size)]
            for (index, entry), c in term.value.items():
                rows[index][entry] = c
            sent, sent_off = self.combine(rows, values), self.combine(_drop_signs(rows), radii)
            if node.kind == "softmax":
                found = _average(score, off, gate, closed, counted, sent, sent_off)
            else:
                weights = score.relu() if term.active else score
                weights, off = (
                    (part * counted).masked_fill(closed, 0.0) for part in (weights, off)
                )
                spread = weights.abs() @ sent_off + off @ (sent.abs() + sent_off)
                found = weights @ sent, spread
            value, radius = value + found[0], radius + found[1]
        return value, radius

    def _spread_score(self, pairs: Pairs, values: Tensors, radii: Tensors) -> Tensor:
        """Return the radii of a score: (|q| + r)(|k| + r) − |q||k| for each product."""
        signless = {pair: abs(c) for pair, c in pairs.items()}
        sizes = {name: value.abs() for name, value in values.items()}
        wide = {name: size + radii[name] for name, size in sizes.items()}
        return (self.score(signless, wide) - self.score(signless, sizes)).clamp_min(0.0)


def _drop_signs(rows: list[Row]) -> list[Row]:
    return [{entry: abs(c) for entry, c in row.items()} for row in rows]


def _bound_slopes(part: Part, numbers: Tensor, spread: Tensor) -> Tensor:
    """Bound the slope of hidden units within a radius: all that are active, some that may be."""
    slope, bias, weight = (torch.tensor([float(c) for c in side]).to(numbers) for side in part.net)
    inputs = numbers.unsqueeze(-1) * slope + bias
    reach = spread.unsqueeze(-1) * slope.abs()
    each = weight * slope
    certain = ((inputs - reach > 0) * each).sum(-1).abs()
    return certain + ((inputs.abs() <= reach) * each.abs()).sum(-1)


def _average(
    score: Tensor,
    off: Tensor,
    gate: Tensor,
    closed: Tensor,
    counted: Tensor,
    sent: Tensor,
    sent_off: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return an average with softmax weights, and its radius."""
    masked = score.masked_fill(counted == 0, -math.inf)
    open_ = masked.masked_fill(closed, -math.inf).softmax(-1)
    leaked = ((masked + gate).softmax(-1) * closed).sum(-1, keepdim=True)
    alive = (counted > 0) & ~closed
    largest = off.masked_fill(~alive, 0.0).amax(-1, keepdim=True)
    spread = _find_spread(sent, alive)
    own = (alive.to(sent).unsqueeze(-1) * sent_off.unsqueeze(-3)).amax(-2)
    everywhere = _find_spread(sent, (counted > 0).expand_as(alive))
    return open_ @ sent, torch.tanh(largest / 2) * spread + own + leaked * everywhere


def _find_spread(sent: Tensor, alive: Tensor) -> Tensor:
    """Return the largest minus the smallest value among the tokens that each token sees."""
    each = sent.unsqueeze(-3)
    shut = ~alive.unsqueeze(-1)
    highest = each.masked_fill(shut, -math.inf).amax(-2)
    lowest = each.masked_fill(shut, math.inf).amin(-2)
    return (highest - lowest).clamp_min(0.0)
