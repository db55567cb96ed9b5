"""Linear-attention models that are trained on Gram matrices, parametrised as in the papers.

LinearStack   P_l = diag(B_l, 1), Q_l = diag(A_l, 0): form (13) of ahn2023, without B form (9)
LoopedBlock   P = [0 0; uᵀ 1], Q = diag(A, 0) in every loop, subtracted: (3)–(5) of gatmiry2024
FullStack     P_l and Q_l with all (d+1)² entries

Each model can be converted to a `Transformer` with these weights, which can be saved, traced and
identified. Q multiplies (key, query) in the papers and (query, key) here, so the score of a head is
the transpose of Q.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.devices import default_to_cpu
from innerloop.errors import InputError
from innerloop.transformer import Attention, Block, Head, Layout, Transformer


class Weights(NamedTuple):
    """The A of each layer, with the sign of ahn2023; the B of all layers but the last; and u."""

    A: Float[Tensor, "layers d d"]
    B: Float[Tensor, "moves d d"] | None = None
    u: Float[Tensor, " d"] | None = None


class LinearStack(nn.Module):
    """Layers of form (13), or (9) without B; the last B has no effect and is left out."""

    def __init__(
        self, A: Float[Tensor, "layers d d"], B: Float[Tensor, "moves d d"] | None = None
    ) -> None:
        super().__init__()
        if B is not None and tuple(B.shape) != (len(A) - 1, *A.shape[1:]):
            raise InputError(
                f"{len(A)} layers need B of shape {(len(A) - 1, *A.shape[1:])}, one matrix fewer "
                f"than A, got {tuple(B.shape)}"
            )
        self.A = nn.Parameter(A.detach().clone())
        self.B = None if B is None else nn.Parameter(B.detach().clone())

    @classmethod
    def random(
        cls,
        d: int,
        layers: int,
        *,
        moving: bool = False,
        scale: float = 0.1,
        generator: torch.Generator | None = None,
    ) -> LinearStack:
        """Draw independent N(0, scale²) entries; `moving` adds B."""
        _require_positive(d=d, layers=layers)
        A = scale * torch.randn(layers, d, d, generator=generator, dtype=torch.float64)
        B = scale * torch.randn(layers - 1, d, d, generator=generator, dtype=torch.float64)
        return cls(A, B if moving else None)

    def perturb(self, spread: float, generator: torch.Generator | None = None) -> LinearStack:
        """Return a copy with N(0, spread²) added to every entry."""
        A, B, _ = self.weights()
        return LinearStack(
            _add_noise(A, spread, generator), B if B is None else _add_noise(B, spread, generator)
        )

    def weights(self) -> Weights:
        return Weights(self.A, self.B)

    @torch.no_grad()
    def transformer(self) -> Transformer:
        layout, A = _make_layout(self.A), self.A.cpu().double()
        moves = [] if self.B is None else list(self.B.cpu().double())
        body = []
        for i in range(len(A)):
            value: dict[tuple[str, str], float | Tensor] = {("y", "y"): 1.0}
            if i < len(moves):
                value["x", "x"] = moves[i]
            body.append([_make_block(layout, Head(score={("x", "x"): A[i].mT}, value=value))])
        return Transformer(layout, body).to(self.A)


class LoopedBlock(nn.Module):
    """One block that is applied `loops` times; u is 0 if it is None."""

    def __init__(
        self, A: Float[Tensor, "d d"], loops: int, u: Float[Tensor, " d"] | None = None
    ) -> None:
        super().__init__()
        _require_positive(loops=loops)
        self.loops = loops
        self.A = nn.Parameter(A.detach().clone())
        self.u = None if u is None else nn.Parameter(u.detach().clone())

    @classmethod
    def random(
        cls,
        d: int,
        loops: int,
        *,
        with_u: bool = False,
        scale: float = 0.1,
        generator: torch.Generator | None = None,
    ) -> LoopedBlock:
        """Draw independent N(0, scale²) entries."""
        _require_positive(d=d)
        A = scale * torch.randn(d, d, generator=generator, dtype=torch.float64)
        u = scale * torch.randn(d, generator=generator, dtype=torch.float64)
        return cls(A, loops, u if with_u else None)

    def perturb(self, spread: float, generator: torch.Generator | None = None) -> LoopedBlock:
        """Return a copy with N(0, spread²) added to every entry."""
        u = self.u if self.u is None else _add_noise(self.u, spread, generator)
        return LoopedBlock(_add_noise(self.A, spread, generator), self.loops, u)

    def weights(self) -> Weights:
        """Return −A for every loop (the sign of ahn2023), and u."""
        return Weights(-self.A.expand(self.loops, -1, -1), None, self.u)

    @torch.no_grad()
    def transformer(self) -> Transformer:
        layout = _make_layout(self.A)
        value: dict[tuple[str, str], float | Tensor] = {("y", "y"): -1.0}
        if self.u is not None:
            value["x", "y"] = -self.u.cpu().double()[None]
        head = Head(score={("x", "x"): self.A.cpu().double().mT}, value=value)
        body = [[_make_block(layout, head)]]
        return Transformer(layout, body, loops=self.loops).to(self.A)


Stack = LinearStack | LoopedBlock
"""Models whose error matrix depends on the prompt's Gram matrix alone, not on w*."""


class FullStack(nn.Module):
    """Layers in which all entries of P and Q are trainable."""

    def __init__(self, P: Float[Tensor, "layers d1 d1"], Q: Float[Tensor, "layers d1 d1"]) -> None:
        super().__init__()
        if P.shape != Q.shape:
            raise InputError(
                f"P and Q must have one shape, got {tuple(P.shape)} and {tuple(Q.shape)}"
            )
        self.P, self.Q = nn.Parameter(P.detach().clone()), nn.Parameter(Q.detach().clone())

    @classmethod
    def random(
        cls, d: int, layers: int, *, scale: float = 0.1, generator: torch.Generator | None = None
    ) -> FullStack:
        """Draw independent N(0, scale²) entries."""
        _require_positive(d=d, layers=layers)
        normals = torch.randn(2, layers, d + 1, d + 1, generator=generator, dtype=torch.float64)
        return cls(*(scale * normals))

    def perturb(self, spread: float, generator: torch.Generator | None = None) -> FullStack:
        """Return a copy with N(0, spread²) added to every entry."""
        return FullStack(
            _add_noise(self.P, spread, generator), _add_noise(self.Q, spread, generator)
        )

    @torch.no_grad()
    def transformer(self) -> Transformer:
        d = self.P.shape[-1] - 1
        layout, parts = Layout(x=d, y=()), {"x": slice(0, d), "y": slice(d, d + 1)}
        body = []
        for P, Q in zip(self.P.cpu().double(), self.Q.cpu().double(), strict=True):
            pairs = [(a, b) for a in parts for b in parts]
            score = {(a, b): Q.mT[parts[a], parts[b]] for a, b in pairs}
            value = {(a, b): P[parts[b], parts[a]] for a, b in pairs}
            body.append([_make_block(layout, Head(score=score, value=value))])
        return Transformer(layout, body).to(self.P)


def _make_layout(A: Tensor) -> Layout:
    return Layout(x=A.shape[-1], y=())


def _make_block(layout: Layout, head: Head) -> Block:
    with default_to_cpu():
        return Block(Attention.from_heads(layout, [head]))


def _add_noise(values: Tensor, spread: float, generator: torch.Generator | None) -> Tensor:
    noise = torch.randn(values.shape, generator=generator, dtype=torch.float64)
    return values.detach() + spread * noise.to(values)


def _require_positive(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise InputError(f"{name} must be at least 1, got {count}")
