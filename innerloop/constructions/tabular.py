"""Heads and MLP pieces for tabular planning: copies by position, cells, sums, maxima.

They use the registers `one`, `i` and `i2` (a token's position, and its square) and `e` (its
episode).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from innerloop.transformer import Address, Head, Layout, Units, affine, clear
from innerloop.transformer.layout import Location
from innerloop.transformer.pieces import Piece

Pairs = dict[tuple[Location, Location], float]


def copy_score(back: int) -> Pairs:
    """Return the score 1 − (i − o − j)²: 1 for the token o = `back` places before, else ≤ 0."""
    return {
        ("one", "one"): 1.0 - back**2,
        ("i2", "one"): -1.0,
        ("one", "i2"): -1.0,
        ("i", "i"): 2.0,
        ("i", "one"): 2.0 * back,
        ("one", "i"): -2.0 * back,
    }


def sum_earlier(names: dict[str, str]) -> list[Head]:
    """Return heads that sum registers over the tokens of earlier episodes.

    σ(e_i − e_j) − σ(e_i − e_j − 1) is 1 for a token of an earlier episode, otherwise 0. `names`
    maps each register that is read to the one that is written.
    """
    ahead: Pairs = {("e", "one"): 1.0, ("one", "e"): -1.0}
    added, taken = (dict.fromkeys(names.items(), sign) for sign in (1.0, -1.0))
    return [Head(ahead, added), Head({**ahead, ("one", "one"): -1.0}, taken)]


def mark_cells(reads: list[tuple[str, int, int]], target: str, amount: str | None = None) -> Piece:
    """Return a piece that adds 1 (or an amount in [0, 1]) to one cell of a table.

    One-hot registers select the cell: `reads` lists name, axis of the table, and the offset of the
    register's entries against the table's.
    """

    def make_units(layout: Layout) -> Units:
        table = layout[target]
        axes = torch.cartesian_prod(*(torch.arange(size) for size in table.shape))
        weights: dict[str, Tensor] = {}
        for name, axis, offset in reads:
            weights[name] = torch.zeros(table.size, layout[name].size, dtype=torch.float64)
            weights[name][torch.arange(table.size), axes[:, axis] + offset] = 1.0
        bias = torch.full((table.size,), 1.0 - len(reads), dtype=torch.float64)
        if amount is not None:
            weights[amount] = torch.ones(table.size, 1, dtype=torch.float64)
            bias -= 1.0
        one = torch.eye(table.size, dtype=torch.float64)
        cell = ", ".join(name for name, _, _ in reads)
        return Units(weights, bias, {target: one}, f"{target} += {amount or 1} at ({cell})")

    return make_units


def cap_values(most: float, h: int, erased: Sequence[Address] = ()) -> list[Piece]:
    """Return pieces for Q_h ← min(most, R_h + Q_h), where Q_h held later values, and erasures."""

    def make_units(layout: Layout) -> Units:
        """Q + σ(0·Q + most) − (σ(Q) − σ(−Q)) − σ(most − R − Q)."""
        value, reward = layout["Q"][h], layout["R"][h]
        one = torch.eye(value.size, dtype=torch.float64)
        none, top = torch.zeros_like(one), one.new_full((value.size,), float(most))
        reads: dict[Location, Tensor] = {
            value: torch.cat([none, one, -one, -one]),
            reward: torch.cat([none, none, none, -one]),
        }
        bias = torch.cat([top, 0 * top, 0 * top, top])
        writes: dict[Location, Tensor] = {value: torch.cat([one, -one, one, -one], dim=1)}
        note = f"{value.label} ← min({most:g}, {reward.label} + {value.label})"
        return Units(reads, bias, writes, note)

    return [make_units, *(clear(register) for register in erased)]


def row_maxima(
    table: Address, room: Address, own: Pairs
) -> tuple[Address, list[tuple[list[Head], list[Piece]]]]:
    """Compute the maximum of each row of a table (rows, columns) by a tree of x + σ(y − x).

    Returns the address of the maxima, and the heads and pieces of each block of the tree: heads add
    σ(y − x) to a slot of `room` (columns, rows), the MLP adds x. Slots must be 0 before.
    """
    slots = iter(range(room.shape[0]))
    left = [table[:, column] for column in range(table.shape[1])]
    tree = []
    while len(left) > 1:
        heads, pieces, after = [], [], []
        for x, y in zip(left[0::2], left[1::2], strict=False):
            slot = room[next(slots)]
            pieces.append(affine(x, slot))
            after.append(slot)
            heads += compare_by_heads(y, x, slot, own)
        left = after + left[2 * len(after) :]
        tree.append((heads, pieces))
    return left[0], tree


def compare_by_heads(larger: Address, smaller: Address, target: Address, own: Pairs) -> list[Head]:
    """Return heads that add σ(larger − smaller) of the token itself to the target, row by row."""
    heads = []
    for row in range(target.size):
        part = slice(row, row + 1)
        score: Pairs = {(larger[part], "one"): 1.0, (smaller[part], "one"): -1.0}
        heads.append(Head(score, {("one", target[part]): 1.0}, own))
    return heads


def compare_by_units(
    larger: Sequence[Address], smaller: Sequence[Address], target: Address
) -> Piece:
    """Return a piece that adds σ(larger − smaller) to the target, entry by entry.

    Each side is the sum of some registers of the target's size.
    """
    one = torch.eye(target.size, dtype=torch.float64)
    reads: dict[Location, Tensor] = dict.fromkeys(larger, one)
    reads |= dict.fromkeys(smaller, -one)
    none = torch.zeros(target.size, dtype=torch.float64)
    sides = (" + ".join(part.label for part in side) for side in (larger, smaller))
    note = f"{target.label} += σ({' − ('.join(sides)}))"
    return Units(reads, none, {target: one}, note)
