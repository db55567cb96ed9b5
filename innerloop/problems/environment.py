"""Base class of environments: observations, rewards, and random numbers drawn beforehand.

The environments of a batch advance together. A step of an environment uses one random number, its
`luck`, which does not depend on the actions. Policies with equal actions therefore see equal
observations.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.errors import InputError, OutOfRangeError

E = TypeVar("E", bound="Environment")

MAX_STEPS = 10_000_000


class Environment(ABC):
    """A batch of environments: a frozen dataclass whose tensors have the same leading dimensions.

    `Any` in the signatures below stands for the types of its observations and histories.
    """

    @property
    @abstractmethod
    def batch(self) -> tuple[int, ...]:
        """The batch dimensions, which come first in every tensor."""

    @property
    @abstractmethod
    def actions(self) -> int:
        """The number of actions to choose from."""

    @property
    @abstractmethod
    def reference_tensor(self) -> Tensor:
        """A tensor with the precision and device of the environment."""

    @abstractmethod
    def draw_luck(self, generator: torch.Generator | None) -> Float[Tensor, "*batch"]:
        """Draw the random numbers of one step, in float64."""

    @abstractmethod
    def observe(
        self, t: int, luck: Float[Tensor, "*batch"], previous: tuple[Any, Tensor] | None
    ) -> Any:
        """Return the observation at step t.

        Args:
            t: The step, counted from 0.
            luck: The random numbers of the step.
            previous: The last observation and the action that was chosen then.
        """

    @abstractmethod
    def reward(
        self, observation: Any, action: Int[Tensor, "*batch"], luck: Float[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch"]:
        """Return the reward of an action."""

    @abstractmethod
    def action_values(self, observation: Any) -> Float[Tensor, "*batch actions"]:
        """Return the value of each action, followed by optimal actions."""

    @abstractmethod
    def build_history(
        self,
        observations: Sequence[Any],
        actions: Int[Tensor, "*batch steps"],
        rewards: Float[Tensor, "*batch steps"],
    ) -> Any:
        """Collect observations, actions and rewards, batch dimensions first."""

    @abstractmethod
    def regret(
        self, history: Any, plans: Sequence[Float[Tensor, "*batch horizon states actions"]]
    ) -> Float[Tensor, "*batch steps"]:
        """Return the regret of each step or episode, not accumulated.

        It is the largest expected return minus that of the chosen actions, or of the plans.
        """

    def check_steps(self, steps: int) -> None:
        """Check that a game may have this number of steps, else raise."""
        if isinstance(steps, bool) or not isinstance(steps, int):
            raise InputError(f"steps must be a whole number, got {steps!r}")
        if steps < 1:
            raise InputError(f"steps must be at least 1, got {steps}")
        if steps > MAX_STEPS:
            raise OutOfRangeError(f"steps must be at most {MAX_STEPS}, got {steps}")

    def to(self: E, where: torch.dtype | torch.device | str) -> E:
        """Convert the environments to another precision or device."""
        return self._map_tensors(lambda tensor: tensor.to(where))

    def __getitem__(self: E, index: int | slice | tuple[int | slice, ...]) -> E:
        """Select environments by the leading dimensions of the batch."""
        places = index if isinstance(index, tuple) else (index,)
        if len(places) > len(self.batch):
            raise InputError(
                f"expected at most {len(self.batch)} indices for a batch of dimensions "
                f"{self.batch}, got {len(places)}"
            )
        try:
            return self._map_tensors(lambda tensor: tensor[places])
        except IndexError:
            raise InputError(
                f"expected an index within a batch of dimensions {self.batch}, got {index}"
            ) from None

    def _map_tensors(self: E, change: Callable[[Tensor], Tensor]) -> E:
        fields = dataclasses.fields(self)  # pyright: ignore[reportArgumentType]
        values = {field.name: getattr(self, field.name) for field in fields}
        return type(self)(
            **{name: change(v) if isinstance(v, Tensor) else v for name, v in values.items()}
        )


def sample_inverse_cdf(
    probabilities: Float[Tensor, "*batch options"], lots: Float[Tensor, "*batch"]
) -> Int[Tensor, "*batch"]:
    """Sample options by the inverse distribution function, from uniform numbers `lots`.

    Equal lots and probabilities give equal choices. Lots are in [0, 1), so that lot × total is
    below the total. An option of probability 0 is therefore never chosen, even if the total of the
    probabilities differs from 1 by rounding.
    """
    cumulative = probabilities.cumsum(dim=-1)
    below = cumulative <= (lots * cumulative[..., -1]).unsqueeze(-1)
    return below.sum(dim=-1).clamp_max(probabilities.shape[-1] - 1)


def check_probabilities(name: str, values: Float[Tensor, "*batch options"]) -> None:
    """Check that probabilities are not negative and sum to 1, else raise `InputError`."""
    if not bool((values >= 0).all()):
        raise InputError(f"{name} must not be negative or NaN, got {float(values.min()):.3g}")
    off = float((values.sum(dim=-1) - 1).abs().max())
    allowed = 1e-9 if values.dtype == torch.float64 else 1e-4
    if off > allowed:
        raise InputError(f"{name} must sum to 1, got sums that are {off:.3g} away: normalise them")
