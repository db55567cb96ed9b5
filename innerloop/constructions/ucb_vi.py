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
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from innerloop.algorithms.optimistic_planning import OptimisticPlanning, Plan
from innerloop.constructions.acting import ActingConstruction
from innerloop.constructions.base import Cost
from innerloop.constructions.tabular import (
    Pairs,
    cap_values,
    copy_score,
    mark_cells,
    row_maxima,
    sum_earlier,
)
from innerloop.errors import OutOfRangeError
from innerloop.parameters import parameter
from innerloop.policies.base import greedy_probabilities
from innerloop.policies.ucb_vi import UCBVIPolicy
from innerloop.problems.environment import Environment
from innerloop.problems.mdp import Situation, TabularMDP
from innerloop.problems.tabular_games import TabularGameProblem, TabularGames
from innerloop.problems.tabular_mdps import TabularMDPs
from innerloop.transformer import (
    MLP,
    Attention,
    Block,
    Head,
    Layout,
    gate_own_token,
    make_marks,
    piecewise_linear,
)
from innerloop.transformer.marks import MARK_SIZE

MAX_WIDTH = 1000
"""Upper bound on the width; each cell of the tables has heads with width × width matrices."""


@dataclass(frozen=True, kw_only=True, eq=False)
class UCBVIConstruction(ActingConstruction[TabularGameProblem, Plan]):
    """Three blocks of estimates, one and a tree of maxima per step back, one for the read-out."""

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
    n: int = parameter(10, "largest number of episodes of a game", least=1, most=200)
    steps: int = parameter(2, "H − 1, the steps back through an episode", least=1, most=50)
    bonus: float = parameter(0.05, "c, the weight of the uncertainty; 2 in the theorems", least=0)
    delta: float = parameter(0.1, "δ of the bonus, the odds of failure", least=1e-12, most=1.0)
    temperature: float = parameter(0.2, "τ of the softmax over values; 0 takes the best", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout.width > MAX_WIDTH:
            raise OutOfRangeError(
                f"{self.name} keeps its tables in every token: {self.layout.width} numbers for "
                f"d={self.d}, arms={self.arms}, steps={self.steps}, up to {MAX_WIDTH} are built"
            )

    @property
    def horizon(self) -> int:
        return self.steps + 1

    @property
    def levels(self) -> int:
        """Blocks of the tree that takes a maximum over actions."""
        return math.ceil(math.log2(self.arms))

    @property
    def slots(self) -> int:
        """Slots of `V`, each with a number for every state."""
        return self.arms

    @property
    def max_value(self) -> float:
        """Upper bound on what `Q` and `V` hold."""
        return self.horizon

    @property
    def max_game_steps(self) -> int:
        return self.n * self.horizon

    @cached_property
    def layout(self) -> Layout:
        S, A, H = self.d, self.arms, self.horizon
        tried, moved = (H, S, A), (H - 1, S, A, S)
        data = {
            "one": (),
            "i": (),
            "i2": (),
            "e": (),
            "p": MARK_SIZE,
            "h": H,
            "s": S,
            "a": A,
            "r": (),
        }
        past = {"was": S, "did": A, "had": S, "visit": tried, "pay": tried, "move": moved}
        sums = {"visits": tried, "earned": tried, "moves": moved, "inverse": tried}
        return Layout(**data, **past, **sums, R=tried, P=moved, Q=tried, V=(self.slots, S), out=A)

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
        return self.layout.make_tokens(
            **self._token_position(2 * t, observation.step, state), s=state
        )

    def encode_action(
        self,
        t: int,
        observation: Situation,
        action: Int[Tensor, "*batch"],
        reward: Float[Tensor, "*batch"],
    ) -> Float[Tensor, "*batch 1 width"]:
        done = one_hot(action, self.arms).to(reward).unsqueeze(-2)
        place = self._token_position(2 * t + 1, observation.step, done)
        return self.layout.make_tokens(**place, a=done, r=reward.unsqueeze(-1))

    def _token_position(self, i: int, step: int, like: Tensor) -> dict[str, Tensor]:
        """Return the registers for position, episode and step of token i, counted from 0."""
        if i >= 2 * self.max_game_steps:
            raise OutOfRangeError(f"{self.name} was built for up to n={self.n} episodes")
        at = torch.tensor([i, step], device=like.device)
        return self._token_positions(at[:1], at[1:], like)

    def _token_positions(
        self, i: Int[Tensor, " tokens"], step: Int[Tensor, " tokens"], like: Tensor
    ) -> dict[str, Tensor]:
        """Return the registers for position, episode and step of several tokens."""
        numbers = {"one": torch.ones_like(i), "i": i, "i2": i * i, "e": i // (2 * self.horizon)}
        places = {"p": self._marks.to(i.device)[i], "h": one_hot(step, self.horizon)}
        return {name: value.to(like) for name, value in (numbers | places).items()}

    @cached_property
    def _marks(self) -> Tensor:
        return make_marks(2 * self.max_game_steps)

    def prompt(self, problem: TabularGameProblem) -> Tensor:
        rewards = problem.rewards.flatten(-2)
        seen = one_hot(problem.states.flatten(-2), self.d).to(rewards)
        done = one_hot(problem.actions.flatten(-2), self.arms).to(rewards)
        i = torch.arange(2 * rewards.shape[-1], device=rewards.device)
        places = self._token_positions(i, i // 2 % self.horizon, rewards)
        # Observations alternate with actions and rewards.
        return self.layout.make_tokens(
            **places,
            s=torch.stack([seen, 0 * seen], dim=-2).flatten(-3, -2),
            a=torch.stack([0 * done, done], dim=-2).flatten(-3, -2),
            r=torch.stack([0 * rewards, rewards], dim=-1).flatten(-2),
        )

    def encode(self, problem: TabularGameProblem, state: Plan) -> Tensor:
        stream = self.prompt(problem)
        for name, value in self._fill_registers(state).items():
            each = value.flatten(-len(self.layout[name].shape)).repeat_interleave(
                2 * self.horizon, dim=-2
            )
            stream[..., self.layout[name].index] = each
        return stream

    def _fill_registers(self, state: Plan) -> dict[str, Tensor]:
        """Return what the registers of every token of an episode hold between steps."""
        return dict(zip(("R", "P", "Q"), state, strict=True))

    def prologue(self) -> list[Block]:
        return [self._memory_block(), self._count_block(), self._estimate_block()]

    def _memory_block(self) -> Block:
        heads = [
            Head(copy_score(1), {("s", "was"): 1.0, ("a", "did"): 1.0}),
            Head(copy_score(2), {("s", "had"): 1.0}),
        ]
        tried = [("h", 0, 0), ("was", 1, 0), ("a", 2, 0)]
        moved = [("h", 0, 1), ("had", 1, 0), ("did", 2, 0), ("s", 3, 0)]
        pieces = [
            mark_cells(tried, "visit"),
            mark_cells(tried, "pay", "r"),
            mark_cells(moved, "move"),
        ]
        return Block(self._attention(heads), MLP.from_pieces(self.layout, pieces))

    def _count_block(self) -> Block:
        names = {"visit": "visits", "pay": "earned", "move": "moves"}
        knots = torch.arange(max(self.n, 2), dtype=torch.float64)
        some, never = knots.clamp_min(1), knots == 0
        inverse = torch.where(never, 0.0, 1 / some)
        bonus = torch.where(never, 2.0 * self.horizon, self.algorithm.width / some.sqrt())
        pieces = [
            piecewise_linear("visits", "inverse", inverse, knots),
            piecewise_linear("visits", "R", bonus, knots),
        ]
        return Block(self._attention(sum_earlier(names)), MLP.from_pieces(self.layout, pieces))

    def _estimate_block(self) -> Block:
        heads, own, at = [], self._own_token(1.0), self.layout
        for cell in torch.cartesian_prod(*(torch.arange(size) for size in at["R"].shape)).tolist():
            place = tuple(cell)
            value: Pairs = {(at["earned"][place], at["R"][place]): 1.0}
            if place[0] < self.steps:
                value[(at["moves"][place], at["P"][place])] = 1.0
            heads.append(Head({(at["inverse"][place], "one"): 1.0}, value, own))
        return Block(
            self._attention(heads), MLP.from_pieces(at, cap_values(self.horizon, self.steps))
        )

    def body(self, k: int) -> list[Block]:
        h, at, own = self.steps - 1 - k, self.layout, self._own_token()
        best, tree = row_maxima(at["Q"][h + 1], at["V"], own)
        blocks = [
            Block(self._attention(heads), MLP.from_pieces(at, pieces)) for heads, pieces in tree
        ]
        heads = [
            Head({(best[s : s + 1], "one"): 1.0}, {(at["P"][h][..., s], at["Q"][h]): 1.0}, own)
            for s in range(self.d)
        ]
        erased = [at["V"]] if self.levels else []
        return [
            *blocks,
            Block(self._attention(heads), MLP.from_pieces(at, cap_values(self.horizon, h, erased))),
        ]

    def epilogue(self) -> list[Block]:
        at, own = self.layout, self._own_token()
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

    def _own_token(self, most: float | None = None) -> Pairs:
        """Return the gate that keeps scores up to `most`, by default those of values, at home."""
        return gate_own_token(most or self.max_value, 2 * self.max_game_steps)

    def _attention(self, heads: list[Head]) -> Attention:
        return Attention.from_heads(
            self.layout, heads, kind="relu", mask="causal", normalisation="1"
        )

    def decode(self, problem: TabularGameProblem, stream: Tensor) -> Tensor:
        values = self.layout.read(stream, "out")[..., 0::2, :]
        return values.unflatten(-2, (problem.episodes, self.horizon))

    def log_odds(self, stream: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch actions"]:
        values = self.layout.read(stream.unsqueeze(-2), "out").squeeze(-2)
        if self.temperature > 0:
            return values / self.temperature
        # Values that differ only by rounding are tied, whatever the order of summation.
        best = values.amax(dim=-1, keepdim=True)
        tied = values >= best - self.tolerance(values.dtype)
        return greedy_probabilities(torch.where(tied, best, values)).log()
