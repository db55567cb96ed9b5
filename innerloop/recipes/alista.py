"""ALISTA learns steps and thresholds for sparse recovery; its directions are analytic.

Model  β ← S_θ(β − γ Wᵀ(Xβ − y)), with W computed from the fixed X, or from every X if X varies. The
       paper calls the latter unrealistic for its own choice of W; for this W it is a small solve
Loss   ‖β̂ − β‖²
"""

from __future__ import annotations

from typing import ClassVar

import torch

from innerloop.models.alista import Alista
from innerloop.recipes.sparse import UnrolledRecipe


class AlistaRecipe(UnrolledRecipe):
    """ALISTA, with an analytic W that minimises ‖WᵀX‖_F and two learned parameters per layer."""

    source: ClassVar[str] = "Liu and Chen 2019; R. Liu et al. 2025, section 6"
    small: ClassVar = {"d": 4, "n": 3, "sparsity": 1, "batch": 8, "blocks": 2}

    def build_model(self, generator: torch.Generator) -> Alista:
        x = None if self.fixed is None else self.draw_measurements(generator)
        return Alista(x, self.blocks).float()
