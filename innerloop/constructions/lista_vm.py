"""LISTA-VM for sparse recovery, run exactly by causal ReLU attention, every prefix at once.

Algorithm  β_m ← S_θ( β_m − 1/(2m+1) · M X_mᵀ (X_m β_m − y_m) )   for every prefix m of the examples
Invariant  register `beta` of odd token 2m+1 holds β_m; `x`, `y`, `odd` hold the prompt. What `beta`
           holds on even tokens does not matter
Proof      for odd i = 2m+1: the first signed pair, score ⟨β_i, x_j⟩ − B odd_i odd_j, is linear on
           the m even keys and silent on odd ones while |⟨β, x⟩| ≤ B; with value −M x_j and weight
           1/i it adds −1/(2m+1) M X_mᵀ X_m β_m. The second, score odd_i y_j, meets y only on even
           keys and adds 1/(2m+1) M X_mᵀ y_m. The MLP is the soft threshold (with a support, only on
           its entries; the others it clears)
Exact for  every n, M, θ and support, one query, and |⟨β, x⟩| ≤ B for a token and those before it
Source     liu2025.theorem-4.1, Appendix C.1 and D.2; query read-out of Definition 4.2. In (C.2) the
           last bias must be −θ, not θ: S_θ needs σ(−x − θ)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor

from innerloop.algorithms.lista_vm import ListaVM, Prefixes
from innerloop.constructions.base import Construction, Cost
from innerloop.constructions.regression import Matrices, make_matrices
from innerloop.errors import InputError, OutOfRangeError
from innerloop.parameters import parameter
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.problems.sparse_recovery import SparseRecovery
from innerloop.transformer import (
    MLP,
    Attention,
    Block,
    Head,
    Layout,
    clear,
    make_signed_pair,
    soft_threshold,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class ListaVMConstruction(Construction[RegressionProblem, Prefixes]):
    """One block with four heads and a soft threshold per step; width 2d + 2."""

    source: ClassVar[str] = "R. Liu et al. 2025, Theorem 4.1, Appendix C.1 and D.2"
    cost: ClassVar[Cost] = Cost("k", "4", "2d + 2", "k layers, 4 heads, width 2d + 2")
    tolerances: ClassVar = {torch.float64: 1e-10, torch.float32: 5e-6}
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"threshold": 0.0, "d": 5, "n": 8, "steps": 6},  # causal gradient descent
        {"support": 4, "d": 9, "n": 6, "steps": 5},
        {"preconditioners": "identity", "steps": 12},
        {"threshold": torch.tensor([0.3, 0.0, 0.1]), "d": 5, "n": 4, "steps": 3},
    )

    d: int = parameter(20, "features", least=1, most=512)
    n: int = parameter(10, "examples of the problems it is certified on", least=1, most=2_000)
    steps: int = parameter(12, "steps of the algorithm", least=1, most=10_000)
    threshold: float | Tensor = parameter(0.05, "θ of every step, or one for each", least=0)
    step_size: float | None = parameter(None, "scale of M if it is not explicit; 0.1 if none")
    preconditioners: Matrices = parameter(
        "random", "M of each step: d×d, steps×d×d, random or identity"
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
            raise InputError(f"threshold must be one number ≥ 0, or {self.steps} of them")

    @cached_property
    def layout(self) -> Layout:
        return Layout(x=self.d, y=(), beta=self.d, odd=())

    @cached_property
    def algorithm(self) -> ListaVM:
        matrices = make_matrices(
            self.preconditioners, self.step_size, 0.1, "preconditioners", self.steps, self.d, seed=1
        )
        thresholds = torch.as_tensor(self.threshold, dtype=torch.float64).expand(self.steps)
        return ListaVM(matrices, thresholds, self.support)

    def distributions(self) -> list[SparseRecovery]:
        sparsity = min(3, self.support or self.d)
        sizes = (self.n, self.n // 2 + 1)
        return [
            SparseRecovery(d=self.d, n=n, sparsity=sparsity, support=self.support, noise=0.3)
            for n in sizes
        ]

    def accept(self, problem: RegressionProblem) -> None:
        if problem.d != self.d:
            raise OutOfRangeError(f"{self.name} was built for d={self.d}, got d={problem.d}")
        if problem.queries != 1:
            raise OutOfRangeError(f"{self.name} reads out one query, got {problem.queries}")

    def prompt(self, problem: RegressionProblem) -> Tensor:
        return self.layout.make_tokens(**problem.to_paired_decoder_format())

    def encode(self, problem: RegressionProblem, state: Prefixes) -> Tensor:
        beta = torch.zeros_like(self.layout.read(self.prompt(problem), "x"))
        beta[..., 0::2, :] = state
        return self.layout.make_tokens(**problem.to_paired_decoder_format(), beta=beta)

    def ignored_mask(self, stream: Tensor) -> Bool[Tensor, "tokens width"]:
        even = torch.arange(stream.shape[-2]) % 2 == 1
        return even.unsqueeze(-1) & self.layout.mask("beta")

    def body(self, k: int) -> list[Block]:
        beta, keep = self.layout["beta"], self.support or self.d
        matrix = self.algorithm.mask(self.d).unsqueeze(-1) * self.algorithm.matrices[k]
        fit = Head(
            score={("beta", "x"): 1.0},
            value={("x", "beta"): -matrix},
            gate={("odd", "odd"): -self.bound},
        )
        pull = Head(score={("odd", "y"): 1.0}, value={("x", "beta"): matrix})
        pieces = [soft_threshold(beta[:keep], float(self.algorithm.thresholds[k]))]
        if keep < self.d:
            pieces.append(clear(beta[keep:]))
        return [
            Block(
                self._attention([*make_signed_pair(fit), *make_signed_pair(pull)]),
                MLP.from_pieces(self.layout, pieces),
            )
        ]

    def _attention(self, heads: list[Head]) -> Attention:
        return Attention.from_heads(
            self.layout, heads, kind="relu", mask="causal", normalisation="1/i"
        )

    def decode(self, problem: RegressionProblem, stream: Tensor) -> Tensor:
        """Compute the query read-out: ⟨x, β⟩ on every odd token."""
        x, beta = (self.layout.read(stream, name)[..., 0::2, :] for name in ("x", "beta"))
        return (x * beta).sum(dim=-1)

    def usage(self, stream: Tensor) -> float:
        x, beta = (self.layout.read(stream, name) for name in ("x", "beta"))
        scores = beta[..., 0::2, :] @ x[..., 0::2, :].mT
        return float(scores.tril().abs().max()) / self.bound
