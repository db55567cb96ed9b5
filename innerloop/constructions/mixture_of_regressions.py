"""EM for a mixture of K linear regressions, run exactly: softmax attention assigns the examples.

Algorithm  E: γᵢₖ ∝ πₖ exp(−(yᵢ − ⟨xᵢ, βₖ⟩)²/2ϑ²).   M: βₖ ← βₖ + α (1/n) Σᵢ γᵢₖ (yᵢ − ⟨xᵢ, βₖ⟩) xᵢ,
           T times
Invariant  token k of K component tokens holds βₖ in `beta` and the unit vector of k in `e`; n
           example tokens before them hold `x`, `y` and marks `p`, query tokens after them `x`;
           `one` is 1 on all; the scratch places and `yhat` are 0
Proof      fit: a signed pair from examples (queries) to components (keys) with score ⟨xᵢ, βₖ⟩ and
           value e writes ⟨xᵢ, βₖ⟩ to entry k of `fit`. Square: for each k, a signed pair with score
           rᵢₖ = yᵢ − fitᵢₖ attends from each example only to itself; its value −rᵢₖ/2ϑ² makes
           `logit`. Share: one softmax head with score ⟨logitᵢ, e⟩ + log πₖ on components, C less
           on other tokens, and value e makes `gamma`. Weigh: for each k, a signed pair with score
           γᵢₖ, from each example only to itself, and value (xᵢ, yᵢ) makes zᵢₖ = γᵢₖxᵢ and wᵢₖ =
           γᵢₖyᵢ. M block: for each k, a signed pair with score ⟨β, zᵢₖ⟩ − wᵢₖ, which is nonzero
           only for component k as the query, and value −(α/n) xᵢ adds the gradient step to `beta`.
           γ enters linearly, so no square root of it is needed. Read-out: score ⟨x, βₖ⟩, value πₖ.
           MLPs clear registers after their use
Exact for  every K, π, T, the built n, any number of queries, and |yᵢ|, |yᵢ − ⟨xᵢ, βₖ⟩|, |⟨x, βₖ⟩|
           at most R in every gradient step, which is measured. In `gamma`, other keys have a share
           of e^(−C − logit), which is below rounding for C = R²/2ϑ² + 60. The rounding error grows
           with n(R/ϑ)², which may be up to 10⁷
Source     yang2025.jin.theorem-3.1. Nothing is divided by Σᵢ γᵢₖ, so empty components do not move
"""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from innerloop.algorithms.gradient_em import GradientEM, residuals
from innerloop.constructions.mixture import MixtureConstruction
from innerloop.errors import OutOfRangeError
from innerloop.language import Data, State, define, dot, entry_sum, own_total, softmax, stack, total
from innerloop.language.classes import Cost, Registers, parameter
from innerloop.language.prompts.mixtures import MixturePrompt
from innerloop.problems.base import resolve_proportions
from innerloop.transformer.marks import MARK_SIZE, find_gap

MAX_SQUARED_SCALE = 1e7
"""The largest n(R/ϑ)²; the rounding of squared residuals is about 1e-17 of it."""
TOKENS = {"p": Data(MARK_SIZE), "e": Data("K"), "beta": State("d")}


@define(prompt=MixturePrompt(), x=Data("d"), y=Data(), **TOKENS)
def climb(me: Any, n: int, K: int, own: Any) -> None:
    def multiply(factor: Any, value: Any, most: Any) -> Any:
        """Return factor · value, both of this token; the factor is at most `most`."""
        return own_total(lambda j: factor * value(j), "p", most, find_gap(n))

    def square_residual(k: int) -> Any:
        """Return −(y − ⟨x, β_k⟩)²/2ϑ²."""
        rest = multiply(me.y - me.fit[k], lambda j: stack([j.y - j.fit[k]]), own.bound)
        return -rest[0] / (2 * own.theta * own.theta)

    def find_gradient(k: int) -> Any:
        """Return Σᵢ γᵢₖ (⟨xᵢ, β⟩ − yᵢ) xᵢ on component token k, and 0 on all others."""

        def pull(j: Any) -> Any:
            return (dot(me.beta, j.z[k]) - j.w[k]) * j.x

        return total(pull, over="all", where=lambda j: me.e[k], reach=own.bound)

    def score(j: Any) -> Any:
        return dot(me.logit, j.e) + (own.prior @ j.e)[0]

    me.fit = total(lambda j: dot(me.x, j.beta) * j.e, over="all")
    me.logit = stack([square_residual(k) for k in range(K)])
    is_component = lambda j: entry_sum(j.e)  # noqa: E731
    me.gamma = softmax(score, lambda j: j.e, where=is_component, reach=own.share_reach)
    me.z = stack([multiply(me.gamma[k], lambda j: j.x, 1) for k in range(K)])
    me.w = stack([multiply(me.gamma[k], lambda j: stack([j.y]), 1)[0] for k in range(K)])
    for _ in range(own.inner):
        me.beta = me.beta - own.rate / n * sum(find_gradient(k) for k in range(K))


@climb.answer
def yhat(me: Any, own: Any) -> Any:
    return total(lambda j: dot(me.x, j.beta) * (own.shares @ j.e)[0], over="all")


class MixtureOfRegressionsConstruction(MixtureConstruction):
    """Gradient EM for K regressions, in k(4 + T) + 1 blocks of at most 2K heads."""

    definition = climb
    source = "Yang 2025, fourth paper (Jin et al. 2024), Theorem 3.1"
    letters = "K = components, T = inner"
    cost = Cost("kT + 4k + 1", "2K", "Kd + 2d + 3K + 6", where=letters)
    cases = (
        {"d": 3, "n": 12, "components": 5, "steps": 4, "inner": 1},
        {"d": 2, "n": 70, "components": 2, "steps": 3, "inner": 9, "noise": 0.2},
    )

    components: int = parameter(3, "K, the hidden weight vectors", least=1, most=64)
    proportions: Tensor | None = parameter(None, "π, K positive numbers with sum 1; equal if none")
    bound: float = parameter(20.0, "R, the largest |y| and residual allowed", least=1e-6, most=1e4)

    def __post_init__(self) -> None:
        super().__post_init__()
        resolve_proportions(self.proportions, self.components)
        scale = self.n * (self.bound / self.noise) ** 2
        if scale > MAX_SQUARED_SCALE:
            raise OutOfRangeError(
                f"n (bound/noise)² must be at most {MAX_SQUARED_SCALE:g} because of rounding, "
                f"got {scale:.3g}: use fewer examples, a smaller bound or a larger noise"
            )

    @cached_property
    def algorithm(self) -> GradientEM:
        shares = resolve_proportions(self.proportions, self.components)
        return GradientEM(shares, self.theta, self.rate, self.inner)

    @property
    def shares(self) -> Tensor:
        """The proportions π: one row, used in all steps."""
        return self.algorithm.proportions.reshape(1, 1, -1)

    @property
    def prior(self) -> Tensor:
        """The logarithms log π: one row, used in all steps."""
        return self.shares.log()

    @property
    def share_reach(self) -> float:
        """The constant C by which the scores of tokens without a component are lowered."""
        return 0.5 * (self.bound / self.noise) ** 2 + float(self.prior.abs().max()) + 60.0

    def tolerance(self, dtype: torch.dtype) -> float:
        """Return the deviation by rounding of scores, which reach (R/ϑ)² and determine γ."""
        scores = (self.bound / self.noise) ** 2 * max(1.0, float(self.rate) * self.inner)
        return max(super().tolerance(dtype), 2 * torch.finfo(dtype).eps * scores)

    def distributions(self) -> Any:
        return self.draw_from(proportions=self.proportions)

    def represent(self, filled: Registers, state: Any) -> Registers:
        beta = filled["beta"].clone()
        beta[..., self.n : self.n + self.components, :] = state
        return {"beta": beta}

    def usage(self, stream: Tensor) -> float:
        x, y = (self.layout.read(stream, name) for name in ("x", "y"))
        betas = self.layout.read(stream, "beta")[..., self.n : self.n + self.components, :]
        data = x[..., : self.n, :], y[..., : self.n]
        # On queries y is 0, so the residual is −⟨x, β⟩.
        errors = [residuals(x, y, each) for each in self.algorithm.iterates(*data, betas)]
        return max(float(each.abs().max()) for each in [y, *errors]) / self.bound
