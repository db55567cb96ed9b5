"""One block of linear attention, looped, learns preconditioned gradient descent with one matrix.

Model      P = [0 0; uᵀ 1], Q = diag(A, 0) in every loop: (3) to (5) of gatmiry2024
Loss       exact expectation over true weights and query; Gram matrices of prompts are sampled
Expect     u approaches 0 and the symmetric part of A approaches Σ⁻¹ (theorem 3.2); with few
           examples A also has an antisymmetric part: see the claim gatmiry2024.theorem-A.8
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch

from innerloop.parameters import parameter
from innerloop.recipes.gram import GramRecipe
from innerloop.training.linear_attention import SampledLoss
from innerloop.training.stacks import LoopedBlock


class LoopedAttentionRecipe(GramRecipe):
    """Looped linear attention on regression with weights w* ~ N(0, Σ⁻¹), as in the theorems."""

    source: ClassVar[str] = "Gatmiry et al. 2024, section 3"

    loops: int = parameter(4, "times the block is applied", least=1, most=64)
    shift: bool = parameter(True, "whether u is learned; otherwise u = 0")
    truth: Literal["identity", "inverse"] = parameter(
        "inverse", "covariance of the true weights: I or Σ⁻¹"
    )

    def build_model(self, generator: torch.Generator) -> LoopedBlock:
        return LoopedBlock.random(
            self.d, self.loops, with_u=self.shift, scale=self.scale, generator=generator
        )

    def build_objective(self) -> SampledLoss:
        return SampledLoss(**self.objective_settings())
