"""Base classes of constructions that choose actions: they encode games and return log odds.

A game repeats observation, action and reward. `encode_observation` makes the tokens of an
observation, `encode_action` those of the chosen action and its reward. After all blocks, the last
token of an observation contains the log odds of the actions. Every block is causal: later tokens do
not change earlier ones.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar, Generic

from jaxtyping import Float, Int
from torch import Tensor

from innerloop.algorithms.base import P, S
from innerloop.constructions.base import Construction
from innerloop.errors import OutOfRangeError
from innerloop.language.classes import ProgramConstruction, Registers
from innerloop.policies.base import Policy
from innerloop.problems.base import Distribution

Actions = Int[Tensor, "*batch"]
Rewards = Float[Tensor, "*batch"]
Normals = Float[Tensor, "*batch normals"]
Tokens = Float[Tensor, "*batch tokens width"]
SLACK = 1 + 1e-9
"""Factor by which norms may exceed their bounds, to allow for rounding."""


class ActingConstruction(Construction[P, S], ABC, Generic[P, S]):
    """A causal construction that chooses among actions at every step of a game."""

    @cached_property
    def policy(self) -> Policy[Any, Any]:
        """The reference policy that the transformer should follow."""
        raise TypeError(f"{self.name} must define its policy")

    @property
    def max_game_steps(self) -> int | None:
        """The largest number of steps of a game; None if there is no limit."""
        return None

    def environments(self) -> Distribution:
        """Return a distribution over environments of the sizes for which it was built."""
        raise TypeError(f"{self.name} must define its environments")

    def accept_environment(self, environment: Any) -> None:
        """Raise `OutOfRangeError` for an environment for which it was not built."""
        self.policy.check_environment(environment)

    @abstractmethod
    def encode_observation(self, t: int, observation: Any, noise: Normals) -> Tokens:
        """Return the tokens of an observation at step t of the game, counted from 0."""

    @abstractmethod
    def encode_action(self, t: int, observation: Any, action: Actions, reward: Rewards) -> Tokens:
        """Return the tokens of the action chosen at step t and its reward."""

    @abstractmethod
    def log_odds(self, stream: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch actions"]:
        """Return the log odds of the actions, from an observation's last token after all blocks."""


class ActingProgram(ProgramConstruction, ActingConstruction[Any, Any], ABC):
    """A program that plays games; its prompt defines tokens, its answer scores."""

    takes = "up to"
    norms: ClassVar[dict[str, str]] = {}
    """The parameter that bounds the norm of each register of the prompt, such as {"a": "bound"}."""

    def accept(self, problem: Any) -> None:
        self.accept_sizes(self.definition.prompt.find_sizes(problem))
        super().accept(problem)
        self.select_registers(self.definition.prompt.fill_registers(problem))

    def accept_sizes(self, sizes: dict[Any, int], where: str = "") -> None:
        """Raise `OutOfRangeError` for sizes, except n, for which it was not built."""
        prompt: Any = self.definition.prompt
        words = {size: word for size, word in prompt.counted.items() if size in sizes}
        if any(sizes[size] != self.sizes[size] for size in words):
            built = ", ".join(f"{self.sizes[size]} {word}" for size, word in words.items())
            mismatches = (
                ", ".join(str(sizes[size]) for size in words) + f"{where}: build it for these"
            )
            raise OutOfRangeError(f"{self.name} was built for {built}; got {mismatches}")

    def select_registers(self, filled: Registers) -> Registers:
        """Return the registers of the tokens; raise `OutOfRangeError` for wrong sizes or norms."""
        known = {name: value for name, value in filled.items() if name in self.layout.registers}
        for name, value in known.items():
            dims = self.definition.registers[name].dims
            sizes = dict(zip(dims[::-1], value.shape[::-1], strict=False))
            self.accept_sizes(sizes, f" in {name}")
            if limit := self.norms.get(name):
                norm = float((value.norm(dim=-1) if dims else value.abs()).max())
                if not norm <= (most := getattr(self, limit)) * SLACK:
                    raise OutOfRangeError(
                        f"{self.name} was built for {limit}={most:g}, "
                        f"{self._about[limit]['help']}; got {norm:.4g}: use a larger {limit}"
                    )
        return known

    def encode_observation(self, t: int, observation: Any, noise: Tensor) -> Tensor:
        return self._make_token("fill_observation", t, observation, noise)

    def encode_action(self, t: int, observation: Any, action: Tensor, reward: Tensor) -> Tensor:
        return self._make_token("fill_action", t, observation, action, reward)

    def _make_token(self, fill: str, t: int, *values: Any) -> Tensor:
        most, shapes = self.max_game_steps, self.layout.registers
        if t < 0 or (most is not None and t >= most):
            raise OutOfRangeError(
                f"{self.name} was built for {most} steps of a game, got {t + 1}: build it for more"
            )
        filled = getattr(self.definition.prompt, fill)(t, *values, self.sizes)
        token: dict[str, Any] = {"one": 1.0} if "one" in shapes else {}
        for name, value in self.select_registers(filled).items():
            token[name] = value.unsqueeze(value.ndim - len(shapes[name]))
        return self.layout.make_tokens(**token)

    def log_odds(self, stream: Tensor) -> Tensor:
        return stream[..., self.compiled.answer_places].log_softmax(dim=-1)
