"""Bandit prompts: a game as tokens, two for each step, both numbered in `pos` from 1.

Registers  first tokens, which answer: `a` (A, d), the features of the actions shown, and normals
           `z` (d) that come with them; second tokens: `chosen` (A), the action taken, and its
           `reward`; all else is 0
Sizes      d features, n steps of a game, A actions; sums over `causal` tokens see what was before
Answer     A numbers, at the first token of each step
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from innerloop.language.construction import ProgramConstruction, Registers
from innerloop.language.prompts.base import Draw, Prompt
from innerloop.parameters import parameter
from innerloop.problems.bandit import ActionSet
from innerloop.problems.base import check_indices
from innerloop.problems.linear_bandit_games import BanditGameProblem, LinearBanditGames

Sizes = Mapping[str, int]


class GamePrompt(Prompt, ABC):
    """A game as tokens, two for each step: an observation, then the action and its reward.

    Both are filled for one step, or for many at once: t, the number of a step from 0, then is a
    tensor, and what comes with it has an axis for the steps, the last of those of the batch.
    """

    counted: ClassVar[dict[str, str]]
    """The meaning of each size except n, in words."""

    @abstractmethod
    def fill_observation(self, t: Any, observation: Any, noise: Tensor, sizes: Sizes) -> Registers:
        """Return the registers of the first token of step t, each of shape (*batch, *shape)."""

    @abstractmethod
    def fill_action(
        self, t: Any, observation: Any, action: Tensor, reward: Tensor, sizes: Sizes
    ) -> Registers:
        """Return the registers of the second token of step t."""

    @abstractmethod
    def list_steps(self, problem: Any) -> tuple[Tensor, Any, Tensor, Tensor, Tensor]:
        """Return t, observations, normals, actions and rewards of all steps of a game."""

    def fill_registers(self, problem: Any) -> Registers:
        t, observations, noise, action, reward = self.list_steps(problem)
        first = self.fill_observation(t, observations, noise, self.find_sizes(problem))
        second = self.fill_action(t, observations, action, reward, self.find_sizes(problem))
        return {
            name: alternate(first.get(name), second.get(name), len(self.offers[name]))
            for name in {**first, **second}
        }

    def count_context(self, tokens: int, sizes: Sizes) -> int:
        return tokens - 1


class BanditPrompt(GamePrompt):
    """Action sets, then choices with rewards, in turn."""

    name = "bandits"
    discrete = "actions"
    problem_type = BanditGameProblem
    offers = {"a": ("A", "d"), "chosen": ("A",), "reward": (), "z": ("d",), "pos": ()}
    size_names = ("d", "n", "A")
    answer_dims = ("A",)
    counted = {"A": "actions", "d": "features"}

    def find_sizes(self, problem: BanditGameProblem) -> dict[str, int]:
        return {"d": problem.d, "n": problem.n, "A": problem.arms}

    def list_steps(self, problem: BanditGameProblem) -> Any:
        actions = ActionSet(0, problem.features)
        return torch.arange(problem.n), actions, problem.noise, problem.actions, problem.rewards

    def fill_observation(self, t: Any, observation: Any, noise: Tensor, sizes: Sizes) -> Registers:
        features = observation.features
        return {"a": features, "z": noise, "pos": torch.as_tensor(2 * t + 1).to(features)}

    def fill_action(
        self, t: Any, observation: Any, action: Tensor, reward: Tensor, sizes: Sizes
    ) -> Registers:
        chosen = mark_index("actions", action, sizes["A"]).to(reward)
        return {"chosen": chosen, "reward": reward, "pos": torch.as_tensor(2 * t + 2).to(reward)}

    def select_answer(self, problem: BanditGameProblem, answer: Tensor) -> Tensor:
        return answer[..., 0::2, :]

    def draw_problem(self, sizes: Sizes, draw: Draw) -> BanditGameProblem:
        d, n, arms = (sizes[letter] for letter in self.size_names)
        return BanditGameProblem(draw(n, arms, d), draw.indices(arms, n), draw(n), draw(n, d))


def alternate(first: Tensor | None, second: Tensor | None, own: int) -> Tensor:
    """Interleave two tensors along the token axis: first, second, first, second, …

    `own` is the number of axes of the register itself, after the token axis. If one of the tensors
    is None, it is replaced by zeros.
    """
    present = second if first is None else first
    assert present is not None, "one of them holds something"
    sides = [torch.zeros_like(present) if side is None else side for side in (first, second)]
    axis = present.ndim - own  # the axis after the tokens
    return torch.stack(sides, dim=axis).flatten(axis - 1, axis)


def mark_index(name: str, index: Tensor, count: int) -> Tensor:
    """Return one-hot vectors of length `count`.

    Raise an error for an index that is not below `count`.
    """
    check_indices(name, index, count)
    return torch.nn.functional.one_hot(index, count)


class BanditProgram(ProgramConstruction, ABC):
    """A program on bandit prompts."""

    d: int = parameter(2, "features", least=1, most=64)
    n: int = parameter(10, "T, the largest number of steps of a game", least=1, most=2_000)
    arms: int = parameter(3, "A, actions in a set", least=1, most=64)

    @property
    def sizes(self) -> dict[str, int]:
        return {"d": self.d, "n": self.n, "A": self.arms}

    @property
    def max_game_steps(self) -> int:
        return self.n

    def distributions(self) -> list[LinearBanditGames]:
        longest = LinearBanditGames(d=self.d, n=self.n, arms=self.arms)
        return [longest, replace(longest, n=self.n // 2 + 1)]
