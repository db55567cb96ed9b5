"""What trainings on sparse recovery have in common: the problem, the loss on β, the loss on labels.

Fixed X: one X for all instances, drawn from a seed. Varying X: a fresh X for each instance, where
the paper has 100 in an epoch of 50,000 instances.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from innerloop.models.unrolled import Unrolled
from innerloop.parameters import parameter
from innerloop.problems.base import Distribution
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.problems.sparse_recovery import SparseRecovery
from innerloop.recipes.base import Recipe

OVERFLOW = 1e4
"""From this squared error on a prompt overflows. Nothing normalises the machine's stream, and what
is added is cubic in it: on a rare prompt it leaves float32 within a few layers."""
LARGE, LOST = 1e2, 1e8
"""Training counts an error e above LARGE as LARGE (1 + log(e / LARGE)), so that a prompt on which
a model runs away is learned from but does not drown the others. From LOST on a stream has no
gradient that float32 can hold."""
STRETCHED = 0.03
"""Share of a batch that is stretched, if any is."""
Answer = Callable[[nn.Module, RegressionProblem], Tensor]


@dataclass(frozen=True)
class Held:
    """Batches of a distribution, and examples that are held out, the same every time."""

    distribution: Distribution
    batch: int
    stretch: float = field(default=1.0, kw_only=True)
    """Training: some X are up to so many times as long."""
    examples: ClassVar[int] = 4096

    def draw(self, generator: torch.Generator) -> RegressionProblem:
        problem = self.distribution.sample(self.batch, generator=generator, dtype=torch.float32)
        if self.stretch == 1:
            return problem
        which, far = torch.rand(2, self.batch, generator=generator)
        factors = torch.where(which < STRETCHED, 1 + (self.stretch - 1) * far, 1.0)[:, None]
        x, y = problem.x * factors[..., None], problem.y * factors
        return RegressionProblem(x, y, problem.x_query, problem.weights)

    @cached_property
    def held_out(self) -> RegressionProblem:
        generator = torch.Generator().manual_seed(2**31 - 1)
        return self.distribution.sample(self.examples, generator=generator, dtype=torch.float32)


@dataclass(frozen=True)
class Recovery(Held):
    """E ‖β̂ − β‖², as the paper trains its baselines. Queries are N(0, I), so this is the label loss
    in expectation; `label` is the label loss of the queries that were drawn."""

    def loss(self, model: nn.Module, batch: RegressionProblem) -> Tensor:
        return tempered((model(batch.x, batch.y) - batch.weights).square().sum(dim=-1)).mean()

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        problem = self.held_out
        missed = model(problem.x, problem.y) - problem.weights
        label = (problem.x_query.squeeze(-2) * missed).sum(dim=-1).square().mean()
        return {"loss": float(missed.square().sum(dim=-1).mean()), "label": float(label)}


@dataclass(frozen=True)
class Labels(Held):
    """E (ŷ − y)² at the query alone, as the paper trains its transformers, or at every prefix."""

    examples: ClassVar[int] = 1024
    answer: Answer
    """Labels of all examples and the query, each from those before it: batch × (n + 1)."""
    prefixes: bool
    missed: Answer | None = None
    """What training minimises at every prefix, if not the squared error of the label."""
    emphasis: float = 0.0
    """The weight of the prefix of m examples is (m + 1) to this power, over the mean of these."""
    earlier: Answer | None = None
    """What to minimise on prompts that are lost, if anything: they are left out otherwise."""

    def loss(self, model: nn.Module, batch: RegressionProblem) -> Tensor:
        """Over the prompts that are not lost, and what can be had of those that are."""
        missed = self.missed or self.errors
        errors = missed(model, batch)
        sound = (errors < LOST).all(dim=-1)
        if not bool(sound.all()):
            kept = [missed(model, chosen(batch, sound))] if bool(sound.any()) else []
            found = [] if self.earlier is None else [self.earlier(model, chosen(batch, ~sound))]
            errors = torch.cat(kept + found) if kept or found else errors
        errors = tempered(errors)
        if not self.prefixes:
            return errors[..., -1].mean()
        weights = torch.arange(1.0, errors.shape[-1] + 1).to(errors) ** self.emphasis
        return (errors * (weights / weights.mean())).mean()

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Over all prompts; one that overflows counts with the error from which on it does."""
        errors = self.errors(model, self.held_out).nan_to_num(OVERFLOW).clamp_max(OVERFLOW)
        return {"loss": float(errors[..., -1].mean()), "prefixes": float(errors.mean())}

    def errors(self, model: nn.Module, problem: RegressionProblem) -> Tensor:
        """Squared errors at every prefix."""
        truth = torch.cat([problem.y, problem.targets], dim=-1)
        return (self.answer(model, problem) - truth).square()


def tempered(errors: Tensor) -> Tensor:
    """Errors as training counts them."""
    large = LARGE * (1 + (errors.clamp_min(LARGE) / LARGE).log())
    return torch.where(errors > LARGE, large, errors)


def chosen(problem: RegressionProblem, which: Tensor | slice | int) -> RegressionProblem:
    """Some instances of a batch, or the batch that is one of several."""
    weights = None if problem.weights is None else problem.weights[which]
    return RegressionProblem(problem.x[which], problem.y[which], problem.x_query[which], weights)


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseRecipe(Recipe, ABC):
    """The problem of section 6 and its sizes."""

    d: int = parameter(20, "features", least=1, most=512)
    n: int = parameter(10, "context examples", least=1, most=10_000)
    sparsity: int = parameter(3, "entries of the weights that are not zero", least=1)
    support: int | None = parameter(None, "the support lies in the first so many", least=1)
    fixed: int | None = parameter(None, "seed of one X for all; a fresh X each if none", least=0)
    stretch: float = parameter(1.0, "some X are up to so many times as long in training", least=1)
    batch: int = parameter(512, "instances in a batch", least=1, most=1_000_000)
    steps: int = parameter(2000, "steps of the optimiser", least=1)
    learning_rate: float = parameter(1e-2, "the largest on the schedule", least=0)
    schedule: Literal["constant", "cosine", "linear", "halving"] = parameter(
        "cosine", "of the learning rate"
    )
    clip: float | None = parameter(1.0, "largest norm of the whole gradient", least=0)

    def problems(self) -> SparseRecovery:
        return SparseRecovery(
            d=self.d,
            n=self.n,
            sparsity=self.sparsity,
            support=self.support,
            fixed=self.fixed,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class UnrolledRecipe(SparseRecipe, ABC):
    """A learned iteration of K layers."""

    blocks: int = parameter(12, "layers K", least=1, most=1000)

    def objective(self) -> Recovery:
        return Recovery(self.problems(), self.batch, stretch=self.stretch)

    def layers(self, model: nn.Module, problem: RegressionProblem) -> Tensor:
        assert isinstance(model, Unrolled)
        found = model.iterates(problem.x, problem.y)
        return (found.unsqueeze(-2) @ problem.x_query.mT).squeeze(-2)

    def start_at(self, generator: torch.Generator) -> Tensor:
        """The X from which ISTA's matrices are taken to begin with: the fixed one, or any."""
        seed = int(torch.randint(2**31, (), generator=generator))
        return self.problems().measurements(seed if self.fixed is None else self.fixed)
