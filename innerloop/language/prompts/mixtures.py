"""Mixture prompts: n example tokens, then the initial weight vectors, then queries.

Registers  examples: `x` (d), `y`, a mark `p` (4) of their own; K component tokens: `beta` (d), the
           initial vector, and `e` = e_k (K); queries: `x`. Without component tokens, for two
           components that are opposites, every token holds the first one in `beta`
Sizes      d features, n examples (which are the context), K components
Answer     one number, at each query; without component tokens, at the last token
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from innerloop.language.construction import Registers
from innerloop.language.prompts.base import Draw, Prompt
from innerloop.problems.mixture_of_regressions import MixtureProblem
from innerloop.transformer import make_marks
from innerloop.transformer.marks import MARK_SIZE


class MixturePrompt(Prompt):
    """Examples, component tokens, queries."""

    name = "mixtures"
    drawn_with = "one query"
    problem_type = MixtureProblem
    offers = {"x": ("d",), "y": (), "p": (MARK_SIZE,), "e": ("K",), "beta": ("d",)}
    size_names = ("d", "n", "K")
    marks = ("p",)

    def find_sizes(self, problem: MixtureProblem) -> dict[str, int]:
        return {"d": problem.d, "n": problem.n, "K": problem.components}

    def fill_registers(self, problem: MixtureProblem) -> Registers:
        x, start, count = problem.x, problem.start, problem.components
        before, after = (torch.zeros_like(part) for part in (x, problem.x_query))
        unit = torch.eye(count).to(x)
        return {
            "x": torch.cat([x, torch.zeros_like(start), problem.x_query], dim=-2),
            "beta": torch.cat([before, start, after], dim=-2),
            "e": torch.cat(
                [unit.new_zeros(problem.n, count), unit, unit.new_zeros(after.shape[-2], count)]
            ),
            **_fill_examples(problem, count + after.shape[-2]),
        }

    def count_context(self, tokens: int, sizes: Mapping[str, int]) -> int:
        return sizes["n"]

    def select_answer(self, problem: MixtureProblem, answer: Tensor) -> Tensor:
        return answer[..., problem.n + problem.components :]

    def draw_problem(self, sizes: Mapping[str, int], draw: Draw) -> MixtureProblem:
        d, n = sizes["d"], sizes["n"]
        return MixtureProblem(draw(n, d), draw(n), draw(1, d), draw(sizes["K"], d))


class OppositesPrompt(MixturePrompt):
    """Examples and queries; the first of two opposite vectors in every token."""

    offers = {"x": ("d",), "y": (), "p": (MARK_SIZE,), "beta": ("d",)}
    answer_dims = ("d",)

    def fill_registers(self, problem: MixtureProblem) -> Registers:
        x = torch.cat([problem.x, problem.x_query], dim=-2)
        beta = problem.start[..., :1, :].expand_as(x)
        return {"x": x, "beta": beta, **_fill_examples(problem, problem.x_query.shape[-2])}

    def select_answer(self, problem: MixtureProblem, answer: Tensor) -> Tensor:
        return answer[..., -1, :]

    def draw_problem(self, sizes: Mapping[str, int], draw: Draw) -> MixtureProblem:
        d, n, start = sizes["d"], sizes["n"], draw(1, sizes["d"])
        return MixtureProblem(draw(n, d), draw(n), draw(1, d), torch.cat([start, -start]))


def _fill_examples(problem: MixtureProblem, others: int) -> Registers:
    """Return labels and marks, with 0 on the tokens after the examples."""
    marks = torch.nn.functional.pad(make_marks(problem.n).to(problem.x), (0, 0, 0, others))
    return {"y": torch.nn.functional.pad(problem.y, (0, others)), "p": marks}
