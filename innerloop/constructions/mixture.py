"""Base class of the constructions for mixtures of regressions."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import OutOfRangeError
from innerloop.language.construction import ProgramConstruction
from innerloop.parameters import parameter
from innerloop.problems.mixture_of_regressions import MixtureProblem
from innerloop.transformer.marks import find_gap


class MixtureConstruction(ProgramConstruction, ABC):
    """Gradient EM on n examples, the first tokens; any number of queries are the last tokens."""

    attention: ClassVar[str] = "relu"
    looped: ClassVar[bool] = False
    components: ClassVar[int] = 2

    d: int = parameter(4, "features", least=1, most=512)
    n: int = parameter(30, "context examples; the weights depend on n", least=1, most=10_000)
    inner: int = parameter(2, "T, gradient steps in each M step", least=1, most=1_000)
    step_size: float | None = parameter(
        None, "α; n/(√n + √d + 5)² if none, below 1/λmax(XᵀX/n)", least=1e-9
    )
    noise: float = parameter(
        0.5, "ϑ, standard deviation of the labels' noise", least=1e-3, most=1e6
    )

    @property
    def sizes(self) -> dict[str, int]:
        return {"d": self.d, "n": self.n, "K": self.components}

    @property
    def gap(self) -> float:
        """1 minus the largest product of two marks."""
        return find_gap(self.n)

    @property
    def rate(self) -> Float[Tensor, ""]:
        """α, the step size of the M step."""
        # λmax(XᵀX) ≤ (√n + √d + t)² with probability 1 − exp(−t²/2): an a-priori bound, since
        # weights may not depend on the data.
        default = self.n / (self.n**0.5 + self.d**0.5 + 5.0) ** 2
        return _to_scalar_tensor(default if self.step_size is None else self.step_size)

    @property
    def theta(self) -> Float[Tensor, ""]:
        """ϑ, the standard deviation of the labels' noise."""
        return _to_scalar_tensor(self.noise)

    def accept(self, problem: MixtureProblem) -> None:
        for size in ("d", "n"):
            built, given = getattr(self, size), getattr(problem, size)
            if given != built:
                raise OutOfRangeError(
                    f"{self.name} was built for {size}={built}, got {size}={given}"
                )


def _to_scalar_tensor(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)
