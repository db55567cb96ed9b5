"""GPT-2 learns linear regression in context, at every prefix.

Model  the `transformers` library's GPT-2 on the tokens of sequence.py, whose even tokens contain x
       and y; in the paper, they contain y only
Loss   (ŷ − y)² at every prefix
Paper  12 layers, 8 heads, width 256, d = 20, n = 40, 500,000 steps of 64 prompts. The defaults here
       are for two cores: 6 layers, width 64, d = 5, and n = 2d as in the paper
"""

from __future__ import annotations

from typing import ClassVar

from innerloop.recipes.sequence import GPT2BackboneRecipe, RegressionRecipe


class GPT2RegressionRecipe(GPT2BackboneRecipe, RegressionRecipe):
    """GPT-2 on well-conditioned (κ = 1) or ill-conditioned regression."""

    source: ClassVar[str] = "Fu et al. 2023, section 4; Garg et al. 2022"
    small: ClassVar = {"d": 2, "n": 3, "batch": 4, "blocks": 2, "heads": 2, "width": 8}
