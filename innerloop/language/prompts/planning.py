"""Planning prompts: a game in a decision process, two tokens for each step, numbered from 0.

Registers  all tokens: the number `i`, its square `i2`, the episode `e`, a mark `p` (4), the step of
           the episode, one-hot in `h` (H); first tokens: the state `s` (S); second tokens: the
           action `a` (A) and its reward `r`; all else is 0
Sizes      S states, A actions, H steps of an episode
Answer     A numbers, at the first token of each step: (episodes, H, A)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import one_hot

from innerloop.language.construction import Registers
from innerloop.language.prompts.bandits import alternate
from innerloop.language.prompts.base import Draw, Prompt
from innerloop.problems.tabular_games import TabularGameProblem
from innerloop.transformer import make_marks
from innerloop.transformer.marks import MARK_SIZE


class PlanningPrompt(Prompt):
    """Situations, then actions with rewards, in turn; for games of up to `tokens` tokens."""

    name = "planning"
    problem_type = TabularGameProblem
    offers = {
        **{"s": ("S",), "a": ("A",), "r": (), "h": ("H",)},
        **{"i": (), "i2": (), "e": (), "p": (MARK_SIZE,)},
    }
    size_names = ("n", "S", "A", "H")
    marks = ("p",)

    def __init__(self, tokens: int) -> None:
        self.all_marks = make_marks(tokens)

    def find_sizes(self, problem: TabularGameProblem) -> dict[str, int]:
        states, actions = problem.sizes
        return {"n": problem.episodes, "S": states, "A": actions, "H": problem.horizon}

    def number_tokens(
        self, i: Int[Tensor, " tokens"], step: Int[Tensor, " tokens"], horizon: int, like: Tensor
    ) -> Registers:
        """Return position, episode, mark and step of tokens, in the precision of another tensor."""
        marks = self.all_marks.to(i.device)[i]
        numbers = {"i": i, "i2": i * i, "e": i // (2 * horizon), "p": marks}
        return {
            name: value.to(like) for name, value in {**numbers, "h": one_hot(step, horizon)}.items()
        }

    def fill_registers(self, problem: TabularGameProblem) -> Registers:
        rewards, (states, actions) = problem.rewards.flatten(-2), problem.sizes
        seen = one_hot(problem.states.flatten(-2), states).to(rewards)
        done = one_hot(problem.actions.flatten(-2), actions).to(rewards)
        i = torch.arange(2 * rewards.shape[-1], device=rewards.device)
        batch = len(problem.batch)
        return {
            **self.number_tokens(i, i // 2 % problem.horizon, problem.horizon, rewards),
            "s": alternate(seen, None, batch),
            "a": alternate(None, done, batch),
            "r": alternate(None, rewards, batch),
        }

    def count_context(self, tokens: int, sizes: Mapping[str, int]) -> int:
        return tokens - 1

    def select_answer(self, problem: TabularGameProblem, answer: Tensor) -> Tensor:
        return answer[..., 0::2, :].unflatten(-2, (problem.episodes, problem.horizon))

    def draw_problem(self, sizes: Mapping[str, int], draw: Draw) -> TabularGameProblem:
        n, states, actions, horizon = (sizes[letter] for letter in self.size_names)
        seen, done, rewards = draw(3, n, horizon).abs()
        visited, taken = (64 * seen).long() % states, (64 * done).long() % actions
        return TabularGameProblem(visited, taken, rewards.clamp_max(1), (states, actions))
