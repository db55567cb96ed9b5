"""What constructions that play linear bandits share: the game as tokens, and the ridge solves.

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

from innerloop.algorithms.accelerated_ridge import AcceleratedRidge, Solves
from innerloop.constructions.acting import ActingConstruction
from innerloop.errors import InputError, OutOfRange
from innerloop.parameters import parameter
from innerloop.problems.bandit import ActionSet
from innerloop.problems.linear_bandit_games import BanditGame, LinearBanditGames
from innerloop.problems.linear_bandits import LinearBandits
from innerloop.transformer import MLP, Attention, Block, Head, Layout, Units, signed, summed
from innerloop.transformer.head import Blocks
from innerloop.transformer.layout import Where
from innerloop.transformer.positions import own_position

NOISE = 0.5
"""σ of the bandits that are played, for actions with norms up to 1."""
SLACK = 1 + 1e-9
"""Norms are compared with their bound up to rounding."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearBanditConstruction(ActingConstruction, ABC):
    """One block for the features, one for each step of the ridge solves, one for the odds."""

    looped: ClassVar[bool] = True

    d: int = parameter(2, "features", least=1, most=64)
    n: int = parameter(10, "T, most steps of a game", least=1, most=2_000)
    arms: int = parameter(3, "A, actions in a set", least=1, most=64)
    steps: int = parameter(60, "steps of the ridge solves", least=1, most=10_000)
    ridge: float = parameter(1.0, "λ, the weight of the ridge penalty", least=1e-6, most=1e6)
    temperature: float = parameter(0.5, "τ of the softmax over scores", least=1e-3, most=1e6)
    bound: float = parameter(1.0, "B, the largest norm of an action", least=1e-6, most=1e6)
    reward: float = parameter(10.0, "the largest |reward|", least=1e-6, most=1e6)

    @property
    @abstractmethod
    def more(self) -> dict[str, int | tuple[int, ...]]:
        """The registers that it has besides those of every game."""

    @property
    @abstractmethod
    def given(self) -> list[Where]:
        """The registers that hold b_1, b_2, … of the systems."""

    @property
    @abstractmethod
    def scores(self) -> float:
        """The largest |⟨x, a⟩| that the read-out may meet, of a token's x and any earlier a."""

    @cached_property
    def algorithm(self) -> AcceleratedRidge:
        raise TypeError(f"{self.name} must define its algorithm")

    @cached_property
    def layout(self) -> Layout:
        solves = (len(self.algorithm.ridges), self.d)
        game = {"a": (self.arms, self.d), "chosen": self.arms, "reward": (), "phi": self.d}
        state = {"ahead": solves, "behind": solves, "score": self.arms}
        return Layout(**game, **state, **self.more, pos=(), one=())

    @property
    def estimates(self) -> float:
        """The largest ‖ŵ‖: (G + λI)⁻¹Φᵀ is at most 1/(2√λ), and there are n − 1 rewards."""
        return (self.n - 1) ** 0.5 * self.reward / (2 * self.ridge**0.5)

    def tolerance(self, dtype: torch.dtype) -> float:
        """The read-out's gate adds and takes away a number that grows with n."""
        rounding = 8 * torch.finfo(dtype).eps * self.scores * 2 * self.n / self.temperature
        return max(super().tolerance(dtype), rounding)

    @property
    def longest(self) -> int:
        return self.n

    def worlds(self) -> LinearBandits:
        """Bandits with a fresh action set at every step."""
        return LinearBandits(
            d=self.d, arms=self.arms, sets=self.n, noise=NOISE * self.bound, bound=self.bound
        )

    def distributions(self) -> list[LinearBanditGames]:
        most = LinearBanditGames(d=self.d, n=self.n, arms=self.arms, bound=self.bound)
        return [most, replace(most, n=self.n // 2 + 1)]

    def accept(self, problem: BanditGame) -> None:
        self.check_shown(0, problem.features, problem.noise)
        self._check_rewards(problem.rewards)

    def check_shown(self, start: int, features: Tensor, noise: Tensor) -> None:
        """Refuse action sets of another shape, or steps and actions beyond the built range."""
        steps, arms, d = features.shape[-3:]
        if not 0 <= start <= start + steps <= self.n:
            raise OutOfRange(
                f"{self.name} was built for {self.n} steps of a game, got step {start + steps}"
            )
        if (arms, d) != (self.arms, self.d):
            raise OutOfRange(
                f"{self.name} was built for arms={self.arms}, d={self.d}; got arms={arms}, d={d}"
            )
        longest = float(features.norm(dim=-1).max())
        if not longest <= self.bound * SLACK:
            raise OutOfRange(
                f"{self.name} was built for actions with norms up to bound={self.bound:g}, "
                f"got {longest:.4g}: {self.remedy}"
            )

    def _check_rewards(self, rewards: Tensor) -> None:
        largest = float(rewards.abs().max())
        if not largest <= self.reward * SLACK:
            raise OutOfRange(
                f"{self.name} was built for rewards up to reward={self.reward:g} in size, "
                f"got {largest:.4g}: build it with a larger reward"
            )

    def usage(self, stream: Tensor) -> float:
        a, reward = (self.layout.read(stream, name) for name in ("a", "reward"))
        longest = float(a.norm(dim=-1).max()) / self.bound
        return max(longest, float(reward.abs().max()) / self.reward) / SLACK

    def observed(
        self, t: int, observation: ActionSet, noise: Float[Tensor, "*batch normals"]
    ) -> Float[Tensor, "*batch 1 width"]:
        return self._shown(t, observation.features.unsqueeze(-3), noise.unsqueeze(-2))

    def acted(
        self,
        t: int,
        observation: ActionSet,
        action: Int[Tensor, "*batch"],
        reward: Float[Tensor, "*batch"],
    ) -> Float[Tensor, "*batch 1 width"]:
        return self._played(t, action.unsqueeze(-1), reward.unsqueeze(-1))

    def prompt(self, problem: BanditGame) -> Tensor:
        shown = self._shown(0, problem.features, problem.noise)
        played = self._played(0, problem.actions, problem.rewards)
        return torch.stack([shown, played], dim=-2).flatten(-3, -2)

    def _shown(
        self,
        start: int,
        features: Float[Tensor, "*batch n arms d"],
        noise: Float[Tensor, "*batch n normals"],
    ) -> Float[Tensor, "*batch n width"]:
        """The first tokens of consecutive steps."""
        self.check_shown(start, features, noise)
        pos = 2 * torch.arange(start, start + features.shape[-3]).to(features) + 1
        return self.layout.tokens(a=features, pos=pos, one=1.0, **self.sampled(noise))

    def _played(
        self, start: int, actions: Int[Tensor, "*batch n"], rewards: Float[Tensor, "*batch n"]
    ) -> Float[Tensor, "*batch n width"]:
        """The second tokens of consecutive steps."""
        self._check_rewards(rewards)
        if not bool(((actions >= 0) & (actions < self.arms)).all()):
            raise InputError(f"actions must be in 0 … {self.arms - 1}, got {actions.tolist()}")
        chosen = torch.nn.functional.one_hot(actions, self.arms).to(rewards)
        pos = 2 * torch.arange(start, start + actions.shape[-1]).to(rewards) + 2
        return self.layout.tokens(chosen=chosen, reward=rewards, pos=pos, one=1.0)

    def sampled(self, noise: Tensor) -> dict[str, Tensor]:
        """The registers of first tokens that hold given normals, if any do."""
        return {}

    def encode(self, problem: BanditGame, state: Solves) -> Tensor:
        stream, place = self.prompt(problem), self.layout
        stream[..., 1::2, place["phi"].index] = problem.chosen
        stream[..., 0::2, place["ahead"].index] = state.ahead.flatten(-2)
        stream[..., 0::2, place["behind"].index] = state.behind.flatten(-2)
        return stream

    def ignored(self, stream: Tensor) -> Bool[Tensor, "tokens width"]:
        second = torch.arange(stream.shape[-2]) % 2 == 1
        return second.unsqueeze(-1) & self.layout.mask("ahead", "behind")

    def prologue(self) -> list[Block]:
        heads = []
        for k in range(self.arms):
            weights = torch.ones(self.arms, 1, dtype=torch.float64)
            weights[k] += 1
            score = summed({("chosen", "one"): weights}, own_position(1.0))
            heads.append(Head(score, {(self.layout["a"][k], "phi"): 1.0}))
        return [Block(self.causal(heads, "1"))]

    def body(self, k: int) -> list[Block]:
        heads = [head for s in range(len(self.algorithm.ridges)) for head in self._data(s)]
        return [
            Block(self.causal([*heads, self._own()], "1/i"), MLP.of(self.layout, [self._go_on()]))
        ]

    def _data(self, s: int) -> list[Head]:
        """The signed pair that adds −η/i Σ φ (⟨y, φ⟩ − r) to y of system s; r is the first's."""
        y, size = self.layout["ahead"][s], float(self.algorithm.pace.step_size[s])
        reward: Blocks = {} if s else {("one", "reward"): -1.0}
        return signed(Head(summed({(y, "phi"): 1.0}, reward), {("phi", y): -size}))

    def _own(self) -> Head:
        """The head that adds −η/i λ y and η/i b, of the token itself, to y of every system."""
        sizes, ridges = self.algorithm.pace.step_size, self.algorithm.ridges
        shrink = torch.diag((-sizes * ridges).repeat_interleave(self.d))
        value: dict[tuple[Where, Where], Tensor | float] = {("ahead", "ahead"): shrink}
        for s, register in enumerate(self.given, 1):
            value[register, self.layout["ahead"][s]] = float(sizes[s])
        return Head({("one", "one"): 1.0}, value, gate=own_position(1.0))

    def _go_on(self) -> Units:
        """ahead += β (ahead − behind), behind ← ahead."""
        momentum = torch.diag(self.algorithm.pace.momentum.repeat_interleave(self.d))
        eye = torch.eye(len(momentum), dtype=torch.float64)
        both = torch.cat([eye, -eye])
        return Units(
            {"ahead": both, "behind": -both},
            torch.zeros(len(both), dtype=torch.float64),
            {"ahead": torch.cat([momentum, -momentum], dim=1), "behind": both.mT},
            note="ahead += β (ahead − behind), behind ← ahead",
        )

    def causal(self, heads: list[Head], normalisation: Literal["1", "1/i"]) -> Attention:
        layout = self.layout
        return Attention.of(layout, heads, kind="relu", mask="causal", normalisation=normalisation)

    def decode(self, problem: BanditGame, stream: Tensor) -> Tensor:
        return self.log_odds(stream[..., 0::2, :])

    def log_odds(self, stream: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch actions"]:
        """The source's read-out: a softmax of the scores."""
        return stream[..., self.layout["score"].index].log_softmax(dim=-1)
