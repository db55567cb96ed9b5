"""UCB-VI on tabular decision processes, run exactly by causal ReLU attention, every prefix at once.

Algorithm  Q_h = min{ H, R_h + P̂_h max_a Q_{h+1} } backwards from the last step of the episode; R is
           the average reward plus the bonus, P̂ the frequencies, of the whole episodes before
Invariant  every token holds R in `R`, P̂ in `P` and the values found so far in `Q`; `V` is 0
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
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from innerloop.algorithms.optimistic_planning import OptimisticPlanning, Plan
from innerloop.constructions.acting import ActingConstruction
from innerloop.constructions.base import Cost
from innerloop.constructions.tabular import Pairs, cells, copy_from, earlier, hoped, maxima
from innerloop.errors import OutOfRange
from innerloop.parameters import parameter
from innerloop.policies.base import greedy
from innerloop.policies.ucb_vi import UCBVI
from innerloop.problems.environment import Environment
from innerloop.problems.mdp import Situation, TabularMDP
from innerloop.problems.tabular_games import TabularGame, TabularGames
from innerloop.problems.tabular_mdps import TabularMDPs
from innerloop.transformer import (
    MLP,
    Attention,
    Block,
    Head,
    Layout,
    marks,
    own_token,
    piecewise_linear,
)
from innerloop.transformer.marks import MARK

MOST_WIDTH = 1000
"""Heads are compiled from matrices of this size squared, one for each cell of the tables."""


@dataclass(frozen=True, kw_only=True, eq=False)
class UCBVIDecoder(ActingConstruction):
    """Three blocks to know, one and a tree of maxima for each step back, one to read out."""

    source: ClassVar[str] = "Yang 2025, third paper, Theorem 12 (Lin et al. 2023)"
    cost: ClassVar[Cost] = Cost(
        "k + km + 4",
        "kdA + dA",
        "7kdA + 3kd²A + 8dA + k + 3d + 3A + 10",
        "2H + 8 layers",
        "m = levels, A = arms",
    )
    scratch: ClassVar[tuple[str, ...]] = (
        *("was", "did", "had", "visit", "pay", "move"),
        *("visits", "earned", "moves", "inverse"),
    )
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"d": 2, "n": 9, "steps": 3, "bonus": 0.0},
        {"d": 4, "arms": 3, "steps": 1},
        {"d": 1, "arms": 4, "steps": 2},
    )

    d: int = parameter(3, "states S", least=1, most=50)
    arms: int = parameter(2, "actions A", least=1, most=50)
    n: int = parameter(10, "most episodes of a game", least=1, most=200)
    steps: int = parameter(2, "H − 1, the steps back through an episode", least=1, most=50)
    bonus: float = parameter(0.05, "c, the weight of the uncertainty; 2 in the theorems", least=0)
    delta: float = parameter(0.1, "δ of the bonus, the odds of failure", least=1e-12, most=1.0)
    temperature: float = parameter(0.2, "τ of the softmax over values; 0 takes the best", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout.width > MOST_WIDTH:
            raise OutOfRange(
                f"{self.name} keeps its tables in every token: {self.layout.width} numbers for "
                f"d={self.d}, arms={self.arms}, steps={self.steps}, up to {MOST_WIDTH} are built"
            )

    @property
    def horizon(self) -> int:
        return self.steps + 1

    @property
    def levels(self) -> int:
        """Blocks of the tree that takes a maximum over actions."""
        return math.ceil(math.log2(self.arms))

    @property
    def longest(self) -> int:
        return self.n * self.horizon

    @cached_property
    def layout(self) -> Layout:
        S, A, H = self.d, self.arms, self.horizon
        tried, moved = (H, S, A), (H - 1, S, A, S)
        data = {"one": (), "i": (), "i2": (), "e": (), "p": MARK, "h": H, "s": S, "a": A, "r": ()}
        past = {"was": S, "did": A, "had": S, "visit": tried, "pay": tried, "move": moved}
        sums = {"visits": tried, "earned": tried, "moves": moved, "inverse": tried}
        return Layout(**data, **past, **sums, R=tried, P=moved, Q=tried, V=(A, S), out=A)

    @cached_property
    def policy(self) -> UCBVI:
        return UCBVI(
            steps=self.longest, delta=self.delta, bonus=self.bonus, temperature=self.temperature
        )

    @cached_property
    def algorithm(self) -> OptimisticPlanning:
        width = self.policy.width(self.horizon, self.d, self.arms)
        return OptimisticPlanning(torch.tensor(width, dtype=torch.float64))

    def distributions(self) -> list[TabularGames]:
        size = {"states": self.d, "arms": self.arms, "horizon": self.horizon}
        return [TabularGames(**size, episodes=n) for n in (self.n, self.n // 2 + 1)]

    def worlds(self) -> TabularMDPs:
        return TabularMDPs(states=self.d, arms=self.arms, horizon=self.horizon)

    def accept(self, problem: TabularGame) -> None:
        self._fits(*problem.sizes, problem.horizon)
        if problem.episodes > self.n:
            raise OutOfRange(
                f"{self.name} was built for up to n={self.n} episodes, got {problem.episodes}: "
                "build it with a larger n"
            )

    def admit(self, environment: Environment) -> None:
        super().admit(environment)
        if isinstance(environment, TabularMDP):
            self._fits(environment.states, environment.actions, environment.horizon)

    def _fits(self, states: int, actions: int, horizon: int) -> None:
        if (states, actions, horizon) != (self.d, self.arms, self.horizon):
            raise OutOfRange(
                f"{self.name} was built for {self.d} states, {self.arms} actions and episodes of "
                f"{self.horizon}, got {states}, {actions} and {horizon}: build it with "
                f"d={states}, arms={actions}, steps={horizon - 1}"
            )

    def observed(
        self, t: int, observation: Situation, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch 1 width"]:
        state = one_hot(observation.state, self.d).to(noise).unsqueeze(-2)
        return self.layout.tokens(**self._place(2 * t, observation.step, state), s=state)

    def acted(
        self,
        t: int,
        observation: Situation,
        action: Int[Tensor, "*batch"],
        reward: Float[Tensor, "*batch"],
    ) -> Float[Tensor, "*batch 1 width"]:
        done = one_hot(action, self.arms).to(reward).unsqueeze(-2)
        place = self._place(2 * t + 1, observation.step, done)
        return self.layout.tokens(**place, a=done, r=reward.unsqueeze(-1))

    def _place(self, i: int, step: int, like: Tensor) -> dict[str, Tensor]:
        """Positions, the episode and the step in it, of token i, counted from 0."""
        if i >= 2 * self.longest:
            raise OutOfRange(f"{self.name} was built for up to n={self.n} episodes")
        at = torch.tensor([i, step], device=like.device)
        return self._places(at[:1], at[1:], like)

    def _places(
        self, i: Int[Tensor, " tokens"], step: Int[Tensor, " tokens"], like: Tensor
    ) -> dict[str, Tensor]:
        """What `_place` says, of many tokens."""
        numbers = {"one": torch.ones_like(i), "i": i, "i2": i * i, "e": i // (2 * self.horizon)}
        places = {"p": self._marks.to(i.device)[i], "h": one_hot(step, self.horizon)}
        return {name: value.to(like) for name, value in (numbers | places).items()}

    @cached_property
    def _marks(self) -> Tensor:
        return marks(2 * self.longest)

    def prompt(self, problem: TabularGame) -> Tensor:
        rewards = problem.rewards.flatten(-2)
        seen = one_hot(problem.states.flatten(-2), self.d).to(rewards)
        done = one_hot(problem.actions.flatten(-2), self.arms).to(rewards)
        i = torch.arange(2 * rewards.shape[-1], device=rewards.device)
        places = self._places(i, i // 2 % self.horizon, rewards)
        # What is shown, and what was chosen and earned, take turns.
        return self.layout.tokens(
            **places,
            s=torch.stack([seen, 0 * seen], dim=-2).flatten(-3, -2),
            a=torch.stack([0 * done, done], dim=-2).flatten(-3, -2),
            r=torch.stack([0 * rewards, rewards], dim=-1).flatten(-2),
        )

    def encode(self, problem: TabularGame, state: Plan) -> Tensor:
        stream = self.prompt(problem)
        for name, value in zip(("R", "P", "Q"), state, strict=True):
            each = value.flatten(-len(self.layout[name].shape)).repeat_interleave(
                2 * self.horizon, dim=-2
            )
            stream[..., self.layout[name].index] = each
        return stream

    def prologue(self) -> list[Block]:
        return [self._remember(), self._count(), self._know()]

    def _remember(self) -> Block:
        heads = [
            Head(copy_from(1), {("s", "was"): 1.0, ("a", "did"): 1.0}),
            Head(copy_from(2), {("s", "had"): 1.0}),
        ]
        tried = [("h", 0, 0), ("was", 1, 0), ("a", 2, 0)]
        moved = [("h", 0, 1), ("had", 1, 0), ("did", 2, 0), ("s", 3, 0)]
        pieces = [cells(tried, "visit"), cells(tried, "pay", "r"), cells(moved, "move")]
        return Block(self._attention(heads), MLP.of(self.layout, pieces))

    def _count(self) -> Block:
        names = {"visit": "visits", "pay": "earned", "move": "moves"}
        knots = torch.arange(max(self.n, 2), dtype=torch.float64)
        some, never = knots.clamp_min(1), knots == 0
        inverse = torch.where(never, 0.0, 1 / some)
        bonus = torch.where(never, 2.0 * self.horizon, self.algorithm.width / some.sqrt())
        pieces = [
            piecewise_linear("visits", "inverse", inverse, knots),
            piecewise_linear("visits", "R", bonus, knots),
        ]
        return Block(self._attention(earlier(names)), MLP.of(self.layout, pieces))

    def _know(self) -> Block:
        heads, own, at = [], own_token(1.0, 2 * self.longest), self.layout
        for cell in torch.cartesian_prod(*(torch.arange(size) for size in at["R"].shape)).tolist():
            place = tuple(cell)
            value: Pairs = {(at["earned"][place], at["R"][place]): 1.0}
            if place[0] < self.steps:
                value[(at["moves"][place], at["P"][place])] = 1.0
            heads.append(Head({(at["inverse"][place], "one"): 1.0}, value, own))
        return Block(self._attention(heads), MLP.of(at, hoped(self.horizon, self.steps)))

    def body(self, k: int) -> list[Block]:
        h, at, own = self.steps - 1 - k, self.layout, own_token(self.horizon, 2 * self.longest)
        best, tree = maxima(at["Q"][h + 1], at["V"], own)
        blocks = [Block(self._attention(heads), MLP.of(at, pieces)) for heads, pieces in tree]
        heads = [
            Head({(best[s : s + 1], "one"): 1.0}, {(at["P"][h][..., s], at["Q"][h]): 1.0}, own)
            for s in range(self.d)
        ]
        erased = [at["V"]] if self.levels else []
        return [*blocks, Block(self._attention(heads), MLP.of(at, hoped(self.horizon, h, erased)))]

    def epilogue(self) -> list[Block]:
        at, own = self.layout, own_token(self.horizon, 2 * self.longest)
        heads = [
            Head(
                {(at["Q"][h][:, a], "s"): 1.0},
                {(at["h"][h : h + 1], at["out"][a : a + 1]): 1.0},
                own,
            )
            for h in range(self.horizon)
            for a in range(self.arms)
        ]
        return [Block(self._attention(heads))]

    def _attention(self, heads: list[Head]) -> Attention:
        return Attention.of(self.layout, heads, kind="relu", mask="causal", normalisation="1")

    def decode(self, problem: TabularGame, stream: Tensor) -> Tensor:
        found = self.layout.read(stream, "out")[..., 0::2, :]
        return found.unflatten(-2, (problem.episodes, self.horizon))

    def log_odds(self, stream: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch actions"]:
        values = self.layout.read(stream.unsqueeze(-2), "out").squeeze(-2)
        if self.temperature > 0:
            return values / self.temperature
        # What differs by rounding alone is a tie, in whatever order the machine adds up.
        best = values.amax(dim=-1, keepdim=True)
        tied = values >= best - self.tolerance(values.dtype)
        return greedy(torch.where(tied, best, values)).log()
