"""Small TF: a causal ReLU transformer with trainable weights learns sparse recovery in context.

Model      a transformer on registers x, y, beta, odd (prompt (4.2)), width 2d + 2, with a linear, a
           query or the constructed query read-out; its stream is not normalised
Start      random weights as in the paper; random weights that treat all features alike; the weights
           of LISTA-VM by Theorem 4.1; or weights near these
Sharing    gradients are averaged over features for the first steps (`training.symmetry`). Problems
           with permuted features are equally probable, so all features have to learn the same.
           Sharing favours no algorithm, but it speeds up learning: on the paper's problem, three
           layers have a loss of 1.31 after 1,500 steps, and 1.85 without sharing; with labels in
           the loss instead of β, 1.46 and 2.23 (LISTA-VM of three layers: 1.11)
Loss       (ŷ − y)² at the query as in the paper, or at every prefix, which trains on n + 1 problems
           at the cost of one. Or ‖β̂ − β‖², as the paper trains its baselines: a query read-out
           predicts ŷ = ⟨β̂, x⟩, so if β̂ does not depend on the query x, this is the expectation of
           (ŷ − y)² over x, without the noise of a single x
Growth     the first layers are trained alone, then copied to double the depth and trained further,
           and so on (stacking, L. Gong et al. 2019). A new layer starts from the weights of a
           trained one, and most steps are cheaper than with all layers
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from innerloop.constructions.lista_vm import ListaVMConstruction
from innerloop.errors import InputError
from innerloop.models.decoder import Decoder
from innerloop.parameters import parameter
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.recipes.sparse import LOST, LabelObjective, SparseRecipe
from innerloop.training.start import copy_layers, perturb
from innerloop.training.symmetry import (
    Orbits,
    Place,
    average_gradients,
    draw_symmetric,
    find_orbits,
    list_places,
    make_place,
)
from innerloop.transformer import Transformer

BOUND = 20.0
"""The bound B of the construction, a few standard deviations of ⟨β, x⟩.

A larger B covers more data but is harder to train, because errors of some weights are multiplied by
B.
"""


class SmallTransformerRecipe(SparseRecipe):
    """Small TF with the paper's sizes.

    MLPs have twice the width of the stream, because a soft threshold takes 4d hidden units.
    """

    source: ClassVar[str] = "R. Liu et al. 2025, section 6"
    takes_bfloat16: ClassVar[bool] = True
    small: ClassVar = {"d": 2, "n": 3, "sparsity": 1, "blocks": 2, "heads": 2, "batch": 4}

    blocks: int = parameter(12, "layers", least=1, most=64)
    heads: int = parameter(4, "heads in a layer", least=1, most=64)
    hidden: int | None = parameter(
        None, "hidden units of each MLP; none means 2(2d + 2)", least=0, most=65_536
    )
    readout: Literal["linear", "query", "constructed"] = parameter(
        "query", "how the label is read out"
    )
    prefixes: bool = parameter(True, "loss at every prefix, not at the query alone")
    emphasis: float = parameter(
        0.0, "prefixes: a prefix of m examples has weight (m + 1) to this power", least=0
    )
    supervision: Literal["labels", "weights"] = parameter("labels", "what the loss compares")
    growth: Tensor | None = parameter(
        None, "steps at which the layers double; none means no growth"
    )
    start: Literal["random", "symmetric", "construction", "near"] = parameter(
        "random", "initial weights"
    )
    sharing: int = parameter(0, "steps with gradients averaged over features", least=0)
    scale: float | None = parameter(None, "scale of random weights; none means 0.2", least=0)
    noise: float | None = parameter(
        None, "near: scale of the noise added; none means 0.02", least=0
    )
    gammas: Tensor | None = parameter(
        None, "construction: M = γI of each layer; none means γ = 2/d"
    )
    thetas: Tensor | None = parameter(None, "construction: θ of each layer; none means 0.02")
    batch: int = parameter(64, "prompts in a batch", least=1, most=100_000)
    learning_rate: float = parameter(1e-3, "peak of the schedule", least=0)
    warmup: int = parameter(200, "steps in which the learning rate rises from 0", least=0)
    steps: int = parameter(20_000, "steps of the optimiser", least=1)
    beta2: float | None = parameter(0.99, "Adam: decay of the mean square", least=0, most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        built = ("construction", "near")
        used_by = {
            **{"gammas": built, "thetas": built, "noise": ("near",)},
            **{"scale": ("random", "symmetric"), "growth": ("random", "symmetric")},
        }
        for name, starts in used_by.items():
            if getattr(self, name) is not None and self.start not in starts:
                raise InputError(f"start={self.start} does not use {name}: leave it out")
        as_built = self.heads == 4 and self.hidden in (None, 4 * self.d)
        if self.start in built and not as_built:
            raise InputError(
                f"start={self.start} needs heads=4 and 4d hidden units, as the construction has"
            )
        for name in ("gammas", "thetas"):
            values = getattr(self, name)
            if values is not None and values.shape != (self.blocks,):
                raise InputError(f"{name} must be {self.blocks} numbers, one for each layer")
        if self.supervision == "weights" and self.readout == "linear":
            raise InputError(
                "a linear read-out does not compute β̂: set supervision=labels or another readout"
            )
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
            raise InputError("with a fixed X, features are not interchangeable: set sharing=0")

    def _check_growth(self) -> None:
        if self.growth is None:
            return
        expected = f"distinct whole numbers of steps in 1 … {self.steps - 1}"
        steps = self.growth.flatten().tolist()
        whole = all(step == int(step) and 0 < step < self.steps for step in steps)
        if self.growth.ndim != 1 or not whole or len(set(steps)) < len(steps):
            raise InputError(f"growth must be {expected}, got {self.growth.tolist()}")
        if self.blocks % 2 ** len(steps):
            raise InputError(
                f"blocks={self.blocks} cannot be reached by doubling {len(steps)} times: "
                f"set a multiple of {2 ** len(steps)}"
            )

    @cached_property
    def construction(self) -> ListaVMConstruction:
        """The construction of LISTA-VM, for its layout and the starts `construction` and `near`.

        The default step sizes are small enough for most X at any prefix: after one example, an
        eigenvalue of XᵀX/(2m+1) is ‖x‖²/3, near d/3.
        """
        eye = torch.eye(self.d, dtype=torch.float64)
        gammas = torch.tensor([2 / self.d]) if self.gammas is None else self.gammas
        return ListaVMConstruction(
            d=self.d,
            n=self.n,
            steps=self.blocks,
            preconditioners=gammas.expand(self.blocks)[:, None, None] * eye,
            threshold=0.02 if self.thetas is None else self.thetas,
            bound=BOUND,
        )

    def build_model(self, generator: torch.Generator) -> Decoder:
        return Decoder(self._build_machine(generator), self.readout).float()

    def _build_machine(self, generator: torch.Generator) -> Transformer:
        if self.start in ("random", "symmetric"):
            width, scale = self.construction.layout.width, 0.2 if self.scale is None else self.scale
            machine = Transformer.with_random_weights(
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
                draw_symmetric(machine, scale, generator, self.support)
            return machine
        machine = self.construction.transformer.to_dense()
        if self.start == "near":
            perturb(machine, 0.02 if self.noise is None else self.noise, generator)
        return machine

    def prepare_model(self, model: nn.Module, step: int) -> None:
        """Set the depth for this step; new layers are copies, made before their first step."""
        if self.growth is None:
            return
        assert isinstance(model, Decoder)
        model.depth = self.blocks >> int((self.growth > step).sum())
        if step in self.growth.tolist():
            copy_layers(model.machine.blocks(), model.depth // 2)

    def adjust_gradients(self, model: nn.Module, step: int) -> None:
        if step < self.sharing:
            average_gradients(model, self._orbits)

    @cached_property
    def _orbits(self) -> dict[str, Orbits]:
        """The orbits of every weight of the model; a query read-out has one row per feature."""
        machine = self._build_machine(torch.Generator())
        by_name = {
            f"machine.{name}": orbits for name, orbits in find_orbits(machine, self.support).items()
        }
        if self.readout == "constructed":
            return by_name
        read: list[Place] = [("read", None)]
        if self.readout == "query":
            read = [make_place("read", k, self.support) for k in range(self.d)]
        return {
            **by_name,
            "reading": Orbits.from_places(read, list_places(machine.layout, self.support)),
        }

    def build_objective(self) -> LabelObjective:
        labels = LabelObjective(
            self.build_distribution(),
            self.batch,
            self.predict_prefixes,
            self.prefixes,
            stretch=self.stretch,
        )
        errors = self.weight_errors if self.supervision == "weights" else labels.label_errors

        def errors_before_lost(model: nn.Module, problem: RegressionProblem) -> Tensor:
            """Return the errors after the last layer at which every stream is still below LOST."""
            assert isinstance(model, Decoder)
            full_depth, prompt = model.depth, self.construction.prompt(problem)
            try:
                for depth in range((full_depth or self.blocks) - 1, 0, -1):
                    model.depth = depth
                    with torch.no_grad():
                        sound = bool((model.compute_stream(prompt).square() < LOST).all())
                    if sound:
                        return errors(model, problem)
            finally:
                model.depth = full_depth
            return problem.y.new_zeros(0, problem.n + 1)

        return replace(
            labels, training_errors=errors, emphasis=self.emphasis, fallback=errors_before_lost
        )

    def weight_errors(self, model: nn.Module, problem: RegressionProblem) -> Tensor:
        """Compute ‖β̂ − β‖² at every prefix."""
        assert isinstance(model, Decoder)
        assert problem.weights is not None
        weights = model.read_weights(model.compute_stream(self.construction.prompt(problem)))
        return (weights - problem.weights.unsqueeze(-2)).square().sum(dim=-1)

    def predict_prefixes(self, model: nn.Module, problem: RegressionProblem) -> Tensor:
        """Predict the labels of all examples and the query, each from the examples before it."""
        return model(self.construction.prompt(problem))

    def predict_layers(self, model: nn.Module, problem: RegressionProblem) -> Tensor:
        assert isinstance(model, Decoder)
        prompt = self.construction.prompt(problem)
        streams = [snapshot.stream for snapshot in model.machine.trace(prompt)]
        return torch.stack([model.read(prompt, stream)[..., -1:] for stream in streams])
