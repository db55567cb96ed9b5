"""Component prompts: n data tokens, and vectors to start from in every token.

Registers  `x` (d); `id` = e_j (d) on token j ≤ d, 0 elsewhere; `v` (c, d), the starting vectors
Sizes      d features, n tokens (all of them context), c components
Answer     c vectors (c, d), at the first token
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
from innerloop.problems.principal_components import PCAProblem, PrincipalComponents


class ComponentsPrompt(Prompt):
    """Data tokens with shared starting vectors."""

    name = "components"
    problem_type = PCAProblem
    offers = {"x": ("d",), "id": ("d",), "v": ("c", "d")}
    size_names = ("d", "n", "c")
    answer_dims = ("c", "d")

    def find_sizes(self, problem: PCAProblem) -> dict[str, int]:
        return {"d": problem.d, "n": problem.n, "c": problem.components}

    def fill_registers(self, problem: PCAProblem) -> dict[str, Tensor]:
        identity = torch.eye(problem.n, problem.d).to(problem.x)
        vectors = problem.start.unsqueeze(-3)
        return {
            "x": problem.x,
            "id": identity,
            "v": vectors.expand(*problem.x.shape[:-1], *problem.start.shape[-2:]),
        }

    def count_context(self, tokens: int, sizes: Mapping[str, int]) -> int:
        return tokens

    def select_answer(self, problem: PCAProblem, answer: Tensor) -> Tensor:
        return answer[..., 0, :, :]

    def draw_problem(self, sizes: Mapping[str, int], draw: Draw) -> PCAProblem:
        start = draw(sizes["c"], sizes["d"])
        start[..., 0] = torch.where(start[..., 0] == 0, 1.0, start[..., 0])
        return PCAProblem(draw(sizes["n"], sizes["d"]), start)


class ComponentsProgram(ProgramConstruction, ABC):
    """A program on component prompts."""

    d: int = parameter(4, "features", least=1, most=64)
    n: int = parameter(20, "points it is certified on", least=1, most=2_000)
    components: int = parameter(1, "c, vectors to find", least=1, most=16)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.components <= self.d <= self.n:
            raise OutOfRangeError(
                f"components ≤ d ≤ n is needed, got {self.components}, {self.d}, {self.n}"
            )

    @property
    def sizes(self) -> dict[str, int]:
        return {"d": self.d, "n": self.n, "c": self.components}

    def distributions(self) -> list[PrincipalComponents]:
        counts = [self.n] if self.fixed_n else [self.n, max(self.d, self.n // 2 + 1)]
        sizes = {"d": self.d, "components": self.components}
        return [PrincipalComponents(**sizes, n=n) for n in counts]
