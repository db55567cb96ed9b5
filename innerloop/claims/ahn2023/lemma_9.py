"""Lemma 9: the loss with the true label in the query's slot.

Printed    x_1 … x_{n+1} ~ p_x, w* ~ p_w, any laws, layers of form (13): E[([Z_k]_{d+1,n+1} +
           w*ᵀx_{n+1})²] from Z_0 with 0 in the query's slot is E tr((I−M) Ȳ_kᵀ Ȳ_k (I−M)) from Z̄_0
           with y_{n+1} there. Proof: X̄_k = X_k, Ȳ_k = Y_k + [0 … 0 y_{n+1}], on every prompt
Tested     (4) on tokens against (54) on rows; the proof's equalities prompt by prompt after every
           layer, A_i symmetric and not; the two losses for finite laws p_x, p_w with a few atoms of
           any probability, where both expectations are sums over all prompts
Beyond     the identity needs less than (13): any P_i, and Q_i whose last column is 0, the query
           masked as a key. A last column of Q_i breaks it: told as numbers
Note       {P_i, Q_i}_{i=0}^k is k + 1 pairs; Z_k and Ȳ_k have seen the first k of them. The proofs
           of Theorems 4 and 5 quote the lemma with Y_{k+1}, which has seen all
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.claims.ahn2023 import query_label as rows
from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.prompts import attention, build_tokens, draw_integer, draw_normal
from innerloop.claims.trials import Equality


def query_corner_trace(Y: Tensor) -> Tensor:
    """The trace tr((I−M) Yᵀ Y (I−M))."""
    keep = torch.zeros(Y.shape[-1], dtype=Y.dtype)
    keep[-1] = 1.0
    kept = Y * keep
    return (kept.mT @ kept).diagonal(dim1=-2, dim2=-1).sum(-1)


def full_trace(Y: Tensor) -> Tensor:
    return (Y.mT @ Y).diagonal(dim1=-2, dim2=-1).sum(-1)


@claim(
    "ahn2023.lemma-9",
    "The in-context loss is the squared last label of the same transformer run on a prompt that "
    "has the true label in the query's slot.",
    where="Appendix C.1, Lemma 9",
    kind="equality",
    quick={"trials": 400, "laws": 60},
    full={"trials": 20_000, "laws": 2000},
    tiny={"trials": 24, "laws": 6},
    falsified={
        "the query is a key": {"layer": rows.unmasked_layer},
        "the label is subtracted": {"sign": -1.0},
        "all labels, not the query's": {"form": full_trace},
    },
)
def lemma_9(
    generator: torch.Generator,
    *,
    trials: int,
    laws: int,
    layer: rows.Layer = rows.printed_layer,
    form: Callable[[Tensor], Tensor] = query_corner_trace,
    sign: float = 1.0,
) -> Evidence:
    dynamics = Equality("(53) on tokens is (54) on rows, for layers of form (13)")
    same = Equality("X̄_i = X_i and Ȳ_i = Y_i + [0 … 0 y_{n+1}] after every layer")
    losses = Equality(
        "E[([Z_k]_{d+1,n+1} + w*ᵀx_{n+1})²] = E tr((I−M) Ȳ_kᵀ Ȳ_k (I−M)), finite laws p_x, p_w"
    )
    for trial in range(trials):
        d, n, k = 1 + trial % 4, draw_integer(generator, 1, 8), draw_integer(generator, 1, 5)
        size, about = rows.describe_size((d, n, k))
        A, B = rows.draw_weights(generator, k, d)
        Z = build_tokens(
            draw_normal(generator, n, d), draw_normal(generator, d), draw_normal(generator, d)
        )
        label = draw_normal(generator)
        X, Y = Z[:d], Z[d:]
        bar = (X, torch.cat([Y[:, :n], sign * label.reshape(1, 1)], dim=1))
        shift = bar[1] * sign - Y * sign
        for i in range(k):
            P, Q = rows.form_13_matrices(A[i], B[i])
            Z = Z + attention(Z, P, Q) / n
            X, Y = layer(X, Y, A[i], B[i])
            bar = layer(*bar, A[i], B[i])
            dynamics.add(torch.cat([X, Y]), Z, size=size, about=about)
            left, right = torch.cat(bar), torch.cat([X, Y + shift])
            same.add(left, right, size=size, about=f"{about}, layer {i + 1}")
    for trial in range(laws):
        _finite(generator, trial, losses, layer, form, sign)
    parts = [Part(printed=trial.check()) for trial in (dynamics, same, losses)]
    return Evidence(parts=parts, numbers=_less_than_13(generator))


def _finite(
    generator: torch.Generator,
    trial: int,
    losses: Equality,
    layer: rows.Layer,
    form: Callable[[Tensor], Tensor],
    sign: float,
) -> None:
    """Compare both losses for laws with a few atoms, weighting every prompt by its probability."""
    d, n, k = 1 + trial % 3, draw_integer(generator, 1, 4), draw_integer(generator, 1, 4)
    size, about = rows.describe_size((d, n, k))
    atoms, chances = _law(generator, 3, d)
    stars, odds = _law(generator, 2, d)
    drawn = torch.cartesian_prod(*[torch.arange(3)] * (n + 1), torch.arange(2)).reshape(-1, n + 2)
    X, w = atoms[drawn[:, :-1]].mT, stars[drawn[:, -1]].unsqueeze(1)
    mass = chances[drawn[:, :-1]].prod(1) * odds[drawn[:, -1]]
    bar = w @ X
    hidden = bar.clone()
    hidden[..., -1] = 0.0
    A, B = rows.draw_weights(generator, k, d)
    told = rows.run_layers(X, hidden, A, B, layer)[1][:, 0, -1] + sign * bar[:, 0, -1]
    left, right = (
        (mass * told**2).sum(),
        (mass * form(rows.run_layers(X, bar, A, B, layer)[1])).sum(),
    )
    losses.add(left, right, size=size, about=f"{about}, {len(mass)} prompts")


def _law(generator: torch.Generator, atoms: int, d: int) -> tuple[Tensor, Tensor]:
    """Draw a law that is neither centred nor symmetric."""
    chances = torch.rand(atoms, generator=generator, dtype=torch.float64)
    return draw_normal(generator, atoms, d) + 0.5, chances / chances.sum()


def _less_than_13(generator: torch.Generator) -> dict[str, float]:
    """How far the query's label is from entering additively, for P and Q not of form (13)."""
    names = ("any P, and any Q without its last column", "form (13) with Q's last column")
    far = [0.0, 0.0]
    for trial in range(40):
        d, n = 1 + trial % 4, draw_integer(generator, 1, 8)
        for which in range(2):
            Z = build_tokens(
                draw_normal(generator, n, d), draw_normal(generator, d), draw_normal(generator, d)
            )
            bar = Z.clone()
            bar[d, n] = 1.0
            added = bar - Z
            for _ in range(2):
                P, Q = rows.form_13_matrices(
                    *(part[0] for part in rows.draw_weights(generator, 1, d))
                )
                if which == 0:
                    P, Q[d, :d] = (
                        draw_normal(generator, d + 1, d + 1) / 9,
                        draw_normal(generator, d) / 9,
                    )
                else:
                    Q[:, d] = draw_normal(generator, d + 1) / 9
                Z, bar = Z + attention(Z, P, Q) / n, bar + attention(bar, P, Q) / n
            far[which] = max(far[which], float((bar - Z - added).abs().max()))
    return {
        f"the label in the slot, {name}: largest other change": value
        for name, value in zip(names, far, strict=True)
    }
