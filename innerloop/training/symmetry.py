"""Weights that treat all features alike: random ones, and gradients averaged over the features.

Setting   places of a stream belong to registers; those of a register with d entries are told apart
          by their feature alone. Renaming features by a permutation π moves places by ρ(π)
Orbits    of the entries of a matrix: (r, c) and (r', c') are of one orbit if some renaming moves
          one to the other, that is if they join the same registers and agree on whether r and c are
          of one feature. Where a support lies in the first so many features, these are renamed
          among themselves, and the others too: two kinds of places in each register
Average   over all π of ρ(π) W ρ(π)ᵀ is the mean over each orbit (the Reynolds operator)
Why       where every renaming is as likely a problem, the expected gradient at weights that are
          constant on orbits is so too: averaging takes out noise alone. Without it each feature has
          to learn the same weights from its own share of the examples
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from innerloop.errors import InputError
from innerloop.transformer import Layout, Transformer

Place = tuple[str, int | None]
"""What a place is of, a register or a kind of its features, and its feature if it has one."""


@dataclass(frozen=True)
class Orbits:
    """Which entries of a matrix are of one orbit: `number` names the orbit of each."""

    number: Int[Tensor, "rows columns"]

    @staticmethod
    def of(rows: Sequence[Place], columns: Sequence[Place]) -> Orbits:
        """The orbits of a matrix whose rows and columns are these places."""
        seen: dict[tuple[str, str, bool], int] = {}
        number = [
            [seen.setdefault((r, c, i is not None and i == j), len(seen)) for c, j in columns]
            for r, i in rows
        ]
        return Orbits(torch.tensor(number))

    @cached_property
    def basis(self) -> Float[Tensor, "entries orbits"]:
        """Orthonormal: a column for each orbit, the same on all of its entries."""
        ones = nn.functional.one_hot(self.number.flatten()).to(torch.float64)
        return ones / ones.norm(dim=0)

    @cached_property
    def _bases(self) -> dict[tuple[torch.dtype, torch.device], Tensor]:
        """The basis as each kind of weight needs it: converting it takes longer than using it."""
        return {}

    def average(self, weight: Float[Tensor, "*stack rows columns"]) -> Tensor:
        """Every entry replaced by the mean over its orbit."""
        kind = weight.dtype, weight.device
        if kind not in self._bases:
            self._bases[kind] = self.basis.to(weight)
        basis = self._bases[kind]
        return ((weight.flatten(-2) @ basis) @ basis.mT).view_as(weight)

    def random(
        self, stack: Sequence[int], scale: float, generator: torch.Generator | None
    ) -> Float[Tensor, "*stack rows columns"]:
        """A matrix that is constant on orbits: N(0, scale²) times the orbit's own matrix of norm 1,
        with 1/√(rc) where an orbit has r entries in each of its rows and c in its columns."""
        ones = (self.basis.T > 0).unflatten(-1, self.number.shape)
        norms = (ones.sum(dim=2).amax(dim=1) * ones.sum(dim=1).amax(dim=1)).sqrt()
        drawn = torch.randn(*stack, len(norms), generator=generator, dtype=torch.float64)
        return (scale * drawn / norms)[..., self.number]


def places(layout: Layout, support: int | None = None) -> list[Place]:
    """The places of a stream; every register that has entries must have one for each feature."""
    if len({shape for shape in layout.registers.values() if shape}) > 1:
        raise InputError(f"registers must be scalars or of one length, got {layout.registers}")
    return [
        place(name, k, support) if shape else (name, None)
        for name, shape in layout.registers.items()
        for k in range(layout[name].size)
    ]


def place(name: str, feature: int, support: int | None) -> Place:
    """The place of a feature in a register; features beyond the support are of another kind."""
    return name if support is None or feature < support else f"{name} beyond", feature


def orbits(machine: Transformer, support: int | None = None) -> dict[str, Orbits]:
    """The orbits of every weight of a free machine, by its name. Rows of Q and K, and hidden units,
    are taken for places of streams of their own, one stream or several side by side."""
    stream, one = places(machine.layout, support), [("one", None)]
    alike: dict[torch.Size, Orbits] = {}
    found = {}
    for name, weight in machine.named_parameters():
        shape = weight.shape[-2:]
        if shape not in alike:
            across = one if len(shape) == 1 else _streams(name, stream, shape[1])
            alike[shape] = Orbits.of(_streams(name, stream, shape[0]), across)
        found[name] = alike[shape]
    return found


def _streams(name: str, stream: list[Place], size: int) -> list[Place]:
    """So many places, as streams side by side."""
    copies, left = divmod(size, len(stream))
    if left:
        raise InputError(
            f"{name} has {size} rows or columns: features can be alike only where that is a "
            f"multiple of the width {len(stream)}"
        )
    return [(f"{register} {copy}", k) for copy in range(copies) for register, k in stream]


@torch.no_grad()
def draw_alike(
    machine: Transformer,
    scale: float,
    generator: torch.Generator | None,
    support: int | None = None,
) -> None:
    """Random weights that treat all features of a kind alike; biases stay as they are."""
    for name, among in orbits(machine, support).items():
        weight = machine.get_parameter(name)
        if weight.ndim > 1:
            weight.copy_(among.random(weight.shape[:-2], scale, generator))


@torch.no_grad()
def average_gradients(model: nn.Module, among: dict[str, Orbits]) -> None:
    """Replace the gradient of every weight that has orbits by its mean over each of them."""
    for name, orbit in among.items():
        gradient = model.get_parameter(name).grad
        if gradient is not None:
            matrix = gradient if gradient.ndim > 1 else gradient.unsqueeze(-1)
            matrix.copy_(orbit.average(matrix))
