"""The MLP of a block, h + W₂ σ(W₁ h + b), assembled from pieces.

Each piece reads the MLP's input and adds to its registers; several pieces make one MLP. What needs
another piece's output is another block. `clear` plus a piece that writes replaces a register.
Pieces that act on every entry of a register alike keep their hidden units once, not per entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from innerloop.errors import InputError
from innerloop.transformer.head import Weight, block, spelled
from innerloop.transformer.layout import Layout, Where, label

Registers = Mapping[str, Tensor] | Mapping[Where, Tensor]


@dataclass(frozen=True, eq=False)
class Units:
    """Hidden units that read and write registers: adds Σ writes·σ(Σ reads·h + bias)."""

    reads: Registers
    bias: Tensor
    writes: Registers
    note: str = ""


@dataclass(frozen=True, eq=False)
class Elementwise:
    """The same scalar network on every entry: target += Σ_k weight_k σ(slope_k·source + bias_k)."""

    source: Where
    target: Where
    slope: Tensor
    bias: Tensor
    weight: Tensor
    note: str = ""


Sizer = Callable[[Layout], Units | Elementwise]
Piece = Units | Elementwise | Sizer


def affine(
    source: Where, target: Where, matrix: Weight = 1.0, bias: Tensor | float | None = None
) -> Piece:
    """target += matrix · source + bias, exactly: x = σ(x) − σ(−x)."""

    def sized(layout: Layout) -> Units:
        a, b = layout[source], layout[target]
        weight = block(matrix, b, a, "affine")
        eye = torch.eye(a.size, dtype=torch.float64)
        reads, writes = torch.cat([eye, -eye]), torch.cat([weight, -weight], dim=1)
        offset = torch.zeros(2 * a.size, dtype=torch.float64)
        if bias is not None:
            constant = torch.as_tensor(bias, dtype=torch.float64).expand(b.size)
            reads = torch.cat([reads, torch.zeros(1, a.size, dtype=torch.float64)])
            writes = torch.cat([writes, constant[:, None]], dim=1)
            offset = torch.cat([offset, torch.ones(1, dtype=torch.float64)])
        plus = "" if bias is None else " + constant"
        note = f"{b.label} += {spelled(matrix)}{a.label}{plus}"
        return Units({source: reads}, offset, {target: writes}, note)

    return sized


def clear(register: Where) -> Piece:
    """register ← 0 (or, with a piece that writes it, the old value is replaced)."""
    return affine(register, register, -1.0)


def gate(flag: Where, source: Where, target: Where, bound: float) -> Piece:
    """target += flag · source, exact for flag in {0, 1} and |source| ≤ bound.

    z·x = σ(x − B(1 − z)) − σ(−x − B(1 − z)).
    """

    def sized(layout: Layout) -> Units:
        z, a, b = layout[flag], layout[source], layout[target]
        if z.size != 1 or a.size != b.size:
            raise InputError(
                f"gate takes one flag and registers of one size, got {z.label} ({z.size}), "
                f"{a.label} ({a.size}), {b.label} ({b.size})"
            )
        eye = torch.eye(a.size, dtype=torch.float64)
        reads = {source: torch.cat([eye, -eye]), flag: eye.new_full((2 * a.size, 1), bound)}
        bias = eye.new_full((2 * a.size,), -bound)
        note = f"{b.label} += {z.label} · {a.label}  (|{a.label}| ≤ {bound:g})"
        return Units(reads, bias, {target: torch.cat([eye, -eye], dim=1)}, note)

    return sized


def soft_threshold(register: Where, threshold: float) -> Piece:
    """register ← sign(x)·max(|x| − θ, 0) on every entry; exactly 0 where |x| ≤ θ."""
    if not threshold >= 0:
        raise InputError(f"threshold must be at least 0, got {threshold}")
    entries = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
    return Elementwise(
        register,
        register,
        slope=entries,
        bias=torch.tensor([0.0, 0.0, -threshold, -threshold], dtype=torch.float64),
        weight=torch.tensor([-1.0, 1.0, 1.0, -1.0], dtype=torch.float64),
        note=f"{label(register)} ← soft threshold of {label(register)} at {threshold:.4g}",
    )


def piecewise_linear(
    source: Where,
    target: Where,
    function: Callable[[Tensor], Tensor] | Tensor,
    knots: Float[Tensor, " knots"],
) -> Piece:
    """target += f(source) on every entry: f at the knots, linear between them, constant outside.

    One hidden unit per knot, f(t_0) + Σ_k (s_k − s_{k−1}) σ(x − t_k), or the mirror image from the
    last knot: of the two, the one whose terms cancel less, so that rounding stays small.
    """
    knots = knots.detach().to("cpu", torch.float64)
    if knots.ndim != 1 or len(knots) < 2 or not bool((knots.diff() > 0).all()):
        raise InputError("knots must be at least two increasing numbers")
    values = function(knots) if callable(function) else function.detach().to("cpu", torch.float64)
    if values.shape != knots.shape or not bool(torch.isfinite(values).all()):
        raise InputError("the function must be finite at every knot")
    rising = _hinges(knots, values)
    falling = _hinges(-knots.flip(0), values.flip(0))
    falling = (-falling[0], falling[1], falling[2])
    slope, bias, weight = min(rising, falling, key=lambda net: _cancellation(net, knots, values))
    note = f"{label(target)} += piecewise-linear of {label(source)}, {len(knots)} knots"
    return Elementwise(source, target, slope, bias, weight, note)


def _hinges(knots: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Slopes, biases and weights of f(t_0) + Σ_k (s_k − s_{k−1}) σ(x − t_k)."""
    slopes = torch.cat([knots.new_zeros(1), values.diff() / knots.diff(), knots.new_zeros(1)])
    slope = torch.cat([torch.zeros(1), torch.ones(len(knots))]).to(knots)
    bias = torch.cat([knots.new_ones(1), -knots])
    return slope, bias, torch.cat([values[:1], slopes.diff()])


def _cancellation(net: tuple[Tensor, Tensor, Tensor], knots: Tensor, values: Tensor) -> float:
    """The largest ratio of the terms' size to the sum's, over the knots."""
    slope, bias, weight = net
    terms = (knots[:, None] * slope + bias).relu() * weight
    return float((terms.abs().sum(dim=1) / values.abs().clamp_min(1e-300)).max())


class Everywhere(nn.Module):
    """An `Elementwise` piece, compiled: its units are stored once and used on every entry."""

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
        """What to add at `target`."""
        entries = stream.index_select(-1, self.source.to(stream.device)).unsqueeze(-1)
        slope, bias, weight = (p.to(stream.device) for p in (self.slope, self.bias, self.weight))
        return (entries * slope + bias).relu() @ weight

    def dense(self, width: int) -> tuple[Tensor, Tensor]:
        """The same units written out: W₁ (entries·units, width) and W₂ (width, entries·units)."""
        read = self.slope.new_zeros(len(self.source), len(self.slope), width)
        write = torch.zeros_like(read)
        entry = torch.arange(len(self.source))
        read[entry, :, self.source] = self.slope
        write[entry, :, self.target] = self.weight
        return read.flatten(0, 1), write.flatten(0, 1).mT


class MLP(nn.Module):
    """Dense hidden units and element-wise ones. Build it from pieces (`of`) or free (`free`)."""

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
        everywhere: Sequence[Everywhere] = (),
        notes: Sequence[str] = (),
    ) -> None:
        super().__init__()
        for name, value in (("inner", inner), ("bias", bias), ("outer", outer)):
            self.register_parameter(name, nn.Parameter(value, requires_grad=False))
        self.register_buffer("targets", targets)
        self.everywhere = nn.ModuleList(everywhere)
        self.notes = tuple(notes)

    @classmethod
    def of(cls, layout: Layout, pieces: Sequence[Piece]) -> MLP:
        """One MLP that does what all these pieces do."""
        if not pieces:
            raise InputError("an MLP needs at least one piece")
        sized = [piece(layout) if callable(piece) else piece for piece in pieces]
        dense = [piece for piece in sized if isinstance(piece, Units)]
        inner = [_assembled(layout, piece.reads, len(piece.bias), "rows") for piece in dense]
        outer = [_assembled(layout, piece.writes, len(piece.bias), "columns") for piece in dense]
        empty = torch.zeros(0, layout.width, dtype=torch.float64)
        written = torch.cat([empty.T, *outer], dim=1)
        targets = written.abs().sum(dim=1).nonzero().flatten()
        return cls(
            inner=torch.cat([empty, *inner]),
            bias=torch.cat([empty[:, 0], *(piece.bias for piece in dense)]),
            outer=written[targets],
            targets=targets,
            everywhere=[_compiled(layout, p) for p in sized if isinstance(p, Elementwise)],
            notes=[piece.note for piece in sized],
        )

    @classmethod
    def free(
        cls,
        width: int,
        hidden: int,
        *,
        scale: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> MLP:
        """Dense trainable weights, N(0, scale²/fan-in), bias 0."""
        inner, outer = (
            scale / math.sqrt(fan) * torch.randn(*shape, generator=generator, dtype=torch.float64)
            for fan, shape in ((width, (hidden, width)), (hidden, (width, hidden)))
        )
        bias = torch.zeros(hidden, dtype=torch.float64)
        return cls(inner, bias, outer, torch.arange(width)).requires_grad_(True)

    @property
    def hidden(self) -> int:
        """Hidden units, element-wise ones counted once per entry."""
        repeated = (len(e.slope) * len(e.source) for e in self._everywhere())
        return len(self.bias) + sum(repeated)

    def forward(self, stream: Float[Tensor, "*batch n width"]) -> Float[Tensor, "*batch n width"]:
        result = stream
        if len(self.bias):
            inner, bias, outer = (p.to(stream.device) for p in (self.inner, self.bias, self.outer))
            update = (stream @ inner.mT + bias).relu() @ outer.mT
            if len(self.targets) == stream.shape[-1]:
                result = result + update
            else:
                result = result.index_add(-1, self.targets.to(stream.device), update)
        for piece in self._everywhere():
            result = result.index_add(-1, piece.target.to(stream.device), piece(stream))
        return result

    def operator_norms(self) -> tuple[float, float]:
        """‖W₁‖ and ‖W₂‖ in operator norm, element-wise units written out."""
        width = self.inner.shape[1]
        with torch.no_grad():
            outer = self.outer.new_zeros(width, len(self.bias))
            outer[self.targets] = self.outer
            written = [(self.inner, outer), *(e.dense(width) for e in self._everywhere())]
            first = torch.cat([inner for inner, _ in written])
            second = torch.cat([outer for _, outer in written], dim=1)
            return float(torch.linalg.matrix_norm(first, 2)), float(
                torch.linalg.matrix_norm(second, 2)
            )

    def _everywhere(self) -> list[Everywhere]:
        return [piece for piece in self.everywhere if isinstance(piece, Everywhere)]


def _assembled(layout: Layout, blocks: Registers, hidden: int, side: str) -> Tensor:
    """(hidden, width) for what units read, (width, hidden) for what they write."""
    matrix = torch.zeros(hidden, layout.width, dtype=torch.float64)
    for where, weight in blocks.items():
        given = weight.detach().to("cpu", torch.float64)
        given = given if side == "rows" else given.mT
        if given.shape != (hidden, layout[where].size):
            raise InputError(
                f"units on {layout[where].label} need {hidden}×{layout[where].size} weights, "
                f"got {'×'.join(map(str, given.shape))}"
            )
        matrix[:, list(layout[where].places)] += given
    return matrix if side == "rows" else matrix.mT


def _compiled(layout: Layout, piece: Elementwise) -> Everywhere:
    source, target = layout[piece.source], layout[piece.target]
    if source.size != target.size:
        raise InputError(
            f"an element-wise piece needs equal sizes, got {source.label} ({source.size}) "
            f"and {target.label} ({target.size})"
        )
    places = [torch.tensor(address.places) for address in (source, target)]
    return Everywhere(piece.slope, piece.bias, piece.weight, *places)
