"""Base class of constructions that play linear bandits: the game as tokens, and the ridge solves.

Tokens     step t is two tokens, numbered 2t + 1 and 2t + 2 in `pos`: the action set in `a` (with
           the given normals, where there are any), then the choice, one-hot in `chosen`, with its
           `reward`. `one` is 1 on all of them
Invariant  the second token holds the features of what was chosen in `phi`; the first holds y and x
           of its systems in `ahead` and `behind`. What these hold on second tokens does not matter
Proof      prologue, one head for each action, score chosen_k + Σ chosen + j − i, value a_k: on a
           second token it is chosen_k for j = i − 1 and at most 0 before, and its own `a` is 0; on
           a first token it is at most 0. Step: `phi` is 0 on first tokens, so a signed pair with
           score ⟨y, φ_j⟩ (− r_j for the estimate) and value −η φ_j under 1/i adds the data's part
           of the gradient step; a head with score 1 + j − i, which is 1 on the token itself and
           else at most 0, adds −η/i λ y and η/i b. The MLP turns (ahead, behind) = (x, x_before)
           into (x + β(x − x_before), x)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from innerloop.algorithms.accelerated_ridge import AcceleratedRidge, SolverState
from innerloop.constructions.acting import ActingConstruction
from innerloop.errors import InputError, OutOfRangeError
from innerloop.parameters import parameter
from innerloop.problems.bandit import ActionSet
from innerloop.problems.linear_bandit_games import BanditGameProblem, LinearBanditGames
from innerloop.problems.linear_bandits import LinearBandits
from innerloop.transformer import (
    MLP,
    Attention,
    Block,
    Head,
    Layout,
    Units,
    make_signed_pair,
    sum_terms,
)
from innerloop.transformer.head import Blocks
from innerloop.transformer.layout import Location
from innerloop.transformer.positions import gate_own_position

NOISE = 0.5
"""σ of the rewards in `environments`, for actions with norms up to 1."""
SLACK = 1 + 1e-9
"""Factor on the bounds of norms and rewards, to allow for rounding."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearBanditConstruction(ActingConstruction[BanditGameProblem, SolverState], ABC):
    """One block for the features, one per step of the ridge solves, one for the odds."""

    looped: ClassVar[bool] = True

    d: int = parameter(2, "features", least=1, most=64)
    n: int = parameter(10, "T, the largest number of steps of a game", least=1, most=2_000)
    arms: int = parameter(3, "A, actions in a set", least=1, most=64)
    steps: int = parameter(60, "steps of the ridge solves", least=1, most=10_000)
    ridge: float = parameter(1.0, "λ, the weight of the ridge penalty", least=1e-6, most=1e6)
    temperature: float = parameter(0.5, "τ of the softmax over scores", least=1e-3, most=1e6)
    bound: float = parameter(1.0, "B, the largest norm of an action", least=1e-6, most=1e6)
    reward: float = parameter(10.0, "the largest |reward|", least=1e-6, most=1e6)

    @property
    @abstractmethod
    def extra_registers(self) -> dict[str, int | tuple[int, ...]]:
        """Further registers of a subclass."""

    @property
    @abstractmethod
    def target_registers(self) -> list[Location]:
        """The registers of b_1, b_2, …, the right-hand sides of the systems."""

    @property
    @abstractmethod
    def max_score(self) -> float:
        """Upper bound on |⟨x, a⟩| in the read-out, for a token's x and any earlier a."""

    @cached_property
    def algorithm(self) -> AcceleratedRidge:
        raise TypeError(f"{self.name} must define its algorithm")

    @cached_property
    def layout(self) -> Layout:
        solves = (len(self.algorithm.ridges), self.d)
        game = {"a": (self.arms, self.d), "chosen": self.arms, "reward": (), "phi": self.d}
        state = {"ahead": solves, "behind": solves, "score": self.arms}
        return Layout(**game, **state, **self.extra_registers, pos=(), one=())

    @property
    def max_estimate(self) -> float:
        """Upper bound on ‖ŵ‖: ‖(G + λI)⁻¹Φᵀ‖ ≤ 1/(2√λ), and there are n − 1 rewards."""
        return (self.n - 1) ** 0.5 * self.reward / (2 * self.ridge**0.5)

    def tolerance(self, dtype: torch.dtype) -> float:
        """Allow for rounding: the read-out's gate adds and subtracts a number that grows with n."""
        rounding = 8 * torch.finfo(dtype).eps * self.max_score * 2 * self.n / self.temperature
        return max(super().tolerance(dtype), rounding)

    @property
    def max_game_steps(self) -> int:
        return self.n

    def environments(self) -> LinearBandits:
        """Return bandits with a fresh action set at every step."""
        return LinearBandits(
            d=self.d, arms=self.arms, sets=self.n, noise=NOISE * self.bound, bound=self.bound
        )

    def distributions(self) -> list[LinearBanditGames]:
        longest = LinearBanditGames(d=self.d, n=self.n, arms=self.arms, bound=self.bound)
        return [longest, replace(longest, n=self.n // 2 + 1)]

    def accept(self, problem: BanditGameProblem) -> None:
        self.check_observations(0, problem.features, problem.noise)
        self._check_rewards(problem.rewards)

    def check_observations(self, start: int, features: Tensor, noise: Tensor) -> None:
        """Refuse action sets of another shape, and steps or actions beyond the built range."""
        steps, arms, d = features.shape[-3:]
        if not 0 <= start <= start + steps <= self.n:
            raise OutOfRangeError(
                f"{self.name} was built for {self.n} steps of a game, got step {start + steps}"
            )
        if (arms, d) != (self.arms, self.d):
            raise OutOfRangeError(
                f"{self.name} was built for arms={self.arms}, d={self.d}; got arms={arms}, d={d}"
            )
        largest = float(features.norm(dim=-1).max())
        if not largest <= self.bound * SLACK:
            raise OutOfRangeError(
                f"{self.name} was built for actions with norms up to bound={self.bound:g}, "
                f"got {largest:.4g}: {self.remedy}"
            )

    def _check_rewards(self, rewards: Tensor) -> None:
        largest = float(rewards.abs().max())
        if not largest <= self.reward * SLACK:
            raise OutOfRangeError(
                f"{self.name} was built for rewards up to reward={self.reward:g} in size, "
                f"got {largest:.4g}: build it with a larger reward"
            )

    def usage(self, stream: Tensor) -> float:
        a, reward = (self.layout.read(stream, name) for name in ("a", "reward"))
        largest = float(a.norm(dim=-1).max()) / self.bound
        return max(largest, float(reward.abs().max()) / self.reward) / SLACK

    def encode_observation(
        self, t: int, observation: ActionSet, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch 1 width"]:
        return self._observation_tokens(t, observation.features.unsqueeze(-3), noise.unsqueeze(-2))

    def encode_action(
        self,
        t: int,
        observation: ActionSet,
        action: Int[Tensor, "*batch"],
        reward: Float[Tensor, "*batch"],
    ) -> Float[Tensor, "*batch 1 width"]:
        return self._action_tokens(t, action.unsqueeze(-1), reward.unsqueeze(-1))

    def prompt(self, problem: BanditGameProblem) -> Tensor:
        first = self._observation_tokens(0, problem.features, problem.noise)
        second = self._action_tokens(0, problem.actions, problem.rewards)
        return torch.stack([first, second], dim=-2).flatten(-3, -2)

    def _observation_tokens(
        self,
        start: int,
        features: Float[Tensor, "*batch n arms d"],
        noise: Float[Tensor, "*batch n normals"],
    ) -> Float[Tensor, "*batch n width"]:
        """Return the first tokens of consecutive steps: what is observed."""
        self.check_observations(start, features, noise)
        pos = 2 * torch.arange(start, start + features.shape[-3]).to(features) + 1
        return self.layout.make_tokens(a=features, pos=pos, one=1.0, **self.noise_registers(noise))

    def _action_tokens(
        self, start: int, actions: Int[Tensor, "*batch n"], rewards: Float[Tensor, "*batch n"]
    ) -> Float[Tensor, "*batch n width"]:
        """Return the second tokens of consecutive steps: actions and rewards."""
        self._check_rewards(rewards)
        if not bool(((actions >= 0) & (actions < self.arms)).all()):
            raise InputError(f"actions must be in 0 … {self.arms - 1}, got {actions.tolist()}")
        chosen = torch.nn.functional.one_hot(actions, self.arms).to(rewards)
        pos = 2 * torch.arange(start, start + actions.shape[-1]).to(rewards) + 2
        return self.layout.make_tokens(chosen=chosen, reward=rewards, pos=pos, one=1.0)

    def noise_registers(self, noise: Tensor) -> dict[str, Tensor]:
        """Return the registers of first tokens that hold the policy's normals, if any do."""
        return {}

    def encode(self, problem: BanditGameProblem, state: SolverState) -> Tensor:
        stream, place = self.prompt(problem), self.layout
        stream[..., 1::2, place["phi"].index] = problem.chosen_features
        stream[..., 0::2, place["ahead"].index] = state.ahead.flatten(-2)
        stream[..., 0::2, place["behind"].index] = state.behind.flatten(-2)
        return stream

    def ignored_mask(self, stream: Tensor) -> Bool[Tensor, "tokens width"]:
        second = torch.arange(stream.shape[-2]) % 2 == 1
        return second.unsqueeze(-1) & self.layout.mask("ahead", "behind")

    def prologue(self) -> list[Block]:
        heads = []
        for k in range(self.arms):
            weights = torch.ones(self.arms, 1, dtype=torch.float64)
            weights[k] += 1
            score = sum_terms({("chosen", "one"): weights}, gate_own_position(1.0))
            heads.append(Head(score, {(self.layout["a"][k], "phi"): 1.0}))
        return [Block(self.causal_attention(heads, "1"))]

    def body(self, k: int) -> list[Block]:
        heads = [head for s in range(len(self.algorithm.ridges)) for head in self._data_heads(s)]
        return [
            Block(
                self.causal_attention([*heads, self._own_head()], "1/i"),
                MLP.from_pieces(self.layout, [self._momentum_units()]),
            )
        ]

    def _data_heads(self, s: int) -> list[Head]:
        """Return the signed pair that adds −η/i Σ φ (⟨y, φ⟩ − r) to y of system s; r if s = 0."""
        y, size = self.layout["ahead"][s], float(self.algorithm.rates.step_size[s])
        reward: Blocks = {} if s else {("one", "reward"): -1.0}
        return make_signed_pair(Head(sum_terms({(y, "phi"): 1.0}, reward), {("phi", y): -size}))

    def _own_head(self) -> Head:
        """Return the head that adds the token's own −η/i λ y and η/i b to y of every system."""
        sizes, ridges = self.algorithm.rates.step_size, self.algorithm.ridges
        shrink = torch.diag((-sizes * ridges).repeat_interleave(self.d))
        value: dict[tuple[Location, Location], Tensor | float] = {("ahead", "ahead"): shrink}
        for s, register in enumerate(self.target_registers, 1):
            value[register, self.layout["ahead"][s]] = float(sizes[s])
        return Head({("one", "one"): 1.0}, value, gate=gate_own_position(1.0))

    def _momentum_units(self) -> Units:
        """Return MLP units for ahead += β (ahead − behind), behind ← ahead."""
        momentum = torch.diag(self.algorithm.rates.momentum.repeat_interleave(self.d))
        eye = torch.eye(len(momentum), dtype=torch.float64)
        both = torch.cat([eye, -eye])
        return Units(
            {"ahead": both, "behind": -both},
            torch.zeros(len(both), dtype=torch.float64),
            {"ahead": torch.cat([momentum, -momentum], dim=1), "behind": both.mT},
            note="ahead += β (ahead − behind), behind ← ahead",
        )

    def causal_attention(self, heads: list[Head], normalisation: Literal["1", "1/i"]) -> Attention:
        layout = self.layout
        return Attention.from_heads(
            layout, heads, kind="relu", mask="causal", normalisation=normalisation
        )

    def decode(self, problem: BanditGameProblem, stream: Tensor) -> Tensor:
        return self.log_odds(stream[..., 0::2, :])

    def log_odds(self, stream: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch actions"]:
        """Read out as in the source: a softmax of the scores."""
        return stream[..., self.layout["score"].index].log_softmax(dim=-1)
