"""Prefix prompts: x₁, (x₁, y₁), x₂, (x₂, y₂), …, query; every odd token answers for its prefix.

Registers  `x` (d), `y` (0 on odd tokens), `odd` (1 on odd tokens, counted from 1, else 0), `first`
           (1 on the first token, else 0)
Sizes      d features, n examples; sums over `causal` tokens see the prefix
Answer     one number, at each of the n + 1 odd tokens
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping

import torch
from torch import Tensor

from innerloop.errors import OutOfRangeError
from innerloop.language.construction import ProgramConstruction
from innerloop.language.prompts.base import Draw, Prompt
from innerloop.parameters import parameter
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.problems.sparse_recovery import SparseRecovery


class PrefixPrompt(Prompt):
    """The paired decoder's prompt of linear regression."""

    name = "prefixes"
    problem_type = RegressionProblem
    offers = {"x": ("d",), "y": (), "odd": (), "first": ()}
    size_names = ("d", "n")

    def find_sizes(self, problem: RegressionProblem) -> dict[str, int]:
        return {"d": problem.d, "n": problem.n}

    def fill_registers(self, problem: RegressionProblem) -> dict[str, Tensor]:
        filled = problem.to_paired_decoder_format()
        first = torch.zeros_like(filled["odd"])
        first[0] = 1.0
        return {**filled, "first": first}

    def count_context(self, tokens: int, sizes: Mapping[str, int]) -> int:
        return tokens - 1

    def select_answer(self, problem: RegressionProblem, answer: Tensor) -> Tensor:
        return answer[..., 0::2]

    def draw_problem(self, sizes: Mapping[str, int], draw: Draw) -> RegressionProblem:
        n, d = sizes["n"], sizes["d"]
        return RegressionProblem(draw(n, d), draw(n), draw(1, d))


class PrefixProgram(ProgramConstruction, ABC):
    """A program on prefix prompts, certified on sparse recovery."""

    d: int = parameter(5, "features", least=1, most=512)
    n: int = parameter(8, "examples of the problems it is certified on", least=1, most=2_000)

    @property
    def sizes(self) -> dict[str, int]:
        return {"d": self.d, "n": self.n}

    def distributions(self) -> list[SparseRecovery]:
        counts = [self.n] if self.definition.needs_n else [self.n, self.n // 2 + 1]
        sparsity = min(3, self.d)
        return [SparseRecovery(d=self.d, n=n, sparsity=sparsity, noise=0.3) for n in counts]

    def accept(self, problem: RegressionProblem) -> None:
        super().accept(problem)
        if problem.queries != 1:
            raise OutOfRangeError(f"{self.name} reads out one query, got {problem.queries}")
