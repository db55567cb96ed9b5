"""EM for a mixture of K linear regressions, run exactly: softmax attention shares out the examples.

Algorithm  E: γᵢₖ ∝ πₖ exp(−(yᵢ − ⟨xᵢ, βₖ⟩)²/2ϑ²).   M: βₖ ← βₖ + α (1/n) Σᵢ γᵢₖ (yᵢ − ⟨xᵢ, βₖ⟩) xᵢ,
           T times
Invariant  token k of K component tokens holds βₖ in `beta` and the unit vector of k in `e`; n
           example tokens before them hold `x`, `y` and marks `p`, query tokens after them `x`;
           `one` is 1 on all; `fit`, `logit`, `gamma`, `z`, `w` and `yhat` are 0
Proof      fit: a signed pair, example query and component key, score ⟨xᵢ, βₖ⟩, value e, writes
           ⟨xᵢ, βₖ⟩ into entry k of `fit`. Square: for each k a signed pair with score rᵢₖ = yᵢ −
           fitᵢₖ goes from each example to itself alone; its value −rᵢₖ/2ϑ² makes `logit`. Share:
           one softmax head, score ⟨logitᵢ, e⟩ + log πₖ + C on components and 0 elsewhere, value e,
           makes `gamma`. Weigh: for each k a head with score γᵢₖ ≥ 0, example to itself, value
           (xᵢ, yᵢ), makes zᵢₖ = γᵢₖxᵢ and wᵢₖ = γᵢₖyᵢ. M block: for each k a signed pair with score
           ⟨β, zᵢₖ⟩ − wᵢₖ that only component k lets through, value −(α/n) xᵢ, adds the gradient
           step to `beta`. γ enters linearly, so no square root of it is needed. Read-out: score
           ⟨x, βₖ⟩, value πₖ. MLPs clear what has been used
Exact for  every K, π, T, the built n, any number of queries, and |yᵢ|, |yᵢ − ⟨xᵢ, βₖ⟩|, |⟨x, βₖ⟩|
           at most R in every gradient step, which is measured. Other keys keep e^(−C − logit) of a
           share in `gamma`, and C = R²/2ϑ² + 60 puts that below rounding; rounding itself grows
           with n(R/ϑ)², which may reach 10⁷
Source     yang2025.jin.theorem-3.1. Nothing is divided by Σᵢ γᵢₖ: an empty component stays put
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from innerloop.algorithms.gradient_em import Betas, GradientEM, residuals
from innerloop.constructions.base import Cost
from innerloop.constructions.mixture import MixtureConstruction
from innerloop.errors import OutOfRangeError
from innerloop.parameters import parameter
from innerloop.problems.base import resolve_proportions
from innerloop.problems.mixture_of_regressions import (
    MixtureOfRegressions,
    MixtureProblem,
)
from innerloop.transformer import (
    MLP,
    Attention,
    Block,
    Head,
    Layout,
    clear,
    gate_own_token,
    join,
    make_signed_pair,
)
from innerloop.transformer.marks import MARK_SIZE

MAX_SQUARED_SCALE = 1e7
"""Upper bound on n(R/ϑ)²; squared residuals are rounded to about 1e-17 of it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MixtureOfRegressionsConstruction(MixtureConstruction[Betas]):
    """k(4 + T) + 1 blocks of at most 2K heads."""

    source: ClassVar[str] = "Yang 2025, fourth paper (Jin et al. 2024), Theorem 3.1"
    cost: ClassVar[Cost] = Cost(
        "kT + 4k + 1", "2K", "Kd + 2d + 5K + 7", where="K = components, T = inner"
    )
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
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
                f"n (bound/noise)² must be at most {MAX_SQUARED_SCALE:g}, or rounding "
                f"shows; got {scale:.3g}: use fewer examples, a smaller bound or a larger noise"
            )

    def tolerance(self, dtype: torch.dtype) -> float:
        """Allow for the rounding of scores, which reach (R/ϑ)² and determine γ."""
        scores = (self.bound / self.noise) ** 2 * max(1.0, float(self.rate) * self.inner)
        return max(super().tolerance(dtype), 2 * torch.finfo(dtype).eps * scores)

    @cached_property
    def layout(self) -> Layout:
        d, c = self.d, self.components
        data = {"x": d, "y": (), "p": MARK_SIZE, "one": ()}
        used = {"fit": c, "logit": c, "gamma": c, "z": (c, d), "w": c, "yhat": ()}
        return Layout(**data, e=c, beta=d, **used)

    @cached_property
    def algorithm(self) -> GradientEM:
        shares = resolve_proportions(self.proportions, self.components)
        return GradientEM(shares, self.theta, self.rate, self.inner)

    def distributions(self) -> list[MixtureOfRegressions]:
        return [
            MixtureOfRegressions(
                d=self.d,
                n=self.n,
                components=self.components,
                proportions=self.proportions,
                noise=self.noise,
            )
        ]

    def accept(self, problem: MixtureProblem) -> None:
        super().accept(problem)
        if problem.components != self.components:
            raise OutOfRangeError(
                f"{self.name} was built for components={self.components}, "
                f"got {problem.components} start vectors"
            )

    def prompt(self, problem: MixtureProblem) -> Tensor:
        return self.encode(problem, problem.start)

    def encode(self, problem: MixtureProblem, state: Betas) -> Tensor:
        unit = torch.eye(self.components).to(state)
        return join(
            self.layout.make_tokens(**self.example_registers(problem)),
            self.layout.make_tokens(beta=state, e=unit, one=1.0),
            self.layout.make_tokens(x=problem.x_query, one=1.0),
        )

    def body(self, k: int) -> list[Block]:
        moves = [self._relu_attention(*self._ascent_heads()) for _ in range(self.inner)]
        return [
            Block(
                self._relu_attention(
                    *make_signed_pair(Head({("x", "beta"): 1.0}, {("e", "fit"): 1.0}))
                )
            ),
            Block(self._relu_attention(*self._square_heads()), self._clear_registers("fit")),
            Block(self._share_attention()),
            Block(
                self._relu_attention(*self._weigh_heads()), self._clear_registers("logit", "gamma")
            ),
            *(Block(move) for move in moves[:-1]),
            Block(moves[-1], self._clear_registers("z", "w")),
        ]

    def epilogue(self) -> list[Block]:
        shares = self.algorithm.proportions.unsqueeze(0)
        return [
            Block(
                self._relu_attention(
                    *make_signed_pair(Head({("x", "beta"): 1.0}, {("e", "yhat"): shares}))
                )
            )
        ]

    def _square_heads(self) -> list[Head]:
        """Return heads for logit = −(y − fit)²/2ϑ² of each component, products inside the token."""
        half, gate = 0.5 / self.noise**2, gate_own_token(self.bound, self.n)
        heads = []
        for fit, logit in self._component_addresses("fit", "logit"):
            value = {("y", logit): -half, (fit, logit): half}
            heads += make_signed_pair(Head({("y", "one"): 1.0, (fit, "one"): -1.0}, value, gate))
        return heads

    def _share_attention(self) -> Attention:
        """Return the attention for gamma = softmax(log π + logit) over the component tokens."""
        above = 0.5 * (self.bound / self.noise) ** 2 + 60.0
        prior = (self.algorithm.proportions.log() + above).unsqueeze(0)
        head = Head({("logit", "e"): 1.0, ("one", "e"): prior}, {("e", "gamma"): 1.0})
        return Attention.from_heads(self.layout, [head], kind="softmax", mask="all")

    def _weigh_heads(self) -> list[Head]:
        """Return heads for z = gamma · x and w = gamma · y, products inside the token."""
        gate = gate_own_token(1.0, self.n)
        return [
            Head({(gamma, "one"): 1.0}, {("x", z): 1.0, ("y", w): 1.0}, gate)
            for gamma, z, w in self._component_addresses("gamma", "z", "w")
        ]

    def _ascent_heads(self) -> list[Head]:
        """Return heads for a gradient step on every component, a signed pair for each."""
        heads = []
        for e, z, w in self._component_addresses("e", "z", "w"):
            gate = {("one", "one"): -self.bound, (e, "one"): self.bound}
            score = {("beta", z): 1.0, ("one", w): -1.0}
            heads += make_signed_pair(
                Head(score, {("x", "beta"): -float(self.rate) / self.n}, gate)
            )
        return heads

    def _component_addresses(self, *registers: str) -> list[tuple[Any, ...]]:
        """Return, for every component, its addresses in these registers."""
        return [tuple(self.layout[name][k] for name in registers) for k in range(self.components)]

    def _relu_attention(self, *heads: Head) -> Attention:
        return Attention.from_heads(self.layout, heads, kind="relu", mask="all", normalisation="1")

    def _clear_registers(self, *registers: str) -> MLP:
        return MLP.from_pieces(self.layout, [clear(register) for register in registers])

    def decode(self, problem: MixtureProblem, stream: Tensor) -> Tensor:
        return self.layout.read(stream, "yhat")[..., self.n + self.components :]

    def usage(self, stream: Tensor) -> float:
        x, y = (self.layout.read(stream, name) for name in ("x", "y"))
        betas = self.layout.read(stream, "beta")[..., self.n : self.n + self.components, :]
        data = x[..., : self.n, :], y[..., : self.n]
        # On queries, whose y is 0, the residual is −⟨x, β⟩.
        errors = [residuals(x, y, each) for each in self.algorithm.iterates(*data, betas)]
        return max(float(each.abs().max()) for each in [y, *errors]) / self.bound
