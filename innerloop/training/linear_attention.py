"""The in-context loss of linear attention on noiseless regression, from prompts' Gram matrices.

Setting    x ~ N(0, Σ), w* ~ N(0, W), labels ⟨w*, x⟩, n examples; G = (1/n) Σ x xᵀ over the context
Weights    P_l = diag(B_l, 1), Q_l = diag(A_l, 0): form (13) of ahn2023, without B_l form (9); or
           the looped P = [0 0; uᵀ 1], Q = diag(A, 0) of gatmiry2024, whose A has the other sign
Error      w*ᵀ R_L x_q on a query, R_0 = T_0 = I, S_l = G T_lᵀ A_l T_l, R_{l+1} = R_l + R_l S_l,
           T_{l+1} = T_l + B_l T_l S_l; u adds uᵀ(R_L − I) x_q
Loss       E tr(R_Lᵀ W R_L Σ) + E ‖Σ^½ (R_Lᵀ − I) u‖²: an exact expectation over w* and x_q. G is
           sampled from its Wishart distribution, or also exact if this takes few enough points
Whitened   with Σ = CCᵀ and G = C G_0 Cᵀ, A becomes CᵀAC, B becomes C⁻¹BC, u becomes Cᵀu and W
           becomes CᵀWC = FFᵀ, so that Fᵀ replaces R_0 and Σ drops out
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.devices import CPU, default_to_cpu, move
from innerloop.errors import InputError
from innerloop.parameters import Parameters, parameter
from innerloop.theory.bartlett import bartlett_rule
from innerloop.theory.layers import loss_degree
from innerloop.theory.stack import expected_loss
from innerloop.training import kernel
from innerloop.training.bartlett import draw_with_numpy, draw_with_torch, multiply_triangles
from innerloop.training.compiled import find_compiler
from innerloop.training.kernel import Code, Prompts
from innerloop.training.parallel import find_share
from innerloop.training.stacks import Stack, Weights


class GaussianPrompts(Parameters):
    """The distribution of prompts, and the loss of linear attention on them."""

    d: int = parameter(5, "features", least=1, most=512)
    n: int = parameter(20, "context examples", least=1, most=100_000)
    covariance: Tensor | None = parameter(None, "Σ, d×d positive definite; none means the identity")
    truth: Literal["identity", "inverse"] | Tensor = parameter(
        "identity", "covariance of w*: the identity, the inverse of Σ, or d×d positive semidefinite"
    )
    precision: Literal["float32", "float64"] = parameter(
        "float64", "dtype of the prompts and the loss"
    )
    draws: Literal["torch", "numpy"] = parameter(
        "torch", "library that draws prompts: numpy is faster and draws other numbers"
    )
    kernel: Code = parameter(
        "torch", "code of the loss: torch, or compiled C, which is faster and rounds differently"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.draws == "numpy" and self.n < self.d:
            raise InputError(
                f"draws=numpy needs n at least d={self.d}, got n={self.n}: leave it out, torch "
                "draws such prompts"
            )
        if self.kernel == "c":
            find_compiler()  # refused before anything is made
        _ = self.root, self.factor

    @property
    def dtype(self) -> torch.dtype:
        return getattr(torch, self.precision)

    @cached_property
    def root(self) -> Float[Tensor, "d d"]:
        """The lower triangular C with Σ = C Cᵀ."""
        if self.covariance is None:
            return torch.eye(self.d, dtype=torch.float64, device=CPU)
        covariance = self._require_symmetric("covariance", self.covariance)
        values = torch.linalg.eigvalsh(covariance)
        if not float(values[0]) > 1e-12 * float(values[-1].abs()):
            raise InputError(
                f"covariance must be positive definite, its least eigenvalue is {values[0]:.3g} "
                f"and its largest {values[-1]:.3g}"
            )
        return torch.linalg.cholesky(covariance)

    @cached_property
    def factor(self) -> Float[Tensor, "d d"]:
        """The F with FFᵀ = Cᵀ W C."""
        C = self.root
        if isinstance(self.truth, str):
            return torch.eye(self.d, dtype=C.dtype, device=CPU) if self.truth == "inverse" else C.mT
        truth = self._require_symmetric("truth", self.truth)
        values, vectors = torch.linalg.eigh(truth)
        if float(values[0]) < -1e-12 * float(values[-1].abs()):
            raise InputError(
                f"truth must be positive semidefinite, its least eigenvalue is {values[0]:.3g}"
            )
        return C.mT @ (vectors * values.clamp(min=0).sqrt())

    def _require_symmetric(self, name: str, matrix: Tensor) -> Tensor:
        if tuple(matrix.shape) != (self.d, self.d):
            raise InputError(f"{name} must be {self.d}×{self.d}, got shape {tuple(matrix.shape)}")
        matrix = matrix.double()
        if not bool(torch.isfinite(matrix).all()):
            raise InputError(f"{name} must be finite, got NaN or infinity")
        if not torch.allclose(matrix, matrix.mT, rtol=1e-9, atol=1e-12 * float(matrix.abs().max())):
            gap = float((matrix - matrix.mT).abs().max())
            raise InputError(
                f"{name} must be symmetric, it differs from its transpose by {gap:.3g}"
            )
        return matrix

    def draw_gram(self, batch: int, generator: torch.Generator) -> Float[Tensor, "d d batch"]:
        """Draw whitened Gram matrices G_0 of `batch` prompts.

        They are drawn by Bartlett's decomposition if n ≥ d, and from covariates otherwise.
        """
        d, n = self.d, self.n
        if n < d:
            T = torch.randn(d, n, batch, generator=generator, dtype=self.dtype)
            return kernel.multiply(T, T.transpose(0, 1)).div(n)
        draw = draw_with_numpy if self.draws == "numpy" else draw_with_torch
        below, squares = draw(d, n, batch, self.dtype, generator)
        return multiply_triangles(below, squares.sqrt()).div_(n)

    def whiten(self, weights: Weights) -> Weights:
        """Convert weights to coordinates in which x ~ N(0, I), and to the precision of the loss."""
        C = self.root.to(weights.A)
        A = C.mT @ weights.A @ C
        B = (
            weights.B
            if weights.B is None
            else torch.linalg.solve_triangular(C, weights.B @ C, upper=False)
        )
        u = weights.u if weights.u is None else C.mT @ weights.u
        return Weights(A.to(self.dtype), *(t if t is None else t.to(self.dtype) for t in (B, u)))

    def colour(self, weights: Weights) -> Weights:
        """Convert whitened weights back to weights for x ~ N(0, Σ), the inverse of `whiten`."""
        inverse = torch.linalg.inv(self.root).to(weights.A)
        C = self.root.to(weights.A)
        A = inverse.mT @ weights.A @ inverse
        B = weights.B if weights.B is None else C @ weights.B @ inverse
        return Weights(A, B, weights.u if weights.u is None else inverse.mT @ weights.u)

    def loss_at(self, weights: Weights, prompts: Prompts) -> Float[Tensor, ""]:
        """Compute the loss of weights, averaged over the (whitened) Gram matrices of prompts."""
        A, B, u = self.whiten(weights)
        first, code = self.factor.mT.to(A), self.kernel
        if u is not None:
            offset = torch.cat([torch.zeros_like(first), u[None]])
            target = prompts.target.new_zeros(self.d + 1, self.d, 1)
            first = torch.cat([first, u[None]])
            return kernel.loss(prompts._replace(target=target), A, first, offset, code=code)
        if B is None or len(A) == 1:
            return kernel.loss(prompts, A, first, code=code)
        first = torch.cat([first, torch.eye(self.d, dtype=self.dtype, device=A.device)])
        return kernel.loss(prompts, A, first, gamma=list(B), code=code)

    def take_share(self, batch: Prompts, rank: int, size: int) -> tuple[Prompts, float]:
        """Return the share of one process and its weight in the loss of the batch."""
        first, last = find_share(batch.size, rank, size)
        return batch.narrow(first, last), 1.0

    def compute_blank_loss(self, model: Any) -> float:
        """Return tr(WΣ), the loss of weights that are 0."""
        return float(self.factor.square().sum())

    def distances(self, weights: Weights) -> dict[str, float]:
        """Return Dist(A_i, I), in whitened and in original coordinates, and Dist(B_i, I)."""
        distances: dict[str, float] = {}
        S = symmetric_root(self.root @ self.root.mT)
        for i, A in enumerate(weights.A.detach().cpu().double()):
            distances[f"dist A{i} whitened"] = float(distance_to_identity(S @ A @ S))
            distances[f"dist A{i}"] = float(distance_to_identity(A))
        for i, B in enumerate([] if weights.B is None else weights.B.detach().cpu().double()):
            distances[f"dist B{i}"] = float(distance_to_identity(B))
        return distances


def symmetric_root(S: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """Compute the symmetric square root of a positive definite matrix."""
    values, vectors = torch.linalg.eigh(S)
    return vectors * values.sqrt() @ vectors.mT


def distance_to_identity(M: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch"]:
    """Compute Dist(M, I) = min_α ‖M − αI‖_F / ‖M‖_F (ahn2023, section 5.3); it is 1 at M = 0."""
    d, size = M.shape[-1], (M**2).sum((-2, -1))
    trace = M.diagonal(dim1=-2, dim2=-1).sum(-1)
    off = (1 - trace**2 / (d * size.clamp(min=1e-300))).clamp(min=0)
    return off.sqrt()


class SampledLoss(GaussianPrompts):
    """The loss averaged over a sampled batch of Gram matrices."""

    batch: int = parameter(20_000, "Gram matrices in a batch", least=1)
    images: bool = parameter(
        False, "average each over its images under sign changes and cyclic shifts of the axes"
    )

    def draw(self, generator: torch.Generator) -> Prompts:
        gram = self.draw_gram(self.batch, generator)
        if self.images:
            gram = expand_images(gram)
        mass = gram.new_full((1, 1), 1 / gram.shape[-1])
        return Prompts(gram, mass, gram.new_zeros(self.d, self.d, 1))

    def loss(self, model: Stack, batch: Prompts) -> Float[Tensor, ""]:
        return self.loss_at(model.weights(), batch)

    def evaluate(self, model: Stack) -> dict[str, float]:
        """Return the loss on held-out prompts, its standard error, and the distances."""
        parts = [self.loss(model, part) for part in draw_held_out(self, model)]
        return summarise_losses(parts) | self.distances(model.weights())


MAX_IMAGES = 10_000


def expand_images(gram: Float[Tensor, "d d batch"]) -> Float[Tensor, "d d images"]:
    """Return the images of each G under all d·2^(d−1) sign changes and cyclic shifts of the axes.

    The distribution of whitened G is invariant under these maps, and only multiples of the identity
    commute with all of them. With the average over images, A_i ∝ Σ⁻¹, B_i ∝ I are therefore
    critical points for w* ~ N(0, Σ⁻¹). With samples alone, this holds only in the limit of many
    samples.
    """
    d = len(gram)
    if d * 2 ** (d - 1) > MAX_IMAGES:
        raise InputError(f"d = {d} has {d * 2 ** (d - 1)} images of each G, more than {MAX_IMAGES}")
    halves = torch.cartesian_prod(*[torch.tensor([1.0, -1.0])] * (d - 1)).reshape(-1, d - 1)
    signs = torch.cat([torch.ones(len(halves), 1), halves], dim=1).to(gram.dtype)
    flips = torch.einsum("si,sj->ijs", signs, signs)
    shifted = [gram.roll((k, k), dims=(0, 1)) for k in range(d)]
    return torch.cat(
        [(image[:, :, None] * flips[..., None]).flatten(2) for image in shifted], dim=-1
    )


EVALUATION_PARTS = 20
"""Number of parts of an evaluation; their spread determines its standard error."""


def draw_held_out(objective: Any, model: nn.Module) -> Iterator[Prompts]:
    """Yield the parts of a held-out batch, which is always the same and never used in training."""
    generator = torch.Generator().manual_seed(2**40 + 1)
    device = next(model.parameters()).device
    part = replace(objective, batch=-(-objective.batch // EVALUATION_PARTS))
    for _ in range(EVALUATION_PARTS):
        with default_to_cpu():
            prompts = part.draw(generator)
        yield move(prompts, device)


def summarise_losses(parts: Sequence[Tensor]) -> dict[str, float]:
    losses = torch.stack(list(parts)).detach().double()
    return {
        "loss": float(losses.mean()),
        "standard error": float(losses.std()) / len(losses) ** 0.5,
    }


class PopulationLoss(GaussianPrompts):
    """The exact expected loss, for small d and few layers.

    For one or two layers that do not update x, it is computed by Wishart words, otherwise by a
    quadrature rule.
    """

    layers: int = parameter(1, "layers, or loops", least=1)
    moving: bool = parameter(False, "whether layers move x (B_l)")

    def draw(self, generator: torch.Generator | None = None) -> Prompts | None:
        """Return the points of the quadrature rule; None where Wishart words replace it."""
        if not self.moving and self.layers <= 2:
            return None
        gram, mass = bartlett_rule(self.d, self.n, loss_degree(self.layers, self.moving))
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
            return self.loss_at(weights, batch)
        return _loss_by_words(self, self.whiten(weights))

    @torch.no_grad()
    def evaluate(self, model: Stack) -> dict[str, float]:
        with default_to_cpu():
            prompts = self.draw()
        loss = float(self.loss(model, move(prompts, model.weights().A.device)))
        return {"loss": loss} | self.distances(model.weights())


def _loss_by_words(law: GaussianPrompts, weights: Weights) -> Float[Tensor, ""]:
    """Return the exact loss E tr(RᵀMR) + E‖vᵀ(R − I)‖² from Wishart moments of words in A and W."""
    A, _, v = weights
    identity = torch.eye(law.d, dtype=law.dtype, device=A.device)
    M = (law.factor @ law.factor.mT).to(identity)
    if v is None:
        return expected_loss(A, identity, M, law.n)
    total = expected_loss(A, identity, M + torch.outer(v, v), law.n)
    mean = identity + A.sum(0)
    if len(A) == 2:
        # E[G K G] = K + (Kᵀ + tr(K) I)/n for standard normal covariates.
        mean = mean + (A[0] + (A[0].mT + A[0].trace() * identity) / law.n) @ A[1]
    return total + v @ v - 2 * v @ mean @ v
