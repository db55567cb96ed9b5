"""Pairing examples: from alternating tokens x₁, y₁, x₂, y₂, … to tokens that hold both x and y."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.problems.linear_regression import RegressionProblem


class Tokens(NamedTuple):
    """The x and y of every token."""

    x: Float[Tensor, "*batch tokens d"]
    y: Float[Tensor, "*batch tokens"]


@dataclass(frozen=True, eq=False)
class FormatConversion(Algorithm[RegressionProblem, Tokens]):
    """One step, which copies every x to the token of its y; the prediction is the encoder's
    prompt."""

    source: ClassVar[str] = "Q. Liu 2025, Proposition 6"
    problem_type: ClassVar = RegressionProblem

    def init(self, problem: RegressionProblem) -> Tokens:
        prompt = problem.to_decoder_format()
        return Tokens(prompt["x"], prompt["y"])

    def step(self, problem: RegressionProblem, state: Tokens, k: int) -> Tokens:
        x = state.x.clone()
        x[..., 1::2, :] = problem.x
        return Tokens(x, state.y)

    def predict(self, problem: RegressionProblem, state: Tokens) -> Float[Tensor, "*batch n d1"]:
        """Return (x, y) of tokens 2, 4, …, 2n and of the query."""
        both = torch.cat([state.x, state.y.unsqueeze(-1)], dim=-1)
        return torch.cat([both[..., 1::2, :], both[..., -1:, :]], dim=-2)
