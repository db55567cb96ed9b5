"""Pieces that an MLP is assembled from.

Each piece reads the MLP's input and adds to its registers; several pieces make one MLP. A piece
that needs another piece's output belongs in a later block. `clear` plus a piece that writes
replaces a register. Pieces that act on every entry of a register alike store their hidden units
once, not per entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.transformer.head import Weight, as_matrix, format_weight
from innerloop.transformer.layout import Layout, Location, format_location

Registers = Mapping[str, Tensor] | Mapping[Location, Tensor]


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

    source: Location
    target: Location
    slope: Tensor
    bias: Tensor
    weight: Tensor
    note: str = ""


PieceBuilder = Callable[[Layout], Units | Elementwise]
Piece = Units | Elementwise | PieceBuilder


def affine(
    source: Location, target: Location, matrix: Weight = 1.0, bias: Tensor | float | None = None
) -> Piece:
    """target += matrix · source + bias, exactly: x = σ(x) − σ(−x)."""

    def build(layout: Layout) -> Units:
        a, b = layout[source], layout[target]
        weight = as_matrix(matrix, b, a, "affine")
        eye = torch.eye(a.size, dtype=torch.float64)
        reads, writes = torch.cat([eye, -eye]), torch.cat([weight, -weight], dim=1)
        offset = torch.zeros(2 * a.size, dtype=torch.float64)
        if bias is not None:
            constant = torch.as_tensor(bias, dtype=torch.float64)
            if constant.shape not in ((), (b.size,)):
                raise InputError(
                    f"bias must be one number or {b.size}, got {tuple(constant.shape)}"
                )
            constant = constant.expand(b.size)
            reads = torch.cat([reads, torch.zeros(1, a.size, dtype=torch.float64)])
            writes = torch.cat([writes, constant[:, None]], dim=1)
            offset = torch.cat([offset, torch.ones(1, dtype=torch.float64)])
        plus = "" if bias is None else " + constant"
        note = f"{b.label} += {format_weight(matrix)}{a.label}{plus}"
        return Units({source: reads}, offset, {target: writes}, note)

    return build


def clear(register: Location) -> Piece:
    """register ← 0 (or, with a piece that writes it, the old value is replaced)."""
    return affine(register, register, -1.0)


def gate(flag: Location, source: Location, target: Location, bound: float) -> Piece:
    """target += flag · source, exact for flag in {0, 1} and |source| ≤ bound.

    z·x = σ(x − B(1 − z)) − σ(−x − B(1 − z)).
    """

    if not bound > 0:
        raise InputError(f"bound must be positive, got {bound}")

    def build(layout: Layout) -> Units:
        z, a, b = layout[flag], layout[source], layout[target]
        if z.size != 1 or a.size != b.size or set(z.places) & set(a.places):
            raise InputError(
                f"gate takes one flag and other registers of one size, got {z.label} ({z.size}), "
                f"{a.label} ({a.size}), {b.label} ({b.size})"
            )
        eye = torch.eye(a.size, dtype=torch.float64)
        reads = {source: torch.cat([eye, -eye]), flag: eye.new_full((2 * a.size, 1), bound)}
        bias = eye.new_full((2 * a.size,), -bound)
        note = f"{b.label} += {z.label} · {a.label}  (|{a.label}| ≤ {bound:g})"
        return Units(reads, bias, {target: torch.cat([eye, -eye], dim=1)}, note)

    return build


def soft_threshold(register: Location, threshold: float) -> Piece:
    """register ← sign(x)·max(|x| − θ, 0) on every entry; exactly 0 where |x| ≤ θ."""
    if not threshold >= 0:
        raise InputError(f"threshold must be at least 0, got {threshold}")
    entries = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
    place = format_location(register)
    return Elementwise(
        register,
        register,
        slope=entries,
        bias=torch.tensor([0.0, 0.0, -threshold, -threshold], dtype=torch.float64),
        weight=torch.tensor([-1.0, 1.0, 1.0, -1.0], dtype=torch.float64),
        note=f"{place} ← soft threshold of {place} at {threshold:.4g}",
    )


def clip(register: Location, bound: float) -> Piece:
    """register ← min(max(x, −bound), bound) on every entry: x − σ(x − C) + σ(−x − C)."""
    if not bound >= 0:
        raise InputError(f"bound must be at least 0, got {bound}")
    return Elementwise(
        register,
        register,
        slope=torch.tensor([1.0, -1.0], dtype=torch.float64),
        bias=torch.tensor([-bound, -bound], dtype=torch.float64),
        weight=torch.tensor([-1.0, 1.0], dtype=torch.float64),
        note=f"{format_location(register)} ← {format_location(register)} clipped to ±{bound:.4g}",
    )


def piecewise_linear(
    source: Location,
    target: Location,
    function: Callable[[Tensor], Tensor] | Tensor,
    knots: Float[Tensor, " knots"],
) -> Piece:
    """target += f(source) on every entry: f at the knots, linear between them, constant outside.

    One hidden unit per knot and one for the constant, f(t_0) + Σ_k (s_k − s_{k−1}) σ(x − t_k), or
    the mirror image from the last knot; the one whose terms cancel less is taken, so that rounding
    stays small.
    """
    knots = knots.detach().to("cpu", torch.float64)
    if knots.ndim != 1 or len(knots) < 2 or not bool((knots.diff() > 0).all()):
        raise InputError("knots must be at least two increasing numbers")
    values = function(knots) if callable(function) else function.detach().to("cpu", torch.float64)
    if values.shape != knots.shape or not bool(torch.isfinite(values).all()):
        raise InputError("the function must be finite at every knot")
    rising = _fit_hinges(knots, values)
    falling = _fit_hinges(-knots.flip(0), values.flip(0))
    falling = (-falling[0], falling[1], falling[2])
    slope, bias, weight = min(rising, falling, key=lambda net: _cancellation(net, knots, values))
    left, right = format_location(target), format_location(source)
    note = f"{left} += piecewise-linear of {right}, {len(knots)} knots"
    return Elementwise(source, target, slope, bias, weight, note)


def _fit_hinges(knots: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Slopes, biases and weights of f(t_0) + Σ_k (s_k − s_{k−1}) σ(x − t_k)."""
    slopes = torch.cat([knots.new_zeros(1), values.diff() / knots.diff(), knots.new_zeros(1)])
    slope = torch.cat([torch.zeros(1), torch.ones(len(knots))]).to(knots)
    bias = torch.cat([knots.new_ones(1), -knots])
    return slope, bias, torch.cat([values[:1], slopes.diff()])


def _cancellation(net: tuple[Tensor, Tensor, Tensor], knots: Tensor, values: Tensor) -> float:
    """Largest ratio, over the knots, of the terms' absolute sum to the value."""
    slope, bias, weight = net
    terms = sum_hinges(knots, slope, bias, weight.abs())
    return float((terms / values.abs().clamp_min(1e-300)).max())


def sum_hinges(entries: Tensor, slope: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
    """Σ_k weight_k σ(slope_k·x + bias_k) for every entry x, without an (entries, units) table.

    Between two thresholds −bias/slope the sum is linear; a search finds the right line.
    """
    constant = (bias.relu() * weight)[slope == 0].sum()
    rising, falling = slope > 0, slope < 0
    up = _sum_rising_hinges(entries, slope[rising], bias[rising], weight[rising])
    down = _sum_rising_hinges(-entries, -slope[falling], bias[falling], weight[falling])
    return constant + up + down


def _sum_rising_hinges(entries: Tensor, slope: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
    thresholds, order = (-bias / slope).sort()
    part = weight[order] * torch.stack([slope[order], bias[order]])
    lines = torch.cat([part.new_zeros(2, 1), part.cumsum(dim=-1)], dim=-1)
    steepness, level = lines[:, torch.searchsorted(thresholds, entries.contiguous())]
    return steepness * entries + level
