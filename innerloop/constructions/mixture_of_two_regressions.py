"""EM for the mixture of β and −β, run by ReLU attention; its only error is a piecewise linear tanh.

Algorithm  E: τᵢ = tanh(yᵢ⟨xᵢ, β⟩/ϑ²).   M: β ← β + α (1/n) Σᵢ (τᵢyᵢ − ⟨xᵢ, β⟩) xᵢ, T times
Invariant  `beta` of every token holds β and `q` of example i holds yᵢxᵢ, 0 on queries; `x`, `y`,
           `one`, the marks `p` hold the prompt, `tau` is 0
Proof      prologue: a signed pair with score yᵢ attends from each example only to itself and adds
           n·xᵢ/n times yᵢ to `q`. E block: a signed pair with score ⟨qᵢ, βⱼ⟩/ϑ², the same for every
           key j, adds it to `tau`, which the MLP replaces by its tanh on m knots. M block: one pair
           with score τⱼ adds (α/n) Σⱼ τⱼqⱼ to `beta`, one with score ⟨β, xⱼ⟩ adds −(α/n) Σⱼ ⟨β, xⱼ⟩
           xⱼ; the MLP of the last M block clears `tau`
Exact for  everything except tanh. Knots at artanh(sin θ), for m angles θ of spacing π/m around 0,
           interpolate it on the whole line with an error of 2.55/m² (nearly (π/2m)², because the
           spacing is π/(m cos θ) and |tanh″| = 2 sin θ cos²θ). Errors δᵢ change β by
           α/n Σᵢ δᵢ Σ_{t<T} (I − αS)ᵗ qᵢ, S = XᵀX/n. This is at most αT·2.55/m² times the mean of
           |1/T Σ_t (I − αS)ᵗ qᵢ|, which must be below B in every entry. |yᵢ| must also be below B;
           both are measured. n is the built one
Source     yang2025.jin.theorem-3.2. Nothing is divided, so a step succeeds for all examples and β
"""

import math
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from innerloop.algorithms.symmetric_gradient_em import SymmetricGradientEM
from innerloop.constructions.mixture import MixtureConstruction
from innerloop.errors import OutOfRangeError
from innerloop.language import Data, State, define, dot, mean, own_total, piecewise
from innerloop.language.classes import Cost, Peepholes, Registers, parameter
from innerloop.language.prompts.mixtures import OppositesPrompt
from innerloop.transformer.marks import MARK_SIZE, find_gap

TANH_ERROR = 2.55
"""The interpolation of tanh on `tanh_knots(m)` has an error of at most TANH_ERROR/m²."""
STATES = {"q": State("d"), "beta": State("d", shared=True)}


def tanh_knots(count: int) -> Tensor:
    """Return knots to interpolate tanh on the whole line: artanh(sin θ) at evenly spaced angles."""
    middle = (count - 1) / 2
    angles = (torch.arange(count, dtype=torch.float64) - middle) * (math.pi / count)
    return angles.sin().atanh()


@define(prompt=OppositesPrompt(), x=Data("d"), y=Data(), **STATES, p=Data(MARK_SIZE))
def climb(me: Any, own: Any) -> None:
    me.fit = dot(me.q, me.beta) / (own.theta * own.theta)
    me.tau = piecewise(me.fit, torch.tanh, tanh_knots(own.knots))
    for _ in range(own.inner):
        pull = mean(lambda j: j.tau * j.q - dot(me.beta, j.x) * j.x)
        me.beta = me.beta + own.rate * pull


@climb.init
def _(me: Any, own: Any) -> None:
    me.q = own_total(lambda j: me.y * j.x, "p", own.bound, find_gap(own.n))


@climb.answer
def _(me: Any) -> Any:
    return me.beta


class MixtureOfTwoRegressionsConstruction(MixtureConstruction):
    """Gradient EM for ±β, in 1 + k(1 + T) blocks of at most four heads.

    The number of hidden units is the number of knots.
    """

    definition = climb
    peepholes = Peepholes(reuse=True)
    source = "Yang 2025, fourth paper (Jin et al. 2024), Theorem 3.2"
    cost = Cost("kT + k + 1", "4", "3d + 7", where="T = inner")
    exact = False
    error = "2.55 α · inner · bound / knots²"
    cases = (
        {"d": 3, "n": 12, "steps": 5, "inner": 1},
        {"d": 2, "n": 25, "steps": 3, "inner": 7, "noise": 0.2},
        {"d": 5, "n": 4, "steps": 4, "knots": 300},
        {"d": 1, "n": 9, "steps": 6, "noise": 2.0, "step_size": 0.1},
    )

    knots: int = parameter(500, "m, knots of tanh", least=8, most=20_000)
    bound: float = parameter(10.0, "B, the largest |y| and mean |y x|", least=1e-6, most=1e4)

    @cached_property
    def algorithm(self) -> SymmetricGradientEM:
        return SymmetricGradientEM(self.theta, self.rate, self.inner)

    def distributions(self) -> Any:
        return self.draw_from(symmetric=True)

    def tolerance(self, dtype: torch.dtype) -> float:
        # The gate adds and subtracts a number that grows with n and with |x|, mostly below 5.
        rounding = 40 * torch.finfo(dtype).eps * self.bound / find_gap(self.n)
        knots = TANH_ERROR * float(self.rate) * self.inner * self.bound / self.knots**2
        return super().tolerance(dtype) + rounding + knots

    def accept(self, problem: Any) -> None:
        if not problem.symmetric:
            raise OutOfRangeError(
                f"{self.name} expects the start vectors β and −β, got others: "
                "use mixture-of-regressions"
            )
        super().accept(problem)

    def represent(self, filled: Registers, state: Any) -> Registers:
        return {"beta": state.unsqueeze(-2), "q": filled["x"] * filled["y"].unsqueeze(-1)}

    def usage(self, stream: Tensor) -> float:
        """Return the larger of |y| and the mean |q| (as propagated by the M step), over B."""
        examples = stream[..., : self.n, :]
        x, y, term = (self.layout.read(examples, name) for name in ("x", "y", "q"))
        propagated = term / self.inner  # 1/T Σ_{t<T} (I − αS)ᵗ q
        for _ in range(self.inner - 1):
            term = term - self.rate.to(x) * (term @ x.mT @ x) / self.n
            propagated = propagated + term / self.inner
        largest = propagated.abs().mean(dim=-2).max()
        return float(torch.maximum(largest, y.abs().max())) / self.bound
