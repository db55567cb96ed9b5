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
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from innerloop.algorithms.accelerated_ridge import AcceleratedRidge, SolverState
from innerloop.constructions.acting import ActingConstruction
from innerloop.errors import InputError, OutOfRangeError
from innerloop.language import Data, State, define, dot, entry_sum, mean, relu, stack, total
from innerloop.language.construction import Registers
from innerloop.language.definition import Definition
from innerloop.language.prompts.bandits import BanditProgram, alternate
from innerloop.parameters import parameter
from innerloop.problems.bandit import ActionSet
from innerloop.problems.linear_bandit_games import BanditGameProblem, LinearBanditGames
from innerloop.problems.linear_bandits import LinearBandits

NOISE = 0.5
"""σ of the rewards in `environments`, for actions with norms up to 1."""
SLACK = 1 + 1e-9
"""Factor on the bounds of norms and rewards, to allow for rounding."""


def define_solver(**extra: Any) -> Definition:
    """Return the program of the ridge solves, on the game's registers and the extra ones."""

    @define(
        prompt="bandits",
        a=Data("A", "d"),
        chosen=Data("A"),
        reward=Data(),
        phi=State("d"),
        ahead=State("S", "d"),
        behind=State("S", "d"),
        **extra,
        pos=Data(),
    )
    def solve(me: Any, own: Any) -> None:
        ahead, behind = [], []
        for s, (_, momentum, _) in enumerate(own.systems):
            moved = descend(me, own, s)
            ahead.append(moved + momentum * (moved - me.behind[s]))
            behind.append(moved)
        me.ahead, me.behind = stack(ahead), stack(behind)

    @solve.init
    def _(me: Any, A: int) -> None:
        me.phi = sum(find_chosen(me, k) for k in range(A))

    return solve


def find_chosen(me: Any, k: int) -> Any:
    """The features of action k in the token before, where it was chosen; else 0."""
    now = me.chosen[k] + entry_sum(me.chosen) - me.pos
    return total(lambda j: relu(now + j.pos) * j.a[k], over="causal")


def descend(me: Any, own: Any, s: int) -> Any:
    """A gradient step on system s, over the number of tokens so far."""
    size, _, ridge = own.systems[s]
    y, told = me.ahead[s], 0 if s else 1
    pull = mean(lambda j: (dot(y, j.phi) - told * j.reward) * j.phi, over="causal")
    moved = y - size * (pull + keep(me, lambda j: ridge * j.ahead[s]))
    return moved + size * keep(me, lambda j: own.select_target(j, s)) if s else moved


def keep(me: Any, value: Any) -> Any:
    """A value of this token over the number of tokens so far: 1 + j − i is 0 or less before it."""
    return mean(lambda j: relu(1 + j.pos - me.pos) * value(j), over="causal")


class LinearBanditConstruction(
    BanditProgram, ActingConstruction[BanditGameProblem, SolverState], ABC
):
    """One block for the features, one per step of the ridge solves, one for the odds."""

    attention: ClassVar[str] = "relu"
    looped: ClassVar[bool] = True

    steps: int = parameter(60, "steps of the ridge solves", least=1, most=10_000)
    ridge: float = parameter(1.0, "λ, the weight of the ridge penalty", least=1e-6, most=1e6)
    temperature: float = parameter(0.5, "τ of the softmax over scores", least=1e-3, most=1e6)
    bound: float = parameter(1.0, "B, the largest norm of an action", least=1e-6, most=1e6)
    reward: float = parameter(10.0, "the largest |reward|", least=1e-6, most=1e6)

    @abstractmethod
    def select_target(self, token: Any, s: int) -> Any:
        """Return b_s, the right-hand side of system s, of a token."""

    @property
    @abstractmethod
    def max_score(self) -> float:
        """Upper bound on |⟨x, a⟩| in the read-out, for a token's x and any earlier a."""

    @cached_property
    def algorithm(self) -> AcceleratedRidge:
        raise TypeError(f"{self.name} must define its algorithm")

    @property
    def sizes(self) -> dict[str, int]:
        return {**super().sizes, "S": len(self.algorithm.ridges)}

    @property
    def systems(self) -> list[list[float]]:
        """η, β and the ridge of every system."""
        rates = self.algorithm.rates
        return torch.stack([rates.step_size, rates.momentum, self.algorithm.ridges], -1).tolist()

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
        return [replace(each, bound=self.bound) for each in super().distributions()]

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
        features, normals = observation.features.unsqueeze(-3), noise.unsqueeze(-2)
        self.check_observations(t, features, normals)
        given = {"z": normals} if "z" in self.layout.registers else {}
        return self.layout.make_tokens(a=features, pos=2.0 * t + 1, one=1.0, **given)

    def encode_action(
        self,
        t: int,
        observation: ActionSet,
        action: Int[Tensor, "*batch"],
        reward: Float[Tensor, "*batch"],
    ) -> Float[Tensor, "*batch 1 width"]:
        actions, rewards = action.unsqueeze(-1), reward.unsqueeze(-1)
        self._check_rewards(rewards)
        if not bool(((actions >= 0) & (actions < self.arms)).all()):
            raise InputError(f"actions must be in 0 … {self.arms - 1}, got {actions.tolist()}")
        chosen = torch.nn.functional.one_hot(actions, self.arms).to(rewards)
        return self.layout.make_tokens(chosen=chosen, reward=rewards, pos=2.0 * t + 2, one=1.0)

    def represent(self, filled: Registers, state: SolverState) -> Registers:
        batch = state.ahead.ndim - 3
        shown, chosen = filled["a"][..., 0::2, :, :], filled["chosen"][..., 1::2, :]
        features = (chosen.unsqueeze(-1) * shown).sum(dim=-2)
        solved = {"ahead": state.ahead, "behind": state.behind}
        return {
            "phi": alternate(None, features, batch),
            **{name: alternate(value, None, batch) for name, value in solved.items()},
        }

    def ignored_mask(self, stream: Tensor) -> Bool[Tensor, "tokens width"]:
        second = torch.arange(stream.shape[-2]) % 2 == 1
        return second.unsqueeze(-1) & self.layout.mask("ahead", "behind")

    def decode(self, problem: BanditGameProblem, stream: Tensor) -> Tensor:
        return self.log_odds(stream[..., 0::2, :])

    def log_odds(self, stream: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch actions"]:
        """Read out as in the source: a softmax of the scores."""
        return stream[..., self.layout["score"].index].log_softmax(dim=-1)
