"""The squared error of linear attention on a batch of Gram matrices, and its gradient, in one pass.

State      Y has rows × d entries for each prompt and starts at a Y_0 that all prompts share. Its
           last d rows are T, the map that the layers so far have applied to a token
Layer      S = G Tᵀ A T with G the prompt's Gram matrix; T ← T + Γ T S, and R ← R + R S for the
           rows R above T. Without Γ, tokens do not change: T = I, R ← R + R G A, and Y is R
Loss       Σ_b m_b ‖Y_L − O − O_b‖² over prompts b; only the leading rows count, as many as O_b has
Backward   derived by hand: with X = [R; ΓT], S̄ = XᵀȲ and X̄ = ȲSᵀ; with S = GU, Ū = GS̄; with
           U = TᵀN and N = AT, N̄ = TŪ and T̄ += NŪᵀ + AᵀN̄
Layout     the batch is the last, contiguous dimension. A product of two batches is a sum over k of
           slices a[:, k] b[k], which are long vector operations without compiled code; a product
           with weights is one GEMM. Loss and gradient take one pass over pieces of the batch, in
           memory that is reused, because allocating new pages costs more than the arithmetic
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, no_type_check

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from innerloop.training.compiled import compute_loss

Code = Literal["torch", "c"]
"""The code that computes the loss and its gradient."""

# Inner functions have no run-time type checks, which would take longer than the functions.
Batch = Float[Tensor, "_ _ batch"]
Left = Float[Tensor, "rows inner #batch"]
Right = Float[Tensor, "inner columns #batch"]
Product = Float[Tensor, "rows columns #batch"]

_CACHED_ENTRIES = 1 << 18
"""Entries of a batch of Gram matrices to process at a time: a piece that fits the cache."""
_EINSUM_WIDTH = 24
"""Inner dimension from which `einsum` beats sums of slices: measured on two cores."""


class Prompts(NamedTuple):
    """A batch of prompts: the G, m and O_b of the header."""

    gram: Float[Tensor, "d d batch"]
    mass: Float[Tensor, "#d #batch"]
    """Weight m of each column of each prompt in the loss."""
    target: Float[Tensor, "read d #batch"]

    @property
    def size(self) -> int:
        return self.gram.shape[-1]

    def split(self) -> list[Prompts]:
        """Split the prompts into pieces that fit the processor's cache."""
        length = max(256, _CACHED_ENTRIES // self.gram.shape[0] ** 2)
        starts = range(0, self.size, length)
        return [self.narrow(k, min(k + length, self.size)) for k in starts]

    def narrow(self, first: int, last: int) -> Prompts:
        """Return the prompts from `first` up to, but not including, `last`."""
        return Prompts(*(_narrow(t, first, last - first, self.size) for t in self))


def _narrow(values: Tensor, start: int, length: int, size: int) -> Tensor:
    return values if values.shape[-1] < size else values[..., start : start + length]


class _Workspace(threading.local):
    """Reusable scratch memory, one per thread.

    Every piece of a batch takes the same buffers in the same order, so `clear` is enough to reuse
    them.
    """

    def __init__(self) -> None:
        self.buffers: list[Tensor] = []
        self.next_buffer = 0

    def clear(self) -> None:
        self.next_buffer = 0

    def take(self, like: Tensor, *shape: int) -> Tensor:
        """Return an uninitialised tensor of this shape, with the dtype and device of `like`."""
        entries, k = math.prod(shape), self.next_buffer
        self.next_buffer += 1
        if k == len(self.buffers):
            self.buffers.append(like.new_empty(entries))
        buffer = self.buffers[k]
        if len(buffer) < entries or buffer.dtype != like.dtype or buffer.device != like.device:
            buffer = self.buffers[k] = like.new_empty(entries)
        return buffer[:entries].view(shape)


_workspace = _Workspace()


@no_type_check
def multiply(a: Left, b: Right, onto: Product | None = None) -> Product:
    """Multiply a b for every member of the batch; with `onto`, add the product to it in place."""
    if a.shape[1] >= _EINSUM_WIDTH:
        product = torch.einsum("ikb,kjb->ijb", a, b)
        return product.contiguous() if onto is None else onto.add_(product)
    slices = zip(a.unsqueeze(2).unbind(1), b.unsqueeze(0).unbind(1), strict=True)
    if onto is None:
        onto = _workspace.take(a, a.shape[0], *b.shape[1:])
        torch.mul(*next(slices), out=onto)
    for left, right in slices:
        onto.addcmul_(left, right)
    return onto


@no_type_check
def _multiply_left(weights: Float[Tensor, "rows inner"], b: Right) -> Product:
    """Multiply every member of the batch by one matrix from the left."""
    product = _workspace.take(b, len(weights), *b.shape[1:])
    torch.mm(weights, b.reshape(len(b), -1), out=product.view(len(weights), -1))
    return product


@no_type_check
def _multiply_right(a: Left, weights: Float[Tensor, "inner columns"]) -> Product:
    """Multiply every member of the batch by one matrix from the right."""
    columns = weights.shape[1]
    product = _workspace.take(a, len(a), columns, a.shape[-1])
    return torch.bmm(weights.mT.expand(len(a), -1, -1), a, out=product)


@no_type_check
def _copy(a: Batch) -> Batch:
    return _workspace.take(a, *a.shape).copy_(a)


@no_type_check
def _sum_outer(a: Batch, b: Batch) -> Float[Tensor, "_ _"]:
    """Sum a bᵀ over the batch."""
    return a.reshape(len(a), -1) @ b.reshape(len(b), -1).mT


@no_type_check
def _sum_inner(a: Left, b: Right) -> Float[Tensor, "rows columns"]:
    """Sum a b over the batch."""
    return torch.bmm(a.transpose(0, 1), b.mT).sum(0)


def loss(
    prompts: Prompts,
    A: Float[Tensor, "layers d d"],
    first: Float[Tensor, "rows d"],
    offset: Float[Tensor, "read d"] | None = None,
    gamma: Sequence[Float[Tensor, "d d"]] = (),
    code: Code = "torch",
) -> Float[Tensor, ""]:
    """Compute the loss, which can be differentiated once.

    Args:
        prompts: The batch of prompts.
        A: The matrices A of all layers.
        first: Y_0. With Γ, its last d rows must be the identity, and it gets no gradient. Only the
            rows above them count in the loss; if there are none, the first rows of T count.
        offset: O; None means 0.
        gamma: The matrices Γ, or none; that of the last layer may be left out.
        code: "torch" for this file, or "c" for `gram_loss.c`, which adds prompts in another order.
    """
    read = prompts.target.shape[0]
    offset = first.new_zeros(read, first.shape[1]) if offset is None else offset
    return _Loss.apply(prompts, code, A, first, offset, *gamma)  # pyright: ignore[reportReturnType]


class _Loss(torch.autograd.Function):
    """Computes the gradient in the forward pass, so that nothing of the batch's size is stored."""

    @staticmethod
    def forward(
        ctx: Any,
        prompts: Prompts,
        code: Code,
        A: Tensor,
        first: Tensor,
        offset: Tensor,
        *gamma: Tensor,
    ) -> Tensor:
        needs_gradient = any(ctx.needs_input_grad)
        if code == "c":
            total, ctx.slopes = compute_loss(prompts, needs_gradient, A, first, offset, gamma)
            return total
        total, ctx.slopes = prompts.gram.new_zeros(()), None
        for piece in prompts.split():
            _workspace.clear()
            if gamma:
                value, slopes = _run_moving(piece, needs_gradient, A, first, offset, gamma)
            else:
                value, slopes = _run_fixed(piece, needs_gradient, A, first, offset)
            total, previous = total + value, ctx.slopes
            ctx.slopes = slopes if previous is None else list(map(torch.add, previous, slopes))
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        A, first, offset, *gamma = (outer * slope for slope in ctx.slopes)
        return None, None, A, None if gamma else first, offset, *gamma


@no_type_check
def _loss_and_slope(piece: Prompts, last: Batch, offset: Tensor) -> tuple[Tensor, Batch]:
    """Return the loss of a piece of the batch and its gradient in Y_L."""
    target = piece.target + offset[..., None]
    error = torch.sub(last, target, out=_workspace.take(last, *last.shape))
    slope = torch.mul(error, piece.mass, out=_workspace.take(last, *last.shape))
    return torch.dot(error.view(-1), slope.view(-1)), slope.mul_(2)


def _run_fixed(
    piece: Prompts, needs_gradient: bool, A: Tensor, first: Tensor, offset: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Return loss and gradients if tokens do not change: Y ← Y + H A with H = Y G."""
    G, Y, products = piece.gram, first[..., None], []
    for i in range(len(A)):
        products.append(multiply(Y, G) if i else _multiply_left(first, G))
        Y = _multiply_right(products[-1], A[i]).add_(Y)
    value, slope = _loss_and_slope(piece, Y, offset)
    if not needs_gradient:
        return value, []
    A_slopes, offset_slope, first_slope = [], -slope.sum(-1), torch.zeros_like(first)
    for i in reversed(range(len(A))):
        A_slopes.append(torch.bmm(products[i], slope.mT).sum(0))
        H_slope = _multiply_right(slope, A[i].mT)
        if i:
            slope = multiply(H_slope, G, onto=slope)
        else:
            first_slope = slope.sum(-1) + _sum_inner(H_slope, G)
    return value, [torch.stack(A_slopes[::-1]), first_slope, offset_slope]


class _Layer(NamedTuple):
    """Values that a layer keeps for the backward pass."""

    N: Batch
    S: Batch
    X: Batch
    Y: Batch


def _run_moving(
    piece: Prompts,
    needs_gradient: bool,
    A: Tensor,
    first: Tensor,
    offset: Tensor,
    gamma: Sequence[Tensor],
) -> tuple[Tensor, list[Tensor]]:
    """Return loss and gradients if tokens change: Y ← Y + X S with X = [R; ΓT], S = G Tᵀ A T.

    Only the rows of the last Y that count in the loss are computed.
    """
    G, d, read = piece.gram, piece.gram.shape[0], piece.target.shape[0]
    rows = read if len(A) == 1 else len(first)
    Y = _multiply_left(_first_rows(first, gamma, d)[:rows], _multiply_right(G, A[0])).add_(
        first[:rows, :, None]
    )
    layers: list[_Layer] = []
    for i in range(1, len(A)):
        rows = read if i == len(A) - 1 else len(first)
        T = Y[-d:]
        N = _multiply_left(A[i], T)
        S = multiply(G, multiply(T.transpose(0, 1), N))
        X = _leading_rows(Y, gamma, i, rows)
        layers.append(_Layer(N, S, X, Y))
        Y = multiply(X, S, onto=_copy(Y[:rows]))
    value, slope = _loss_and_slope(piece, Y, offset)
    if not needs_gradient:
        return value, []
    offset_slope = -slope.sum(-1)
    A_slope, *gamma_slopes = _backpropagate(G, layers, slope, A, first, gamma)
    return value, [A_slope, torch.zeros_like(first), offset_slope, *gamma_slopes]


def _first_rows(first: Tensor, gamma: Sequence[Tensor], d: int) -> Tensor:
    """Return X of the first layer, which all prompts share."""
    return torch.cat([first[:-d], gamma[0]])


@no_type_check
def _leading_rows(Y: Batch, gamma: Sequence[Tensor], i: int, rows: int) -> Batch:
    """Return the leading rows of X = [R; ΓT]."""
    above = len(Y) - Y.shape[1]
    if rows <= above:
        return Y[:rows]
    X = _workspace.take(Y, rows, *Y.shape[1:])
    X[:above] = Y[:above]
    below = X[above:].view(rows - above, -1)
    torch.mm(gamma[i][: rows - above], Y[above:].reshape(Y.shape[1], -1), out=below)
    return X


def _backpropagate(
    G: Batch,
    layers: list[_Layer],
    slope: Batch,
    A: Tensor,
    first: Tensor,
    gamma: Sequence[Tensor],
) -> list[Tensor]:
    """Return the gradient in A and in every Γ."""
    d, A_slope = len(G), torch.empty_like(A)
    above = len(first) - d
    gamma_slopes = [torch.zeros_like(g) for g in gamma]
    for i in reversed(range(1, len(A))):
        N, S, X, Y = layers[i - 1]
        rows, T = len(X), Y[above:]
        X_slope = multiply(slope, S.transpose(0, 1))
        U_slope = multiply(G, multiply(X.transpose(0, 1), slope))
        N_slope = multiply(T, U_slope)
        A_slope[i] = _sum_outer(N_slope, T)
        onto = _workspace.take(Y, *Y.shape)
        onto[:above] = X_slope[:above]
        torch.mm(A[i].mT, N_slope.view(d, -1), out=onto[above:].view(d, -1))
        if rows > above:
            gamma_slopes[i][: rows - above] = _sum_outer(X_slope[above:], T)
            onto[above:] += _multiply_left(gamma[i][: rows - above].mT, X_slope[above:])
        onto[:rows] += slope
        multiply(N, U_slope.transpose(0, 1), onto=onto[above:])
        slope = onto
    # In the first layer T = I, S = G A, and all prompts share Y.
    rows = len(slope)
    A_slope[0] = _sum_inner(G, _multiply_left(_first_rows(first, gamma, d)[:rows].mT, slope))
    if rows > above:
        S_mean = _sum_inner(slope[above:], _multiply_right(G, A[0]).transpose(0, 1))
        gamma_slopes[0][: rows - above] = S_mean
    return [A_slope, *gamma_slopes]
