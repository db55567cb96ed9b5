"""The definitions of attention and masked attention: do matrix and vector form agree?

Printed    Attn: H + (1/N) Σ V H · σ((QH)ᵀ(KH)), and column by column
           h_i + Σ (1/N) Σ_j σ(⟨Qh_i, Kh_j⟩) V h_j. MAttn (Definition 4): H + Σ (VH) × (MSK ∘
           σ(QH)ᵀ(KH)), MSK upper triangular with 1/i in column i, and column by column
           h_i + Σ (1/i) Σ_{j≤i} σ(⟨Qh_i, Kh_j⟩) V h_j. MLP: H + W₂σ(W₁H). W₁ ∈ R^{D'×D} where the
           MLP is defined, R^{D×D'} where the transformer is
Tested     random Q, K, V that are no multiples of each other, N from 1, D from 1, M heads
Correction (KH)ᵀ(QH) in both, σ around the whole product: column i of the matrix must hold the
           scores of query i. As printed, Q and K change places
Beyond     the printed forms agree where QᵀK is symmetric, so for N = 1 or D = 1 always
Note       liu2025's Definition 3.1 has (KH)ᵀ(QH), as it must be
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.prompts import draw_integer, draw_normal
from innerloop.claims.trials import Equality

Head = tuple[Tensor, Tensor, Tensor]
SMALLEST = (
    "H = I, V = I, Q = [[1, 1], [0, 1]], K = I, so QᵀK = [[1, 0], [1, 1]]",
    "H = V = 1, Q = K = −1: 1 + σ(−1)·(−1) = 1 for 1 + σ(1) = 2",
)
Scores = Callable[[Tensor, Tensor, Tensor], Tensor]


def printed_scores(H: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    return ((Q @ H).mT @ (K @ H)).relu()


def printed_masked_scores(H: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    """The scores σ(QH)ᵀ(KH) read literally: σ applies to QH alone."""
    return (Q @ H).relu().mT @ (K @ H)


def proper_scores(H: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    return ((K @ H).mT @ (Q @ H)).relu()


def without_relu(H: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    return (K @ H).mT @ (Q @ H)


def matrix_form(H: Tensor, heads: list[Head], weights: Tensor, scores: Scores) -> Tensor:
    return H + sum((V @ H) @ (weights * scores(H, Q, K)) for V, Q, K in heads)


def vector_form(H: Tensor, heads: list[Head], causal: bool) -> Tensor:
    """Attention token by token, as in the vector forms."""
    out, N = H.clone(), H.shape[1]
    for i in range(N):
        last = i + 1 if causal else N
        for V, Q, K in heads:
            for j in range(last):
                score = (Q @ H[:, i]) @ (K @ H[:, j])
                out[:, i] += score.relu() / last * (V @ H[:, j])
    return out


def mask(N: int) -> Tensor:
    """The mask MSK as displayed: column i holds 1/i down to row i."""
    return torch.ones(N, N, dtype=torch.float64).triu() / torch.arange(1.0, N + 1).double()


@claim(
    "qliu2025.definition-masks",
    "Attention, masked attention and the MLP are the same in matrix form and token by token.",
    where="Slides 5 to 11, Definition 4",
    kind="equality",
    quick={"trials": 60},
    full={"trials": 2_000},
    tiny={"trials": 12},
    falsified={
        "no ReLU": {"scores": without_relu},
        "the mask with rows for columns": {"weights": lambda N: mask(N).mT},
        "W₁ and W₂ change places in the vector form": {"swap": True},
    },
)
def definition_masks(
    generator: torch.Generator,
    *,
    trials: int,
    scores: Scores = proper_scores,
    weights: Callable[[int], Tensor] = mask,
    swap: bool = False,
) -> Evidence:
    full = Equality("Attn: V H σ((QH)ᵀ(KH))/N is its vector form", tolerance=1e-10)
    full_right = Equality("Attn: V H σ((KH)ᵀ(QH))/N is its vector form", tolerance=1e-10)
    causal = Equality("MAttn: V H (MSK ∘ σ(QH)ᵀ(KH)) is its vector form", tolerance=1e-10)
    whole_of = Equality("the same with σ around the product", tolerance=1e-10)
    causal_right = Equality("MAttn: V H (MSK ∘ σ((KH)ᵀ(QH))) is its vector form", tolerance=1e-10)
    mlp = Equality("MLP: H + W₂σ(W₁H) is its vector form", tolerance=1e-10)
    for trial in range(trials):
        D, N, M = 1 + trial % 4, 1 + trial // 4 % 5, draw_integer(generator, 1, 3)
        H = draw_normal(generator, D, N)
        heads: list[Head] = []
        for _ in range(M):
            V, Q, K = draw_normal(generator, 3, D, D)
            heads.append((V, Q, K))
        if trial < 2:
            (D, N, M), (H, heads) = (2 - trial, 2 - trial, 1), _smallest(trial)
        size, about = (D, N, M, trial), f"D = {D}, N = {N}, {M} heads"
        if trial < 2:
            about = SMALLEST[trial]
        even = torch.full((N, N), 1 / N, dtype=torch.float64)
        plain, masked = vector_form(H, heads, False), vector_form(H, heads, True)
        for found, form, by, wanted in (
            (full, printed_scores, even, plain),
            (full_right, scores, even, plain),
            (causal, printed_masked_scores, mask(N), masked),
            (whole_of, printed_scores, mask(N), masked),
            (causal_right, scores, weights(N), masked),
        ):
            found.add(matrix_form(H, heads, by, form), wanted, size=size, about=about)
        hidden = draw_integer(generator, 1, 5)
        W1, W2 = draw_normal(generator, hidden, D), draw_normal(generator, D, hidden)
        by_token = torch.stack(
            [h + (W1.mT @ (W2.mT @ h).relu() if swap else W2 @ (W1 @ h).relu()) for h in H.mT], 1
        )
        mlp.add(H + W2 @ (W1 @ H).relu(), by_token, size=size, about=about)
    return Evidence(
        parts=[
            Part(printed=full.check(), corrected=full_right.check(), matters="print"),
            Part(printed=causal.check(), corrected=causal_right.check(), matters="print"),
            Part(printed=whole_of.check(), corrected=causal_right.check(), matters="print"),
            Part(printed=mlp.check()),
        ],
        numbers={
            "share of cases in which the printed Attn differs": full.violations / trials,
            "share in which the printed MAttn differs": causal.violations / trials,
        },
    )


def _smallest(trial: int) -> tuple[Tensor, list[Head]]:
    one = torch.eye(2 - trial, dtype=torch.float64)
    Q = torch.tensor([[1.0, 1.0], [0.0, 1.0]], dtype=torch.float64) if trial == 0 else -one
    return one, [(one, Q, one if trial == 0 else -one)]
