"""What every algorithm has: a first state, a step, and a prediction. All of it batched.

Hyper-parameters (step sizes, preconditioners, thresholds) are tensors; states are tensors or
NamedTuples of tensors. A hyper-parameter whose shape names `*batch` may differ from instance to
instance: it then has the problem's batch dimensions where the shape says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor

Problem = TypeVar("Problem")
State = TypeVar("State")


class Algorithm(ABC, Generic[Problem, State]):
    """An iteration on a problem."""

    source: ClassVar[str]
    has_steps: ClassVar[bool] = True
    """Whether there are steps; a solution in closed form has none, and its first state is it."""
    special_case_of: ClassVar[tuple[str, ...]] = ()
    """Algorithms, by name, that do the same for some choice of their own hyper-parameters."""

    @abstractmethod
    def init(self, problem: Problem) -> State:
        """The state before the first step."""

    @abstractmethod
    def step(self, problem: Problem, state: State, k: int) -> State:
        """The state after step k, counted from 0."""

    @abstractmethod
    def predict(self, problem: Problem, state: State) -> Tensor:
        """The answer that a state gives."""

    @classmethod
    def guesses(cls, problem: Problem) -> list[Any]:
        """Rough choices of the hyper-parameters that a fit may start from, with one value for all
        steps; none where nobody said how to fit them."""
        return [] if is_dataclass(cls) and fields(cls) else [cls()]

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
