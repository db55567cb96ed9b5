"""Small TF: a causal ReLU transformer of free weights learns sparse recovery in context.

Model      the machine on registers x, y, beta, odd (prompt (4.2)), width 2d + 2, with a linear, a
           query or the constructed query read-out; nothing normalises its stream
Start      random weights as in the paper; random ones that treat all features alike; those of
           LISTA-VM by Theorem 4.1; or near those
Sharing    gradients are averaged over features for the first steps (`training.symmetry`): problems
           are as likely with their features renamed, and no feature has to learn alone what all of
           them need. It says nothing of an algorithm. It is what learning waits for: three layers
           at the paper's problem have a loss of 1.31 after 1,500 steps, and 1.85 without it; with
           labels in the loss, not β, 1.46 and 2.23 (LISTA-VM of three layers: 1.11)
Loss       (ŷ − y)² at the query as in the paper, or at every prefix (which teaches n + 1 problems
           for the price of one). Or ‖β̂ − β‖², as the paper trains its baselines: a query read-out
           says ŷ = ⟨β̂, x⟩, so this is (ŷ − y)² in expectation over the x that are asked, without
           the noise of one x, as far as β̂ does not depend on it
Growth     the first layers are trained alone, then they are run twice over and trained on, and so
           on: what one layer learned of an iteration, the next need not learn again (stacking,
           L. Gong et al. 2019), and most steps cost a fraction
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from innerloop.constructions.lista_vm import ListaVMDecoder
from innerloop.errors import InputError
from innerloop.models.decoder import Decoder
from innerloop.parameters import parameter
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.recipes.sparse import LOST, Labels, SparseRecipe
from innerloop.training.start import perturb, repeat
from innerloop.training.symmetry import (
    Orbits,
    Place,
    average_gradients,
    draw_alike,
    orbits,
    place,
    places,
)
from innerloop.transformer import Transformer

BOUND = 20.0
"""B of the construction, a few standard deviations of ⟨β, x⟩. A larger one is safer to run but not
to train: an error in a weight beside it is multiplied by it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SmallTransformer(SparseRecipe):
    """Sizes as in the paper. MLPs of twice the width have room for a soft threshold, 4d units."""

    source: ClassVar[str] = "R. Liu et al. 2025, section 6"
    small: ClassVar = {"d": 2, "n": 3, "sparsity": 1, "blocks": 2, "heads": 2, "batch": 4}

    blocks: int = parameter(12, "layers", least=1, most=64)
    heads: int = parameter(4, "heads in a layer", least=1, most=64)
    hidden: int | None = parameter(None, "hidden units of each MLP; none is 2(2d + 2)", least=0)
    readout: Literal["linear", "query", "constructed"] = parameter("query", "of the label")
    prefixes: bool = parameter(True, "loss at every prefix, not at the query alone")
    emphasis: float = parameter(
        0.0, "prefixes: weight (m + 1) to this power of m examples", least=0
    )
    supervision: Literal["labels", "weights"] = parameter("labels", "what the loss compares")
    growth: Tensor | None = parameter(None, "steps at which the layers double; none is no growth")
    start: Literal["random", "symmetric", "construction", "near"] = parameter(
        "random", "where weights begin"
    )
    sharing: int = parameter(0, "steps with gradients averaged over features", least=0)
    scale: float | None = parameter(None, "size of random weights; none is 0.2", least=0)
    noise: float | None = parameter(None, "near: size of what is added; none is 0.02", least=0)
    gammas: Tensor | None = parameter(None, "construction: M = γI of each layer; none is γ = 2/d")
    thetas: Tensor | None = parameter(None, "construction: θ of each layer; none is 0.02")
    batch: int = parameter(64, "prompts in a batch", least=1, most=100_000)
    learning_rate: float = parameter(1e-3, "the largest on the schedule", least=0)
    warmup: int = parameter(200, "steps in which the learning rate rises from 0", least=0)
    steps: int = parameter(20_000, "steps of the optimiser", least=1)
    beta2: float | None = parameter(0.99, "Adam: decay of the mean square", least=0, most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        built = ("construction", "near")
        heeded = {
            **{"gammas": built, "thetas": built, "noise": ("near",)},
            **{"scale": ("random", "symmetric"), "growth": ("random", "symmetric")},
        }
        for name, starts in heeded.items():
            if getattr(self, name) is not None and self.start not in starts:
                raise InputError(f"start={self.start} does not use {name}: leave it out")
        as_built = self.heads == 4 and self.hidden in (None, 4 * self.d)
        if self.start in built and not as_built:
            raise InputError(f"start={self.start} has 4 heads and 4d hidden units, as built")
        for name in ("gammas", "thetas"):
            given = getattr(self, name)
            if given is not None and given.shape != (self.blocks,):
                raise InputError(f"{name} must be {self.blocks} numbers, one for each layer")
        if self.supervision == "weights" and self.readout == "linear":
            raise InputError("a linear read-out has no β̂: take supervision=labels")
        if self.emphasis and not self.prefixes:
            raise InputError("prefixes=false does not use emphasis: leave it out")
        self._check_sharing()
        self._check_growth()

    def _check_sharing(self) -> None:
        if not self.sharing:
            return
        if self.start in ("construction", "near"):
            raise InputError(f"start={self.start} does not use sharing: leave it out")
        if self.fixed is not None:
            raise InputError("with a fixed X features are not alike: set sharing=0")

    def _check_growth(self) -> None:
        if self.growth is None:
            return
        wanted = f"different whole numbers of steps in 1 … {self.steps - 1}"
        steps = self.growth.flatten().tolist()
        whole = all(step == int(step) and 0 < step < self.steps for step in steps)
        if self.growth.ndim != 1 or not whole or len(set(steps)) < len(steps):
            raise InputError(f"growth must be {wanted}, got {self.growth.tolist()}")
        if self.blocks % 2 ** len(steps):
            raise InputError(
                f"{self.blocks} layers are not reached by doubling {len(steps)} times: "
                f"take a multiple of {2 ** len(steps)} layers"
            )

    @cached_property
    def construction(self) -> ListaVMDecoder:
        """Unless given, steps that few X are too large for at any prefix: after one example, an
        eigenvalue of XᵀX/(2m+1) is ‖x‖²/3, near d/3."""
        eye = torch.eye(self.d, dtype=torch.float64)
        gammas = torch.tensor([2 / self.d]) if self.gammas is None else self.gammas
        return ListaVMDecoder(
            d=self.d,
            n=self.n,
            steps=self.blocks,
            preconditioners=gammas.expand(self.blocks)[:, None, None] * eye,
            threshold=0.02 if self.thetas is None else self.thetas,
            bound=BOUND,
        )

    def model(self, generator: torch.Generator) -> Decoder:
        return Decoder(self._machine(generator), self.readout).float()

    def _machine(self, generator: torch.Generator) -> Transformer:
        if self.start in ("random", "symmetric"):
            width, scale = self.construction.layout.width, 0.2 if self.scale is None else self.scale
            machine = Transformer.free(
                self.construction.layout,
                layers=self.blocks,
                heads=self.heads,
                hidden=2 * width if self.hidden is None else self.hidden,
                kind="relu",
                mask="causal",
                normalisation="1/i",
                scale=scale,
                generator=generator,
            )
            if self.start == "symmetric":
                draw_alike(machine, scale, generator, self.support)
            return machine
        machine = self.construction.transformer.dense()
        if self.start == "near":
            perturb(machine, 0.02 if self.noise is None else self.noise, generator)
        return machine

    def prepare(self, model: nn.Module, step: int) -> None:
        """As many layers as are due. New ones are copies, made once, before the step they join."""
        if self.growth is None:
            return
        assert isinstance(model, Decoder)
        model.depth = self.blocks >> int((self.growth > step).sum())
        if step in self.growth.tolist():
            repeat(model.machine.blocks(), model.depth // 2)

    def revise(self, model: nn.Module, step: int) -> None:
        if step < self.sharing:
            average_gradients(model, self._orbits)

    @cached_property
    def _orbits(self) -> dict[str, Orbits]:
        """Of every weight of the model; a query read-out has a row for each feature."""
        machine = self._machine(torch.Generator())
        found = {f"machine.{name}": among for name, among in orbits(machine, self.support).items()}
        if self.readout == "constructed":
            return found
        read: list[Place] = [("read", None)]
        if self.readout == "query":
            read = [place("read", k, self.support) for k in range(self.d)]
        return {**found, "reading": Orbits.of(read, places(machine.layout, self.support))}

    def objective(self) -> Labels:
        labels = Labels(
            self.problems(), self.batch, self.answers, self.prefixes, stretch=self.stretch
        )
        missed = self.missed if self.supervision == "weights" else labels.errors

        def earlier(model: nn.Module, problem: RegressionProblem) -> Tensor:
            """After the last layer where no stream has run away: it need not go so far."""
            assert isinstance(model, Decoder)
            whole, prompt = model.depth, self.construction.prompt(problem)
            try:
                for depth in range((whole or self.blocks) - 1, 0, -1):
                    model.depth = depth
                    with torch.no_grad():
                        sound = bool((model.stream(prompt).square() < LOST).all())
                    if sound:
                        return missed(model, problem)
            finally:
                model.depth = whole
            return problem.y.new_zeros(0, problem.n + 1)

        return replace(labels, missed=missed, emphasis=self.emphasis, earlier=earlier)

    def missed(self, model: nn.Module, problem: RegressionProblem) -> Tensor:
        """‖β̂ − β‖² at every prefix."""
        assert isinstance(model, Decoder)
        assert problem.weights is not None
        found = model.weights(model.stream(self.construction.prompt(problem)))
        return (found - problem.weights.unsqueeze(-2)).square().sum(dim=-1)

    def answers(self, model: nn.Module, problem: RegressionProblem) -> Tensor:
        """Labels of all examples and the query, each from those before it."""
        return model(self.construction.prompt(problem))

    def layers(self, model: nn.Module, problem: RegressionProblem) -> Tensor:
        assert isinstance(model, Decoder)
        prompt = self.construction.prompt(problem)
        streams = [snapshot.stream for snapshot in model.machine.trace(prompt)]
        return torch.stack([model.read(prompt, stream)[..., -1:] for stream in streams])
