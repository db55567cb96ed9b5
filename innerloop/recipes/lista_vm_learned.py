"""LISTA-VM learns sparse recovery on every X at once; with a known support, LISTA-VM-SS.

Model  β ← S_θ(β − 1/(2n+1) M Xᵀ(Xβ − y)), M free; begins with steps that grow from layer to layer
Loss   ‖β̂ − β‖²
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from innerloop.errors import InputError
from innerloop.models.lista_vm import ListaVM
from innerloop.parameters import parameter
from innerloop.recipes.sparse import UnrolledRecipe


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedListaVM(UnrolledRecipe):
    """`select` sets the columns of X beyond the support to zero."""

    source: ClassVar[str] = "R. Liu et al. 2025, section 6 and Appendix F"
    small: ClassVar = {"d": 4, "n": 3, "sparsity": 1, "batch": 8, "blocks": 2}

    select: bool = parameter(False, "use that the support is known")
    learning_rate: float = parameter(2e-2, "the largest on the schedule", least=0)
    clip: float | None = parameter(10.0, "largest norm of the whole gradient", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.select and self.support is None:
            raise InputError("select needs a support: -s support=10")

    def model(self, generator: torch.Generator) -> ListaVM:
        thresholds = (0.12, 0.02) if self.select else (0.3, 0.05)
        support = self.support if self.select else None
        return ListaVM(self.d, self.blocks, support=support, thresholds=thresholds).float()
