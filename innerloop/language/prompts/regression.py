"""Regression prompts: n tokens with x and y, then queries with x alone, which answer.

Registers  `x` (d), `y` (0 on queries), `t` (1 on the n context tokens, 0 on queries), `xk` (d), x
           on context tokens and 0 on queries
Sizes      d features, n context tokens
Answer     one number, at each query; without one of its own, a program with a state `w` of d
           numbers answers ⟨w, x⟩
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from innerloop.constructions.regression import RegressionConstruction
from innerloop.language.construction import ProgramConstruction
from innerloop.language.primitives import dot
from innerloop.language.prompts.base import Draw, Prompt
from innerloop.language.types import Register
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem


class RegressionPrompt(Prompt):
    """The encoder's prompt of linear regression."""

    name = "regression"
    drawn_with = "one query"
    problem_type = RegressionProblem
    offers = {"x": ("d",), "y": (), "t": (), "xk": ("d",)}
    size_names = ("d", "n")

    def find_sizes(self, problem: RegressionProblem) -> dict[str, int]:
        return {"d": problem.d, "n": problem.n}

    def fill_registers(self, problem: RegressionProblem) -> dict[str, Tensor]:
        filled = problem.to_encoder_format()
        filled["xk"] = filled["x"] * filled["t"].unsqueeze(-1)
        return {name: filled[name] for name in self.offers}

    def count_context(self, tokens: int, sizes: Mapping[str, int]) -> int:
        return sizes["n"]

    def select_answer(self, problem: RegressionProblem, answer: Tensor) -> Tensor:
        return answer[..., problem.n :]

    def draw_problem(self, sizes: Mapping[str, int], draw: Draw) -> RegressionProblem:
        n, d = sizes["n"], sizes["d"]
        return RegressionProblem(draw(n, d), draw(n), draw(1, d))

    def find_default_answer(self, registers: Mapping[str, Register]) -> Any:
        weights = registers.get("w")
        if weights is None or not weights.state or weights.dims != ("d",):
            return None
        return answer


def answer(me: Any) -> Any:
    """⟨w, x⟩."""  # pictures of programs print this text
    return dot(me.w, me.x)


class RegressionProgram(ProgramConstruction, RegressionConstruction[Any], ABC):  # pyright: ignore[reportIncompatibleVariableOverride]
    """A program on regression prompts."""

    problems: ClassVar[type[LinearRegression]] = LinearRegression
    """The distribution of problems that it is for, and certified on."""

    @property
    def sizes(self) -> dict[str, int]:
        return {"d": self.d, "n": self.n}

    def distributions(self) -> list[LinearRegression]:
        law = RegressionConstruction.distributions(self)
        distributions = [
            self.problems(**{name: getattr(each, name) for name in each.values()}) for each in law
        ]
        return distributions[:1] if self.definition.needs_n or self._has_ranges else distributions

    @property
    def _has_ranges(self) -> bool:
        return "compiled" in self.__dict__ and self._is_n_fixed
