"""What the constructions for mixtures of regressions share."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.constructions.base import Construction
from innerloop.errors import OutOfRange
from innerloop.parameters import parameter
from innerloop.problems.mixture_of_regressions import MixtureProblem
from innerloop.transformer import marks


@dataclass(frozen=True, kw_only=True, eq=False)
class MixtureConstruction(Construction, ABC):
    """Gradient EM on n examples, which are the first tokens; queries, any number, are the last."""

    d: int = parameter(4, "features", least=1, most=512)
    n: int = parameter(30, "context examples; the weights depend on n", least=1, most=10_000)
    inner: int = parameter(2, "T, gradient steps in each M step", least=1, most=1_000)
    step_size: float | None = parameter(
        None, "α; none is n/(√n + √d + 5)², below 1/λmax(XᵀX/n)", least=1e-9
    )
    noise: float = parameter(
        0.5, "ϑ, standard deviation of the labels' noise", least=1e-3, most=1e6
    )

    @property
    def rate(self) -> Float[Tensor, ""]:
        # λmax(XᵀX) ≤ (√n + √d + t)² but with probability exp(−t²/2): an a-priori bound, since
        # weights may not depend on the data.
        usual = self.n / (self.n**0.5 + self.d**0.5 + 5.0) ** 2
        return _number(usual if self.step_size is None else self.step_size)

    @property
    def theta(self) -> Float[Tensor, ""]:
        return _number(self.noise)

    def accept(self, problem: Any) -> None:
        for what in ("d", "n"):
            built, given = getattr(self, what), getattr(problem, what)
            if given != built:
                raise OutOfRange(f"{self.name} was built for {what}={built}, got {what}={given}")

    def data(self, problem: MixtureProblem) -> dict[str, Any]:
        """Registers of the n examples: the data, a constant, and a mark each."""
        mark = marks(self.n).to(problem.x)
        return {"x": problem.x, "y": problem.y, "one": 1.0, "p": mark}


def _number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)
