"""GPT-2 learns sparse recovery in context.

Model  the `transformers` library's GPT-2 on the tokens of prompt (4.2), without the register β:
       x, y (0 on odd tokens), odd
Loss   (ŷ − y)² at the query as in the paper, or at every prefix
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from innerloop.models.gpt2 import GPT2
from innerloop.parameters import parameter
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.recipes.sparse import Labels, SparseRecipe
from innerloop.transformer import Layout


@dataclass(frozen=True, kw_only=True, eq=False)
class GPT2OnSparseRecovery(SparseRecipe):
    """The paper's has 12 layers, width 256 and 8 heads; this one is for two cores."""

    source: ClassVar[str] = "R. Liu et al. 2025, section 6; Garg et al. 2022"
    small: ClassVar = {
        **{"d": 2, "n": 3, "sparsity": 1, "batch": 4},
        **{"blocks": 2, "heads": 2, "width": 8},
    }

    blocks: int = parameter(6, "layers", least=1, most=48)
    heads: int = parameter(4, "heads in a layer", least=1, most=64)
    width: int = parameter(64, "of the network", least=1, most=2048)
    longest: int | None = parameter(None, "examples there are positions for; none is n", least=1)
    prefixes: bool = parameter(True, "loss at every prefix, not at the query alone")
    batch: int = parameter(64, "prompts in a batch", least=1, most=100_000)
    learning_rate: float = parameter(1e-3, "the largest on the schedule", least=0)
    warmup: int = parameter(200, "steps in which the learning rate rises from 0", least=0)
    steps: int = parameter(20_000, "steps of the optimiser", least=1)

    @property
    def _layout(self) -> Layout:
        return Layout(x=self.d, y=(), odd=())

    def model(self, generator: torch.Generator) -> GPT2:
        # The library draws from the global generator, which is left as it was.
        with torch.random.fork_rng():
            torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
            return GPT2(
                self._layout.width,
                width=self.width,
                layers=self.blocks,
                heads=self.heads,
                tokens=2 * (self.longest or self.n) + 1,
            )

    def objective(self) -> Labels:
        return Labels(self.problems(), self.batch, self.answers, self.prefixes)

    def answers(self, model: nn.Module, problem: RegressionProblem) -> Tensor:
        """Labels of all examples and the query, each from those before it."""
        return model(self._layout.tokens(**problem.paired_decoder_format()))[..., 0::2]

    def layers(self, model: nn.Module, problem: RegressionProblem) -> Tensor:
        assert isinstance(model, GPT2)
        return model.layers(self._layout.tokens(**problem.paired_decoder_format()))[..., -1:]
