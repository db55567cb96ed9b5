"""GPT-2 learns sparse recovery in context.

Model  the `transformers` library's GPT-2 on the tokens of sequence.py
Loss   (ŷ − y)² at the query as in the paper, or at every prefix
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from innerloop.parameters import parameter
from innerloop.recipes.sequence import GPT2Recipe
from innerloop.recipes.sparse import SparseRecipe


@dataclass(frozen=True, kw_only=True, eq=False)
class GPT2OnSparseRecovery(GPT2Recipe, SparseRecipe):
    """The paper's has 12 layers, width 256 and 8 heads; this one is for two cores."""

    source: ClassVar[str] = "R. Liu et al. 2025, section 6; Garg et al. 2022"
    small: ClassVar = {
        **{"d": 2, "n": 3, "sparsity": 1, "batch": 4},
        **{"blocks": 2, "heads": 2, "width": 8},
    }

    d: int = parameter(20, "features", least=1, most=512)
