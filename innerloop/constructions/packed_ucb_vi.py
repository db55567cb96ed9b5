"""UCB-VI as in `ucb-vi`, with two levels of every maximum in a block: fewer layers, the same play.

Algorithm  that of `ucb-vi`
Invariant  every token holds P̂ in `P`, R + H Σ_s' P̂(s') in `R` (R of the last step of an episode),
           the values found so far in `Q`, before they are cut off at H, and in `V` the larger of
           each two actions of the values found last
Proof      one block has two ReLUs in turn, attention's and the MLP's: x + σ(y − x) in place is a
           level of the tree in each. The MLP that makes Q = R + P̂V makes the first level too, from
           the same sums. The cut costs nothing: min(H, m) = H − σ(H − m), so that scores H − m and
           values −P̂ add to H Σ P̂ what makes it P̂ min(H, m). The read-out cuts last
Exact for  what `ucb-vi` is exact for
Source     lin.theorem-12: 2H + 8 layers; here 4 + (H − 1)(1 + ⌈(⌈log₂ A⌉ − 1)/2⌉): H + 3 up to 2
           actions, 2H + 2 up to 8. `ucb-vi` has 4 + (H − 1)(1 + ⌈log₂ A⌉)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from innerloop.algorithms.optimistic_planning import Plan
from innerloop.constructions.base import Cost
from innerloop.constructions.tabular import compare_by_heads, compare_by_units
from innerloop.constructions.ucb_vi import UCBVIConstruction
from innerloop.parameters import parameter
from innerloop.problems.tabular_games import TabularGameProblem
from innerloop.transformer import MLP, Address, Block, Head, Units, affine, clear
from innerloop.transformer.pieces import Piece


def count_layers(horizon: int, actions: int) -> int:
    """The number of blocks for episodes of `horizon` steps."""
    return 4 + (horizon - 1) * (1 + count_further_levels(actions))


def count_further_levels(actions: int) -> int:
    """Blocks that take a maximum whose first level is there already, two levels in each."""
    return max((actions - 1).bit_length(), 1) // 2


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedUCBVIConstruction(UCBVIConstruction):
    """Three blocks of estimates, one and half the levels of a maximum per step, one to read out."""

    cost: ClassVar[Cost] = Cost(
        "k + km + 4",
        "kdA + dA",
        "7kdA + 3kd²A + 7dA + dp + k + 3d + 3A + 10",
        "2H + 8 layers",
        "m = levels, A = arms, p = slots",
    )
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"d": 2, "arms": 2, "n": 9, "steps": 3, "bonus": 0.0},
        {"d": 3, "arms": 2, "steps": 2},
        {"d": 1, "arms": 9, "steps": 1},
    )

    d: int = parameter(2, "states S", least=1, most=50)
    arms: int = parameter(3, "actions A", least=1, most=50)
    n: int = parameter(8, "largest number of episodes of a game", least=1, most=200)

    @property
    def levels(self) -> int:
        return count_further_levels(self.arms)

    @property
    def slots(self) -> int:
        return (self.arms + 1) // 2

    @property
    def max_value(self) -> float:
        """Upper bound on every value: a reward, a bonus, and what may come later."""
        return 1.0 + max(2.0 * self.horizon, float(self.algorithm.width)) + self.horizon

    def draw_further(
        self, count: int, generator: torch.Generator, dtype: torch.dtype
    ) -> list[TabularGameProblem]:
        """Add games in which a state's actions take turns: after A episodes none is unknown.

        As long as one is, its value is H and so is the maximum, whatever the others are.
        """
        games = super().draw_further(count, generator, dtype)
        for game in games[:1]:
            turns = torch.arange(game.episodes).unsqueeze(-1)
            actions = (game.actions[:, :1] + turns) % self.arms
            games.append(replace(game, states=game.states[:, :1] + 0 * turns, actions=actions))
        return games

    def _fill_registers(self, state: Plan) -> dict[str, Tensor]:
        later = (state.transitions * state.values[..., 1:, None, None, :, :].amax(dim=-1)).sum(-1)
        uncut, shifted = state.optimistic_rewards.clone(), state.optimistic_rewards.clone()
        uncut[..., :-1, :, :] += later
        shifted[..., :-1, :, :] += self.horizon * state.transitions.sum(dim=-1)
        # Before the first episode nothing is known: its values are H as soon as they are found.
        found = state.values[..., :1, :, :1, :1] > 0
        uncut = torch.where(found, uncut, 0.0)
        latest = uncut[..., int((~found).sum(dim=-3).max()), :, :]
        pairs = [latest[..., a : a + 2].amax(dim=-1) for a in range(0, self.arms, 2)]
        return {"R": shifted, "P": state.transitions, "Q": uncut, "V": torch.stack(pairs, dim=-2)}

    def _estimate_block(self) -> Block:
        at = self.layout
        pieces: list[Piece] = [
            affine(at["P"][h][..., s], at["R"][h], float(self.horizon))
            for h in range(self.steps)
            for s in range(self.d)
        ]
        pieces += self._sum_and_compare(self.steps, "R")
        return Block(super()._estimate_block().attention, MLP.from_pieces(at, pieces))

    def _sum_and_compare(self, h: int, *summed: str) -> list[Piece]:
        """Set Q_h to the sum of registers (possibly with Q_h), and add its first level to V."""
        at = self.layout
        pieces: list[Piece] = [affine(at[name][h], at["Q"][h]) for name in summed if name != "Q"]
        parts = [[at[name][h][:, a] for name in summed] for a in range(self.arms)]
        for k in range(self.slots):
            slot, (smaller, *larger) = at["V"][k], parts[2 * k : 2 * k + 2]
            pieces += [affine(part, slot) for part in smaller]
            pieces += [compare_by_units(part, smaller, slot) for part in larger]
        return pieces

    def body(self, k: int) -> list[Block]:
        h, at, own = self.steps - 1 - k, self.layout, self._own_token()
        blocks, best = self._further_levels()
        heads = [
            Head(
                {("one", "one"): float(self.horizon), (best[s : s + 1], "one"): -1.0},
                {(at["P"][h][..., s], at["Q"][h]): -1.0},
                own,
            )
            for s in range(self.d)
        ]
        pieces = [*self._sum_and_compare(h, "Q", "R"), clear(at["V"])]
        return [*blocks, Block(self._attention(heads), MLP.from_pieces(at, pieces))]

    def _further_levels(self) -> tuple[list[Block], Address]:
        """The levels after the first, attention and MLP in turn; and where the maxima end."""
        at, own, blocks = self.layout, self._own_token(), []
        left = [at["V"][slot] for slot in range(self.slots)]
        while len(left) > 1:
            heads = [
                head
                for x, y in zip(left[0::2], left[1::2], strict=False)
                for head in compare_by_heads(y, x, x, own)
            ]
            left = left[0::2]
            pairs = zip(left[0::2], left[1::2], strict=False)
            pieces = [compare_by_units([y], [x], x) for x, y in pairs]
            left = left[0::2]
            mlp = MLP.from_pieces(at, pieces) if pieces else None
            blocks.append(Block(self._attention(heads), mlp))
        return blocks, left[0]

    def epilogue(self) -> list[Block]:
        (block,) = super().epilogue()
        one = torch.eye(self.arms, dtype=torch.float64)
        bias = torch.full((self.arms,), -float(self.horizon), dtype=torch.float64)
        cut = Units({"out": one}, bias, {"out": -one}, f"out ← min({self.horizon}, out)")
        return [Block(block.attention, MLP.from_pieces(self.layout, [cut]))]
