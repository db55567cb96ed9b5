"""Gradient descent from the decoder's alternating prompt to the answer, in one transformer.

Algorithm  w ← w − η ∇R(w),   R(w) = 1/(2n) Σᵢ (⟨w, xᵢ⟩ − yᵢ)²
Invariant  register `w` of every token holds the weights; even tokens hold x and y, odd tokens only
           x; `pos`, `one`, `par` hold the prompt, `r`, `q` are 0
Proof      the prologue is `format-conversion`. The steps are those of `relu-gradient-descent` over
           N = 2n+1 tokens. Their flag is `par`, which is 1 on the paired tokens
Exact for  every d and η, one query, the built n, and |⟨w, x⟩| ≤ R on every token and step
Source     qliu2025.proposition-6, composed with gradient descent in the encoder's format
"""

from typing import Any

import torch
from torch import Tensor

from innerloop.constructions.format_conversion import pairing_blocks
from innerloop.constructions.relu_gradient_descent import ReLUGradientDescentConstruction, answer
from innerloop.language import Data, State, define, dot, mean
from innerloop.language.classes import Cost, Registers, parameter
from innerloop.language.prompts.regression import RegressionPrompt


class DecoderPrompt(RegressionPrompt):
    """The alternating prompt of the decoder, x₁, y₁, x₂, …, query."""

    offers = {"x": ("d",), "y": (), "pos": (), "par": ()}

    def fill_registers(self, problem: Any) -> Registers:
        filled = problem.to_decoder_format()
        return {name: filled[name] for name in self.offers}

    def count_context(self, tokens: int, sizes: Any) -> int:
        return tokens - 1

    def select_answer(self, problem: Any, answer: Tensor) -> Tensor:
        return answer[..., -1:]


FLAGS = {"r": State(), "q": State(), "pos": Data(), "par": Data()}


@define(prompt=DecoderPrompt(), x=State("d"), y=Data(), w=State("d", shared=True), **FLAGS)
def descend(me: Any, n: int, step_size: Any, bound: Any) -> None:
    def pull(j: Any) -> Any:
        return (dot(me.w, j.x) - j.y) * j.x

    fit = mean(pull, over="all", where=lambda j: j.par, reach=bound)
    me.w = me.w - step_size * (2 * n + 1) / n * fit


descend.answer(answer)


class DecoderGradientDescentConstruction(ReLUGradientDescentConstruction):
    """Gradient descent on the decoder's prompt: `format-conversion`, then ReLU gradient steps."""

    definition = descend
    source = "Q. Liu 2025, Proposition 6 and the encoder format"
    cost = Cost("k + 3", "2", "2d + 6")
    tolerances = {torch.float64: 1e-10}

    n: int = parameter(20, "context examples; the weights depend on n", least=1, most=2_000)

    def represent(self, filled: Registers, state: Any) -> Registers:
        paired = filled["x"].clone()
        paired[..., 1::2, :] = paired[..., 0:-1:2, :]
        return {**super().represent(filled, state), "x": paired}

    def prologue(self) -> Any:
        return pairing_blocks(self.layout)
