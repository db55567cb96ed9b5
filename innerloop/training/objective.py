"""Training objectives: how to draw a batch, its loss, and the measures to evaluate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from innerloop.devices import default_to_cpu, move
from innerloop.problems.base import Distribution


@runtime_checkable
class Objective(Protocol):
    """The objective that a training run minimises.

    A batch must depend only on the generator, so that a run can be resumed at any step. An
    objective may also have a method `compute_blank_loss(model)`, which returns the evaluated loss
    of predicting nothing; the model is passed for the shapes of answers. A run whose final loss is
    not lower is reported to have learned nothing.
    """

    def draw(self, generator: torch.Generator) -> Any:
        """Draw one batch."""
        ...

    def loss(self, model: Any, batch: Any) -> Tensor:
        """Return the loss of a batch, a scalar to minimise."""
        ...

    def evaluate(self, model: Any) -> dict[str, float]:
        """Return measures on held-out examples, always the same ones; one measure is `loss`."""
        ...


@dataclass(frozen=True)
class SquaredError:
    """The loss E (prediction − target)² over a distribution of problems with known targets.

    `predict(model, problem)` returns predictions of the shape of `target(problem)`.
    """

    distribution: Distribution
    batch: int
    predict: Callable[[nn.Module, Any], Tensor]
    target: Callable[[Any], Tensor] = lambda problem: problem.targets
    examples: int = 1024
    dtype: torch.dtype = torch.float32

    def draw(self, generator: torch.Generator) -> Any:
        return self.distribution.sample(self.batch, generator=generator, dtype=self.dtype)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        batch = move(batch, next(model.parameters()).device)
        return (self.predict(model, batch) - self.target(batch)).square().mean()

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"loss": float(self.loss(model, self._held_out))}

    def compute_blank_loss(self, model: nn.Module) -> float:
        return float(self.target(self._held_out).square().mean())

    @cached_property
    def _held_out(self) -> Any:
        generator = torch.Generator().manual_seed(2**31 - 1)
        with default_to_cpu():
            return self.distribution.sample(self.examples, generator=generator, dtype=self.dtype)
