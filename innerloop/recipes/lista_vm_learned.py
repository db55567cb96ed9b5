"""LISTA-VM learns sparse recovery on every X at once; with a known support, LISTA-VM-SS.

Model  β ← S_θ(β − 1/(2n+1) M Xᵀ(Xβ − y)), M free; begins with M = γI, γ of Chebyshev's roots, or
       the same in every layer, as ISTA's
Loss   ‖β̂ − β‖²
Safe   what begins with Chebyshev's steps learns some that are too large for a rare X, and errors
       there have no bound: of 409,600 fresh prompts of the paper's sizes 10 are beyond 10⁴. With a
       few X of a batch stretched none is beyond 10², and the mean is 0.484 (results/benchmarks/
       sparse_tails.json)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from innerloop.errors import InputError
from innerloop.models.lista_vm import ListaVM, chebyshev_steps, spectrum
from innerloop.parameters import parameter
from innerloop.recipes.sparse import UnrolledRecipe

RESOLVED = 3.0
"""The interval ends at so much of its upper end, divided by K²: chosen by trial at K = 12."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedListaVM(UnrolledRecipe):
    """`select` sets the columns of X beyond the support to zero."""

    source: ClassVar[str] = "R. Liu et al. 2025, section 6 and Appendix F"
    small: ClassVar = {"d": 4, "n": 3, "sparsity": 1, "batch": 8, "blocks": 2}

    select: bool = parameter(False, "use that the support is known")
    start: Literal["chebyshev", "ista"] = parameter("chebyshev", "steps to begin with")
    stretch: float = parameter(1.4, "some X are up to so many times as long in training", least=1)
    learning_rate: float = parameter(2e-2, "the largest on the schedule", least=0)
    clip: float | None = parameter(1.0, "largest norm of the whole gradient", least=0)
    beta2: float | None = parameter(0.99, "Adam: decay of the mean square", least=0, most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.select and self.support is None:
            raise InputError("select needs a support: -s support=10")

    def model(self, generator: torch.Generator) -> ListaVM:
        support = self.support if self.select else None
        least, largest = spectrum(self.n, support or self.d)
        if self.start == "chebyshev":
            # Few layers cannot reach far down: a polynomial of degree K resolves 1/K².
            least = min(max(least, RESOLVED * largest / self.blocks**2), largest)
            steps = chebyshev_steps(least, largest, self.blocks)
        else:
            steps = torch.full((self.blocks,), 1 / largest, dtype=torch.float64)
        return ListaVM(self.d, steps, support=support).float()
