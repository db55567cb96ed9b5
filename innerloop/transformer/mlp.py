"""The MLP of a block, h + W₂ σ(W₁ h + b), made from pieces or with random dense weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from innerloop.deprecation import RenamedMethod
from innerloop.errors import InputError
from innerloop.transformer.layout import Layout
from innerloop.transformer.pieces import Elementwise, Piece, Registers, Units, sum_hinges
from innerloop.transformer.remembering import remember

MAX_BROADCAST_UNITS = 32
"""Largest number of element-wise units that are evaluated one by one.

For more units, a binary search for the active ones is faster.
"""


class ElementwiseUnits(nn.Module):
    """A compiled `Elementwise` piece: its units are stored once and applied to every entry."""

    slope: Tensor
    bias: Tensor
    weight: Tensor
    source: Tensor
    target: Tensor

    def __init__(
        self,
        slope: Float[Tensor, " units"],
        bias: Float[Tensor, " units"],
        weight: Float[Tensor, " units"],
        source: Int[Tensor, " entries"],
        target: Int[Tensor, " entries"],
    ) -> None:
        super().__init__()
        for name, value in (("slope", slope), ("bias", bias), ("weight", weight)):
            self.register_parameter(name, nn.Parameter(value, requires_grad=False))
        self.register_buffer("source", source)
        self.register_buffer("target", target)

    def forward(self, stream: Tensor) -> Tensor:
        """Return the values to add at the places `target`."""
        entries = stream.index_select(-1, self.source.to(stream.device))
        slope, bias, weight = (p.to(stream.device) for p in (self.slope, self.bias, self.weight))
        if len(slope) <= MAX_BROADCAST_UNITS:
            return (entries.unsqueeze(-1) * slope + bias).relu() @ weight
        return sum_hinges(entries, slope, bias, weight)

    def gram_matrices(self, width: int) -> tuple[Tensor, Tensor]:
        """Return (W₁ | b)ᵀ(W₁ | b) and W₂W₂ᵀ of the equivalent dense MLP."""
        slope, bias, weight = (p.detach().double() for p in (self.slope, self.bias, self.weight))
        inner, outer = slope.new_zeros(width + 1, width + 1), slope.new_zeros(width, width)
        for source, target in zip(self.source.tolist(), self.target.tolist(), strict=True):
            inner[source, source] += slope @ slope
            inner[source, width] += slope @ bias
            inner[width, source] += slope @ bias
            inner[width, width] += bias @ bias
            outer[target, target] += weight @ weight
        return inner, outer


class MLP(nn.Module):
    """An MLP with dense hidden units and element-wise ones, added to the stream.

    Use `from_pieces` or `with_random_weights` to make one.
    """

    inner: Tensor
    bias: Tensor
    outer: Tensor
    targets: Tensor

    def __init__(
        self,
        inner: Float[Tensor, "hidden width"],
        bias: Float[Tensor, " hidden"],
        outer: Float[Tensor, "out hidden"],
        targets: Int[Tensor, " out"],
        everywhere: Sequence[ElementwiseUnits] = (),
        notes: Sequence[str] = (),
    ) -> None:
        super().__init__()
        for name, value in (("inner", inner), ("bias", bias), ("outer", outer)):
            self.register_parameter(name, nn.Parameter(value, requires_grad=False))
        self.register_buffer("targets", targets)
        self.everywhere = nn.ModuleList(everywhere)
        self.notes = tuple(notes)

    @classmethod
    def from_pieces(cls, layout: Layout, pieces: Sequence[Piece]) -> MLP:
        """Build an MLP from pieces, which all read the same input."""
        if not pieces:
            raise InputError("an MLP needs at least one piece")
        sized = [piece(layout) if callable(piece) else piece for piece in pieces]
        dense = [piece for piece in sized if isinstance(piece, Units)]
        inner = [_assemble_matrix(layout, piece.reads, len(piece.bias), "rows") for piece in dense]
        outer = [
            _assemble_matrix(layout, piece.writes, len(piece.bias), "columns") for piece in dense
        ]
        empty = torch.zeros(0, layout.width, dtype=torch.float64)
        written = torch.cat([empty.T, *outer], dim=1)
        targets = written.abs().sum(dim=1).nonzero().flatten()
        return cls(
            inner=torch.cat([empty, *inner]),
            bias=torch.cat([empty[:, 0], *(piece.bias.detach().to(empty) for piece in dense)]),
            outer=written[targets],
            targets=targets,
            everywhere=[
                _compile_elementwise(layout, p) for p in sized if isinstance(p, Elementwise)
            ],
            notes=[piece.note for piece in sized],
        )

    @classmethod
    def with_random_weights(
        cls,
        width: int,
        hidden: int,
        *,
        scale: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> MLP:
        """Build an MLP with dense trainable weights N(0, scale²/fan-in) and biases 0."""
        inner, outer = (
            scale / math.sqrt(fan) * torch.randn(*shape, generator=generator, dtype=torch.float64)
            for fan, shape in ((width, (hidden, width)), (hidden, (width, hidden)))
        )
        bias = torch.zeros(hidden, dtype=torch.float64)
        return cls(inner, bias, outer, torch.arange(width)).requires_grad_(True)

    def to_dense(self) -> MLP:
        """Return the same function with trainable weights from every place to every place."""
        width = self.inner.shape[1]
        eye = torch.eye(width, dtype=self.inner.dtype, device=self.inner.device)
        inner, bias = [self.inner], [self.bias]
        outer = [eye[:, self.targets] @ self.outer]
        for piece in self._elementwise_units():
            sources, targets = eye[piece.source], eye[piece.target]
            inner.append(torch.einsum("h,sw->hsw", piece.slope, sources).flatten(0, 1))
            bias.append(piece.bias.repeat_interleave(len(piece.source)))
            outer.append(torch.einsum("h,sw->whs", piece.weight, targets).flatten(1))
        weights = torch.cat(inner), torch.cat(bias), torch.cat(outer, dim=1)
        places = torch.arange(width, device=eye.device)
        return MLP(*weights, places, notes=self.notes).requires_grad_(True)

    @property
    def hidden(self) -> int:
        """The number of hidden units; an element-wise unit counts once per entry."""
        repeated = (len(e.slope) * len(e.source) for e in self._elementwise_units())
        return len(self.bias) + sum(repeated)

    def forward(self, stream: Float[Tensor, "*batch n width"]) -> Float[Tensor, "*batch n width"]:
        result = stream
        if len(self.bias):
            inner, bias, outer = (p.to(stream.device) for p in (self.inner, self.bias, self.outer))
            update = nn.functional.linear(stream, inner, bias).relu() @ outer.mT
            if len(self.targets) == stream.shape[-1]:
                result = result + update
            else:
                result = result.index_add(-1, self.targets.to(stream.device), update)
        for piece in self._elementwise_units():
            result = result.index_add(-1, piece.target.to(stream.device), piece(stream))
        return result

    def places_written(self) -> set[int]:
        """Return the places of the stream that the units write to."""
        own = [unit.target for unit in self._elementwise_units()]

        def find() -> set[int]:
            used = self.targets[(self.outer != 0).any(dim=-1)]
            return {*used.tolist(), *(k for target in own for k in target.tolist())}

        return remember(self, "written", (self.outer, self.targets, *own), find)

    def operator_norms(self) -> tuple[float, float]:
        """Return ‖W₁‖ and ‖W₂‖ in operator norm, for the equivalent dense MLP.

        The biases count as a column of W₁, as if they were weights on a register that is always 1.
        """
        width = self.inner.shape[1]
        with torch.no_grad():
            outer = self.outer.new_zeros(width, len(self.bias))
            outer[self.targets] = self.outer
            inner = torch.cat([self.inner, self.bias.unsqueeze(1)], dim=1)
            inner, outer = inner.double(), outer.double()
            first, second = inner.mT @ inner, outer @ outer.mT
            for piece in self._elementwise_units():
                grams = piece.gram_matrices(width)
                first, second = first + grams[0].to(first), second + grams[1].to(second)
            return _operator_norm_from_gram(first), _operator_norm_from_gram(second)

    def _elementwise_units(self) -> list[ElementwiseUnits]:
        return [piece for piece in self.everywhere if isinstance(piece, ElementwiseUnits)]

    of = RenamedMethod("from_pieces")


def _operator_norm_from_gram(gram: Tensor) -> float:
    """Compute the operator norm of a matrix from its Gram matrix; it is infinite on overflow."""
    used = (gram != 0).any(dim=0)
    if not bool(torch.isfinite(gram).all()):
        return math.inf
    if not bool(used.any()):
        return 0.0
    return float(torch.linalg.eigvalsh(gram[used][:, used])[-1].clamp_min(0).sqrt())


def _assemble_matrix(layout: Layout, blocks: Registers, hidden: int, side: str) -> Tensor:
    """Return weights of units: (hidden, width) for reads (`rows`), (width, hidden) for writes."""
    matrix = torch.zeros(hidden, layout.width, dtype=torch.float64)
    for where, weight in blocks.items():
        entries = weight.detach().to("cpu", torch.float64)
        entries = entries if side == "rows" else entries.mT
        if entries.shape != (hidden, layout[where].size):
            raise InputError(
                f"units on {layout[where].label} need {hidden}×{layout[where].size} weights, "
                f"got {'×'.join(map(str, entries.shape))}"
            )
        matrix[:, list(layout[where].places)] += entries
    return matrix if side == "rows" else matrix.mT


def _compile_elementwise(layout: Layout, piece: Elementwise) -> ElementwiseUnits:
    source, target = layout[piece.source], layout[piece.target]
    if source.size != target.size:
        raise InputError(
            f"an element-wise piece needs equal sizes, got {source.label} ({source.size}) "
            f"and {target.label} ({target.size})"
        )
    places = [torch.tensor(address.places) for address in (source, target)]
    slope, bias, weight = (
        part.detach().to("cpu", torch.float64).clone()
        for part in (piece.slope, piece.bias, piece.weight)
    )
    return ElementwiseUnits(slope, bias, weight, *places)
