"""Gradient descent on least squares, run exactly by ReLU attention on the encoder prompt.

Algorithm  w ← w − η ∇R(w),   R(w) = 1/(2n) Σᵢ (⟨w, xᵢ⟩ − yᵢ)²
Invariant  register `w` of every token holds the weights; `x`, `y`, `one`, `t` hold the prompt
Proof      step: a signed pair with score ⟨w, xⱼ⟩ − yⱼ − R(1 − tⱼ) is linear on context keys and
           0 on the query's key while |⟨w, x⟩| ≤ R; its value −η((n+1)/n) xⱼ under 1/N, N = n+1,
           adds −η ∇R(w). Read-out: w is the same in every key, so that a signed pair with score
           ⟨x, wⱼ⟩ and value 1 under 1/N adds ⟨w, x⟩ to the `y` of the query, which is 0
Exact for  every d and η, one query, the built n, and |⟨w, x⟩| ≤ R on every token and step
Source     encoder prompt, 1/N, clipped read-out and signed pairs of Q. Liu's lecture
"""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.language import Data, State, define, dot, mean
from innerloop.language.classes import Cost, Registers, RegressionProgram, parameter


@define(x=Data("d"), y=Data(), w=State("d", shared=True), t=Data())
def descend(me: Any, n: int, step_size: Any, bound: Any) -> None:
    fit = mean(lambda j: (dot(me.w, j.x) - j.y) * j.x, over="all", where=lambda j: j.t, reach=bound)
    me.w = me.w - step_size * (n + 1) / n * fit


@descend.answer
def answer(me: Any) -> Any:
    return me.y + dot(me.x, me.w)


class ReLUGradientDescentConstruction(RegressionProgram):
    """Gradient descent by ReLU attention: one block with two heads per step, one to read out."""

    definition = descend
    source = "Q. Liu 2025, encoder format, Definition of attention and read-out"
    cost = Cost("k + 1", "2", "2d + 3")
    attention = "relu"
    looped = False
    one_query = True
    tolerances = {torch.float64: 1e-10, torch.float32: 2e-5}

    n: int = parameter(20, "context examples; the weights depend on n", least=1, most=10_000)
    step_size: float = parameter(0.1, "η")
    bound: float = parameter(100.0, "R, the largest |⟨w, x⟩| allowed", least=1e-6, most=1e6)

    @cached_property
    def algorithm(self) -> GradientDescent:
        return GradientDescent(torch.tensor([self.step_size], dtype=torch.float64))

    def tolerance(self, dtype: torch.dtype) -> float:
        """Return the deviation due to rounding: in float32, −R + R in the gate costs
        R·precision."""
        return super().tolerance(dtype) * max(1.0, self.bound / 100 if dtype.itemsize < 8 else 1.0)

    def represent(self, filled: Registers, state: Any) -> Registers:
        return {"w": state.unsqueeze(-2)}

    def decode(self, problem: Any, stream: Tensor) -> Tensor:
        return super().decode(problem, stream).clamp(-self.bound, self.bound)
