"""LISTA-VM with the linear read-out: one more block writes every prediction into register `y`.

Algorithm  as `lista-vm`; ŷ_{m+1} = (2/p)/(2m+1) Σ_{l ≤ m} σ(⟨x_{m+1}, β_l⟩ − B') + B'
Invariant  as `lista-vm`; after the last block, register `y` of odd token 2m+1 holds ŷ_{m+1}
Proof      one ReLU head with score ⟨x_i, β_j⟩ − B' odd_i odd_j and value odd → y attends to the odd
           keys j ≤ i and adds (2/p)/(2m+1) Σ_l σ(⟨x_{m+1}, β_l⟩ − B') to `y`, which is 0 there. The
           MLP adds B'
Exact for  everything for which `lista-vm` is exact, and every B' and p > 0
Source     liu2025.theorem-E.1, Appendix E.1, for p = P(⟨x, β⟩ ≥ B'). The prediction is read from
           token 2n−1, which does not depend on y_n. If B' is below every ⟨x, β⟩ and p = 1, it is
           the mean of the ⟨x, β_l⟩, up to a factor (2m+2)/(2m+1)
"""

from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from innerloop.algorithms.lista_vm import ListaVM
from innerloop.constructions.lista_vm import REGISTERS, ListaVMConstruction, shrink
from innerloop.language import define, dot, mean, relu
from innerloop.language.classes import Cost, parameter

shrink_and_average = define(prompt="prefixes", **REGISTERS)(shrink.step)


@shrink_and_average.answer
def _(me: Any, heard_above: Any, share: Any) -> Any:
    def hear(j: Any) -> Any:
        return relu(dot(me.x, j.beta) - heard_above * (me.odd * j.odd)) * j.odd

    return me.y + 2 / share * mean(hear, over="causal") + heard_above


class ListaVMLinearConstruction(ListaVMConstruction):
    """LISTA-VM with the linear read-out: the blocks of `lista-vm`, and one block with one head."""

    definition = shrink_and_average
    source = "R. Liu et al. 2025, Theorem E.1 and its proof"
    cost = Cost("k + 1", "4", "2d + 2", "k + 1 layers")

    heard_above: float = parameter(-10.0, "B', the ⟨x, β⟩ above which a prefix counts")
    share: float = parameter(1.0, "p, the share of prefixes that count", least=1e-6, most=1)

    @cached_property
    def algorithm(self) -> ListaVM:
        linear = torch.tensor([self.heard_above, self.share], dtype=torch.float64)
        return replace(super().algorithm, linear=linear)
