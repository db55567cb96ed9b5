"""Layers of linear attention learn preconditioned gradient descent, or GD++.

Model      P_l = diag(B_l, 1), Q_l = diag(A_l, 0): form (13) of ahn2023; without B_l form (9)
Loss       exact expectation over true weights and query; Gram matrices of prompts are sampled
Expect     Σ^½ A_l Σ^½ and B_l approach multiples of the identity (theorems 3, 4 and 5); the history
           contains their distances
"""

from __future__ import annotations

from typing import ClassVar

import torch

from innerloop.parameters import parameter
from innerloop.recipes.gram import GramRecipe
from innerloop.training.linear_attention import SampledLoss
from innerloop.training.stacks import LinearStack


class LinearAttentionRecipe(GramRecipe):
    """Linear attention as in ahn2023, figures 1 and 2 (`moving=false`), 3 and 4 (`moving=true`)."""

    source: ClassVar[str] = "Ahn et al. 2023, section 5"

    blocks: int = parameter(3, "layers", least=1, most=32)
    moving: bool = parameter(False, "whether layers also update the covariates (B_l)")
    images: bool = parameter(
        False, "average each prompt over its images under sign changes and shifts of the axes"
    )

    def build_model(self, generator: torch.Generator) -> LinearStack:
        return LinearStack.random(
            self.d, self.blocks, moving=self.moving, scale=self.scale, generator=generator
        )

    def build_objective(self) -> SampledLoss:
        return SampledLoss(**self.objective_settings(), images=self.images)
