"""Lemma 8: layers in proportion to the inverse covariance can be swapped.

Printed    x ~ N(0, Σ), w* ~ N(0, Σ⁻¹), layers of form (9) with A_i = a_i Σ⁻¹, i = 0 … k: swapping
           any two of them leaves the in-context loss f as it is
Tested     the error of the query, averaged over w*, of layers run on tokens, swapped and not, for
           every number of layers; the loss itself by exact moments that know nothing of commuting
Reading    k + 1 layers, all of which act: the proof's G = X_0 ∏_{ℓ=0}^k (…), as (23). By (5) the
           output is Z_k, which A_k has not entered: swapping it then changes the loss
Beyond     the proof calls it crucial that the matrices are one up to scale: of symmetric matrices
           that are not, a swap can change the loss, and changed it for all random ones. It need
           not: for diag(1, 0) and diag(0, 1) at Σ = I it exchanges the coordinates, which have one
           law. No covariance is needed: A_i = a_i B with any B will do, and every prediction
           stays, not only the loss
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Axis, Evidence, Figure, Part, Value
from innerloop.claims.falsifying import change_field
from innerloop.claims.prompts import (
    build_tokens,
    draw_covariance,
    draw_integer,
    draw_normal,
    form_layer,
    run_layers,
)
from innerloop.claims.searching import search_minimum
from innerloop.claims.trials import Equality, Inequality
from innerloop.theory.stack import expected_loss
from innerloop.theory.wishart import Wishart

GAP = 1e-6
"""A relative difference of exact losses that rounding cannot cause."""
ALL, BY_5, FREE, ANY = "k + 1 layers", "k layers, as by (5)", "not in proportion", "a_i B, any B"
ORTHOGONAL = "diag(1, 0) and diag(0, 1)"


@dataclass(frozen=True, eq=False)
class Swap:
    """Losses before and after two layers are swapped."""

    kind: str
    case: Case
    before: Tensor
    after: Tensor


@dataclass(frozen=True, eq=False)
class Data:
    swaps: list[Swap]
    figure: Figure
    numbers: dict[str, Value]


def judge_swaps(data: Data) -> Evidence:
    trials = {
        ALL: Equality("$f(A) = f(Ã)$ for $A_i = a_i Σ⁻¹$ and any two of the layers $0 … k$"),
        BY_5: Equality("$f(A) = f(Ã)$ for $i$, $j$ in $0 … k$ and the output $Z_k$"),
        ANY: Equality(
            "with $A_i = a_i B$, $B$ any matrix, the error on every prompt stays in a swap"
        ),
        ORTHOGONAL: Equality(
            "at $Σ = I$ a swap of $A_0 = diag(1, 0)$ and $A_1 = diag(0, 1)$, which are not in "
            "proportion, leaves $f$ as it is (52 at $n = 1$)"
        ),
    }
    gaps = Inequality(
        "for random symmetric $A_0$, $A_1$, and for $diag(1, 0)$ and $I$ (264 and 324 at $Σ = I$, "
        f"$n = 1$), a swap changes $f$ by a share of {GAP:g} or more"
    )
    for swap in data.swaps:
        if swap.kind == FREE:
            gaps.add(GAP, (swap.before - swap.after).abs() / swap.before, swap.case)
        else:
            trials[swap.kind].add(swap.after, swap.before, swap.case)
    part = Part(
        printed=trials[ALL].check(),
        reading="all of $A_0 … A_k$ act, as in (23) and in the product $∏_{ℓ=0}^k$ of the proof",
        other_readings={
            "the output $Z_k$ of (5), which $A_k$ has not entered": trials[BY_5].check()
        },
    )
    beyond = [gaps.check(), trials[ORTHOGONAL].check(), trials[ANY].check()]
    return Evidence(parts=[part], beyond=beyond, numbers=data.numbers, figures=[data.figure])


@claim(
    "ahn2023.lemma-8",
    "Swapping two layers whose matrices are in proportion to the inverse covariance leaves the "
    "in-context loss unchanged.",
    where="Appendix B.4, Lemma 8",
    kind="equality",
    hypotheses={
        "$A_i = a_i Σ⁻¹$": "the lemma",
        "x ~ N(0, Σ), w* ~ N(0, Σ⁻¹)": "Theorem 4, whose setup the lemma takes",
        "k + 1 layers": "the proof and (23)",
    },
    quick={"trials": 200, "exact": 24, "grid": 41},
    full={"trials": 10_000, "exact": 300, "grid": 61},
    tiny={"trials": 20, "exact": 4, "grid": 9},
    judge=judge_swaps,
    falsified={
        "losses that rise by a millionth in a swap": change_field(
            "swaps.after", lambda loss: loss * (1 + 1e-6)
        ),
    },
)
def lemma_8(generator: torch.Generator, *, trials: int, exact: int, grid: int) -> Data:
    # By (5) only A_0 acts: f = E[(1 + A_0 g)²] = 1 + 2A_0 + 3A_0², g a chi-squared.
    least = Case(d=1, n=1, k=1, note="$Σ = 1$, $A_0 = −1/3$, $A_1 = 0$, exact loss")
    one = torch.ones(1, 1, dtype=torch.float64)
    swaps = [Swap(BY_5, least, *(expected_loss(a * one[None], one, one, 1) for a in (-1 / 3, 0)))]
    eye, first = torch.eye(2, dtype=torch.float64), torch.diag(torch.tensor([1.0, 0.0])).double()
    for kind, other in ((ORTHOGONAL, eye - first), (FREE, eye)):
        both = torch.stack([torch.stack([first, other]), torch.stack([other, first])], dim=1)
        case = Case(d=2, n=1, k=1, note="exact loss")
        swaps.append(Swap(kind, case, *expected_loss(both, eye, eye, 1)))
    for trial in range(trials):
        d, n, k = 1 + trial % 4, draw_integer(generator, 1, 8), draw_integer(generator, 1, 5)
        case, S = Case(d=d, n=n, k=k), draw_covariance(generator, d, 10.0)
        X = draw_normal(generator, n + 1, d) @ torch.linalg.cholesky(S).mT
        # Of both signs, small enough that iterates stay of order one; they include 1/n.
        a = (draw_normal(generator, k + 1) / (2 * n))[:, None, None]
        i, j = torch.randperm(k + 1, generator=generator)[:2].tolist()
        order = list(range(k + 1))
        order[i], order[j] = j, i
        bases = {ALL: torch.linalg.inv(S), ANY: draw_normal(generator, d, d)}
        for kind, base in bases.items():
            A = a * base
            swaps.append(Swap(kind, case, measure_error(X, S, A), measure_error(X, S, A[order])))
        A = a * bases[ALL]
        found = (measure_error(X, S, layers[:k]) for layers in (A, A[order]))
        swaps.append(Swap(BY_5, case, *found))
    for trial in range(exact):
        d, n = 2 + trial % 2, draw_integer(generator, 1, 10)
        S = draw_covariance(generator, d, 10.0)
        drawn = draw_normal(generator, 2, d, d)
        proportional = draw_normal(generator, 2)[:, None, None] * torch.linalg.inv(S)
        for kind, A in ((ALL, proportional), (FREE, 0.5 * (drawn + drawn.mT))):
            both = torch.stack([A, A.flip(0)], dim=1)
            losses = expected_loss(both, S, torch.linalg.inv(S), n)
            swaps.append(Swap(kind, Case(d=d, n=n, k=1, note="exact loss"), *losses))
    return Data(swaps, *draw_landscape(grid))


def measure_error(X: Tensor, S: Tensor, A: Tensor) -> Tensor:
    """Squared error on the query, averaged over w* ~ N(0, Σ⁻¹), of layers without 1/n.

    The layers run on tokens. The error is linear in w*, so d prompts determine its expectation.
    """
    d = len(S)
    root = torch.linalg.cholesky(torch.linalg.inv(S))
    Z = build_tokens(X[:-1].expand(d, -1, -1), root.mT, X[-1].expand(d, -1))
    Z = run_layers(Z, map(form_layer, A * (len(X) - 1)))[-1]
    return ((Z[:, d, -1] + root.mT @ X[-1]) ** 2).sum()


def draw_landscape(grid: int, d: int = 5, n: int = 20) -> tuple[Figure, dict[str, Value]]:
    """Plot the exact loss of A_i = a_i Σ⁻¹, any Σ, at the sizes of the source's section 5.3."""
    law = Wishart(torch.eye(d, dtype=torch.float64) / n, n)
    moments = torch.stack([law.power(k).trace() for k in range(5)])

    def loss(a: Tensor) -> Tensor:
        """E tr((1 + a_0 g)² (1 + a_1 g)²)."""
        total, both = a.sum(-1), a.prod(-1)
        terms = [torch.ones_like(both), 2 * total, total**2 + 2 * both, 2 * total * both, both**2]
        return (torch.stack(terms, dim=-1) * moments).sum(-1)

    start = torch.tensor([[-0.2, -1.5]], dtype=torch.float64)
    best, least, _ = search_minimum(loss, start)
    same, level, _ = search_minimum(lambda a: loss(a.expand(2)), start[:, :1])
    axis = [-2 + 2 * i / (grid - 1) for i in range(grid)]
    points = torch.tensor([[one, two] for one in axis for two in axis], dtype=torch.float64)
    values = loss(points).log10().tolist()
    rows = [
        {"a0": round(p[0], 3), "a1": round(p[1], 3), "loss": round(v, 4)}  # as far as it is seen
        for p, v in zip(points.tolist(), values, strict=True)
    ]
    figure = Figure(
        title="Two layers: the loss is the same when they are swapped",
        rows=rows,
        x=Axis(field="a0", title="a₀, first layer A₀ = a₀Σ⁻¹"),
        y=Axis(field="a1", title="a₁, second layer A₁ = a₁Σ⁻¹"),
        mark="heat",
        colour=Axis(field="loss", title="log₁₀ of the loss"),
        caption=f"d = {d}, n = {n}, exact. Two minima, each the other's mirror image.",
    )
    numbers: dict[str, Value] = {
        "d = 5, n = 20: least loss of two layers": least,
        "one of its two minima: a_0": float(best[0]),
        "one of its two minima: a_1": float(best[1]),
        "least loss with a_0 = a_1": level,
        "that a": float(same[0]),
    }
    return figure, numbers
