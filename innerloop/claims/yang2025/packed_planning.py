"""UCB-VI with two levels of every maximum in one block: up to eight actions, two blocks a step.

Algorithm  that of `ucb-vi`
Invariant  as there, but `Q` is not cut off at H, `R` also holds H Σ_s' P̂(s'), and `V` holds the
           first level of the maximum over actions of the last values found, max(z_a, z_b) in pairs
Proof      one block has two ReLUs in turn, attention's and the MLP's: x + σ(y − x) in place is a
           level of the tree in each. The MLP that makes z = R + Q makes the first level too, from
           the same sums. The cut costs nothing: min(H, m) = H − σ(H − m), so scores H − m and
           values −P̂ give the rest of P̂ min(H, m), max and min exchanged. The read-out cuts last
Counts     4 + (H − 1)(1 + ⌈(⌈log₂ A⌉ − 1)/2⌉) blocks, against 4 + (H − 1)(1 + ⌈log₂ A⌉)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from innerloop.constructions.ucb_vi import UCBVIConstruction
from innerloop.transformer import (
    MLP,
    Address,
    Block,
    Head,
    Layout,
    Units,
    affine,
    clear,
    gate_own_token,
)
from innerloop.transformer.layout import Location
from innerloop.transformer.pieces import Piece

Sum = tuple[Address, ...]
"""Registers of equal size that stand for their sum."""


def count_layers(horizon: int, actions: int) -> int:
    """The number of blocks of `PackedUCBVI`."""
    levels = (actions - 1).bit_length()
    return 4 + (horizon - 1) * (1 + max(levels, 1) // 2)


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedUCBVI(UCBVIConstruction):
    """UCB-VI with three blocks to estimate, then one and half the remaining levels per step."""

    @property
    def bound(self) -> float:
        """Upper bound on every value: a reward, a bonus, and what may come later."""
        return 1.0 + max(2.0 * self.horizon, float(self.algorithm.width)) + self.horizon

    def _estimate_block(self) -> Block:
        at, last = self.layout, self.steps
        pieces: list[Piece] = [
            affine(at["P"][h][..., s], at["R"][h], float(self.horizon))
            for h in range(self.steps)
            for s in range(self.d)
        ]
        return Block(
            super()._estimate_block().attention,
            MLP.from_pieces(at, [*pieces, *self._sum_and_compare(last, "R")]),
        )

    def _sum_and_compare(self, h: int, *summed: str) -> list[Piece]:
        """Set Q_h to the sum of registers (possibly with Q_h), and take the first level over it."""
        at, slots = self.layout, iter(range(self.arms))
        pieces: list[Piece] = [affine(at[name][h], at["Q"][h]) for name in summed if name != "Q"]
        parts = [tuple(at[name][h][:, a] for name in summed) for a in range(self.arms)]
        for a in range(0, self.arms, 2):
            slot = at["V"][next(slots)]
            pieces += [affine(part, slot) for part in parts[a]]
            if a + 1 < self.arms:
                pieces.append(_excess(parts[a + 1], parts[a], slot))
        return pieces

    def body(self, k: int) -> list[Block]:
        h, at, most = self.steps - 1 - k, self.layout, float(self.horizon)
        own = gate_own_token(self.bound, 2 * self.max_game_steps)
        blocks, left = self._remaining_levels(own)
        heads = [
            Head(
                {("one", "one"): most, (left[s : s + 1], "one"): -1.0},
                {(at["P"][h][..., s], at["Q"][h]): -1.0},
                own,
            )
            for s in range(self.d)
        ]
        pieces = [*self._sum_and_compare(h, "Q", "R"), clear(at["V"])]
        return [*blocks, Block(self._attention(heads), MLP.from_pieces(at, pieces))]

    def _remaining_levels(
        self, own: dict[tuple[Location, Location], float]
    ) -> tuple[list[Block], Address]:
        """The levels after the first, alternating attention and MLP; and where the maxima end."""
        at, blocks = self.layout, []
        left = [at["V"][slot] for slot in range((self.arms + 1) // 2)]
        while len(left) > 1:
            heads = [
                Head({(y[s : s + 1], "one"): 1.0, (x[s : s + 1], "one"): -1.0}, _one(x, s), own)
                for x, y in zip(left[0::2], left[1::2], strict=False)
                for s in range(self.d)
            ]
            left = left[0::2]
            pieces = [_excess((y,), (x,), x) for x, y in zip(left[0::2], left[1::2], strict=False)]
            left = left[0::2]
            blocks.append(
                Block(self._attention(heads), MLP.from_pieces(at, pieces) if pieces else None)
            )
        return blocks, left[0]

    def epilogue(self) -> list[Block]:
        at, own = self.layout, gate_own_token(self.bound, 2 * self.max_game_steps)
        heads = [
            Head(
                {(at["Q"][h][:, a], "s"): 1.0},
                {(at["h"][h : h + 1], at["out"][a : a + 1]): 1.0},
                own,
            )
            for h in range(self.horizon)
            for a in range(self.arms)
        ]
        one = torch.eye(self.arms, dtype=torch.float64)
        bias = torch.full((self.arms,), -float(self.horizon), dtype=torch.float64)
        cut = Units({"out": one}, bias, {"out": -one}, f"out ← min({self.horizon}, out)")
        return [Block(self._attention(heads), MLP.from_pieces(at, [cut]))]


def _one(x: Address, s: int) -> dict[tuple[Location, Location], float]:
    return {("one", x[s : s + 1]): 1.0}


def _excess(larger: Sum, smaller: Sum, target: Address) -> Piece:
    """Add σ(larger − smaller) to the target, entry by entry."""

    def sized(layout: Layout) -> Units:
        one = torch.eye(target.size, dtype=torch.float64)
        reads: dict[Location, torch.Tensor] = dict.fromkeys(larger, one)
        reads |= dict.fromkeys(smaller, -one)
        none = torch.zeros(target.size, dtype=torch.float64)
        return Units(reads, none, {target: one}, f"{target.label} += the excess")

    return sized
