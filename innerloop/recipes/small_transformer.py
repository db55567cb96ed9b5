"""Small TF: a causal ReLU transformer of free weights learns sparse recovery in context.

Model      the machine on registers x, y, beta, odd (prompt (4.2)), width 2d + 2, with a linear, a
           query or the constructed query read-out; nothing normalises its stream
Start      random weights as in the paper; those of LISTA-VM by Theorem 4.1; or near those
Loss       (ŷ − y)² at the query as in the paper, or at every prefix (which teaches n + 1 problems
           for the price of one)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from innerloop.constructions.lista_vm import ListaVMDecoder
from innerloop.errors import InputError
from innerloop.models.decoder import Decoder
from innerloop.parameters import parameter
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.recipes.sparse import Labels, SparseRecipe
from innerloop.training.start import perturb
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
    start: Literal["random", "construction", "near"] = parameter("random", "where weights begin")
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
        heeded = {"scale": ("random",), "noise": ("near",), "gammas": built, "thetas": built}
        for name, starts in heeded.items():
            if getattr(self, name) is not None and self.start not in starts:
                raise InputError(f"start={self.start} does not use {name}: leave it out")
        as_built = self.heads == 4 and self.hidden in (None, 4 * self.d)
        if self.start != "random" and not as_built:
            raise InputError(f"start={self.start} has 4 heads and 4d hidden units, as built")
        for name in ("gammas", "thetas"):
            given = getattr(self, name)
            if given is not None and given.shape != (self.blocks,):
                raise InputError(f"{name} must be {self.blocks} numbers, one for each layer")

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
        if self.start == "random":
            width = self.construction.layout.width
            return Transformer.free(
                self.construction.layout,
                layers=self.blocks,
                heads=self.heads,
                hidden=2 * width if self.hidden is None else self.hidden,
                kind="relu",
                mask="causal",
                normalisation="1/i",
                scale=0.2 if self.scale is None else self.scale,
                generator=generator,
            )
        machine = self.construction.transformer.dense()
        if self.start == "near":
            perturb(machine, 0.02 if self.noise is None else self.noise, generator)
        return machine

    def objective(self) -> Labels:
        return Labels(self.problems(), self.batch, self.answers, self.prefixes)

    def answers(self, model: nn.Module, problem: RegressionProblem) -> Tensor:
        """Labels of all examples and the query, each from those before it."""
        return model(self.construction.prompt(problem))

    def layers(self, model: nn.Module, problem: RegressionProblem) -> Tensor:
        assert isinstance(model, Decoder)
        prompt = self.construction.prompt(problem)
        streams = [snapshot.stream for snapshot in model.machine.trace(prompt)]
        return torch.stack([model.read(prompt, stream)[..., -1:] for stream in streams])
