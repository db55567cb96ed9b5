"""What every algorithm has: a first state, a step, and a prediction. All of it batched.

Hyper-parameters (step sizes, preconditioners, thresholds) are tensors; states are tensors or
NamedTuples of tensors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor

Problem = TypeVar("Problem")
State = TypeVar("State")


class Algorithm(ABC, Generic[Problem, State]):
    """An iteration on a problem."""

    source: ClassVar[str]

    @abstractmethod
    def init(self, problem: Problem) -> State:
        """The state before the first step."""

    @abstractmethod
    def step(self, problem: Problem, state: State, k: int) -> State:
        """The state after step k, counted from 0."""

    @abstractmethod
    def predict(self, problem: Problem, state: State) -> Tensor:
        """The answer that a state gives."""

    def states(self, problem: Problem, steps: int) -> Iterator[State]:
        """The states after 0, 1, …, `steps` steps."""
        state = self.init(problem)
        yield state
        for k in range(steps):
            state = self.step(problem, state, k)
            yield state


def entry(values: Tensor, k: int, like: Any) -> Tensor:
    """The k-th of a hyper-parameter's values (they repeat), where and as precise as `like` is."""
    return values[k % len(values)].to(like)
