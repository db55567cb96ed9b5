"""Bandit prompts: a game as tokens, two for each step, both numbered in `pos` from 1.

Registers  first tokens, which answer: `a` (A, d), the features of the actions shown, and normals
           `z` (d) that come with them; second tokens: `chosen` (A), the action taken, and its
           `reward`; all else is 0
Sizes      d features, n steps of a game, A actions; sums over `causal` tokens see what was before
Answer     A numbers, at the first token of each step
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from innerloop.language.construction import ProgramConstruction, Registers
from innerloop.language.prompts.base import Draw, Prompt
from innerloop.parameters import parameter
from innerloop.problems.linear_bandit_games import BanditGameProblem, LinearBanditGames


class BanditPrompt(Prompt):
    """Observations, then actions with rewards, in turn."""

    name = "bandits"
    problem_type = BanditGameProblem
    offers = {"a": ("A", "d"), "chosen": ("A",), "reward": (), "z": ("d",), "pos": ()}
    size_names = ("d", "n", "A")

    def find_sizes(self, problem: BanditGameProblem) -> dict[str, int]:
        return {"d": problem.d, "n": problem.n, "A": problem.arms}

    def fill_registers(self, problem: BanditGameProblem) -> Registers:
        chosen = torch.nn.functional.one_hot(problem.actions, problem.arms).to(problem.rewards)
        batch = len(problem.batch)
        return {
            "a": alternate(problem.features, None, batch),
            "chosen": alternate(None, chosen, batch),
            "reward": alternate(None, problem.rewards, batch),
            "z": alternate(problem.noise, None, batch),
            "pos": torch.arange(1, 2 * problem.n + 1).to(problem.rewards),
        }

    def count_context(self, tokens: int, sizes: Mapping[str, int]) -> int:
        return tokens - 1

    def select_answer(self, problem: BanditGameProblem, answer: Tensor) -> Tensor:
        return answer[..., 0::2, :]

    def draw_problem(self, sizes: Mapping[str, int], draw: Draw) -> BanditGameProblem:
        d, n, arms = (sizes[letter] for letter in self.size_names)
        return BanditGameProblem(draw(n, arms, d), torch.arange(n) % arms, draw(n), draw(n, d))


def alternate(first: Tensor | None, second: Tensor | None, batch: int) -> Tensor:
    """Return what first and second tokens of each step hold, in turn; None is 0."""
    like = second if first is None else first
    assert like is not None, "one of them holds something"
    sides = [torch.zeros_like(like) if side is None else side for side in (first, second)]
    return torch.stack(sides, dim=batch + 1).flatten(batch, batch + 1)


class BanditProgram(ProgramConstruction, ABC):
    """A program on bandit prompts."""

    d: int = parameter(2, "features", least=1, most=64)
    n: int = parameter(10, "T, the largest number of steps of a game", least=1, most=2_000)
    arms: int = parameter(3, "A, actions in a set", least=1, most=64)

    @property
    def sizes(self) -> dict[str, int]:
        return {"d": self.d, "n": self.n, "A": self.arms}

    def distributions(self) -> list[LinearBanditGames]:
        longest = LinearBanditGames(d=self.d, n=self.n, arms=self.arms)
        return [longest, replace(longest, n=self.n // 2 + 1)]
