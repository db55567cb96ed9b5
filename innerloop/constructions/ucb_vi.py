"""UCB-VI on tabular decision processes, run exactly by causal ReLU attention, every prefix at once.

Algorithm  Q_h = min{ H, R_h + P̂_h max_a Q_{h+1} } backwards from the last step of the episode; R is
           the average reward plus the bonus, and P̂ the transition frequencies, both from complete
           earlier episodes
Invariant  every token holds R in `R`, P̂ in `P` and the values computed so far in `Q`
Proof      block 1 copies s, a from the two previous tokens with score 1 − (i − o − j)², and its MLP
           computes cells: visit σ(h + s + a − 2), reward σ(r + h + s + a − 3), move
           σ(h + s + a + s' − 3). Block 2 sums the cells of earlier episodes, for which
           σ(e_i − e_j) − σ(e_i − e_j − 1) is 1, and otherwise 0; its MLP computes 1/N and the bonus
           on integer knots. Block 3 multiplies values of a token: its score is 1/N on the token
           itself, and its values are the sums of moves and rewards. Its MLP, like that of the last
           block of a step, computes Q = H − σ(H − R − P̂V). A step first computes the maximum over
           actions as a tree: heads add σ(y − x) from the token itself, and the MLP adds x. Then a
           head with scores V(s') and values P̂(s') computes P̂V. Epilogue: a head with score
           ⟨Q_h(·, a), s⟩ and value h writes Q of the current step and state
Exact for  every S, A, H ≥ 2 and up to n episodes, because the knots end at n − 1 visits
Source     lin.theorem-12: 2H + 8 layers; here 4 + (H − 1)(1 + ⌈log₂ A⌉). Attention is not
           normalised, whereas the source has scores that cancel 1/i. Where N = 0 the bonus is 2H.
           It is clipped to H, like the bonus H of the reference, and leaves room for rounding, so
           that ties stay ties
"""

from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from innerloop.algorithms.optimistic_planning import OptimisticPlanning
from innerloop.constructions import tabular
from innerloop.constructions.acting import ActingProgram
from innerloop.errors import OutOfRangeError
from innerloop.language import Data, State, define, relu
from innerloop.language.classes import Cost, Peepholes, Registers, parameter
from innerloop.language.prompts.planning import PlanningProgram, PlanningPrompt
from innerloop.policies.ucb_vi import UCBVIPolicy

MAX_WIDTH = 1000
"""The largest width; each cell of the tables has heads with width × width matrices."""
SHOWN = ("i", "i2", "e", "p", "h", "s", "a", "r")
REGISTERS = {
    **{name: Data(*PlanningPrompt.offers[name]) for name in SHOWN},
    **{"R": State("H", "S", "A"), "P": State("K", "S", "A", "S"), "Q": State("H", "S", "A")},
}


@define(prompt=PlanningPrompt(), **REGISTERS)
def plan(me: Any, k: int, H: int, own: Any) -> None:
    h = own.steps - 1 - k
    me.best = tabular.find_best(me, own, tabular.list_columns(me.Q[h + 1]))
    me.Q = tabular.replace_row(me.Q, h, H - relu(H - me.R[h] - tabular.look_ahead(own, h)))


@plan.init
def _(me: Any, H: int, own: Any) -> None:
    me.R, me.P = tabular.estimate_tables(me, own)
    me.Q = tabular.replace_row(me.Q, own.steps, H - relu(H - me.R[own.steps]))


@plan.answer
def out(me: Any, own: Any) -> Any:
    return tabular.read_values(me, own)


class UCBVIConstruction(PlanningProgram, ActingProgram):  # pyright: ignore[reportIncompatibleVariableOverride]
    """UCB-VI: three blocks for estimates, 1 + `levels` for each step back, one for the read-out."""

    program = plan
    source = "Yang 2025, third paper, Theorem 12 (Lin et al. 2023)"
    cost = Cost(
        *("k + km + 4", "kdA + dA", "6kdA + 3kd²A + 6dA + k + d + A + 10", "2H + 8 layers"),
        where="m = levels, A = arms",
    )
    looped, peepholes = False, Peepholes(reuse=True)
    exact_sizes = {"d": 2, "n": 2, "arms": 2, "steps": 1}
    cases = (
        {"d": 2, "n": 9, "steps": 3, "bonus": 0.0},
        {"d": 4, "arms": 3, "steps": 1},
        {"d": 1, "arms": 4, "steps": 2},
    )

    bonus: float = parameter(0.05, "c, the weight of the uncertainty; 2 in the theorems", least=0)
    delta: float = parameter(0.1, "δ of the bonus, failure probability", least=1e-12, most=1.0)
    temperature: float = parameter(0.2, "τ of the softmax over values; 0 takes the best", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        cells, moves = self.horizon * self.d * self.arms, self.steps * self.d**2 * self.arms
        width = 6 * cells + 3 * moves + self.horizon + self.d + self.arms + 9
        if width > MAX_WIDTH:
            raise OutOfRangeError(
                f"{self.name} stores its tables in every token: expected a width of at most "
                f"{MAX_WIDTH}, got {width} for d={self.d}, arms={self.arms}, steps={self.steps}: "
                "use smaller sizes"
            )

    @property
    def levels(self) -> int:
        """The number of blocks of the tree that takes a maximum over actions."""
        return (self.arms - 1).bit_length()

    @property
    def max_value(self) -> float:
        """An upper bound of the values in `Q`."""
        return self.horizon

    @cached_property
    def policy(self) -> UCBVIPolicy:
        known = {"delta": self.delta, "bonus": self.bonus, "temperature": self.temperature}
        return UCBVIPolicy(steps=self.max_game_steps, **known)

    @cached_property
    def algorithm(self) -> OptimisticPlanning:
        width = self.policy.bonus_scale(self.horizon, self.d, self.arms)
        return OptimisticPlanning(torch.tensor(width, dtype=torch.float64))

    def draw_further(self, count: int, generator: torch.Generator, dtype: torch.dtype) -> Any:
        """Draw games in which the first episodes are equal, up to a random one.

        In random games few cells are visited often.
        """
        game = self.distributions()[0].sample(count, generator=generator, dtype=dtype)
        until = torch.randint(game.episodes, (len(game), 1), generator=generator)
        repeats = (torch.arange(game.episodes) <= until).unsqueeze(-1)
        states, actions = (torch.where(repeats, x[:, :1], x) for x in (game.states, game.actions))
        return [replace(game, states=states, actions=actions)]

    def usage(self, stream: Tensor) -> float:
        """Return 0: no value can leave its range (`max_value`, shares of at most 1, n visits)."""
        return 0.0

    def accept_environment(self, environment: Any) -> None:
        super().accept_environment(environment)
        sizes = environment.states, environment.actions, environment.horizon
        self.accept_sizes(dict(zip("SAH", sizes, strict=True)))

    def represent(self, filled: Registers, state: Any) -> Registers:
        times, axis = 2 * self.horizon, state[0].ndim - 4
        tables = (table.repeat_interleave(times, axis) for table in state)
        return dict(zip(self.definition.states, tables, strict=True))

    def log_odds(self, stream: Tensor) -> Tensor:
        values = stream[..., self.compiled.answer_places]
        if self.temperature > 0:
            return values / self.temperature
        # Values that differ only by rounding count as tied; the order of summation has no effect.
        best = values >= values.amax(dim=-1, keepdim=True) - self.tolerance(values.dtype)
        return self.policy.scores_to_probabilities(best.to(values)).log()
