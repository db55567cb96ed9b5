"""Planning prompts: a game in a decision process, two tokens for each step, numbered from 0.

Registers  all tokens: the number `i`, its square `i2`, the episode `e`, a mark `p` (4), the step of
           the episode, one-hot in `h` (H); first tokens: the state `s` (S); second tokens: the
           action `a` (A) and its reward `r`; all else is 0
Sizes      S states, A actions, H steps of an episode; K = H − 1 for registers of a program
Answer     A numbers, at the first token of each step: (episodes, H, A)
"""

from abc import ABC
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor

from innerloop.language.construction import ProgramConstruction, Registers
from innerloop.language.definition import Definition
from innerloop.language.primitives import own_total, relu, total
from innerloop.language.prompts.bandits import GamePrompt, Sizes, mark_index
from innerloop.language.prompts.base import Draw
from innerloop.language.reference import make_reference
from innerloop.parameters import parameter
from innerloop.problems.mdp import Situation
from innerloop.problems.tabular_games import TabularGameProblem, TabularGames
from innerloop.problems.tabular_mdps import TabularMDPs
from innerloop.transformer import make_marks
from innerloop.transformer.marks import MARK_SIZE, find_gap


class PlanningPrompt(GamePrompt):
    """Situations, then actions with rewards, in turn; for games of up to `tokens` tokens."""

    name = "planning"
    discrete = "states and actions"
    problem_type = TabularGameProblem
    offers = {
        **{"s": ("S",), "a": ("A",), "r": (), "h": ("H",)},
        **{"i": (), "i2": (), "e": (), "p": (MARK_SIZE,)},
    }
    size_names = ("n", "S", "A", "H")
    answer_dims = ("A",)
    counted = {"S": "states", "A": "actions", "H": "steps of an episode"}
    marks = ("p",)

    def __init__(self, tokens: int = 2) -> None:
        self.all_marks = make_marks(tokens)

    def find_sizes(self, problem: TabularGameProblem) -> dict[str, int]:
        states, actions = problem.sizes
        return {"n": problem.episodes, "S": states, "A": actions, "H": problem.horizon}

    def list_steps(self, problem: TabularGameProblem) -> Any:
        rewards = problem.rewards.flatten(-2)
        t = torch.arange(rewards.shape[-1], device=rewards.device)
        situations = Situation._make([t % problem.horizon, problem.states.flatten(-2)])
        return t, situations, rewards.new_zeros(0), problem.actions.flatten(-2), rewards

    def fill_observation(self, t: Any, observation: Any, noise: Tensor, sizes: Sizes) -> Registers:
        state = mark_index("states", observation.state, sizes["S"]).to(noise)
        return {**self._number(2 * t, observation.step, sizes["H"], noise), "s": state}

    def fill_action(
        self, t: Any, observation: Any, action: Tensor, reward: Tensor, sizes: Sizes
    ) -> Registers:
        done = mark_index("actions", action, sizes["A"]).to(reward)
        place = self._number(2 * t + 1, observation.step, sizes["H"], reward)
        return {**place, "a": done, "r": reward}

    def _number(self, number: Any, step: Any, horizon: int, like: Tensor) -> Registers:
        """Return position, episode, mark and step of tokens, in the number type of another
        tensor.
        """
        i, step = (torch.as_tensor(part, device=like.device) for part in (number, step))
        marks, steps = self.all_marks.to(i.device)[i], mark_index("steps", step, horizon)
        numbers = {"i": i, "i2": i * i, "e": i // (2 * horizon), "p": marks, "h": steps}
        return {name: value.to(like) for name, value in numbers.items()}

    def select_answer(self, problem: TabularGameProblem, answer: Tensor) -> Tensor:
        return answer[..., 0::2, :].unflatten(-2, (problem.episodes, problem.horizon))

    def draw_problem(self, sizes: Sizes, draw: Draw) -> TabularGameProblem:
        n, states, actions, horizon = (sizes[letter] for letter in self.size_names)
        visited, taken = (draw.indices(count, n, horizon) for count in (states, actions))
        return TabularGameProblem(visited, taken, draw.shares(n, horizon), (states, actions))


find_prompt = cache(PlanningPrompt)
"""Return the prompt for games of up to this number of tokens; each is made once."""


def copy_before(me: Any, back: int, name: str) -> Any:
    """Return the register of the token `back` places before.

    Its score is 1 − (i − back − j)², which is 1 for that token and at most 0 for all others.
    """
    mine, twice = 1 - back**2 - me.i2 + 2 * back * me.i, 2 * (me.i - back)
    return total(lambda j: relu(mine + twice * j.i - j.i2) * j[name], over="causal")


def sum_earlier(me: Any, name: str) -> Any:
    """Return the sum over the tokens of earlier episodes.

    The score relu(e − e_j) − relu(e − e_j − 1) is 1 for these tokens and 0 for others.
    """
    return total(lambda j: (relu(me.e - j.e) - relu(me.e - j.e - 1)) * j[name], over="causal")


def keep(own: Any, most: Any, summand: Any) -> Any:
    """Return a sum over this token alone, for scores up to `most`, gated by the token's mark."""
    return own_total(summand, "p", most, find_gap(2 * own.max_game_steps), over="causal")


class PlanningProgram(ProgramConstruction, ABC):
    """A program on planning prompts; each of its steps goes one step of an episode back."""

    program: ClassVar[Definition]
    """The definition without the marks."""
    takes = "up to"

    d: int = parameter(3, "states S", least=1, most=50)
    arms: int = parameter(2, "actions A", least=1, most=50)
    n: int = parameter(10, "largest number of episodes of a game", least=1, most=200)
    steps: int = parameter(2, "H − 1, the steps back through an episode", least=1, most=50)

    @property
    def definition(self) -> Definition:  # pyright: ignore[reportIncompatibleVariableOverride]
        return replace(self.program, prompt=find_prompt(2 * self.max_game_steps))

    @property
    def reference(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return make_reference(self.definition, type(self))

    @property
    def sizes(self) -> dict[str, int]:
        return {"n": self.n, "S": self.d, "A": self.arms, "H": self.horizon, "K": self.steps}

    @property
    def horizon(self) -> int:
        return self.steps + 1

    @property
    def max_game_steps(self) -> int:
        return self.n * self.horizon

    def distributions(self) -> list[TabularGames]:
        size = {"states": self.d, "arms": self.arms, "horizon": self.horizon}
        return [TabularGames(**size, episodes=n) for n in (self.n, self.n // 2 + 1)]

    def environments(self) -> TabularMDPs:
        """Return a distribution over decision processes of the built sizes."""
        return TabularMDPs(states=self.d, arms=self.arms, horizon=self.horizon)
