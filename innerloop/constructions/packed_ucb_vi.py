"""UCB-VI as in `ucb-vi`, with two levels of every maximum in a block: fewer layers, same actions.

Algorithm  the same as in `ucb-vi`
Invariant  every token holds P̂ in `P`, R + H Σ_s' P̂(s') in `R` (R of the last step of an episode),
           the values computed so far in `Q`, before they are clipped at H, and in `V` the larger of
           each pair of actions, for the values computed last
Proof      a block has two ReLUs one after the other, in attention and in the MLP. Each computes one
           level of the tree of maxima in place, as x + σ(y − x). The MLP that computes Q = R + P̂V
           also computes the first level, from the same sums. Clipping takes no further blocks:
           min(H, m) = H − σ(H − m), so scores H − m and values −P̂, added to H Σ P̂, result in
           P̂ min(H, m). The read-out clips the last values
Exact for  everything for which `ucb-vi` is exact
Source     lin.theorem-12: 2H + 8 layers; here 4 + (H − 1)(1 + ⌈(⌈log₂ A⌉ − 1)/2⌉): H + 3 up to 2
           actions, 2H + 2 up to 8. `ucb-vi` has 4 + (H − 1)(1 + ⌈log₂ A⌉)
"""

from dataclasses import replace
from typing import Any

import torch
from torch.nn.functional import pad

from innerloop.algorithms.optimistic_planning import Plan
from innerloop.constructions import tabular
from innerloop.constructions.ucb_vi import REGISTERS, UCBVIConstruction
from innerloop.language import State, define, relu, stack
from innerloop.language.classes import Cost, Registers, parameter
from innerloop.language.prompts.planning import PlanningPrompt


def count_layers(horizon: int, actions: int) -> int:
    """Return the number of blocks for episodes of `horizon` steps."""
    return 4 + (horizon - 1) * (1 + max((actions - 1).bit_length(), 1) // 2)


def compare_by_units(x: Any, y: Any) -> Any:
    """Return x + σ(y − x), the larger of x and y in each entry, by hidden units."""
    return x + relu(y - x)


def compare_pairs(row: Any) -> Any:
    """Return the larger value of each pair of actions, by hidden units: (slots, states)."""
    return stack(tabular.halve(tabular.list_columns(row), compare_by_units))


@define(prompt=PlanningPrompt(), **REGISTERS, V=State("L", "S"))
def plan(me: Any, k: int, H: int, own: Any) -> None:
    h = own.steps - 1 - k
    me.best = tabular.find_best(me, own, list(me.V), compare_by_units)
    row = me.R[h] - tabular.look_ahead(own, h, H, -1)
    me.Q, me.V = tabular.replace_row(me.Q, h, row), compare_pairs(row)


@plan.init
def _(me: Any, H: int, own: Any) -> None:
    rewards, me.P = tabular.estimate_tables(me, own)
    *earlier, last = rewards
    moved = [stack([sum(tabular.list_columns(rows)) for rows in table]) for table in me.P]
    later = [r + H * moves for r, moves in zip(earlier, moved, strict=True)]
    me.R, me.Q = stack([*later, last]), tabular.replace_row(me.Q, own.steps, last)
    me.V = compare_pairs(last)


@plan.answer
def out(me: Any, H: int, own: Any) -> Any:
    return H - relu(H - tabular.read_values(me, own))


class PackedUCBVIConstruction(UCBVIConstruction):
    """UCB-VI in fewer blocks: three for estimates, 1 + `levels` per step, one for the read-out."""

    program = plan
    cost = Cost(
        *("k + km + 4", "kdA + dA", "6kdA + 3kd²A + 6dA + dp + k + d + A + 10", "2H + 8 layers"),
        where="m = levels, A = arms, p = slots",
    )
    cases = (
        {"d": 2, "arms": 2, "n": 9, "steps": 3, "bonus": 0.0},
        {"d": 3, "arms": 2, "steps": 2},
        {"d": 1, "arms": 9, "steps": 1},
    )

    d: int = parameter(2, "states S", least=1, most=50)
    arms: int = parameter(3, "actions A", least=1, most=50)
    n: int = parameter(8, "largest number of episodes of a game", least=1, most=200)

    @property
    def sizes(self) -> dict[str, int]:
        return {**super().sizes, "L": self.slots}

    @property
    def levels(self) -> int:
        """The number of blocks of a maximum, after its first level; each takes two levels."""
        return max(super().levels, 1) // 2

    @property
    def slots(self) -> int:
        return (self.arms + 1) // 2

    @property
    def max_value(self) -> float:
        """An upper bound of every value: a reward, a bonus, and the values of later steps."""
        return 1.0 + max(2.0 * self.horizon, float(self.algorithm.width)) + self.horizon

    def draw_further(self, count: int, generator: torch.Generator, dtype: torch.dtype) -> Any:
        """Add games that alternate the actions of a state.

        While an action of a state is untried, the best value of the state is H.
        """
        (game,) = super().draw_further(count, generator, dtype)
        turns = torch.arange(game.episodes).unsqueeze(-1)
        actions = (game.actions[:, :1] + turns) % self.arms
        return [game, replace(game, states=game.states[:, :1] + 0 * turns, actions=actions)]

    def represent(self, filled: Registers, state: Plan) -> Registers:
        later = (state.transitions * state.values[..., 1:, None, None, :, :].amax(dim=-1)).sum(-1)
        added = (later, self.horizon * state.transitions.sum(dim=-1))  # none in the last step
        uncut, shifted = (state.optimistic_rewards + pad(a, (0, 0, 0, 0, 0, 1)) for a in added)
        # Before the first episode there are no data: its values are H as soon as they are computed.
        is_known = state.values[..., :1, :, :1, :1] > 0
        uncut = torch.where(is_known, uncut, 0.0)
        latest = uncut[..., int((~is_known).sum(dim=-3).max()), :, :]
        pairs = torch.stack([pair.amax(dim=-1) for pair in latest.split(2, dim=-1)], dim=-2)
        return super().represent(filled, (shifted, state.transitions, uncut, pairs))
