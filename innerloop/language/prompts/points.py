"""Points prompts: n data tokens, then K centroid tokens.

Registers  data tokens: `x` (d), `data` = 1, a mark `p` (4) of their own; centroid tokens: `mu` (d),
           the initial centroid, `id` = e_k (K) and `centroid` = 1; all else is 0
Sizes      d features, n data tokens (which are the context), K centroids
Answer     K shares, at each data token
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from innerloop.language.construction import ProgramConstruction
from innerloop.language.prompts.base import Draw, Prompt
from innerloop.parameters import parameter
from innerloop.problems.gaussian_mixture import ClusteringProblem, GaussianMixture
from innerloop.transformer import make_marks
from innerloop.transformer.marks import MARK_SIZE


class PointsPrompt(Prompt):
    """Data tokens and centroid tokens."""

    name = "points"
    problem_type = ClusteringProblem
    offers = {
        "x": ("d",),
        "mu": ("d",),
        "id": ("K",),
        "data": (),
        "centroid": (),
        "p": (MARK_SIZE,),
    }
    size_names = ("d", "n", "K")
    answer_dims = ("K",)
    marks = ("p",)

    def find_sizes(self, problem: ClusteringProblem) -> dict[str, int]:
        return {"d": problem.d, "n": problem.n, "K": problem.clusters}

    def fill_registers(self, problem: ClusteringProblem) -> dict[str, Tensor]:
        x, start, n, count = problem.x, problem.start, problem.n, problem.clusters
        flags = torch.cat([x.new_ones(n), x.new_zeros(count)])
        below, above = torch.zeros_like(start), torch.zeros_like(x)
        marks = torch.cat([make_marks(n).to(x), x.new_zeros(count, MARK_SIZE)])
        return {
            "x": torch.cat([x, below], dim=-2),
            "mu": torch.cat([above, start], dim=-2),
            "id": torch.cat([x.new_zeros(n, count), torch.eye(count).to(x)]),
            "data": flags,
            "centroid": 1 - flags,
            "p": marks,
        }

    def count_context(self, tokens: int, sizes: Mapping[str, int]) -> int:
        return tokens - sizes["K"]

    def select_answer(self, problem: ClusteringProblem, answer: Tensor) -> Tensor:
        return answer[..., : problem.n, :]

    def draw_problem(self, sizes: Mapping[str, int], draw: Draw) -> ClusteringProblem:
        return ClusteringProblem(draw(sizes["n"], sizes["d"]), draw(sizes["K"], sizes["d"]))


class PointsProgram(ProgramConstruction, ABC):
    """A program on points prompts."""

    d: int = parameter(3, "features", least=1, most=128)
    n: int = parameter(20, "points it is certified on", least=1, most=10_000)
    clusters: int = parameter(3, "K", least=1, most=128)

    @property
    def sizes(self) -> dict[str, int]:
        return {"d": self.d, "n": self.n, "K": self.clusters}

    def distributions(self) -> list[GaussianMixture]:
        near = GaussianMixture(d=self.d, n=self.n, clusters=self.clusters, start="near")
        first = near if self.clusters > self.n else replace(near, start="points")
        return [first] if self.fixed_n else [first, replace(near, n=self.n // 2 + 1)]
