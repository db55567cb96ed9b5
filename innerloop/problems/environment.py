"""What every environment has: what it shows, what it pays, and luck that is drawn beforehand.

A batch of environments is played in step. All that is random in a step of an environment is one
number, its luck, which does not depend on what was chosen: whoever chooses equally sees the same.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.errors import InputError, OutOfRange

E = TypeVar("E", bound="Environment")

MOST_STEPS = 10_000_000


class Environment(ABC):
    """A batch of environments: a frozen dataclass whose tensors have the same leading dimensions.

    `Any` below is the environment's own kind of observation and history.
    """

    @property
    @abstractmethod
    def batch(self) -> tuple[int, ...]:
        """The leading dimensions."""

    @property
    @abstractmethod
    def actions(self) -> int:
        """How many actions there are to choose from."""

    @property
    @abstractmethod
    def like(self) -> Tensor:
        """A tensor of the precision and on the device that everything else has."""

    @abstractmethod
    def luck(self, generator: torch.Generator | None) -> Float[Tensor, "*batch"]:
        """The luck of one step, in float64."""

    @abstractmethod
    def observe(
        self, t: int, luck: Float[Tensor, "*batch"], before: tuple[Any, Tensor] | None
    ) -> Any:
        """What is shown at step t, after an observation and the action it was answered with."""

    @abstractmethod
    def reward(
        self, observation: Any, action: Int[Tensor, "*batch"], luck: Float[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch"]:
        """What an action earns."""

    @abstractmethod
    def action_values(self, observation: Any) -> Float[Tensor, "*batch actions"]:
        """What each action is worth when every later choice is the best one."""

    @abstractmethod
    def history(
        self,
        observations: Sequence[Any],
        actions: Int[Tensor, "*batch steps"],
        rewards: Float[Tensor, "*batch steps"],
    ) -> Any:
        """What was seen, chosen and earned, the batch first."""

    @abstractmethod
    def regret(
        self, history: Any, plans: Sequence[Float[Tensor, "*batch horizon states actions"]]
    ) -> Float[Tensor, "*batch steps"]:
        """How much less than the best was to be expected of what was done."""

    def check_steps(self, steps: int) -> None:
        """Refuse a number of steps that cannot be played."""
        if isinstance(steps, bool) or not isinstance(steps, int):
            raise InputError(f"steps must be a whole number, got {steps!r}")
        if steps < 1:
            raise InputError(f"steps must be at least 1, got {steps}")
        if steps > MOST_STEPS:
            raise OutOfRange(f"steps must be at most {MOST_STEPS}, got {steps}")

    def to(self: E, where: torch.dtype | torch.device | str) -> E:
        """The same environments in another precision or on another device."""
        return self._each(lambda tensor: tensor.to(where))

    def __getitem__(self: E, index: int | slice | tuple[int | slice, ...]) -> E:
        """Some of the batch, indexed by its leading dimensions."""
        places = index if isinstance(index, tuple) else (index,)
        if len(places) > len(self.batch):
            raise InputError(f"{len(places)} indices for a batch of dimensions {self.batch}")
        try:
            return self._each(lambda tensor: tensor[places])
        except IndexError:
            raise InputError(f"no environment {index} in a batch of {self.batch}") from None

    def _each(self: E, change: Callable[[Tensor], Tensor]) -> E:
        fields = dataclasses.fields(self)  # pyright: ignore[reportArgumentType]
        values = {field.name: getattr(self, field.name) for field in fields}
        return type(self)(
            **{name: change(v) if isinstance(v, Tensor) else v for name, v in values.items()}
        )


def choose(
    probabilities: Float[Tensor, "*batch options"], lots: Float[Tensor, "*batch"]
) -> Int[Tensor, "*batch"]:
    """Sample by the inverse of the distribution function: the same lot and odds, the same choice.

    Lots are uniform on [0, 1) in float64, and so less than 1 times any total: an option of
    probability 0 is never chosen, even where rounding leaves the total a little off 1.
    """
    cumulative = probabilities.cumsum(dim=-1)
    below = cumulative <= (lots * cumulative[..., -1]).unsqueeze(-1)
    return below.sum(dim=-1).clamp_max(probabilities.shape[-1] - 1)


def check_probabilities(name: str, values: Float[Tensor, "*batch options"]) -> None:
    """Refuse odds that are negative or do not sum to 1."""
    if not bool((values >= 0).all()):
        raise InputError(f"{name} must not be negative or NaN, got {float(values.min()):.3g}")
    off = float((values.sum(dim=-1) - 1).abs().max())
    allowed = 1e-9 if values.dtype == torch.float64 else 1e-4
    if off > allowed:
        raise InputError(f"{name} must sum to 1, got sums that are {off:.3g} away: normalise them")
