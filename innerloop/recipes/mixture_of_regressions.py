"""A transformer learns to predict labels that each follow one of K hidden weight vectors.

Target   ⟨x, Σ_k π_k β_k⟩ at the query: the prediction of least squared error if the β_k are known
Starts   prompts contain tokens with start vectors, as EM needs them, or only examples
Loss     the squared error at the query, relative to the mean square of the target
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.constructions.base import Construction
from innerloop.constructions.mixture_of_regressions import MixtureOfRegressionsConstruction
from innerloop.errors import InputError
from innerloop.models.encoder import Reading
from innerloop.parameters import parameter
from innerloop.problems.mixture_of_regressions import MixtureOfRegressions, MixtureProblem
from innerloop.recipes.points import PointsRecipe
from innerloop.transformer import join


class MixtureOfRegressionsRecipe(PointsRecipe):
    """An encoder of examples that reads its prediction out of the query token."""

    source: ClassVar[str] = "Yang 2025, fourth paper (Jin et al. 2024)"
    small: ClassVar = {"d": 2, "n": 5, "components": 2, "width": 10, "hidden": 4, "batch": 4}
    answer: ClassVar[str] = "yhat"

    d: int = parameter(4, "features", least=1, most=64)
    n: int = parameter(40, "context examples", least=1, most=10_000)
    components: int = parameter(3, "K, the hidden weight vectors", least=1, most=64)
    signal: float = parameter(1.0, "norm of every weight vector", least=1e-6)
    noise: float = parameter(0.1, "ϑ, standard deviation of the labels' noise", least=0)
    warm: float | None = parameter(
        None, "distance of start and true vectors; none means independent", least=0
    )
    starts: bool = parameter(False, "add tokens with start vectors to prompts")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start != "random" and not (self.starts and self.noise):
            raise InputError(
                f"start={self.start} uses EM, which needs vectors and noise: set starts=true and "
                "noise above 0"
            )

    def build_distribution(self) -> MixtureOfRegressions:
        return MixtureOfRegressions(
            d=self.d,
            n=self.n,
            components=self.components,
            signal=self.signal,
            noise=self.noise,
            warm=self.warm,
        )

    @property
    def registers(self) -> dict[str, Any]:
        extra = {"beta": self.d} if self.starts else {}
        return {"x": self.d, "y": (), "one": (), "query": (), **extra}

    @property
    def reading(self) -> Reading:
        return "query"

    @property
    def outputs(self) -> int:
        return 1

    def fill_registers(self, problem: MixtureProblem) -> Tensor:
        parts = [self.layout.make_tokens(x=problem.x, y=problem.y, one=1.0)]
        if self.starts:
            parts.append(self.layout.make_tokens(beta=problem.start, one=1.0))
        return join(*parts, self.layout.make_tokens(x=problem.x_query, one=1.0, query=1.0))

    def build_construction(self) -> Construction:
        return MixtureOfRegressionsConstruction(
            d=self.d, n=self.n, components=self.components, steps=self.blocks, noise=self.noise
        )

    def find_targets(self, problem: MixtureProblem) -> Float[Tensor, "batch queries"]:
        return find_oracle(problem)

    def compare(self, read: Tensor, targets: Tensor) -> Float[Tensor, " batch"]:
        """Compute the relative squared error of every instance."""
        return (read - targets).square().sum(dim=-1) * (self.components / self.signal**2)

    def measure(self, model: nn.Module, problem: MixtureProblem) -> dict[str, float]:
        """Measure least squares on the same prompts, for comparison."""
        fitted = torch.linalg.lstsq(problem.x, problem.y.unsqueeze(-1)).solution
        guess = (problem.x_query @ fitted).squeeze(-1)
        error = (guess - find_oracle(problem)).square().mean()
        return {"least_squares": float(error * (self.components / self.signal**2))}


def find_oracle(problem: MixtureProblem) -> Float[Tensor, "*batch queries"]:
    """Return ⟨x, Σ_k π_k β_k⟩ at the queries, for equal π."""
    if problem.betas is None:
        raise InputError("expected a problem with its true vectors, got one without")
    shares = problem.x.new_full((problem.components,), 1 / problem.components)
    return (problem.x_query @ problem.betas.mT @ shares.unsqueeze(-1)).squeeze(-1)
