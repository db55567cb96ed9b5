"""LISTA-CP learns sparse recovery on one X, or (meta-trained) on many.

Model  β ← S_θ(β − Dᵀ(Xβ − y)) with a learned D, which starts as in ISTA on the fixed or a random X
Loss   ‖β̂ − β‖²
"""

from __future__ import annotations

from typing import ClassVar

import torch

from innerloop.models.lista_cp import ListaCP
from innerloop.recipes.sparse import UnrolledRecipe


class ListaCPRecipe(UnrolledRecipe):
    """LISTA-CP, whose input includes X but whose directions D do not depend on it."""

    source: ClassVar[str] = "Chen et al. 2018; R. Liu et al. 2025, section 6 and Appendix F"
    small: ClassVar = {"d": 4, "n": 3, "sparsity": 1, "batch": 8, "blocks": 2}

    def build_model(self, generator: torch.Generator) -> ListaCP:
        return ListaCP(self.draw_measurements(generator), self.blocks).float()
