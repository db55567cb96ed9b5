"""The exact objective for linear attention on noiseless regression: prompts enter by Gram matrices.

Setting    x ~ N(0, Σ), w* ~ N(0, W), labels ⟨w*, x⟩, n examples; G = (1/n) Σ x xᵀ over the context
Weights    P_l = diag(B_l, 1), Q_l = diag(A_l, 0): form (13) of ahn2023, without B_l form (9); or
           the looped P = [0 0; uᵀ 1], Q = diag(A, 0) of gatmiry2024, whose A has the other sign
Error      w*ᵀ R_L x_q on a query, R_0 = T_0 = I, S_l = G T_lᵀ A_l T_l, R_{l+1} = R_l + R_l S_l,
           T_{l+1} = T_l + B_l T_l S_l; u adds uᵀ(R_L − I) x_q
Loss       E tr(R_Lᵀ W R_L Σ) + E ‖Σ^½ (R_Lᵀ − I) u‖²: over w* and x_q exactly, over G by draws from
           its Wishart law, or exactly as well, where that takes few enough points
Whitened   with Σ = CCᵀ and G = C G_0 Cᵀ, A becomes CᵀAC, B becomes C⁻¹BC, u becomes Cᵀu and W
           becomes CᵀWC = FFᵀ, so that rows Fᵀ take the place of R_0 and no Σ is left
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.errors import InputError
from innerloop.parameters import Parameters, parameter
from innerloop.theory.bartlett import bartlett_rule
from innerloop.theory.layers import degree
from innerloop.theory.stack import expected_loss
from innerloop.training import kernel
from innerloop.training.kernel import Prompts
from innerloop.training.stacks import Stack, Weights


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianPrompts(Parameters):
    """The law of the prompts."""

    d: int = parameter(5, "features", least=1, most=512)
    n: int = parameter(20, "context examples", least=1, most=100_000)
    covariance: Tensor | None = parameter(None, "Σ, d×d positive definite; none is the identity")
    truth: Literal["identity", "inverse"] | Tensor = parameter(
        "identity", "covariance of w*: the identity, the inverse of Σ, or d×d positive semidefinite"
    )
    precision: Literal["float32", "float64"] = parameter("float64", "of the prompts and the loss")

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.root, self.factor

    @property
    def dtype(self) -> torch.dtype:
        return getattr(torch, self.precision)

    @cached_property
    def root(self) -> Float[Tensor, "d d"]:
        """C, lower triangular, with Σ = C Cᵀ."""
        if self.covariance is None:
            return torch.eye(self.d, dtype=torch.float64)
        given = self._symmetric("covariance", self.covariance)
        values = torch.linalg.eigvalsh(given)
        if not float(values[0]) > 1e-12 * float(values[-1].abs()):
            raise InputError(
                f"covariance must be positive definite, its least eigenvalue is {values[0]:.3g} "
                f"and its largest {values[-1]:.3g}"
            )
        return torch.linalg.cholesky(given)

    @cached_property
    def factor(self) -> Float[Tensor, "d d"]:
        """F with FFᵀ = Cᵀ W C."""
        C = self.root
        if isinstance(self.truth, str):
            return torch.eye(self.d, dtype=torch.float64) if self.truth == "inverse" else C.mT
        given = self._symmetric("truth", self.truth)
        values, vectors = torch.linalg.eigh(given)
        if float(values[0]) < -1e-12 * float(values[-1].abs()):
            raise InputError(
                f"truth must be positive semidefinite, its least eigenvalue is {values[0]:.3g}"
            )
        return C.mT @ (vectors * values.clamp(min=0).sqrt())

    def _symmetric(self, name: str, given: Tensor) -> Tensor:
        if tuple(given.shape) != (self.d, self.d):
            raise InputError(f"{name} must be {self.d}×{self.d}, got shape {tuple(given.shape)}")
        given = given.double()
        if not bool(torch.isfinite(given).all()):
            raise InputError(f"{name} must be finite, got NaN or infinity")
        if not torch.allclose(given, given.mT, rtol=1e-9, atol=1e-12 * float(given.abs().max())):
            gap = float((given - given.mT).abs().max())
            raise InputError(
                f"{name} must be symmetric, it differs from its transpose by {gap:.3g}"
            )
        return given

    def gram(self, batch: int, generator: torch.Generator) -> Float[Tensor, "d d batch"]:
        """Whitened Gram matrices G_0 of `batch` prompts: by Bartlett's decomposition for n ≥ d,
        from the covariates themselves for n < d."""
        d, n = self.d, self.n
        if n < d:
            T = torch.randn(d, n, batch, generator=generator, dtype=self.dtype)
        else:
            T = torch.zeros(d, d, batch, dtype=self.dtype)
            low = torch.tril_indices(d, d, -1)
            shape = (low.shape[1], batch)
            T[low[0], low[1]] = torch.randn(shape, generator=generator, dtype=self.dtype)
            freedom = (n - torch.arange(d, dtype=self.dtype)).unsqueeze(-1).expand(d, batch) / 2
            # A chi-squared number is twice a gamma; the public distribution takes no generator.
            squares = 2 * torch._standard_gamma(freedom, generator=generator)  # pyright: ignore[reportPrivateImportUsage]
            T.diagonal(dim1=0, dim2=1).copy_(squares.sqrt().mT)
        return kernel.times(T, T.transpose(0, 1)).div(n)

    def whitened(self, weights: Weights) -> Weights:
        """The weights in the coordinates in which x ~ N(0, I), in this precision."""
        C = self.root.to(weights.A.dtype)
        A = C.mT @ weights.A @ C
        B = (
            weights.B
            if weights.B is None
            else torch.linalg.solve_triangular(C, weights.B @ C, upper=False)
        )
        u = weights.u if weights.u is None else C.mT @ weights.u
        return Weights(A.to(self.dtype), *(t if t is None else t.to(self.dtype) for t in (B, u)))

    def coloured(self, weights: Weights) -> Weights:
        """The way back: weights for x ~ N(0, Σ) from those of whitened coordinates."""
        back = torch.linalg.inv(self.root).to(weights.A.dtype)
        C = self.root.to(weights.A.dtype)
        A = back.mT @ weights.A @ back
        B = weights.B if weights.B is None else C @ weights.B @ back
        return Weights(A, B, weights.u if weights.u is None else back.mT @ weights.u)

    def loss_of(self, weights: Weights, prompts: Prompts) -> Float[Tensor, ""]:
        """The mean over the given Gram matrices (whitened, as `gram` draws them)."""
        A, B, u = self.whitened(weights)
        first = self.factor.mT.to(self.dtype)
        if u is not None:
            offset = torch.cat([torch.zeros_like(first), u[None]])
            target = prompts.target.new_zeros(self.d + 1, self.d, 1)
            first = torch.cat([first, u[None]])
            return kernel.loss(prompts._replace(target=target), A, first, offset)
        if B is None or len(A) == 1:
            return kernel.loss(prompts, A, first)
        first = torch.cat([first, torch.eye(self.d, dtype=self.dtype)])
        return kernel.loss(prompts, A, first, gamma=list(B))

    def distances(self, weights: Weights) -> dict[str, float]:
        """Dist of each A_i in whitened coordinates and as it is, and of each B_i."""
        told: dict[str, float] = {}
        S = root_of(self.root @ self.root.mT)
        for i, A in enumerate(weights.A.detach().double()):
            told[f"dist A{i} whitened"] = float(distance(S @ A @ S))
            told[f"dist A{i}"] = float(distance(A))
        for i, B in enumerate([] if weights.B is None else weights.B.detach().double()):
            told[f"dist B{i}"] = float(distance(B))
        return told


def root_of(S: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """The symmetric root of a positive definite matrix."""
    values, vectors = torch.linalg.eigh(S)
    return vectors * values.sqrt() @ vectors.mT


def distance(M: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch"]:
    """Dist(M, I) = min_α ‖M − αI‖_F / ‖M‖_F, 1 at M = 0: section 5.3 of ahn2023."""
    d, size = M.shape[-1], (M**2).sum((-2, -1))
    trace = M.diagonal(dim1=-2, dim2=-1).sum(-1)
    off = (1 - trace**2 / (d * size.clamp(min=1e-300))).clamp(min=0)
    return off.sqrt()


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledLoss(GaussianPrompts):
    """The loss over Gram matrices that are drawn, fresh or once and for all."""

    batch: int = parameter(20_000, "Gram matrices in a draw", least=1)
    images: bool = parameter(
        False, "whether each counts with its images under sign changes and turns of the axes"
    )

    def draw(self, generator: torch.Generator) -> Prompts:
        gram = self.gram(self.batch, generator)
        if self.images:
            gram = all_images(gram)
        mass = gram.new_full((1, 1), 1 / gram.shape[-1])
        return Prompts(gram, mass, gram.new_zeros(self.d, self.d, 1))

    def loss(self, model: Stack, batch: Prompts) -> Float[Tensor, ""]:
        return self.loss_of(model.weights(), batch)

    def evaluate(self, model: Stack) -> dict[str, float]:
        """The loss on prompts that no training has seen, its standard error, and the distances."""
        parts = [self.loss(model, part) for part in fresh(self)]
        return spread(parts) | self.distances(model.weights())


MOST_IMAGES = 10_000


def all_images(gram: Float[Tensor, "d d batch"]) -> Float[Tensor, "d d images"]:
    """Each G under the d·2^(d−1) sign changes and cyclic shifts of the axes.

    The law of whitened G is the same after each of them, and only multiples of the identity commute
    with all: the mean over them has the symmetry that makes A_i ∝ Σ⁻¹, B_i ∝ I critical for
    w* ~ N(0, Σ⁻¹), which a mean over draws alone has only in the limit.
    """
    d = len(gram)
    if d * 2 ** (d - 1) > MOST_IMAGES:
        raise InputError(f"d = {d} has {d * 2 ** (d - 1)} images of each, more than {MOST_IMAGES}")
    halves = torch.cartesian_prod(*[torch.tensor([1.0, -1.0])] * (d - 1)).reshape(-1, d - 1)
    signs = torch.cat([torch.ones(len(halves), 1), halves], dim=1).to(gram.dtype)
    flips = torch.einsum("si,sj->ijs", signs, signs)
    turned = [gram.roll((k, k), dims=(0, 1)) for k in range(d)]
    return torch.cat([(one[:, :, None] * flips[..., None]).flatten(2) for one in turned], dim=-1)


GROUPS = 20
"""Parts of an evaluation, whose spread gives its standard error."""


def fresh(objective: Any) -> Iterator[Prompts]:
    """Prompts to evaluate on, as many as in a draw: always the same, and never those trained on."""
    generator = torch.Generator().manual_seed(2**40 + 1)
    few = replace(objective, batch=-(-objective.batch // GROUPS))
    return (few.draw(generator) for _ in range(GROUPS))


def spread(parts: Sequence[Tensor]) -> dict[str, float]:
    found = torch.stack(list(parts)).detach().double()
    return {"loss": float(found.mean()), "standard error": float(found.std()) / len(found) ** 0.5}


@dataclass(frozen=True, kw_only=True, eq=False)
class PopulationLoss(GaussianPrompts):
    """The expectation itself: by Wishart words for one or two layers that keep x, otherwise by an
    exact rule, for small d and few layers."""

    layers: int = parameter(1, "layers, or loops", least=1)
    moving: bool = parameter(False, "whether there are B_l")

    def draw(self, generator: torch.Generator | None = None) -> Prompts | None:
        """All that the expectation sums over; nothing where words give it."""
        if not self.moving and self.layers <= 2:
            return None
        gram, mass = bartlett_rule(self.d, self.n, degree(self.layers, self.moving))
        gram = gram.permute(1, 2, 0).contiguous().to(self.dtype)
        return Prompts(gram, mass[None].to(self.dtype), gram.new_zeros(self.d, self.d, 1))

    def loss(self, model: Stack, batch: Prompts | None) -> Float[Tensor, ""]:
        weights = model.weights()
        if len(weights.A) != self.layers or (weights.B is not None) > self.moving:
            rule, has = (" with B" if b else "" for b in (self.moving, weights.B is not None))
            raise InputError(
                f"the rule is for {self.layers} layers{rule}, the model has {len(weights.A)}{has}"
            )
        if batch is not None:
            return self.loss_of(weights, batch)
        return _by_words(self, self.whitened(weights))

    @torch.no_grad()
    def evaluate(self, model: Stack) -> dict[str, float]:
        loss = float(self.loss(model, self.draw()))
        return {"loss": loss} | self.distances(model.weights())


def _by_words(law: GaussianPrompts, weights: Weights) -> Float[Tensor, ""]:
    """E tr(RᵀMR), and E‖vᵀ(R − I)‖² = vᵀE[RRᵀ]v − 2vᵀE[R]v + vᵀv by the same words."""
    A, _, v = weights
    identity = torch.eye(law.d, dtype=law.dtype)
    M = (law.factor @ law.factor.mT).to(law.dtype)
    if v is None:
        return expected_loss(A, identity, M, law.n)
    total = expected_loss(A, identity, M + torch.outer(v, v), law.n)
    mean = identity + A.sum(0)
    if len(A) == 2:
        # E[G K G] = K + (Kᵀ + tr(K) I)/n for standard normal covariates.
        mean = mean + (A[0] + (A[0].mT + A[0].trace() * identity) / law.n) @ A[1]
    return total + v @ v - 2 * v @ mean @ v
