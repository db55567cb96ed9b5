"""Spectral clustering of two Gaussian clouds, run by ReLU attention.

Algorithm  x ← x − mean, C = (1/n) Σ x xᵀ, iterate v ← Cv/‖Cv‖, scores ⟨x, v⟩, labels ±1
Invariant  `x` holds the centred points; token j ≤ d holds column j of C in `cov` and e_j in `id`;
           every token holds v; the scratch places and the answer are 0
Proof      a head with score 1 and value −x subtracts the mean, the next block computes C, and the
           steps are those of power_iteration.py. Read-out: a signed pair with query x, key v and
           value one writes the score ⟨x_i, v⟩ to token i, and the MLP writes a ramp function of it,
           the label
Bound      v has an error of ε = 3/2 δ² + 1/2 δ³ in length and none in direction; δ ≈ (3/32) ln² r
           for knots of ratio r, so the error is proportional to knots⁻⁴. Everything else is exact,
           except that the ramp multiplies the rounding errors of scores
Holds for  n ≥ d ≥ 2 as built, entries up to 10⁴, and least ≤ ‖Cv‖ ≤ most, checked on the data
Source     yang2025.he.gmm, after the steps of its spectral algorithm
"""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from innerloop.algorithms.power_method import product
from innerloop.algorithms.spectral_clustering import SpectralClustering
from innerloop.constructions.pca import REGISTERS
from innerloop.constructions.power_iteration import iterate, spread_covariance
from innerloop.constructions.spectral import SpectralConstruction
from innerloop.errors import OutOfRangeError
from innerloop.language import State, clip, define, dot, mean, stack
from innerloop.language.classes import Cost, Registers, parameter
from innerloop.problems.binary_mixture import BinaryMixture

MAX_ENTRY = 1e4
"""The largest |entry| of the data; centring larger ones would lose digits."""


@define(prompt="components", x=State("d"), **REGISTERS)
def find_direction(me: Any, n: int, own: Any) -> None:
    me.v = stack([iterate(me, own, me.v[0])])


@find_direction.init
def _(me: Any) -> None:
    me.x = me.x - mean(lambda j: j.x, over="all")
    me.cov = spread_covariance(me)


@find_direction.answer
def score(me: Any, own: Any) -> Any:
    projection = dot(me.x, me.v[0])
    return stack([projection, clip(projection / own.ramp, 1)])


class SpectralClusteringConstruction(SpectralConstruction):
    """Spectral clustering of two clouds.

    It has four blocks per iteration, two before the first iteration, and one for the read-out.
    """

    definition = find_direction
    source = "Yang 2025 (Learning spectral methods by transformers), Theorem 3.2"
    cost = Cost("4k + 3", "2", "5d + 4")
    error = "3/2 δ² + 1/2 δ³, δ ≈ (3/32) ln² r"
    looped = True
    cases = ({"d": 2, "n": 2, "steps": 1}, {"steps": 30, "knots": 40, "ramp": 1.0})

    steps: int = parameter(20, "iterations", least=1, most=1_000)
    least: float = parameter(1e-2, "the least ‖Cv‖ allowed", least=1e-6)
    most: float = parameter(100.0, "the largest ‖Cv‖ allowed", least=1e-6, most=1e9)
    ramp: float = parameter(0.1, "scores beyond ± this are labelled ±1", least=1e-6, most=1e6)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d < 2:
            raise OutOfRangeError(f"{self.name} expects d of at least 2, got {self.d}")

    @cached_property
    def algorithm(self) -> SpectralClustering:
        return SpectralClustering(torch.tensor(self.ramp, dtype=torch.float64))

    def tolerance(self, dtype: torch.dtype) -> float:
        # No score exceeds √(n·most), because the mean of their squares is ⟨v, Cv⟩.
        rounding = 16 * torch.finfo(dtype).eps * (self.n * self.most) ** 0.5 / self.ramp
        return super().tolerance(dtype) + rounding + self.length_error

    def distributions(self) -> list[BinaryMixture]:
        return [BinaryMixture(d=self.d, n=self.n)]

    def accept(self, problem: Any) -> None:
        super().accept(problem)
        if (largest := float(problem.x.abs().max())) > MAX_ENTRY:
            raise OutOfRangeError(
                f"{self.name} expects entries up to {MAX_ENTRY:g}, because centring larger ones "
                f"loses digits, got {largest:.3g}: subtract a common offset"
            )
        covariance = self.algorithm.covariance(problem)
        states = self.algorithm.states(problem, self.steps - 1)
        self.check_lengths(product(covariance, state).norm(dim=-1) for state in states)

    def represent(self, filled: Registers, state: Any) -> Registers:
        x = filled["x"] - filled["x"].mean(dim=-2, keepdim=True)
        cov = filled["id"] @ (x.mT @ x) / self.n
        return {"x": x, "cov": cov, "v": state.unsqueeze(-2).unsqueeze(-3)}

    def decode(self, problem: Any, stream: Tensor) -> Tensor:
        """Return the score and the label of each point."""
        return self.layout.read(stream, "score")
