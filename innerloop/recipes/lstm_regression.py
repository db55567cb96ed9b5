"""An LSTM learns linear regression in context, at every prefix.

Model  torch.nn.LSTM of several layers on the tokens of sequence.py
Loss   (ŷ − y)² at every prefix
"""

from __future__ import annotations

from typing import ClassVar

from innerloop.models.lstm import LSTM
from innerloop.recipes.sequence import RegressionRecipe


class LSTMRegressionRecipe(RegressionRecipe):
    """An LSTM whose default depth and width equal those of `gpt2-regression`, for comparison."""

    source: ClassVar[str] = "Fu et al. 2023, section 4.4"
    small: ClassVar = {"d": 2, "n": 3, "batch": 4, "blocks": 2, "width": 8}

    def build_network(self, inputs: int) -> LSTM:
        return LSTM(inputs, width=self.width, layers=self.blocks)
