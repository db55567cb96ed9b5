"""Layers of linear attention learn preconditioned gradient descent, or GD++.

Model      P_l = diag(B_l, 1), Q_l = diag(A_l, 0): form (13) of ahn2023; without B_l form (9)
Loss       exact over the weights to be found and the query, sampled over the prompts' Gram matrices
Expect     Σ^½ A_l Σ^½ and B_l approach multiples of the identity (theorems 3, 4 and 5): the history
           has their distances
"""

from __future__ import annotations

from typing import ClassVar

import torch

from innerloop.parameters import parameter
from innerloop.recipes.gram import GramRecipe
from innerloop.training.linear_attention import SampledLoss
from innerloop.training.stacks import LinearStack


class LinearAttentionRecipe(GramRecipe):
    """Figures 1 to 4 of ahn2023: `moving=false` for 1 and 2, `moving=true` for 3 and 4."""

    source: ClassVar[str] = "Ahn et al. 2023, section 5"

    blocks: int = parameter(3, "layers", least=1, most=32)
    moving: bool = parameter(False, "whether layers move the covariates too (B_l)")
    images: bool = parameter(
        False, "average each prompt over its images under sign changes and shifts of the axes"
    )

    def build_model(self, generator: torch.Generator) -> LinearStack:
        return LinearStack.random(
            self.d, self.blocks, moving=self.moving, scale=self.scale, generator=generator
        )

    def build_objective(self) -> SampledLoss:
        return SampledLoss(**self.objective_settings(), images=self.images)
