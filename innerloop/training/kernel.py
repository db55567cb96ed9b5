"""The squared error of linear attention over a batch of Gram matrices, and its gradient, at once.

State      Y, rows × d for each prompt, starts at Y_0, the same for all. Its last d rows are T, the
           map that the layers so far have applied to a token
Layer      S = G Tᵀ A T with G the prompt's Gram matrix; T ← T + Γ T S, and R ← R + R S for the
           rows R above T. Without Γ the tokens do not move: T = I, R ← R + R G A, and Y is R
Loss       Σ_b m_b ‖Y_L − O − O_b‖² over the prompts b, over the leading rows, which O_b has
Backward   by hand: with X = [R; ΓT], S̄ = XᵀȲ and X̄ = ȲSᵀ; with S = GU, Ū = GS̄; with U = TᵀN and
           N = AT, N̄ = TŪ and T̄ += NŪᵀ + AᵀN̄
Layout     the batch is the last, contiguous dimension. A product of two batches is a sum over k of
           slices a[:, k] b[k], long vector operations that need no compiler; a product with
           weights is one GEMM. Value and gradient take one pass over pieces of the batch, in
           memory that is used again and again: fresh pages cost more than the arithmetic
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, no_type_check

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

# What runs many times in a pass is not checked when it runs: checks would take longer than it does.
Batch = Float[Tensor, "_ _ batch"]
Left = Float[Tensor, "rows inner #batch"]
Right = Float[Tensor, "inner columns #batch"]
Product = Float[Tensor, "rows columns #batch"]

_CLOSE = 1 << 18
"""Numbers in a batch's matrix that are worked on at a time."""
_WIDE = 24
"""Matrices from here on are multiplied one by one: measured on two cores."""


class Prompts(NamedTuple):
    """A batch of prompts: G, m and O_b."""

    gram: Float[Tensor, "d d batch"]
    mass: Float[Tensor, "#d #batch"]
    """What each column of each prompt counts."""
    target: Float[Tensor, "read d #batch"]

    @property
    def size(self) -> int:
        return self.gram.shape[-1]

    def cut(self) -> list[Prompts]:
        """The same prompts in pieces that stay close to the processor."""
        most = max(256, _CLOSE // self.gram.shape[0] ** 2)
        starts = range(0, self.size, most)
        return [Prompts(*(_narrow(t, k, most, self.size) for t in self)) for k in starts]


def _narrow(values: Tensor, start: int, most: int, size: int) -> Tensor:
    return values if values.shape[-1] < size else values[..., start : start + most]


class _Desk(threading.local):
    """Memory to work in, one for each thread. Every piece of a batch takes the same places in the
    same order, so that `clear` is all that it takes to use them again."""

    def __init__(self) -> None:
        self.places: list[Tensor] = []
        self.taken = 0

    def clear(self) -> None:
        self.taken = 0

    def take(self, like: Tensor, *shape: int) -> Tensor:
        """Uninitialised, with this shape, in the precision and on the device of `like`."""
        count, k = math.prod(shape), self.taken
        self.taken += 1
        if k == len(self.places):
            self.places.append(like.new_empty(count))
        place = self.places[k]
        if len(place) < count or place.dtype != like.dtype or place.device != like.device:
            place = self.places[k] = like.new_empty(count)
        return place[:count].view(shape)


_desk = _Desk()


@no_type_check
def times(a: Left, b: Right, onto: Product | None = None) -> Product:
    """a b for every member of the batch, added in place to `onto`."""
    if a.shape[1] >= _WIDE:
        product = torch.einsum("ikb,kjb->ijb", a, b)
        return product.contiguous() if onto is None else onto.add_(product)
    slices = zip(a.unsqueeze(2).unbind(1), b.unsqueeze(0).unbind(1), strict=True)
    if onto is None:
        onto = _desk.take(a, a.shape[0], *b.shape[1:])
        torch.mul(*next(slices), out=onto)
    for left, right in slices:
        onto.addcmul_(left, right)
    return onto


@no_type_check
def _weighted(weights: Float[Tensor, "rows inner"], b: Right) -> Product:
    """One matrix times every member of the batch."""
    found = _desk.take(b, len(weights), *b.shape[1:])
    torch.mm(weights, b.reshape(len(b), -1), out=found.view(len(weights), -1))
    return found


@no_type_check
def _by(a: Left, weights: Float[Tensor, "inner columns"]) -> Product:
    """Every member of the batch times one matrix."""
    columns = weights.shape[1]
    found = _desk.take(a, len(a), columns, a.shape[-1])
    return torch.bmm(weights.mT.expand(len(a), -1, -1), a, out=found)


@no_type_check
def _copied(a: Batch) -> Batch:
    return _desk.take(a, *a.shape).copy_(a)


@no_type_check
def _outer(a: Batch, b: Batch) -> Float[Tensor, "_ _"]:
    """Σ a bᵀ over the batch."""
    return a.reshape(len(a), -1) @ b.reshape(len(b), -1).mT


@no_type_check
def _inner(a: Left, b: Right) -> Float[Tensor, "rows columns"]:
    """Σ a b over the batch."""
    return torch.bmm(a.transpose(0, 1), b.mT).sum(0)


def loss(
    prompts: Prompts,
    A: Float[Tensor, "layers d d"],
    first: Float[Tensor, "rows d"],
    offset: Float[Tensor, "read d"] | None = None,
    gamma: Sequence[Float[Tensor, "d d"]] = (),
) -> Float[Tensor, ""]:
    """The loss, differentiable once in A, Γ (gamma), O (offset, none is 0) and Y_0 (first).

    With Γ, Y_0 must end in the identity, and is taken as given; rows above it are all that is read,
    and the last layer's Γ may be left out. Without such rows the first ones of T are read.
    """
    read = prompts.target.shape[0]
    offset = first.new_zeros(read, first.shape[1]) if offset is None else offset
    return _Loss.apply(prompts, A, first, offset, *gamma)  # pyright: ignore[reportReturnType]


class _Loss(torch.autograd.Function):
    """The gradient is known when the value is; nothing of the batch's size is kept for it."""

    @staticmethod
    def forward(
        ctx: Any, prompts: Prompts, A: Tensor, first: Tensor, offset: Tensor, *gamma: Tensor
    ) -> Tensor:
        wanted = any(ctx.needs_input_grad)
        total, ctx.slopes = prompts.gram.new_zeros(()), None
        for part in prompts.cut():
            _desk.clear()
            if gamma:
                value, slopes = _moving(part, wanted, A, first, offset, gamma)
            else:
                value, slopes = _still(part, wanted, A, first, offset)
            total, kept = total + value, ctx.slopes
            ctx.slopes = slopes if kept is None else list(map(torch.add, kept, slopes))
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        A, first, offset, *gamma = (outer * slope for slope in ctx.slopes)
        return None, A, None if gamma else first, offset, *gamma


@no_type_check
def _error(part: Prompts, last: Batch, offset: Tensor) -> tuple[Tensor, Batch]:
    """The loss of a piece, and its slope in Y_L."""
    wanted = part.target + offset[..., None]
    error = torch.sub(last, wanted, out=_desk.take(last, *last.shape))
    slope = torch.mul(error, part.mass, out=_desk.take(last, *last.shape))
    return torch.dot(error.view(-1), slope.view(-1)), slope.mul_(2)


def _still(
    part: Prompts, wanted: bool, A: Tensor, first: Tensor, offset: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Y ← Y + H A with H = Y G."""
    G, Y, kept = part.gram, first[..., None], []
    for i in range(len(A)):
        kept.append(times(Y, G) if i else _weighted(first, G))
        Y = _by(kept[-1], A[i]).add_(Y)
    value, slope = _error(part, Y, offset)
    if not wanted:
        return value, []
    A_slopes, off, first_slope = [], -slope.sum(-1), torch.zeros_like(first)
    for i in reversed(range(len(A))):
        A_slopes.append(torch.bmm(kept[i], slope.mT).sum(0))
        H_slope = _by(slope, A[i].mT)
        if i:
            slope = times(H_slope, G, onto=slope)
        else:
            first_slope = slope.sum(-1) + _inner(H_slope, G)
    return value, [torch.stack(A_slopes[::-1]), first_slope, off]


class _Layer(NamedTuple):
    """What a layer leaves for the way back."""

    N: Batch
    S: Batch
    X: Batch
    Y: Batch


def _moving(
    part: Prompts,
    wanted: bool,
    A: Tensor,
    first: Tensor,
    offset: Tensor,
    gamma: Sequence[Tensor],
) -> tuple[Tensor, list[Tensor]]:
    """Y ← Y + X S with X = [R; ΓT], S = G Tᵀ A T; of the last Y only what is read."""
    G, d, read = part.gram, part.gram.shape[0], part.target.shape[0]
    rows = read if len(A) == 1 else len(first)
    Y = _weighted(_start(first, gamma, d)[:rows], _by(G, A[0])).add_(first[:rows, :, None])
    layers: list[_Layer] = []
    for i in range(1, len(A)):
        rows = read if i == len(A) - 1 else len(first)
        T = Y[-d:]
        N = _weighted(A[i], T)
        S = times(G, times(T.transpose(0, 1), N))
        X = _mixed(Y, gamma, i, rows)
        layers.append(_Layer(N, S, X, Y))
        Y = times(X, S, onto=_copied(Y[:rows]))
    value, slope = _error(part, Y, offset)
    if not wanted:
        return value, []
    off = -slope.sum(-1)
    A_slope, *gamma_slopes = _back(G, layers, slope, A, first, gamma)
    return value, [A_slope, torch.zeros_like(first), off, *gamma_slopes]


def _start(first: Tensor, gamma: Sequence[Tensor], d: int) -> Tensor:
    """X of the first layer, the same for all prompts."""
    return torch.cat([first[:-d], gamma[0]])


@no_type_check
def _mixed(Y: Batch, gamma: Sequence[Tensor], i: int, rows: int) -> Batch:
    """The leading rows of X = [R; ΓT]."""
    above = len(Y) - Y.shape[1]
    if rows <= above:
        return Y[:rows]
    X = _desk.take(Y, rows, *Y.shape[1:])
    X[:above] = Y[:above]
    below = X[above:].view(rows - above, -1)
    torch.mm(gamma[i][: rows - above], Y[above:].reshape(Y.shape[1], -1), out=below)
    return X


def _back(
    G: Batch,
    layers: list[_Layer],
    slope: Batch,
    A: Tensor,
    first: Tensor,
    gamma: Sequence[Tensor],
) -> list[Tensor]:
    """The gradient in A and every Γ."""
    d, A_slope = len(G), torch.empty_like(A)
    above = len(first) - d
    gamma_slopes = [torch.zeros_like(g) for g in gamma]
    for i in reversed(range(1, len(A))):
        N, S, X, Y = layers[i - 1]
        rows, T = len(X), Y[above:]
        X_slope = times(slope, S.transpose(0, 1))
        U_slope = times(G, times(X.transpose(0, 1), slope))
        N_slope = times(T, U_slope)
        A_slope[i] = _outer(N_slope, T)
        onto = _desk.take(Y, *Y.shape)
        onto[:above] = X_slope[:above]
        torch.mm(A[i].mT, N_slope.view(d, -1), out=onto[above:].view(d, -1))
        if rows > above:
            gamma_slopes[i][: rows - above] = _outer(X_slope[above:], T)
            onto[above:] += _weighted(gamma[i][: rows - above].mT, X_slope[above:])
        onto[:rows] += slope
        times(N, U_slope.transpose(0, 1), onto=onto[above:])
        slope = onto
    # The first layer has T = I, S = G A and a Y that all prompts share.
    rows = len(slope)
    A_slope[0] = _inner(G, _weighted(_start(first, gamma, d)[:rows].mT, slope))
    if rows > above:
        S_mean = _inner(slope[above:], _by(G, A[0]).transpose(0, 1))
        gamma_slopes[0][: rows - above] = S_mean
    return [A_slope, *gamma_slopes]
