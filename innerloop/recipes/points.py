"""Base classes of recipes for encoders of points, and losses that ignore numbering and signs.

Model   a transformer of this package with trainable weights: softmax, ReLU or linear attention and
        an MLP in every layer; tokens contain a point, 1, and zeros as scratch space up to `width`
Layers  supervise=all applies the read-out to every layer and trains on the mean of the losses. This
        prevents vanishing gradients and makes layers comparable with the steps of an algorithm
Lengths shortest=m trains on prompts of m to n points; the step determines the length of a batch
Start   random weights, the weights of a construction, or weights near these
Losses  clusters have no numbers and directions no sign, so a loss is minimised over all
        permutations or signs
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from innerloop.constructions.base import Construction
from innerloop.devices import default_to_cpu, move
from innerloop.errors import InputError
from innerloop.models.encoder import Encoder, Reading
from innerloop.parameters import parameter
from innerloop.problems.base import Distribution
from innerloop.recipes.base import Recipe
from innerloop.training.start import perturb
from innerloop.transformer import Layout, Transformer

MAX_NAMES = 6
"""Largest number of clusters for which all permutations are tried; 6 clusters have 720."""
RANDOM_ONLY = ("heads", "width", "hidden", "kind", "scale", "supervise")
"""Settings that apply to random initial weights only; a construction fixes them."""
NOISE = 1e-6
"""Default scale of the noise of a start near a construction; with more noise, training diverges."""
POOLS = 2**32
"""First seed of pools, so that they differ from the seeds of runs and of held-out data."""
GOLDEN = (5**0.5 - 1) / 2
"""The golden ratio, whose multiples modulo 1 determine the prompt lengths of batches.

They fill [0, 1) evenly.
"""


@dataclass(frozen=True)
class PointsObjective:
    """The mean loss over a distribution of problems, with additional measures."""

    distribution: Distribution
    batch: int
    losses: Callable[[nn.Module, Any], Float[Tensor, " batch"]]
    """The training loss of each instance, such as a mean over layers."""
    final_losses: Callable[[nn.Module, Any], Float[Tensor, " batch"]]
    """The evaluated loss of each instance, from the last layer."""
    measures: Callable[[nn.Module, Any], dict[str, float]]
    blank_losses: Callable[[nn.Module, Any], Float[Tensor, " batch"]]
    """The losses of a read-out that is 0 everywhere."""
    examples: int = 512
    pool: int | None = field(default=None, kw_only=True)
    """Train on this many instances, drawn once, instead of fresh ones in every batch."""
    pool_seed: int = field(default=0, kw_only=True)
    dtype: torch.dtype = torch.float32

    def draw(self, generator: torch.Generator) -> Any:
        if self.pool is None:
            return self.distribution.sample(self.batch, generator=generator, dtype=self.dtype)
        return self._pooled[torch.randint(self.pool, (self.batch,), generator=generator)]

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return self.losses(model, move(batch, next(model.parameters()).device)).mean()

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        problem = move(self._held_out, next(model.parameters()).device)
        loss = float(self.final_losses(model, problem).mean())
        # The loss shows that a run diverged; measures of infinite outputs have no meaning.
        more = self.measures(model, problem) if math.isfinite(loss) else {}
        return {"loss": loss, **more}

    def compute_blank_loss(self, model: nn.Module) -> float:
        problem = move(self._held_out, next(model.parameters()).device)
        return float(self.blank_losses(model, problem).mean())

    @cached_property
    def _held_out(self) -> Any:
        generator = torch.Generator().manual_seed(2**31 - 1)
        with default_to_cpu():
            return self.distribution.sample(self.examples, generator=generator, dtype=self.dtype)

    @cached_property
    def _pooled(self) -> Any:
        generator = torch.Generator().manual_seed(POOLS + self.pool_seed)
        return self.distribution.sample(self.pool or 1, generator=generator, dtype=self.dtype)


class PointsRecipe(Recipe, ABC):
    """An encoder over the points of a prompt; subclasses define the problem and the read-out."""

    d: int = parameter(5, "features", least=1, most=64)
    n: int = parameter(20, "points", least=1, most=10_000)
    blocks: int = parameter(3, "layers", least=1, most=64)
    heads: int = parameter(2, "heads in a layer", least=1, most=64)
    width: int = parameter(64, "width of the stream", least=2, most=2048)
    hidden: int = parameter(64, "hidden units of each MLP; 0 means no MLP", least=0, most=8192)
    kind: Literal["linear", "relu", "softmax"] = parameter("relu", "kind of attention")
    start: Literal["random", "construction", "near"] = parameter("random", "initial weights")
    scale: float = parameter(0.5, "scale of random weights", least=0)
    noise_scale: float | None = parameter(
        None, "near: scale of the noise added; none means 1e-6", least=0
    )
    pool: int | None = parameter(
        None, "instances to train on; none means fresh ones in every batch", least=1, most=10**7
    )
    pool_seed: int | None = parameter(None, "seed of the pool; none means 0", least=0, most=10**6)
    supervise: Literal["last", "all"] = parameter(
        "last", "layers whose loss is minimised: the last one, or the mean of all"
    )
    shortest: int | None = parameter(
        None, "fewest points of a prompt in training; none means n in all", least=1
    )
    batch: int = parameter(64, "prompts in a batch", least=1, most=100_000)
    learning_rate: float = parameter(2e-3, "peak of the schedule", least=0)
    warmup: int = parameter(200, "steps in which the learning rate rises from 0", least=0)
    schedule: Literal["constant", "cosine", "linear", "halving"] = parameter(
        "cosine", "of the learning rate"
    )
    clip: float | None = parameter(1.0, "clip the norm of the whole gradient to this", least=0)
    steps: int = parameter(10_000, "steps of the optimiser", least=1)
    evaluate_every: int = parameter(500, "steps between evaluations", least=1)

    @property
    @abstractmethod
    def registers(self) -> dict[str, Any]:
        """The registers of the tokens of a prompt, without the scratch register."""

    @property
    @abstractmethod
    def reading(self) -> Reading:
        """The kind of read-out; models/encoder.py describes the kinds."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """The number of outputs per token, or per prompt."""

    @abstractmethod
    def fill_registers(self, problem: Any) -> Tensor:
        """Return the values of the registers of a prompt; registers that are not returned are 0."""

    answer: ClassVar[str]
    """The construction's answer register, which W̃₀ reads before the first training step."""

    @abstractmethod
    def build_construction(self) -> Construction:
        """Build the construction whose weights training starts from."""

    @abstractmethod
    def find_targets(self, problem: Any) -> Any:
        """Compute the targets of a batch."""

    @abstractmethod
    def compare(self, read: Tensor, targets: Any) -> Float[Tensor, " batch"]:
        """Compute the loss of every instance from one layer's outputs and the targets."""

    @abstractmethod
    def measure(self, model: nn.Module, problem: Any) -> dict[str, float]:
        """Compute further measures of a batch."""

    @property
    def pooled_tokens(self) -> int | None:
        """The number of tokens with a weight in the read-out; None for the mean over tokens."""
        return None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shortest is not None and not self.shortest <= self.n:
            raise InputError(f"shortest must be at most n={self.n}, got {self.shortest}")
        if self.shortest is not None and self.pooled_tokens is not None:
            raise InputError(
                "a read-out with one weight per point fits only one length: leave shortest out"
            )
        if self.pool_seed is not None and self.pool is None:
            raise InputError("pool_seed is the seed of a pool, which is not set: leave it out")
        if self.noise_scale is not None and self.start != "near":
            raise InputError(f"start={self.start} does not use noise_scale: leave it out")
        if self.start != "random":
            for name in RANDOM_ONLY:
                if getattr(self, name) != type(self).__dataclass_fields__[name].default:
                    raise InputError(
                        f"start={self.start} uses the construction's {name}: leave it out"
                    )
        if self.start == "random" and self.width < self._named_width:
            raise InputError(
                f"width must be at least {self._named_width}, the size of a token, got {self.width}"
            )

    @property
    def _named_width(self) -> int:
        return Layout(**self.registers).width

    @cached_property
    def layout(self) -> Layout:
        """The layout of the residual stream."""
        if self.start != "random":
            return self._construction.layout
        spare = self.width - self._named_width
        return Layout(**self.registers, **({"scratch": spare} if spare else {}))

    @cached_property
    def _construction(self) -> Construction:
        return self.build_construction()

    def make_prompt(self, problem: Any) -> Tensor:
        """Make the tokens of a prompt, in the construction's format if training starts from one."""
        if self.start != "random":
            return self._construction.prompt(problem)
        return self.fill_registers(problem)

    def build_objective(self) -> PointsObjective:
        return PointsObjective(
            self.build_distribution(),
            self.batch,
            self.train_losses,
            self.losses,
            self.measure,
            self.blank_losses,
            pool=self.pool,
            pool_seed=self.pool_seed or 0,
        )

    def simplify_batch(self, batch: Any, step: int) -> Any:
        if self.shortest is None:
            return batch
        spread = self.n - self.shortest + 1
        return cut_points(batch, self.shortest + int(step * GOLDEN % 1 * spread))

    def losses(self, model: nn.Module, problem: Any) -> Float[Tensor, " batch"]:
        """Return the loss of every instance after the last layer."""
        return self.compare(self.predict(model, problem), self.find_targets(problem))

    def blank_losses(self, model: nn.Module, problem: Any) -> Float[Tensor, " batch"]:
        """Return the loss of every instance for an output of 0."""
        nothing = torch.zeros_like(self.predict(model, problem))
        return self.compare(nothing, self.find_targets(problem))

    def train_losses(self, model: nn.Module, problem: Any) -> Float[Tensor, " batch"]:
        """Return the training loss of every instance: the last layer's, or the mean over layers."""
        if self.supervise == "last":
            return self.losses(model, problem)
        assert isinstance(model, Encoder)
        targets = self.find_targets(problem)
        layers = model.read_layers(self.make_prompt(problem), problem.n)
        return torch.stack([self.compare(layer, targets) for layer in layers]).mean(dim=0)

    def build_model(self, generator: torch.Generator) -> Encoder:
        if self.start == "random":
            machine = Transformer.with_random_weights(
                self.layout,
                layers=self.blocks,
                heads=self.heads,
                hidden=self.hidden,
                kind=self.kind,
                mask="all",
                normalisation="1" if self.kind == "softmax" else "1/N",
                rank=max(1, self.width // self.heads),
                scale=self.scale,
                generator=generator,
            )
            return Encoder.with_random_reading(
                machine, self.reading, self.outputs, generator, self.pooled_tokens
            ).float()
        machine, n = self._construction.transformer.to_dense(), self.pooled_tokens
        places = list(machine.layout[self.answer].places)[: self.outputs]
        left = torch.eye(machine.layout.width, dtype=torch.float64)[places]
        right = None if n is None else torch.full((n,), 1 / n, dtype=torch.float64)
        encoder = Encoder(machine, self.reading, left, right)
        if self.start == "near":
            perturb(encoder, NOISE if self.noise_scale is None else self.noise_scale, generator)
        return encoder.float()

    def predict(self, model: nn.Module, problem: Any) -> Tensor:
        """Run the model and return the answer of its last layer."""
        return model(self.make_prompt(problem), problem.n)

    def check(self, problem: Any) -> None:
        """Raise `InputError` for problems that no model of this recipe can answer."""
        if problem.d != self.d:
            raise InputError(
                f"the model was trained on points of {self.d} features, got {problem.d}: choose or "
                f"project to {self.d} of them, or train with d={problem.d}"
            )

    def predict_layers(self, model: nn.Module, problem: Any) -> Tensor:
        assert isinstance(model, Encoder)
        self.check(problem)
        layers = model.read_layers(self.make_prompt(problem), problem.n)
        return self.shape_answers(layers)

    def shape_answers(self, read: Tensor) -> Tensor:
        """Convert outputs to answers; by default, outputs are the answers."""
        return read


def cut_points(problem: Any, points: int) -> Any:
    """Return the problem with only the first points of every prompt, and their labels."""
    parts = {"x": problem.x[..., :points, :]}
    for name in ("y", "labels"):
        if (values := getattr(problem, name, None)) is not None:
            parts[name] = values[..., :points]
    return replace(problem, **parts)


def least_over_signs(
    guess: Float[Tensor, "*batch k d"], truth: Float[Tensor, "*batch k d"]
) -> Float[Tensor, "*batch"]:
    """Return Σ_k min ‖v̂_k ∓ v_k‖², the squared error of directions up to their sign."""
    plus, minus = ((guess - sign * truth).square().sum(dim=-1) for sign in (1, -1))
    return torch.minimum(plus, minus).sum(dim=-1)


def least_over_names(
    logits: Float[Tensor, "batch n clusters"], labels: Int[Tensor, "batch n"]
) -> Float[Tensor, " batch"]:
    """Return the mean cross-entropy of the labels, minimised over permutations of the clusters."""
    clusters = logits.shape[-1]
    if clusters > MAX_NAMES:
        raise InputError(
            f"all permutations are tried for at most {MAX_NAMES} clusters, got {clusters}"
        )
    hot = torch.nn.functional.one_hot(labels.long(), clusters).to(logits)
    costs = -(hot.mT @ logits.log_softmax(dim=-1)) / logits.shape[-2]
    orders = torch.tensor(list(itertools.permutations(range(clusters))), device=logits.device)
    rows = torch.arange(clusters, device=logits.device)
    return costs[:, rows, orders].sum(dim=-1).amin(dim=-1)
