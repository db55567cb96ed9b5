"""Pieces from which an MLP is made.

Every piece reads the input of the MLP and adds to registers. A piece that needs the output of
another piece must be in a later block. `clear` together with a piece that writes to a register
replaces the value of the register. Pieces that act in the same way on every entry of a register
store their hidden units once, not per entry.
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
    """Hidden units that read and write registers; they add Σ writes·σ(Σ reads·h + bias)."""

    reads: Registers
    bias: Tensor
    writes: Registers
    note: str = ""


@dataclass(frozen=True, eq=False)
class Elementwise:
    """A scalar network on every entry: target += Σ_k weight_k σ(slope_k·source + bias_k)."""

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
    """Return a piece for target += matrix · source + bias, exactly: x = σ(x) − σ(−x)."""

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
    """Return a piece for register ← 0.

    Together with a piece that writes to the register, it replaces the value.
    """
    return affine(register, register, -1.0)


def gate(flag: Location, source: Location, target: Location, bound: float) -> Piece:
    """Return a piece for target += flag · source, exact for flags in {0, 1} and |source| ≤ bound.

    z·x = σ(x − B(1 − z)) − σ(−x − B(1 − z)).
    """

    if not bound > 0:
        raise InputError(f"bound must be positive, got {bound}")

    def build(layout: Layout) -> Units:
        z, a, b = layout[flag], layout[source], layout[target]
        if z.size != 1 or a.size != b.size or set(z.places) & set(a.places):
            raise InputError(
                f"expected one flag and two registers of equal size, got {z.label} ({z.size}), "
                f"{a.label} ({a.size}), {b.label} ({b.size})"
            )
        eye = torch.eye(a.size, dtype=torch.float64)
        reads = {source: torch.cat([eye, -eye]), flag: eye.new_full((2 * a.size, 1), bound)}
        bias = eye.new_full((2 * a.size,), -bound)
        note = f"{b.label} += {z.label} · {a.label}  (|{a.label}| ≤ {bound:g})"
        return Units(reads, bias, {target: torch.cat([eye, -eye], dim=1)}, note)

    return build


def soft_threshold(register: Location, threshold: float) -> Piece:
    """Return a piece for register ← sign(x)·max(|x| − θ, 0), exactly 0 for |x| ≤ θ."""
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
    """Return a piece for register ← min(max(x, −C), C) on every entry, where C is `bound`.

    It computes x − σ(x − C) + σ(−x − C).
    """
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
    """Return a piece for target += f(source) on every entry, with a piecewise linear f.

    f equals the function at the knots, is linear between them and constant outside. There is one
    hidden unit per knot and one for the constant: f(t_0) + Σ_k (s_k − s_{k−1}) σ(x − t_k), or the
    mirror image from the last knot. The form whose terms cancel less is used, so that rounding
    stays small.
    """
    knots = knots.detach().to("cpu", torch.float64)
    if knots.ndim != 1 or len(knots) < 2 or not bool((knots.diff() > 0).all()):
        raise InputError("expected at least two knots, in increasing order")
    values = function(knots) if callable(function) else function.detach().to("cpu", torch.float64)
    if values.shape != knots.shape or not bool(torch.isfinite(values).all()):
        raise InputError("expected a function that is finite at every knot")
    rising = _fit_hinges(knots, values)
    falling = _fit_hinges(-knots.flip(0), values.flip(0))
    falling = (-falling[0], falling[1], falling[2])
    slope, bias, weight = min(rising, falling, key=lambda net: _cancellation(net, knots, values))
    left, right = format_location(target), format_location(source)
    note = f"{left} += piecewise-linear of {right}, {len(knots)} knots"
    return Elementwise(source, target, slope, bias, weight, note)


def _fit_hinges(knots: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return slopes, biases and weights of f(t_0) + Σ_k (s_k − s_{k−1}) σ(x − t_k)."""
    slopes = torch.cat([knots.new_zeros(1), values.diff() / knots.diff(), knots.new_zeros(1)])
    slope = torch.cat([torch.zeros(1), torch.ones(len(knots))]).to(knots)
    bias = torch.cat([knots.new_ones(1), -knots])
    return slope, bias, torch.cat([values[:1], slopes.diff()])


def _cancellation(net: tuple[Tensor, Tensor, Tensor], knots: Tensor, values: Tensor) -> float:
    """Return the largest ratio, over the knots, of the sum of magnitudes of terms to the value."""
    slope, bias, weight = net
    terms = sum_hinges(knots, slope, bias, weight.abs())
    return float((terms / values.abs().clamp_min(1e-300)).max())


def sum_hinges(entries: Tensor, slope: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
    """Compute Σ_k weight_k σ(slope_k·x + bias_k) for every entry x, without a table for all units.

    The sum is linear between two consecutive thresholds −bias/slope; a binary search finds the pair
    around x.
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
