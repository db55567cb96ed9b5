"""Base class of constructions that play linear bandits: the game as tokens, and the ridge solves.

Tokens     step t is two tokens, numbered 2t + 1 and 2t + 2 in `pos`. The first has the action set
           in `a` (and normals, if the policy samples); the second has the chosen action, one-hot
           in `chosen`, and its `reward`. `one` is 1 on all of them
Invariant  the second token of a step holds the features of the chosen action in `phi`; the first
           holds y and x of its systems in `ahead` and `behind`. The values of these two registers
           on second tokens have no effect
Proof      prologue: one head for each action, with score chosen_k + Σ chosen + j − i and value a_k.
           On a second token the score is chosen_k for j = i − 1 and at most 0 before, and its own
           `a` is 0; on a first token the score is at most 0. Step: `phi` is 0 on first tokens, so a
           signed pair with score ⟨y, φ_j⟩ (− r_j for the estimate) and value −η φ_j under 1/i adds
           the part of the gradient step that depends on data. A head with score 1 + j − i, which is
           1 on the token itself and otherwise at most 0, adds −η/i λ y and η/i b. The MLP turns
           (ahead, behind) = (x, x_before) into (x + β(x − x_before), x)
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from innerloop.constructions.acting import SLACK, ActingProgram
from innerloop.language import Data, State, define, dot, entry_sum, mean, relu, stack, total
from innerloop.language.classes import BanditProgram, Definition, Registers, parameter
from innerloop.language.prompts.bandits import alternate
from innerloop.problems.linear_bandits import LinearBandits

GAME = {"a": Data("A", "d"), "chosen": Data("A"), "reward": Data()}
SOLVED = {"phi": State("d"), "ahead": State("S", "d"), "behind": State("S", "d")}


def define_solver(target: Callable[[Any, int], Any], **extra: Any) -> Definition:
    """Return the program of the ridge solves.

    Args:
        target: A function of a token and of s > 0 that returns b_s.
        extra: Further arguments of the program's definition.
    """

    @define(prompt="bandits", **GAME, **SOLVED, **extra, pos=Data())
    def solve(me: Any, own: Any) -> None:
        momentum = own.algorithm.rates.momentum.tolist()
        moved = [descend(me, own, s) for s in range(len(momentum))]
        ahead = [x + momentum[s] * (x - me.behind[s]) for s, x in enumerate(moved)]
        me.ahead, me.behind = stack(ahead), stack(moved)

    def descend(me: Any, own: Any, s: int) -> Any:
        """Return a gradient step on system s, divided by the number of tokens so far."""
        algorithm, y, with_rewards = own.algorithm, me.ahead[s], 0 if s else 1
        size, ridge = float(algorithm.rates.step_size[s]), float(algorithm.ridges[s])
        pull = mean(lambda j: (dot(y, j.phi) - with_rewards * j.reward) * j.phi, over="causal")
        moved = y - size * (pull + keep(me, lambda j: ridge * j.ahead[s]))
        return moved + size * keep(me, lambda j: target(j, s)) if s else moved

    def keep(me: Any, value: Any) -> Any:
        """Return a value of this token, divided by the number of tokens so far.

        The score 1 + j − i is 0 or less on earlier tokens.
        """
        return mean(lambda j: relu(1 + j.pos - me.pos) * value(j), over="causal")

    @solve.init
    def _(me: Any, A: int) -> None:
        now = [chosen + entry_sum(me.chosen) - me.pos for chosen in me.chosen]
        before = (lambda j, k=k: relu(now[k] + j.pos) * j.a[k] for k in range(A))
        me.phi = sum(total(features, over="causal") for features in before)

    return solve


class LinearBanditConstruction(BanditProgram, ActingProgram, ABC):
    """A construction with one block for the features, one per ridge step, one for the log odds."""

    attention, looped = "relu", True
    norms = {"a": "bound", "reward": "reward", "z": "normal"}

    steps: int = parameter(60, "steps of the ridge solves", least=1, most=10_000)
    ridge: float = parameter(1.0, "λ, the weight of the ridge penalty", least=1e-6, most=1e6)
    temperature: float = parameter(0.5, "τ of the softmax over scores", least=1e-3, most=1e6)
    bound: float = parameter(1.0, "B, the largest norm of an action", least=1e-6, most=1e6)
    reward: float = parameter(10.0, "the largest |reward|", least=1e-6, most=1e6)

    @property
    @abstractmethod
    def max_score(self) -> float:
        """An upper bound of |⟨x, a⟩| in the read-out, for the x of a token and all earlier a."""

    @property
    def sizes(self) -> dict[str, int]:
        return {**super().sizes, "S": len(self.algorithm.ridges)}

    @property
    def max_estimate(self) -> float:
        """An upper bound of ‖ŵ‖, from ‖(G + λI)⁻¹Φᵀ‖ ≤ 1/(2√λ) and n − 1 rewards."""
        return (self.n - 1) ** 0.5 * self.reward / (2 * self.ridge**0.5)

    def tolerance(self, dtype: torch.dtype) -> float:
        """Return the deviation due to rounding: the gate of the read-out adds a number that grows
        with n."""
        rounding = 8 * torch.finfo(dtype).eps * self.max_score * 2 * self.n / self.temperature
        return max(super().tolerance(dtype), rounding)

    def environments(self) -> LinearBandits:
        """Return bandits with a new action set at every step, and rewards with noise."""
        law: dict[str, Any] = {"noise": 0.5 * self.bound, "bound": self.bound}
        return LinearBandits(d=self.d, arms=self.arms, sets=self.n, **law)

    def distributions(self) -> Any:
        return [replace(each, bound=self.bound) for each in super().distributions()]

    def usage(self, stream: Tensor) -> float:
        a, reward = (self.layout.read(stream, name) for name in ("a", "reward"))
        largest = float(a.norm(dim=-1).max()) / self.bound
        return max(largest, float(reward.abs().max()) / self.reward) / SLACK

    def represent(self, filled: Registers, state: Any) -> Registers:
        actions, chosen = filled["a"][..., 0::2, :, :], filled["chosen"][..., 1::2, :]
        features = (chosen.unsqueeze(-1) * actions).sum(dim=-2)
        solved = {name: alternate(value, None, 2) for name, value in state._asdict().items()}
        return {"phi": alternate(None, features, 1), **solved}

    def ignored_mask(self, stream: Tensor) -> Tensor:
        second = torch.arange(stream.shape[-2]) % 2 == 1
        return second.unsqueeze(-1) & self.layout.mask("ahead", "behind")

    def decode(self, problem: Any, stream: Tensor) -> Tensor:
        return super().decode(problem, stream).log_softmax(dim=-1)
