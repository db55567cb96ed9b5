"""Base classes and objectives of recipes for sparse recovery, with a loss on β or on labels.

With a fixed X, all instances share one X drawn from a seed. With a varying X, every instance has a
new X, whereas the paper uses 100 in an epoch of 50,000 instances.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from innerloop.devices import default_to_cpu, move
from innerloop.limits import SEED_BITS
from innerloop.models.unrolled import Unrolled
from innerloop.parameters import parameter
from innerloop.problems.base import Distribution
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.problems.sparse_recovery import SparseRecovery
from innerloop.recipes.base import Recipe

OVERFLOW = 1e4
"""Squared error above which a prompt counts as overflowed.

The stream is not normalised, and layers add terms that are cubic in it, so that on a rare prompt it
leaves the range of float32 within a few layers.
"""
LARGE, LOST = 1e2, 1e8
"""Limits of errors in training.

An error e above LARGE counts as LARGE (1 + log(e / LARGE)), so that a prompt on which the model
diverges has a gradient but does not dominate the others. Above LOST, the gradient of a stream
overflows in float32.
"""
STRETCHED_SHARE = 0.03
"""Share of the prompts of a batch whose X is scaled up, if `stretch` is not 1."""
PromptFunction = Callable[[nn.Module, RegressionProblem], Tensor]


@dataclass(frozen=True)
class HeldOutObjective:
    """An objective with batches from a distribution and a fixed set of held-out examples."""

    distribution: Distribution
    batch: int
    stretch: float = field(default=1.0, kw_only=True)
    """Largest factor by which some X are scaled in training."""
    examples: ClassVar[int] = 4096

    def draw(self, generator: torch.Generator) -> RegressionProblem:
        problem = self.distribution.sample(self.batch, generator=generator, dtype=torch.float32)
        if self.stretch == 1:
            return problem
        which, share = torch.rand(2, self.batch, generator=generator)
        factors = torch.where(which < STRETCHED_SHARE, 1 + (self.stretch - 1) * share, 1.0)[:, None]
        x, y = problem.x * factors[..., None], problem.y * factors
        return RegressionProblem(x, y, problem.x_query, problem.weights)

    @cached_property
    def held_out(self) -> RegressionProblem:
        generator = torch.Generator().manual_seed(2**31 - 1)
        with default_to_cpu():
            return self.distribution.sample(self.examples, generator=generator, dtype=torch.float32)

    def place_held_out(self, model: nn.Module) -> RegressionProblem:
        """Return the held-out examples on the model's device."""
        return move(self.held_out, next(model.parameters()).device)


@dataclass(frozen=True)
class WeightObjective(HeldOutObjective):
    """The loss E ‖β̂ − β‖², as for the paper's baselines.

    Queries are N(0, I), so this is the expected label loss; the measure `label` is the label loss
    on the sampled queries.
    """

    def loss(self, model: nn.Module, batch: RegressionProblem) -> Tensor:
        return compress_errors(
            (model(batch.x, batch.y) - batch.weights).square().sum(dim=-1)
        ).mean()

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        problem = self.place_held_out(model)
        error = model(problem.x, problem.y) - problem.weights
        label = (problem.x_query.squeeze(-2) * error).sum(dim=-1).square().mean()
        return {"loss": float(error.square().sum(dim=-1).mean()), "label": float(label)}

    def compute_blank_loss(self, model: nn.Module) -> float:
        assert self.held_out.weights is not None
        return float(self.held_out.weights.square().sum(dim=-1).mean())


@dataclass(frozen=True)
class LabelObjective(HeldOutObjective):
    """The loss E (ŷ − y)² at the query only, as in the paper's transformers, or at every prefix."""

    examples: ClassVar[int] = 1024
    predict: PromptFunction
    """Function that predicts the labels of all examples and the query: batch × (n + 1).

    Each prediction uses only the examples before.
    """
    prefixes: bool
    training_errors: PromptFunction | None = None
    """Function for the errors to minimise at every prefix; None for squared label errors."""
    emphasis: float = 0.0
    """Power p of the weight (m + 1)^p of a prefix of m examples, before normalisation."""
    fallback: PromptFunction | None = None
    """Function for the errors of prompts with an error above LOST; None ignores them."""

    def loss(self, model: nn.Module, batch: RegressionProblem) -> Tensor:
        """Return the loss; prompts with an error above LOST contribute the fallback instead."""
        compute_errors = self.training_errors or self.label_errors
        errors = compute_errors(model, batch)
        sound = (errors < LOST).all(dim=-1)
        if not bool(sound.all()):
            parts = []
            if bool(sound.any()):
                parts.append(compute_errors(model, select_instances(batch, sound)))
            if self.fallback is not None:
                parts.append(self.fallback(model, select_instances(batch, ~sound)))
            errors = torch.cat(parts) if parts else errors
        errors = compress_errors(errors)
        if not self.prefixes:
            return errors[..., -1].mean()
        count = torch.arange(1.0, errors.shape[-1] + 1, device=errors.device)
        weights = count.to(errors) ** self.emphasis
        return (errors * (weights / weights.mean())).mean()

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Return the losses over all held-out prompts; overflowed errors count as OVERFLOW."""
        errors = (
            self.label_errors(model, self.place_held_out(model))
            .nan_to_num(OVERFLOW)
            .clamp_max(OVERFLOW)
        )
        return {"loss": float(errors[..., -1].mean()), "prefixes": float(errors.mean())}

    def compute_blank_loss(self, model: nn.Module) -> float:
        return float(self.held_out.targets.square().mean())

    def label_errors(self, model: nn.Module, problem: RegressionProblem) -> Tensor:
        """Return the squared errors of the labels at every prefix."""
        truth = torch.cat([problem.y, problem.targets], dim=-1)
        return (self.predict(model, problem) - truth).square()


def compress_errors(errors: Tensor) -> Tensor:
    """Replace errors above LARGE by a logarithm of them, as the training loss does."""
    large = LARGE * (1 + (errors.clamp_min(LARGE) / LARGE).log())
    return torch.where(errors > LARGE, large, errors)


def select_instances(problem: RegressionProblem, which: Tensor | slice | int) -> RegressionProblem:
    """Select instances of a batch, or one of several batches."""
    weights = None if problem.weights is None else problem.weights[which]
    return RegressionProblem(problem.x[which], problem.y[which], problem.x_query[which], weights)


class SparseRecipe(Recipe, ABC):
    """A recipe for the sparse recovery problem of liu2025, Section 6, with the sizes used there."""

    d: int = parameter(20, "features", least=1, most=512)
    n: int = parameter(10, "context examples", least=1, most=10_000)
    sparsity: int = parameter(3, "nonzero entries of the weights", least=1)
    support: int | None = parameter(
        None, "number of leading features that contain the support; none means all", least=1
    )
    fixed: int | None = parameter(
        None,
        "seed of one X for all instances; none means a fresh X for each",
        least=0,
        most=2**SEED_BITS - 1,
    )
    stretch: float = parameter(1.0, "in training, scale some X by up to this factor", least=1)
    batch: int = parameter(512, "instances in a batch", least=1, most=1_000_000)
    steps: int = parameter(2000, "steps of the optimiser", least=1)
    learning_rate: float = parameter(1e-2, "peak of the schedule", least=0)
    schedule: Literal["constant", "cosine", "linear", "halving"] = parameter(
        "cosine", "of the learning rate"
    )
    clip: float | None = parameter(1.0, "clip the norm of the whole gradient to this", least=0)

    def build_distribution(self) -> SparseRecovery:
        return SparseRecovery(
            d=self.d,
            n=self.n,
            sparsity=self.sparsity,
            support=self.support,
            fixed=self.fixed,
        )


class UnrolledRecipe(SparseRecipe, ABC):
    """A recipe that trains an iteration unrolled into K layers."""

    blocks: int = parameter(12, "layers K", least=1, most=1000)

    def build_objective(self) -> WeightObjective:
        return WeightObjective(self.build_distribution(), self.batch, stretch=self.stretch)

    def predict_layers(self, model: nn.Module, problem: RegressionProblem) -> Tensor:
        assert isinstance(model, Unrolled)
        iterates = model.iterates(problem.x, problem.y)
        return (iterates.unsqueeze(-2) @ problem.x_query.mT).squeeze(-2)

    def draw_measurements(self, generator: torch.Generator) -> Tensor:
        """Draw the X whose ISTA matrices the model starts from: the fixed X, or a random one."""
        seed = int(torch.randint(2**31, (), generator=generator))
        return self.build_distribution().draw_measurements(
            seed if self.fixed is None else self.fixed
        )
