"""The definitions of attention and masked attention: do matrix and vector form agree?

Printed    Attn: H + (1/N) Σ V H · σ((QH)ᵀ(KH)), and column by column
           h_i + Σ (1/N) Σ_j σ(⟨Qh_i, Kh_j⟩) V h_j. MAttn (Definition 4): H + Σ (VH) × (MSK ∘
           σ(QH)ᵀ(KH)), MSK upper triangular with 1/i in column i, and column by column
           h_i + Σ (1/i) Σ_{j≤i} σ(⟨Qh_i, Kh_j⟩) V h_j. MLP: H + W₂σ(W₁H). W₁ ∈ R^{D'×D} where the
           MLP is defined, R^{D×D'} where the transformer is
Reading    column i holds the scores of query i: the vector forms say so, and the liu2025 paper's
           Definition 3.1 has (KH)ᵀ(QH). In both displays Q and K change places, and in the second σ
           stands at QH alone: errata of print, since Q and K are free
Tested     random Q, K, V that are no multiples of each other, and hard ones; N, D from 1, M heads
Beyond     the display of Attn agrees with its vector form where QᵀK is symmetric, and for N = 1 or
           D = 1; that of MAttn does not even then
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Erratum, Evidence, Part, misprint
from innerloop.claims.falsifying import change_column
from innerloop.claims.prompts import draw_integer, draw_normal
from innerloop.claims.qliu2025.hard_instances import HARD_MATRICES
from innerloop.claims.qliu2025.slides import make_weights
from innerloop.claims.trials import Equality

SMALLEST = (
    "$H = I$, $V = I$, $Q = [[1, 1], [0, 1]]$, $K = I$, so $QᵀK = [[1, 0], [1, 1]]$",
    "$H = V = 1$, $Q = K = −1$: $1 + σ(−1)·(−1) = 1$ for $1 + σ(1) = 2$",
)
Scores = Callable[[Tensor, Tensor, Tensor], Tensor]


def proper_scores(H: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    return ((K @ H).mT @ (Q @ H)).relu()


def matrix_form(H: Tensor, heads: Sequence[Tensor], weights: Tensor, scores: Scores) -> Tensor:
    return H + sum((V @ H) @ (weights * scores(H, Q, K)) for V, Q, K in heads)


def vector_form(H: Tensor, heads: Sequence[Tensor], causal: bool) -> Tensor:
    """Attention token by token, as in the vector forms."""
    out, N = H.clone(), H.shape[1]
    for i in range(N):
        last = i + 1 if causal else N
        for V, Q, K in heads:
            for j in range(last):
                score = (Q @ H[:, i]) @ (K @ H[:, j])
                out[:, i] += score.relu() / last * (V @ H[:, j])
    return out


FORMS = {
    "Attn, as meant: $V H σ((KH)ᵀ(QH))/N$ is its vector form": (proper_scores, False),
    "MAttn, as meant: $V H (MSK ∘ σ((KH)ᵀ(QH)))$ is its vector form": (proper_scores, True),
    "Attn: $V H σ((QH)ᵀ(KH))/N$ is its vector form": (
        lambda H, Q, K: ((Q @ H).mT @ (K @ H)).relu(),
        False,
    ),
    "MAttn: $V H (MSK ∘ σ(QH)ᵀ(KH))$ is its vector form": (
        lambda H, Q, K: (Q @ H).relu().mT @ (K @ H),
        True,
    ),
}
"""Scores, and whether they are masked; in the last, read literally, σ applies to QH alone."""
MLP = "MLP: $H + W₂σ(W₁H)$ is its vector form"
Rows = list[dict[str, Any]]


def judge_forms(rows: Rows) -> Evidence:
    trials = {statement: Equality(statement, tolerance=1e-10) for statement in (*FORMS, MLP)}
    for row in rows:
        trials[row["of"]].add(row["matrix"], row["vector"], row["case"])
    right, masked, swapped, swapped_masked, mlp = (trial.check() for trial in trials.values())
    reading = "column $i$ holds the scores of query $i$, as in the vector forms"
    return Evidence(
        parts=[
            Part(printed=right, reading=reading),
            Part(printed=masked, reading=reading),
            Part(printed=mlp),
        ],
        errata=[
            Erratum(where="definition of Attn", printed=swapped, corrected=right, grade="print"),
            Erratum(where="Definition 4", printed=swapped_masked, corrected=masked, grade="print"),
            misprint(
                "definitions of the encoder's and the decoder's transformer",
                "$W₁ ∈ R^{D×D'}$, $W₂ ∈ R^{D'×D}$",
                "$W₁ ∈ R^{D'×D}$, $W₂ ∈ R^{D×D'}$, as where the MLP is defined",
                "$D = 1$, $D' = 2$: $W₁h$ needs two rows",
            ),
        ],
    )


@claim(
    "qliu2025.definition-masks",
    "Attention, masked attention and the MLP are the same in matrix form and token by token.",
    where="Slides 5 to 11, Definition 4",
    kind="equality",
    hypotheses={"any $H$, $Q$, $K$, $V$, with column $i$ for query $i$": "Definition 4"},
    quick={"trials": 60},
    full={"trials": 2_000},
    tiny={"trials": 12},
    judge=judge_forms,
    falsified={"tokens in the opposite order": change_column("vector", lambda v: v.flip(-1))},
)
def definition_masks(generator: torch.Generator, *, trials: int) -> Rows:
    rows: Rows = []
    for H, heads, note in _list_by_hand():
        rows += _compare_forms(generator, H, heads, note)
    for trial in range(trials):
        D, N, M = 1 + trial % 4, 1 + trial // 4 % 5, draw_integer(generator, 1, 3)
        H, heads = draw_normal(generator, D, N), draw_normal(generator, M, 3, D, D)
        rows += _compare_forms(generator, H, list(heads))
    return rows


def _compare_forms(
    generator: torch.Generator, H: Tensor, heads: Sequence[Tensor], note: str = ""
) -> Rows:
    """Compare both forms of attention, masked attention and an MLP on one stream."""
    (D, N), rows = H.shape, []
    case = Case(D=D, N=N, M=len(heads), note=note)
    for of, (scores, causal) in FORMS.items():
        matrix = matrix_form(H, heads, make_weights(N, causal), scores)
        vector = vector_form(H, heads, causal)
        rows.append({"of": of, "case": case, "matrix": matrix, "vector": vector})
    hidden = draw_integer(generator, 1, 5)
    W1, W2 = draw_normal(generator, hidden, D), draw_normal(generator, D, hidden)
    vector = torch.stack([h + W2 @ (W1 @ h).relu() for h in H.mT], 1)
    return [
        *rows,
        {"of": MLP, "case": case, "matrix": H + W2 @ (W1 @ H).relu(), "vector": vector},
    ]


def _list_by_hand() -> list[tuple[Tensor, list[Tensor], str]]:
    """List the smallest examples against the displays, and hard matrices for all of H, V, Q, K."""
    one, two = (torch.eye(d, dtype=torch.float64) for d in (1, 2))
    shear = HARD_MATRICES["a shear (definition of Attn)"](2)
    hard = [
        (build(d), [torch.stack([build(d)] * 3)], f"$H = V = Q = K$: {name}")
        for name, build in HARD_MATRICES.items()
        for d in (1, 2, 3)
    ]
    return [
        (two, [torch.stack([two, shear, two])], SMALLEST[0]),
        (one, [torch.stack([one, -one, -one])], SMALLEST[1]),
        *hard,
    ]
