"""ALISTA learns steps and thresholds for sparse recovery; its directions are analytic.

Model  β ← S_θ(β − γ Wᵀ(Xβ − y)), W of the fixed X; on varying X it is found for each X anew,
       which the paper calls unrealistic for its own choice of W and is a small solve for this one
Loss   ‖β̂ − β‖²
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from innerloop.models.alista import Alista
from innerloop.recipes.sparse import UnrolledRecipe


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedAlista(UnrolledRecipe):
    """W of least coherence in Frobenius norm; two numbers to learn in each layer."""

    source: ClassVar[str] = "Liu and Chen 2019; R. Liu et al. 2025, section 6"
    small: ClassVar = {"d": 4, "n": 3, "sparsity": 1, "batch": 8, "blocks": 2}

    def model(self, generator: torch.Generator) -> Alista:
        given = None if self.fixed is None else self.start_at(generator)
        return Alista(given, self.blocks).float()
