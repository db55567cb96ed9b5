"""Base class of the constructions for mixtures of regressions: sizes, step size, noise."""

from abc import ABC
from typing import Any

import torch
from torch import Tensor

from innerloop.language.classes import ProgramConstruction, parameter
from innerloop.problems.mixture_of_regressions import MixtureOfRegressions


class MixtureConstruction(ProgramConstruction, ABC):
    """Gradient EM on n examples, which are the first tokens; the queries are the last tokens."""

    attention = "relu"
    looped = False
    takes = "only"
    components = 2

    d: int = parameter(4, "features", least=1, most=512)
    n: int = parameter(30, "context examples; the weights depend on n", least=1, most=10_000)
    inner: int = parameter(2, "T, gradient steps in each M step", least=1, most=1_000)
    step_size: float | None = parameter(
        None, "α; n/(√n + √d + 5)² if none, below 1/λmax(XᵀX/n)", least=1e-9
    )
    noise: float = parameter(0.5, "ϑ, standard deviation of label noise", least=1e-3, most=1e6)

    @property
    def sizes(self) -> dict[str, int]:
        return {"d": self.d, "n": self.n, "K": self.components}

    @property
    def rate(self) -> Tensor:
        """The step size α of the M step."""
        # λmax(XᵀX) ≤ (√n + √d + t)² with probability 1 − exp(−t²/2). This a-priori bound is used
        # because weights must not depend on the data.
        default = self.n / (self.n**0.5 + self.d**0.5 + 5.0) ** 2
        step_size = default if self.step_size is None else self.step_size
        return torch.tensor(step_size, dtype=torch.float64)

    @property
    def theta(self) -> Tensor:
        """The standard deviation ϑ of the labels' noise."""
        return torch.tensor(self.noise, dtype=torch.float64)

    def draw_from(self, **law: Any) -> list[MixtureOfRegressions]:
        """Return a list with the distribution of the built sizes and noise."""
        sizes = {"d": self.d, "n": self.n, "components": self.components}
        return [MixtureOfRegressions(**sizes, noise=self.noise, **law)]
