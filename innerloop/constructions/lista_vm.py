"""LISTA-VM for sparse recovery, run exactly by causal ReLU attention, every prefix at once.

Algorithm  β_m ← S_θ( β_m − 1/(2m+1) · M X_mᵀ (X_m β_m − y_m) )   for every prefix m of the examples
Invariant  register `beta` of odd token 2m+1 holds β_m; `x`, `y`, `odd` hold the prompt. The values
           of `beta` on even tokens have no effect
Proof      for odd i = 2m+1: the first signed pair, score ⟨β_i, x_j⟩ − B odd_i odd_j, is linear on
           the m even keys and 0 on odd ones while |⟨β, x⟩| ≤ B; with value −M x_j and weight
           1/i it adds −1/(2m+1) M X_mᵀ X_m β_m. The second, score odd_i y_j, is nonzero only on
           even keys and adds 1/(2m+1) M X_mᵀ y_m. The MLP is the soft threshold. With a support,
           rows of M outside the support are 0, and these entries of β stay 0
Exact for  every n, M, θ and support, one query, and |⟨β, x⟩| ≤ B for a token and earlier tokens
Source     liu2025.theorem-4.1, Appendix C.1 and D.2; query read-out of Definition 4.2. In (C.2) the
           last bias must be −θ, not θ: S_θ needs σ(−x − θ)
"""

from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from innerloop.algorithms.lista_vm import ListaVM
from innerloop.errors import InputError
from innerloop.language import Data, State, define, dot, mean, soft_threshold
from innerloop.language.classes import Cost, PrefixProgram, Registers, parameter
from innerloop.language.matrices import Matrices, make_matrices

REGISTERS = {"x": Data("d"), "y": Data(), "beta": State("d"), "odd": Data()}


@define(prompt="prefixes", **REGISTERS)
def shrink(me: Any, supported: Any, thresholds: Any, bound: Any) -> None:
    def fit(j: Any) -> Any:
        return dot(me.beta, j.x) * j.x

    own = mean(fit, over="causal", where=lambda j: 1 - me.odd * j.odd, reach=bound)
    pull = mean(lambda j: (me.odd * j.y) * j.x, over="causal")
    me.beta = soft_threshold(me.beta - supported @ own + supported @ pull, thresholds)


@shrink.readout
def _(me: Any) -> Any:
    return dot(me.x, me.beta)


class ListaVMConstruction(PrefixProgram):
    """LISTA-VM, in one block with four heads and a soft threshold per step; width 2d + 2."""

    definition = shrink
    source = "R. Liu et al. 2025, Theorem 4.1, Appendix C.1 and D.2"
    cost = Cost("k", "4", "2d + 2", "k layers, 4 heads, width 2d + 2")
    attention = "relu"
    looped = False
    tolerances = {torch.float64: 1e-10, torch.float32: 5e-6}
    cases = (
        {"threshold": 0.0, "d": 5, "n": 8, "steps": 6},  # causal gradient descent
        {"support": 4, "d": 9, "n": 6, "steps": 5},
        {"preconditioners": "identity", "steps": 12},
        {"threshold": torch.tensor([0.3, 0.0, 0.1]), "d": 5, "n": 4, "steps": 3},
    )

    d: int = parameter(20, "features", least=1, most=512)
    n: int = parameter(10, "examples of the certified problems", least=1, most=2_000)
    steps: int = parameter(12, "steps of the algorithm", least=1, most=10_000)
    threshold: float | Tensor = parameter(0.05, "θ of every step, or one for each", least=0)
    step_size: float | None = parameter(None, "scale of M if it is not explicit; 0.1 if none")
    preconditioners: Matrices = parameter(
        "random", "M of each step: d×d, steps×d×d, random, identity"
    )
    support: int | None = parameter(None, "number of leading entries that weights may use", least=1)
    bound: float = parameter(1e3, "B, the largest |⟨β, x⟩| allowed", least=1e-6, most=1e6)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.support is not None and self.support > self.d:
            raise InputError(f"support must be at most d={self.d}, got {self.support}")
        if isinstance(self.threshold, Tensor) and (
            self.threshold.shape != (self.steps,) or bool((self.threshold < 0).any())
        ):
            raise InputError(
                f"threshold must be a number ≥ 0 or {self.steps} of them, one per step, "
                f"got {self.threshold}"
            )

    @cached_property
    def algorithm(self) -> ListaVM:
        matrices_or_none, scale, name = self.preconditioners, self.step_size, "preconditioners"
        matrices = make_matrices(matrices_or_none, scale, 0.1, name, self.steps, self.d, seed=1)
        thresholds = torch.as_tensor(self.threshold, dtype=torch.float64).expand(self.steps)
        return ListaVM(matrices, thresholds, self.support)

    @property
    def supported(self) -> Tensor:
        """The M of each step; rows outside the support are 0."""
        return self.algorithm.mask(self.d).unsqueeze(-1) * self.algorithm.matrices

    def distributions(self) -> Any:
        known = {"sparsity": min(3, self.support or self.d), "support": self.support}
        return [replace(each, **known) for each in super().distributions()]

    def represent(self, filled: Registers, state: Any) -> Registers:
        beta = torch.zeros_like(filled["x"])
        beta[..., 0::2, :] = state
        return {"beta": beta}

    def ignored_mask(self, stream: Tensor) -> Tensor:
        even = torch.arange(stream.shape[-2]) % 2 == 1
        return even.unsqueeze(-1) & self.layout.mask("beta")
