"""Lemma 10: how the label in the query's slot enters the later layers.

Printed    under (54), X_i does not depend on [Y_0]_{n+1}; for j ≠ n+1, [Y_i]_j does not;
           [Y_i]_{n+1} depends on it additively. With C = [0 … 0 c] ∈ R^{(d+1)×1}:
           F_X(Y_0 + C) = F_X(Y_0), F_Y(Y_0 + C) = F_Y(Y_0) + C
Tested     two runs that differ in c alone, c from 10⁻³ to 10³, after every layer; then the
           derivative of all entries with respect to [Y_0]_{n+1}, which no cancellation can hide;
           A_i symmetric and not, B_i any, n from 1
Correction C ∈ R^{1×(n+1)}: as printed it has d + 1 entries in a column, Y_0 has n + 1 in a row
Note       "after k layers" F is X_{k+1}, Y_{k+1}, the output of the k + 1 layers 0 … k
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.claims.ahn2023 import query_label as rows
from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.prompts import draw_integer, draw_normal
from innerloop.claims.trials import Equality


def row(d: int, n: int) -> tuple[int, int]:
    return (1, n + 1)


@claim(
    "ahn2023.lemma-10",
    "The label in the query's slot changes nothing in later layers but the label in that slot, "
    "to which it is added.",
    where="Appendix C.1, Lemma 10",
    kind="equality",
    quick={"trials": 400},
    full={"trials": 20_000},
    tiny={"trials": 24},
    falsified={
        "the query is a key": {"layer": rows.unmasked_layer},
        "the label is written into x": {"layer": rows.leaking_layer},
        "the label is halved": {"share": 0.5},
        "C ∈ R^{1×(d+1)}": {"shape": lambda d, n: (1, d + 1)},
    },
)
def lemma_10(
    generator: torch.Generator,
    *,
    trials: int,
    layer: rows.Layer = rows.printed_layer,
    share: float = 1.0,
    shape: Callable[[int, int], tuple[int, int]] = row,
) -> Evidence:
    inputs = Equality("X_i does not depend on [Y_0]_{n+1}")
    others = Equality("[Y_i]_j, j ≤ n, does not depend on [Y_0]_{n+1}")
    query = Equality("[Y_i]_{n+1} from c added to [Y_0]_{n+1} is c more")
    slopes = Equality("∂(X_i, Y_i)/∂[Y_0]_{n+1} is 1 at [Y_i]_{n+1}, 0 elsewhere")
    for trial in range(trials):
        d, n, k = 1 + trial % 4, draw_integer(generator, 1, 8), draw_integer(generator, 1, 5)
        size, about = rows.describe_size((d, n, k))
        A, B = rows.draw_weights(generator, k, d)
        X, Y = draw_normal(generator, d, n + 1), draw_normal(generator, 1, n + 1)
        c = draw_normal(generator) * 10.0 ** draw_integer(generator, -3, 3)
        C = torch.zeros_like(Y)
        C[0, n] = c
        one, two = (X, Y), (X, Y + C)
        for i in range(k):
            one, two = (layer(*pair, A[i], B[i]) for pair in (one, two))
            told = f"{about}, after layer {i + 1}, c = {float(c):.3g}"
            inputs.add(two[0], one[0], size=size, about=told)
            others.add(two[1][0, :n], one[1][0, :n], size=size, about=told)
            query.add(two[1][0, n], one[1][0, n] + share * c, size=size, about=told)
        known = torch.zeros(d + 1, n + 1, dtype=torch.float64)
        known[d, n] = share
        slopes.add(_slope(X, Y, A, B, layer), known, size=size, about=about)
    parts = [Part(printed=trial.check()) for trial in (inputs, others, query, slopes)]
    return Evidence(parts=[*parts, _shapes(shape)])


def _slope(X: Tensor, Y: Tensor, A: Tensor, B: Tensor, layer: rows.Layer) -> Tensor:
    """The derivative of the last layer's entries with respect to the query's label."""

    def last(label: Tensor) -> Tensor:
        start = torch.cat([Y[:, :-1], label.reshape(1, 1)], dim=1)
        return torch.cat(rows.run_layers(X, start, A, B, layer))

    return torch.as_tensor(torch.autograd.functional.jacobian(last, Y[0, -1]))


def _shapes(shape: Callable[[int, int], tuple[int, int]]) -> Part:
    printed = Equality("C ∈ R^{(d+1)×1} has the shape of Y_0")
    corrected = Equality("C ∈ R^{1×(n+1)} has the shape of Y_0")
    for d in range(1, 5):
        for n in range(1, 5):
            Y, size = torch.zeros(1, n + 1), (d, n)
            known = torch.tensor(Y.shape).double()
            for trial, rows_columns in ((printed, (d + 1, 1)), (corrected, shape(d, n))):
                about = f"d = {d}, n = {n}: {rows_columns} for {tuple(Y.shape)}"
                trial.add(torch.tensor(rows_columns).double(), known, size=size, about=about)
    return Part(printed=printed.check(), corrected=corrected.check(), matters="print")
