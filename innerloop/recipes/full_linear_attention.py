"""Train layers of linear attention in which no weight is fixed.

Model      P_l and Q_l with all (d+1)² entries, as in equation (3) of ahn2023
Loss       exact expectation over the query; Gram matrices of prompts and true weights are sampled
Expect     one layer converges to form (7) of theorem 1
"""

from __future__ import annotations

from typing import ClassVar

import torch

from innerloop.parameters import parameter
from innerloop.recipes.gram import GramRecipe
from innerloop.training.full_attention import FullSampledLoss
from innerloop.training.stacks import FullStack


class FullLinearAttentionRecipe(GramRecipe):
    """Linear attention in which no entry of P and Q is fixed at zero."""

    source: ClassVar[str] = "Ahn et al. 2023, sections 3 and 4"

    blocks: int = parameter(1, "layers", least=1, most=32)

    def build_model(self, generator: torch.Generator) -> FullStack:
        return FullStack.random(self.d, self.blocks, scale=self.scale, generator=generator)

    def build_objective(self) -> FullSampledLoss:
        return FullSampledLoss(**self.objective_settings())
