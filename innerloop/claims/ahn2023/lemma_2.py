"""Lemma 2: the layers of a sparse linear transformer are steps of preconditioned gradient descent.

Printed    Z ← Z + (1/n) P Z M (Zᵀ Q Z) with (9), P = diag(0, …, 0, 1), Q = diag(A_i, 0), A_i
           symmetric: after layer i the query's label is −⟨x, w_i⟩ for some w_i, and
           w_{i+1} = w_i + A_i ∇R(w_i), R(w) = 1/(2n) Σ (wᵀx_j − w*ᵀx_j)²
Tested     the layers as printed, on prompts that share their context and differ in the query: more
           queries than features, so that "for some w_i" can fail; then the w_i recovered by least
           squares against the printed step, layer by layer. A_i dense, symmetric, of any sign, and
           not commuting with each other or with the covariance of the data
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part, misprint
from innerloop.claims.prompts import draw_integer, draw_normal, form_layer, run_prompt
from innerloop.claims.trials import Equality

LARGEST_D, LARGEST_N, LAYERS = 5, 12, 6


@dataclass(frozen=True, eq=False)
class Labels:
    """A context, the weights behind its labels, and the queries' labels after every layer."""

    X: Tensor
    star: Tensor
    queries: Tensor
    preconditioners: Tensor
    labels: Tensor
    """Layers × queries."""
    symmetric: bool

    def steps(self) -> Iterator[tuple[Case, Tensor, Tensor, Tensor]]:
        """Yield, layer by layer, the labels, the w_i that fit them best, and the stated w_i."""
        n, d = self.X.shape
        w = torch.zeros(d, dtype=torch.float64)
        for i, (A, labels) in enumerate(zip(self.preconditioners, self.labels, strict=True), 1):
            stated = w + A.mT @ self.X.mT @ (self.X @ (w - self.star)) / n
            # The default driver reads unwritten memory: its last digits differ between runs.
            w = torch.linalg.lstsq(self.queries, -labels, driver="gelsd").solution
            yield Case(d=d, n=n, layer=i), labels, w, stated


def judge_labels(data: list[Labels]) -> Evidence:
    linear = Equality("the label of every query is $−⟨x, w_i⟩$ with one $w_i$", tolerance=1e-8)
    steps = Equality("$w_{i+1} = w_i + A_i ∇R(w_i)$, $A_i$ symmetric", tolerance=1e-8)
    skew = Equality(
        "$w_{i+1} = w_i + A_iᵀ ∇R(w_i)$ for $A_i$ that are not symmetric", tolerance=1e-8
    )
    for found in data:
        for case, labels, w, stated in found.steps():
            linear.add(-found.queries @ w, labels, case)
            (steps if found.symmetric else skew).add(w, stated, case)
    return Evidence(
        parts=[Part(printed=linear.check()), Part(printed=steps.check())],
        errata=[
            misprint(
                "(5), Lemma 2 and wherever layers are counted",
                "$k$ layers have the matrices $A_0, …, A_k$ and the output $Z_k$",
                "$k$ layers have $A_0, …, A_{k−1}$; the output of $A_0, …, A_k$ is $Z_{k+1}$",
                "$k = 1$: one layer with two matrices $A_0$, $A_1$, of which $Z_1$ has seen $A_0$",
            ),
            misprint(
                "proof of Lemma 2, before (61)",
                "we can choose $x := x^(i)$ and $y := ⟨y^(i), w*⟩$",
                "$y := ⟨x^(i), w*⟩$, which is $y^(i)$",
                "$d = 1$, $x^(1) = 1$, $w* = 2$: $y^(1) = 2$, and $⟨y^(1), w*⟩ = 4$",
            ),
            misprint(
                "proof of Lemma 2, (61)",
                "$y_{l+1}^(i) = y_l^(i) + (1/n) ∑_j x^(n+1)ᵀ A_l x^(j) y_l^(j)$",
                "$x^(i)ᵀ$ for $x^(n+1)ᵀ$, as (57) has it",
                "$d = n = A = x^(1) = y^(1) = 1$, $x^(2) = 0$: by (57) $y^(1)$ becomes 2, "
                "by (61) 1",
            ),
        ],
        beyond=[skew.check()],
        numbers={"largest d": LARGEST_D, "largest n": LARGEST_N, "most layers": LAYERS},
    )


def change_labels(change: Callable[[Labels], Tensor]) -> Callable[[list[Labels]], list[Labels]]:
    return lambda data: [replace(found, labels=change(found)) for found in data]


@claim(
    "ahn2023.lemma-2",
    "The layers of a linear transformer of form (9) are steps of preconditioned gradient descent "
    "on the prompt's least squares, and the iterate can be recovered after every layer.",
    where="Section 5, Lemma 2",
    kind="equality",
    hypotheses={"$A_i$ symmetric": "(9)", "no noise in the labels": "Section 3"},
    quick={"trials": 300},
    full={"trials": 20_000},
    tiny={"trials": 20},
    judge=judge_labels,
    falsified={
        "labels that are quadratic in the query": change_labels(
            lambda found: found.labels + 1e-4 * found.queries.square().sum(dim=-1)
        ),
        "labels of the opposite sign": change_labels(lambda found: -found.labels),
        "labels of a step that is 0.1 % longer": change_labels(lambda found: 1.001 * found.labels),
    },
)
def lemma_2(generator: torch.Generator, *, trials: int) -> list[Labels]:
    found = []
    for trial in range(trials):
        d, n = 1 + trial % LARGEST_D, draw_integer(generator, 1, LARGEST_N)
        root = draw_normal(generator, d, d)
        X, star = draw_normal(generator, n, d) @ root.mT, draw_normal(generator, d)
        queries = draw_normal(generator, 2 * d + 3, d) @ root.mT
        layers = draw_integer(generator, 1, LAYERS)
        # Steps small enough that iterates stay of order one: rounding is not what is tested.
        scale = 0.5 / float(torch.linalg.matrix_norm(X.mT @ X / n, 2))
        for symmetric in (True, False):
            A = draw_normal(generator, layers, d, d)
            A = (A + A.mT) / 2 if symmetric else A
            A = A * scale / torch.linalg.matrix_norm(A, 2)[:, None, None]
            found.append(Labels(X, star, queries, A, label_queries(X, star, queries, A), symmetric))
    return found


def label_queries(X: Tensor, star: Tensor, queries: Tensor, A: Tensor) -> Tensor:
    """Run layers (3) and (4) on the prompt (1), once per query: labels after every layer."""
    count = len(queries)
    prompt = X.expand(count, *X.shape), star.expand(count, -1), queries
    return torch.stack([Z[:, -1, -1] for Z in run_prompt(*prompt, map(form_layer, A))[1:]])
