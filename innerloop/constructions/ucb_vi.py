"""UCB-VI on tabular decision processes, run exactly by causal ReLU attention, every prefix at once.

Algorithm  Q_h = min{ H, R_h + P̂_h max_a Q_{h+1} } backwards from the last step of the episode; R is
           the average reward plus the bonus, P̂ the frequencies, of the whole episodes before
Invariant  every token holds R in `R`, P̂ in `P` and the values found so far in `Q`
Proof      block 1 copies s, a from the two tokens before, score 1 − (i − o − j)², and its MLP makes
           cells: visit σ(h + s + a − 2), reward σ(r + h + s + a − 3), move σ(h + s + a + s' − 3).
           Block 2 sums the cells of earlier episodes, σ(e_i − e_j) − σ(e_i − e_j − 1) being 1 or 0,
           and its MLP has 1/N and the bonus on integer knots. Block 3 multiplies inside each token:
           score 1/N to itself alone, values the sums of moves and rewards. Its MLP, like that of
           the last block of a step, is Q = H − σ(H − R − P̂V). A step first takes the maximum over
           actions as a tree: heads add σ(y − x) of the token itself, the MLP x; then scores V(s'),
           values P̂(s'), give P̂V. Epilogue: score ⟨Q_h(·, a), s⟩, value h, is Q of what is shown
Exact for  every S, A, H ≥ 2 and up to n episodes: the knots end at n − 1 visits
Source     lin.theorem-12: 2H + 8 layers; here 4 + (H − 1)(1 + ⌈log₂ A⌉), and no normalisation in
           place of scores that cancel 1/i. Where N = 0 the bonus is 2H: clipped to H like the
           reference's H, but with room for rounding, so that ties stay ties
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from innerloop.algorithms.optimistic_planning import OptimisticPlanning, Plan
from innerloop.constructions.acting import ActingConstruction
from innerloop.constructions.base import Cost
from innerloop.constructions.tabular import (
    cap,
    choose_state,
    estimate_tables,
    find_best,
    follow_table,
    look_ahead,
    replace_row,
)
from innerloop.errors import OutOfRangeError
from innerloop.language import Data, State, define, stack
from innerloop.language.construction import ProgramConstruction, Registers
from innerloop.language.definition import Definition
from innerloop.language.prompts.planning import PlanningPrompt
from innerloop.language.target import Peepholes
from innerloop.parameters import parameter
from innerloop.policies.base import greedy_probabilities
from innerloop.policies.ucb_vi import UCBVIPolicy
from innerloop.problems.environment import Environment
from innerloop.problems.mdp import Situation, TabularMDP
from innerloop.problems.tabular_games import TabularGameProblem, TabularGames
from innerloop.problems.tabular_mdps import TabularMDPs
from innerloop.transformer.marks import MARK_SIZE, find_gap

MAX_WIDTH = 1000
"""Upper bound on the width; each cell of the tables has heads with width × width matrices."""
REGISTERS = {
    **{"i": Data(), "i2": Data(), "e": Data(), "p": Data(MARK_SIZE)},
    **{"h": Data("H"), "s": Data("S"), "a": Data("A"), "r": Data()},
    **{"R": State("H", "S", "A"), "P": State("K", "S", "A", "S"), "Q": State("H", "S", "A")},
}


@cache
def define_planning(tokens: int) -> Definition:
    """Return the program for games of up to `tokens` tokens, each with its mark."""

    @define(prompt=PlanningPrompt(tokens), **REGISTERS)
    def plan(me: Any, k: int, H: int, own: Any) -> None:
        h = own.steps - 1 - k
        me.best = find_best(me, own, [[row[a] for row in me.Q[h + 1]] for a in range(own.arms)])
        me.Q = replace_row(me.Q, h, cap(H, me.R[h] + look_ahead(me, own, h)))

    @plan.init
    def _(me: Any, H: int, own: Any) -> None:
        me.R, me.P = estimate_tables(me, own)
        me.Q = replace_row(me.Q, own.steps, cap(H, me.R[own.steps]))

    @plan.answer
    def out(me: Any, own: Any) -> Any:
        return stack([choose_state(me, own, a) for a in range(own.arms)])

    return plan


class UCBVIConstruction(ProgramConstruction, ActingConstruction[TabularGameProblem, Plan]):
    """Three blocks of estimates, one and a tree of maxima per step back, one for the read-out."""

    source: ClassVar[str] = "Yang 2025, third paper, Theorem 12 (Lin et al. 2023)"
    cost: ClassVar[Cost] = Cost(
        "k + km + 4",
        "kdA + dA",
        "6kdA + 3kd²A + 6dA + k + d + A + 10",
        "2H + 8 layers",
        "m = levels, A = arms",
    )
    looped: ClassVar[bool] = False
    peepholes: ClassVar[Peepholes] = Peepholes(reuse=True)
    exact_sizes: ClassVar[dict[str, int]] = {"d": 2, "n": 2, "arms": 2, "steps": 1}
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"d": 2, "n": 9, "steps": 3, "bonus": 0.0},
        {"d": 4, "arms": 3, "steps": 1},
        {"d": 1, "arms": 4, "steps": 2},
    )

    d: int = parameter(3, "states S", least=1, most=50)
    arms: int = parameter(2, "actions A", least=1, most=50)
    n: int = parameter(10, "largest number of episodes of a game", least=1, most=200)
    steps: int = parameter(2, "H − 1, the steps back through an episode", least=1, most=50)
    bonus: float = parameter(0.05, "c, the weight of the uncertainty; 2 in the theorems", least=0)
    delta: float = parameter(0.1, "δ of the bonus, the odds of failure", least=1e-12, most=1.0)
    temperature: float = parameter(0.2, "τ of the softmax over values; 0 takes the best", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.needed_width > MAX_WIDTH:
            raise OutOfRangeError(
                f"{self.name} keeps its tables in every token: {self.needed_width} numbers for "
                f"d={self.d}, arms={self.arms}, steps={self.steps}, up to {MAX_WIDTH} are built"
            )

    @property
    def needed_width(self) -> int:
        """The width, known before it is compiled: tables, what they are estimated from, a token."""
        cells, moves = self.horizon * self.d * self.arms, self.steps * self.d**2 * self.arms
        return 6 * cells + 3 * moves + self.horizon + self.d + self.arms + 9

    @property
    def definition(self) -> Definition:  # pyright: ignore[reportIncompatibleVariableOverride]
        return define_planning(2 * self.max_game_steps)

    @property
    def sizes(self) -> dict[str, int]:
        return {"n": self.n, "S": self.d, "A": self.arms, "H": self.horizon, "K": self.steps}

    @property
    def horizon(self) -> int:
        return self.steps + 1

    @property
    def levels(self) -> int:
        """Blocks of the tree that takes a maximum over actions."""
        return math.ceil(math.log2(self.arms))

    @property
    def max_value(self) -> float:
        """Upper bound on what `Q` holds."""
        return self.horizon

    @property
    def max_game_steps(self) -> int:
        return self.n * self.horizon

    @property
    def gap(self) -> float:
        """1 minus the largest product of two marks."""
        return find_gap(2 * self.max_game_steps)

    @cached_property
    def policy(self) -> UCBVIPolicy:
        return UCBVIPolicy(
            steps=self.max_game_steps,
            delta=self.delta,
            bonus=self.bonus,
            temperature=self.temperature,
        )

    @cached_property
    def algorithm(self) -> OptimisticPlanning:
        width = self.policy.bonus_scale(self.horizon, self.d, self.arms)
        return OptimisticPlanning(torch.tensor(width, dtype=torch.float64))

    @property
    def visits(self) -> list[float]:
        """The numbers of visits that a cell may have."""
        return [float(count) for count in range(max(self.n, 2))]

    @property
    def tables(self) -> list[Callable[[Tensor], Tensor]]:
        """1/N and the bonus for N visits, on whole numbers."""
        counts = torch.tensor(self.visits, dtype=torch.float64)
        some, never = counts.clamp_min(1), counts == 0
        bonus = torch.where(never, 2.0 * self.horizon, self.algorithm.width / some.sqrt())
        return [follow_table(table) for table in (torch.where(never, 0.0, 1 / some), bonus)]

    def distributions(self) -> list[TabularGames]:
        size = {"states": self.d, "arms": self.arms, "horizon": self.horizon}
        return [TabularGames(**size, episodes=n) for n in (self.n, self.n // 2 + 1)]

    def draw_further(
        self, count: int, generator: torch.Generator, dtype: torch.dtype
    ) -> list[TabularGameProblem]:
        """Let episodes of a game repeat its first, up to a random one: the counts reach all knots.

        Cells are rarely visited often by chance. Rewards are those that were drawn.
        """
        games = []
        for kind in self.distributions()[:1]:
            game = kind.sample(count, generator=generator, dtype=dtype)
            until = torch.randint(game.episodes, (len(game), 1), generator=generator)
            repeats = (torch.arange(game.episodes) <= until).unsqueeze(-1)
            states, actions = (
                torch.where(repeats, part[:, :1], part) for part in (game.states, game.actions)
            )
            games.append(replace(game, states=states, actions=actions))
        return games

    def environments(self) -> TabularMDPs:
        return TabularMDPs(states=self.d, arms=self.arms, horizon=self.horizon)

    def accept(self, problem: TabularGameProblem) -> None:
        self._check_sizes(*problem.sizes, problem.horizon)
        if problem.episodes > self.n:
            raise OutOfRangeError(
                f"{self.name} was built for up to n={self.n} episodes, got {problem.episodes}: "
                "build it with a larger n"
            )

    def usage(self, stream: Tensor) -> float:
        """Return 0: values are at most `max_value`, shares at most 1, and visits below n."""
        return 0.0

    def accept_environment(self, environment: Environment) -> None:
        super().accept_environment(environment)
        if isinstance(environment, TabularMDP):
            self._check_sizes(environment.states, environment.actions, environment.horizon)

    def _check_sizes(self, states: int, actions: int, horizon: int) -> None:
        if (states, actions, horizon) != (self.d, self.arms, self.horizon):
            raise OutOfRangeError(
                f"{self.name} was built for {self.d} states, {self.arms} actions and episodes of "
                f"{self.horizon}, got {states}, {actions} and {horizon}: build it with "
                f"d={states}, arms={actions}, steps={horizon - 1}"
            )

    def encode_observation(
        self, t: int, observation: Situation, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch 1 width"]:
        state = one_hot(observation.state, self.d).to(noise).unsqueeze(-2)
        return self.layout.make_tokens(**self._number(2 * t, observation.step, state), s=state)

    def encode_action(
        self,
        t: int,
        observation: Situation,
        action: Int[Tensor, "*batch"],
        reward: Float[Tensor, "*batch"],
    ) -> Float[Tensor, "*batch 1 width"]:
        done = one_hot(action, self.arms).to(reward).unsqueeze(-2)
        place = self._number(2 * t + 1, observation.step, done)
        return self.layout.make_tokens(**place, a=done, r=reward.unsqueeze(-1))

    def _number(self, i: int, step: int, like: Tensor) -> dict[str, Any]:
        """Return the registers for position, episode and step of token i, counted from 0."""
        if i >= 2 * self.max_game_steps:
            raise OutOfRangeError(f"{self.name} was built for up to n={self.n} episodes")
        prompt, at = self.definition.prompt, torch.tensor([i, step], device=like.device)
        assert isinstance(prompt, PlanningPrompt)
        return {**prompt.number_tokens(at[:1], at[1:], self.horizon, like), "one": 1.0}

    def represent(self, filled: Registers, state: Plan) -> Registers:
        axis = state.values.ndim - 4
        found = self._fill_tables(state)
        return {name: t.repeat_interleave(2 * self.horizon, axis) for name, t in found.items()}

    def _fill_tables(self, state: Plan) -> Registers:
        """Return what the registers of every token of an episode hold between steps."""
        return dict(zip(("R", "P", "Q"), state, strict=True))

    def log_odds(self, stream: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch actions"]:
        values = self.layout.read(stream.unsqueeze(-2), "out").squeeze(-2)
        if self.temperature > 0:
            return values / self.temperature
        # Values that differ only by rounding are tied, whatever the order of summation.
        best = values.amax(dim=-1, keepdim=True)
        tied = values >= best - self.tolerance(values.dtype)
        return greedy_probabilities(torch.where(tied, best, values)).log()
