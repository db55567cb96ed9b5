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

from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

import torch

from innerloop.algorithms.optimistic_planning import Plan
from innerloop.constructions.base import Cost
from innerloop.constructions.tabular import (
    cap,
    choose_state,
    compare_by_heads,
    estimate_tables,
    look_ahead,
    replace_row,
)
from innerloop.constructions.ucb_vi import REGISTERS, UCBVIConstruction
from innerloop.language import State, define, entry_sum, relu, stack
from innerloop.language.construction import Registers
from innerloop.language.definition import Definition
from innerloop.language.prompts.planning import PlanningPrompt
from innerloop.parameters import parameter
from innerloop.problems.tabular_games import TabularGameProblem


def count_layers(horizon: int, actions: int) -> int:
    """The number of blocks for episodes of `horizon` steps."""
    return 4 + (horizon - 1) * (1 + count_further_levels(actions))


def count_further_levels(actions: int) -> int:
    """Blocks that take a maximum whose first level is there already, two levels in each."""
    return max((actions - 1).bit_length(), 1) // 2


def compare_by_units(larger: Any, smaller: Any) -> Any:
    """x + σ(y − x), entry by entry, by hidden units."""
    return smaller + relu(larger - smaller)


def compare_pairs(row: Any, own: Any) -> Any:
    """The larger of each two actions of a row of values, by hidden units: (slots, states)."""
    columns = [stack([values[a] for values in row]) for a in range(own.arms)]
    pairs = zip(columns[0::2], columns[1::2], strict=False)
    return stack([compare_by_units(y, x) for x, y in pairs] + columns[own.arms // 2 * 2 :])


def find_best(me: Any, own: Any) -> Any:
    """The largest slot of `V` for each state: levels by heads and by hidden units, in turn."""
    left, heads = list(me.V), True
    while len(left) > 1:
        pairs = zip(left[0::2], left[1::2], strict=False)
        after = [
            compare_by_heads(me, own, y, x) if heads else compare_by_units(y, x) for x, y in pairs
        ]
        left, heads = after + left[len(left) // 2 * 2 :], not heads
    return left[0]


@cache
def define_packed(tokens: int) -> Definition:
    """Return the program for games of up to `tokens` tokens, each with its mark."""

    @define(prompt=PlanningPrompt(tokens), **REGISTERS, V=State("L", "S"))
    def plan(me: Any, k: int, H: int, own: Any) -> None:
        h = own.steps - 1 - k
        me.best = find_best(me, own)
        row = me.R[h] - look_ahead(me, own, h, H, -1)
        me.Q, me.V = replace_row(me.Q, h, row), compare_pairs(row, own)

    @plan.init
    def _(me: Any, H: int, own: Any) -> None:
        rewards, me.P = estimate_tables(me, own)
        later = [sum_last(me.P[h], own) for h in range(own.steps)]
        me.R = stack([rewards[h] + H * later[h] for h in range(own.steps)] + [rewards[own.steps]])
        me.Q = replace_row(me.Q, own.steps, rewards[own.steps])
        me.V = compare_pairs(rewards[own.steps], own)

    @plan.answer
    def out(me: Any, H: int, own: Any) -> Any:
        return cap(H, stack([choose_state(me, own, a) for a in range(own.arms)]))

    return plan


def sum_last(table: Any, own: Any) -> Any:
    """The sum of a table over its last side."""
    return stack([stack([entry_sum(row) for row in rows]) for rows in table])


class PackedUCBVIConstruction(UCBVIConstruction):
    """Three blocks of estimates, one and half the levels of a maximum per step, one to read out."""

    cost: ClassVar[Cost] = Cost(
        "k + km + 4",
        "kdA + dA",
        "6kdA + 3kd²A + 6dA + dp + k + d + A + 10",
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
    def definition(self) -> Definition:  # pyright: ignore[reportIncompatibleVariableOverride]
        return define_packed(2 * self.max_game_steps)

    @property
    def sizes(self) -> dict[str, int]:
        return {**super().sizes, "L": self.slots}

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

    def _fill_tables(self, state: Plan) -> Registers:
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
