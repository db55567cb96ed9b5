"""Feature symmetry: random weights that treat all features alike, and gradients averaged over them.

Setting   the places of a stream belong to registers. The places of a register with d entries
          differ only in their feature. A permutation π of the features permutes places by ρ(π)
Orbits    matrix entries (r, c) and (r', c') are in the same orbit if a permutation maps one to the
          other. This is the case if they connect the same registers and agree on whether r and c
          have the same feature. If the support is among the first `support` features, these are
          permuted among themselves, and so are the others: each register has two kinds of places
Average   the mean of ρ(π) W ρ(π)ᵀ over all π is the mean over each orbit (the Reynolds operator)
Why       if permuted problems are equally probable and weights are constant on orbits, so is the
          expected gradient, and averaging only removes noise. Without it, each feature has to learn
          the same weights from its own share of the examples
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
"""A place of a stream: its register (or kind within one), and its feature if it has one."""


@dataclass(frozen=True)
class Orbits:
    """The orbits of the entries of a matrix; `index` is the number of the orbit of each entry."""

    index: Int[Tensor, "rows columns"]

    @staticmethod
    def from_places(rows: Sequence[Place], columns: Sequence[Place]) -> Orbits:
        """Return the orbits of a matrix whose rows and columns have these places."""
        numbers: dict[tuple[str, str, bool], int] = {}
        number = [
            [numbers.setdefault((r, c, i is not None and i == j), len(numbers)) for c, j in columns]
            for r, i in rows
        ]
        return Orbits(torch.tensor(number))

    @cached_property
    def basis(self) -> Float[Tensor, "entries orbits"]:
        """An orthonormal basis: one column per orbit, constant on its entries and 0 elsewhere."""
        ones = nn.functional.one_hot(self.index.flatten()).to(torch.float64)
        return ones / ones.norm(dim=0)

    @cached_property
    def _basis_cache(self) -> dict[tuple[torch.dtype, torch.device], Tensor]:
        """The basis by dtype and device: converting it takes longer than using it."""
        return {}

    def average(self, weight: Float[Tensor, "*stack rows columns"]) -> Tensor:
        """Replace every entry by the mean over its orbit."""
        kind = weight.dtype, weight.device
        if kind not in self._basis_cache:
            self._basis_cache[kind] = self.basis.to(weight)
        basis = self._basis_cache[kind]
        return ((weight.flatten(-2) @ basis) @ basis.mT).view_as(weight)

    def draw_matrix(
        self, stack: Sequence[int], scale: float, generator: torch.Generator | None
    ) -> Float[Tensor, "*stack rows columns"]:
        """Draw a matrix that is constant on orbits.

        On each orbit, it is N(0, scale²) times a matrix of norm 1 with equal entries. These are
        1/√(rc) if the orbit has r entries in each of its rows and c in each of its columns.
        """
        ones = (self.basis.T > 0).unflatten(-1, self.index.shape)
        norms = (ones.sum(dim=2).amax(dim=1) * ones.sum(dim=1).amax(dim=1)).sqrt()
        normals = torch.randn(*stack, len(norms), generator=generator, dtype=torch.float64)
        return (scale * normals / norms)[..., self.index]


def list_places(layout: Layout, support: int | None = None) -> list[Place]:
    """Return the places of a stream, whose registers are scalars or have one entry per feature."""
    if len({shape for shape in layout.registers.values() if shape}) > 1:
        raise InputError(
            f"registers must be scalars or have the same length, got {layout.registers}"
        )
    return [
        make_place(name, k, support) if shape else (name, None)
        for name, shape in layout.registers.items()
        for k in range(layout[name].size)
    ]


def make_place(name: str, feature: int, support: int | None) -> Place:
    """Return the place of a feature in a register; features outside the support form another
    kind."""
    return name if support is None or feature < support else f"{name} beyond", feature


def find_orbits(machine: Transformer, support: int | None = None) -> dict[str, Orbits]:
    """Return the orbits of every weight of a trainable transformer, by the name of the weight.

    Rows of Q and K, and hidden units, count as places of one or several additional streams.
    """
    stream, one = list_places(machine.layout, support), [("one", None)]
    by_shape: dict[torch.Size, Orbits] = {}
    by_name = {}
    for name, weight in machine.named_parameters():
        shape = weight.shape[-2:]
        if shape not in by_shape:
            across = one if len(shape) == 1 else _repeat_places(name, stream, shape[1])
            by_shape[shape] = Orbits.from_places(_repeat_places(name, stream, shape[0]), across)
        by_name[name] = by_shape[shape]
    return by_name


def _repeat_places(name: str, stream: list[Place], size: int) -> list[Place]:
    """Repeat a stream's places side by side to get `size` of them."""
    copies, left = divmod(size, len(stream))
    if left:
        raise InputError(
            f"{name} has {size} rows or columns: features can share weights only where that is a "
            f"multiple of the width {len(stream)}"
        )
    return [(f"{register} {copy}", k) for copy in range(copies) for register, k in stream]


@torch.no_grad()
def draw_symmetric(
    machine: Transformer,
    scale: float,
    generator: torch.Generator | None,
    support: int | None = None,
) -> None:
    """Set random weights that treat all features of a kind alike; biases are unchanged."""
    for name, orbits in find_orbits(machine, support).items():
        weight = machine.get_parameter(name)
        if weight.ndim > 1:
            weight.copy_(orbits.draw_matrix(weight.shape[:-2], scale, generator))


@torch.no_grad()
def average_gradients(model: nn.Module, orbits_by_name: dict[str, Orbits]) -> None:
    """Replace the gradient of every weight that has orbits by its mean over each orbit."""
    for name, orbits in orbits_by_name.items():
        gradient = model.get_parameter(name).grad
        if gradient is not None:
            matrix = gradient if gradient.ndim > 1 else gradient.unsqueeze(-1)
            matrix.copy_(orbits.average(matrix))
