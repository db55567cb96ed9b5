"""Checks of ranges on a stream: scores within their `reach`, gated values, and arguments on knots.

A gate closes a head only to scores within its reach, and a hidden unit only to numbers within its
bound. The intermediate results are computed again here, from the trace alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from innerloop.language.conditions import find_error, find_violations
from innerloop.language.forms import Pairs, Row
from innerloop.language.nodes import Node, Part
from innerloop.language.plan import Plan
from innerloop.transformer import Layout

LEAK = 40.0
"""The smallest amount by which the reach of a softmax gate must exceed the range of its scores."""


class RangeCheck:
    """The ranges of one plan; `measure` returns the share of them that a stream uses."""

    def __init__(self, plan: Plan, layout: Layout) -> None:
        self.layout = layout
        self.ranges = plan.ranges
        self.needed = _list_needed(plan)
        self.sizes = {name: layout[name].size for name in layout.registers}
        self.sizes |= {node.name: node.size for node in plan.nodes}

    def measure(self, stream: Tensor, context: int) -> float:
        """Return the largest share of a range that the stream uses; above 1 it is out of range."""
        values, shares = self.read_registers(stream), [0.0]
        for node in self.needed:
            values[node.name], share = self.compute_node(node, values, context)
            shares.append(share)
        for each in self.ranges:
            numbers = self.combine(each.rows, values)
            if each.condition is not None:
                violated = bool(
                    find_violations(numbers, each.condition, find_error(numbers.dtype)).any()
                )
                shares.append(math.inf if violated else 0.0)
                continue
            middle, half = (each.high + each.low) / 2, (each.high - each.low) / 2
            shares.append(float((numbers - float(middle)).abs().max()) / float(half))
        return max(math.inf if math.isnan(share) else share for share in shares)

    def read_registers(self, stream: Tensor) -> dict[str, Tensor]:
        """Return the contents of every register, flattened, and the constant `one`."""
        values = {
            name: stream[..., list(self.layout[name].places)] for name in self.layout.registers
        }
        return {**values, "one": torch.ones_like(stream[..., :1])}

    def compute_node(
        self, node: Node, values: Mapping[str, Tensor], context: int
    ) -> tuple[Tensor, float]:
        """Return the result of a node, and the share of its reach that the scores use."""
        if not node.attends:
            return sum((self.rectify(part, values) for part in node.parts), torch.zeros(())), 0.0
        tokens, used = values["one"].shape[-2], 0.0
        out = values["one"].new_zeros(*values["one"].shape[:-1], node.size)
        counted = count_keys(node, tokens, context, values["one"])
        gate = self.score(node.gate, values) if node.gate else torch.zeros_like(counted)
        closed = (gate < -float(node.reach or 0) / 2) & (counted > 0)
        if node.flagged and node.reach is not None:
            flags = (1 + gate / float(node.reach)) * (counted > 0)
            used = (
                math.inf
                if bool(find_violations(flags, "0 or 1", find_error(flags.dtype)).any())
                else 0.0
            )
        for term in node.terms:
            score = self.score(term.score, values)
            if node.reach is not None:
                used = max(used, _compare_reach(node, score, closed, counted))
            score = score.masked_fill(closed, -math.inf if node.kind == "softmax" else 0.0)
            if node.kind == "softmax":
                weights = score.masked_fill(counted == 0, -math.inf).softmax(-1)
            else:
                weights = (score.relu() if term.active else score) * counted
            out = out + weights @ self.combine_value(node, term.value, values)
        return out, used

    def rectify(self, part: Part, values: Mapping[str, Tensor]) -> Tensor:
        """Return the values that hidden units add to every entry."""
        slope, bias, weight = (
            torch.tensor([float(c) for c in side]).to(values["one"]) for side in part.net
        )
        numbers = self.combine(part.rows, values)
        return (numbers.unsqueeze(-1) * slope + bias).relu() @ weight

    def combine(self, rows: list[Row], values: Mapping[str, Tensor]) -> Tensor:
        """Evaluate forms of a token; the result has shape (*batch, tokens, rows)."""
        columns = []
        for row in rows:
            column = torch.zeros_like(values["one"][..., 0])
            for (name, i), c in row.items():
                column = column + float(c) * values[name][..., i]
            columns.append(column)
        return torch.stack(columns, dim=-1)

    def combine_value(self, node: Node, value: Any, values: Mapping[str, Tensor]) -> Tensor:
        rows: list[Row] = [{} for _ in range(node.size)]
        for (index, entry), c in value.items():
            rows[index][entry] = c
        return self.combine(rows, values)

    def score(self, pairs: Pairs, values: Mapping[str, Tensor]) -> Tensor:
        """Evaluate a score for all pairs of tokens."""
        grouped: dict[tuple[str, str], Tensor] = {}
        for ((a, i), (b, j)), c in pairs.items():
            if (a, b) not in grouped:
                shape = values[a].shape[-1], values[b].shape[-1]
                grouped[a, b] = values["one"].new_zeros(shape)
            grouped[a, b][i, j] += float(c)
        total = torch.zeros_like(values["one"] * values["one"].mT)
        for (a, b), matrix in grouped.items():
            total = total + values[a] @ matrix @ values[b].mT
        return total


def _list_needed(plan: Plan) -> list[Node]:
    """List the nodes that ranges depend on, and the nodes with a reach."""
    needed = {entry[0] for each in plan.ranges for row in each.rows for entry in row}
    for node in reversed(plan.nodes):
        if node.name in needed or node.reach is not None:
            needed |= {node.name, *node.list_reads()}
    return [node for node in plan.nodes if node.name in needed]


def count_keys(node: Node, tokens: int, context: int, like: Tensor) -> Tensor:
    """Return the weight of every key for every token: 0, or the normalisation."""
    mask, normalisation = node.setting or ("all", "1/N")
    counted = like.new_ones(tokens, tokens)
    if mask == "causal":
        counted = counted.tril()
    if mask == "context":
        counted = counted * (torch.arange(tokens, device=like.device) < context)
    divisors = counted.sum(-1, keepdim=True) if normalisation != "1" else 1.0
    return counted / divisors


def _compare_reach(node: Node, score: Tensor, closed: Tensor, counted: Tensor) -> float:
    """Return the share of a gate's reach that scores use: those of silenced tokens, or a
    softmax's range.
    """
    reach = float(node.reach or 0)
    if node.kind == "softmax":
        room = (reach - LEAK - math.log(score.shape[-1])) / 2
        return float((score * (counted > 0)).abs().max()) / room if room > 0 else math.inf
    return float((score * closed).abs().max()) / reach
