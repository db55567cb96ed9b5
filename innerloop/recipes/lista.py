"""LISTA learns sparse recovery on one X, or (meta-trained) on many.

Model  β ← S_θ(W y + U β) with learned W and U; they start as in ISTA on the fixed or a random X
Loss   ‖β̂ − β‖²
"""

from __future__ import annotations

from typing import ClassVar

import torch

from innerloop.models.lista import Lista
from innerloop.recipes.sparse import UnrolledRecipe


class ListaRecipe(UnrolledRecipe):
    """LISTA, which can only learn the X it is trained on, because its inputs do not include X."""

    source: ClassVar[str] = "Gregor and LeCun 2010; R. Liu et al. 2025, section 6 and Appendix F"
    small: ClassVar = {"d": 4, "n": 3, "sparsity": 1, "batch": 8, "blocks": 2}

    def build_model(self, generator: torch.Generator) -> Lista:
        return Lista(self.draw_measurements(generator), self.blocks).float()
