"""EM for the mixture of β and −β, run by ReLU attention; tanh on knots is its only error.

Algorithm  E: τᵢ = tanh(yᵢ⟨xᵢ, β⟩/ϑ²).   M: β ← β + α (1/n) Σᵢ (τᵢyᵢ − ⟨xᵢ, β⟩) xᵢ, T times
Invariant  `beta` of every token holds β and `q` of example i holds yᵢxᵢ, 0 on queries; `x`, `y`,
           `one`, the marks `p` hold the prompt, `tau` is 0
Proof      prologue: a signed pair with score yᵢ goes from each example to itself alone and adds
           n·xᵢ/n times yᵢ to `q`. E block: a signed pair with score ⟨qᵢ, βⱼ⟩/ϑ², the same for every
           key j, adds it to `tau`, which the MLP replaces by its tanh on m knots. M block: one pair
           with score τⱼ adds (α/n) Σⱼ τⱼqⱼ to `beta`, one with score ⟨β, xⱼ⟩ adds −(α/n) Σⱼ ⟨β, xⱼ⟩
           xⱼ; the last one's MLP clears `tau`
Exact for  all but tanh. Knots at artanh(sin θ), m angles θ of spacing π/m around 0, interpolate it
           on the whole line to 2.55/m² (nearly (π/2m)²: a spacing of π/(m cos θ) meets |tanh″| =
           2 sin θ cos²θ). Errors δᵢ move β by α/n Σᵢ δᵢ Σ_{t<T} (I − αS)ᵗ qᵢ, S = XᵀX/n, that is by
           at most αT·2.55/m² times the mean of |1/T Σ_t (I − αS)ᵗ qᵢ|, which must stay, in every
           entry, below B. So must |yᵢ|; both are measured. n is the built one
Source     yang2025.jin.theorem-3.2. Nothing is divided, so no example and no β can break a step
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.regression import Weights
from innerloop.algorithms.symmetric_gradient_em import SymmetricGradientEM
from innerloop.constructions.base import Cost
from innerloop.constructions.mixture import MixtureConstruction
from innerloop.errors import OutOfRangeError
from innerloop.parameters import parameter
from innerloop.problems.mixture_of_regressions import MixtureOfRegressions, MixtureProblem
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
    piecewise_linear,
)
from innerloop.transformer.layout import Location
from innerloop.transformer.marks import MARK_SIZE

TANH_ERROR = 2.55
"""Interpolation on `tanh_knots(m)` has an error of at most TANH_ERROR/m²."""


def tanh_knots(count: int) -> Float[Tensor, " count"]:
    """Knots to interpolate tanh on the whole line: artanh(sin θ) at evenly spaced angles θ."""
    middle = (count - 1) / 2
    angles = (torch.arange(count, dtype=torch.float64) - middle) * (math.pi / count)
    return angles.sin().atanh()


@dataclass(frozen=True, kw_only=True, eq=False)
class MixtureOfTwoRegressionsConstruction(MixtureConstruction[Weights]):
    """1 + k(1 + T) blocks of at most four heads, and as many hidden units as knots."""

    source: ClassVar[str] = "Yang 2025, fourth paper (Jin et al. 2024), Theorem 3.2"
    cost: ClassVar[Cost] = Cost("kT + k + 1", "4", "3d + 7", where="T = inner")
    exact: ClassVar[bool] = False
    error: ClassVar[str] = "2.55 α · inner · bound / knots²"
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"d": 3, "n": 12, "steps": 5, "inner": 1},
        {"d": 2, "n": 25, "steps": 3, "inner": 7, "noise": 0.2},
        {"d": 5, "n": 4, "steps": 4, "knots": 300},
        {"d": 1, "n": 9, "steps": 6, "noise": 2.0, "step_size": 0.1},
    )

    knots: int = parameter(500, "m, knots of tanh", least=8, most=20_000)
    bound: float = parameter(
        10.0, "B, the largest |y| and mean |y x| allowed", least=1e-6, most=1e4
    )

    @cached_property
    def layout(self) -> Layout:
        return Layout(x=self.d, y=(), q=self.d, beta=self.d, tau=(), one=(), p=MARK_SIZE)

    @cached_property
    def algorithm(self) -> SymmetricGradientEM:
        return SymmetricGradientEM(self.theta, self.rate, self.inner)

    def distributions(self) -> list[MixtureOfRegressions]:
        return [
            MixtureOfRegressions(d=self.d, n=self.n, components=2, symmetric=True, noise=self.noise)
        ]

    def tolerance(self, dtype: torch.dtype) -> float:
        steps = float(self.rate) * self.inner
        # The gate adds and subtracts a number that grows with n; x, mostly below 5, scales it.
        rounding = 40 * torch.finfo(dtype).eps * self.own_gate[("p", "p")]
        knots = TANH_ERROR * steps * self.bound / self.knots**2
        return super().tolerance(dtype) + rounding + knots

    @property
    def own_gate(self) -> dict[tuple[Location, Location], float]:
        """The gate that lets a token attend to itself only."""
        return gate_own_token(self.bound, self.n)

    def accept(self, problem: MixtureProblem) -> None:
        super().accept(problem)
        if not problem.symmetric:
            raise OutOfRangeError(
                f"{self.name} is for β and −β, and must start from two such vectors; "
                "mixture-of-regressions takes any others"
            )

    def context_length(self, problem: MixtureProblem) -> int:
        return problem.n

    def prompt(self, problem: MixtureProblem) -> Tensor:
        return self._join_tokens(problem, self.algorithm.init(problem))

    def encode(self, problem: MixtureProblem, state: Weights) -> Tensor:
        return self._join_tokens(problem, state, q=problem.x * problem.y.unsqueeze(-1))

    def _join_tokens(self, problem: MixtureProblem, beta: Weights, **more: Tensor) -> Tensor:
        shared = beta.unsqueeze(-2)
        examples = self.layout.make_tokens(**self.example_registers(problem), beta=shared, **more)
        return join(examples, self.layout.make_tokens(x=problem.x_query, one=1.0, beta=shared))

    def prologue(self) -> list[Block]:
        product = Head(
            score={("y", "one"): 1.0},
            value={("x", "q"): float(self.n)},
            gate=self.own_gate,
        )
        return [Block(self._attention(product))]

    def body(self, k: int) -> list[Block]:
        expect = Head({("q", "beta"): self.noise**-2}, {("one", "tau"): 1.0})
        tanh = piecewise_linear("tau", "tau", torch.tanh, tanh_knots(self.knots))
        pull = Head({("one", "tau"): 1.0}, {("q", "beta"): float(self.rate)})
        fit = Head({("beta", "x"): 1.0}, {("x", "beta"): -float(self.rate)})
        first = Block(self._attention(expect), MLP.from_pieces(self.layout, [clear("tau"), tanh]))
        inner = [Block(self._attention(pull, fit)) for _ in range(self.inner - 1)]
        last = Block(self._attention(pull, fit), MLP.from_pieces(self.layout, [clear("tau")]))
        return [first, *inner, last]

    def _attention(self, *heads: Head) -> Attention:
        pairs = [each for head in heads for each in make_signed_pair(head)]
        return Attention.from_heads(
            self.layout, pairs, kind="relu", mask="context", normalisation="1/n"
        )

    def decode(self, problem: MixtureProblem, stream: Tensor) -> Weights:
        return self.layout.read(stream, "beta")[..., -1, :]

    def usage(self, stream: Tensor) -> float:
        examples = stream[..., : self.n, :]
        x, y, q = (self.layout.read(examples, name) for name in ("x", "y", "q"))
        propagated = self._average_propagated(x, q).abs().mean(dim=-2)
        return float(torch.maximum(propagated.max(), y.abs().max())) / self.bound

    def _average_propagated(self, x: Tensor, q: Tensor) -> Tensor:
        """1/T Σ_{t<T} (I − αS)ᵗ q: the mean of q as the M step propagates it."""
        total = term = q
        for _ in range(self.inner - 1):
            term = term - self.rate.to(x) * (term @ x.mT @ x) / self.n
            total = total + term
        return total / self.inner
