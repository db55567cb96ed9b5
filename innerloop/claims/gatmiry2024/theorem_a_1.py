"""Theorem A.1: the labels after t layers of linear attention with a row u in P, in closed form.

Printed    Z ← Z − (1/n) P Z M (ZᵀQZ), Q = diag(A^(t), 0), P = [0 0; u^(t)ᵀ 1] (11), the label row
           of Z is y^(t) on the context and −y_q^(t) on the query. With Σ = (1/n) XXᵀ,
           y^(t)ᵀ = w*ᵀ∏_{i<t}(I − ΣA^(i))X + Σ_{i<t} u^(i)ᵀΣA^(i)∏_{i<j<t}(I − ΣA^(j))X (12) and
           y_q^(t) = y_q − w*ᵀ∏ x_q − Σ … x_q (13), ∏ from left to right
Tested     layers run on tokens, A^(t) dense and not symmetric, own u and A in each layer, then one
           for all, and u = 0; every t up to 6, t = 0 among them
Wrong      u enters with the other sign: a layer takes (1/n)(u^(t)ᵀX + y^(t)ᵀ)XᵀA^(t)X away, and the
           proof's step leaves u^(t) out
Corrected  −Σ … in (12) and +Σ … in (13), for any A and u
Proof      if the labels are rᵀX, and (r − w*)ᵀx_q on the query, a layer makes rᵀ(I − ΣA) − uᵀΣA
           of rᵀ; unroll from r = w*
Beyond     the loss is not harmed: w* is symmetric, so that the square's cross term is 0 for either
           sign of u; and at u = 0 both formulas hold as printed
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part, misprint
from innerloop.claims.gatmiry2024.hard_instances import HARD_MATRICES
from innerloop.claims.prompts import draw_integer, draw_normal, form_layer, run_prompt
from innerloop.claims.trials import Equality, as_erratum

LARGEST_D, LARGEST_N, LAYERS = 4, 10, 6


@dataclass(frozen=True, eq=False)
class Stack:
    """Examples in rows, true weights, a query, A and u of every layer, and the label rows."""

    X: Tensor
    star: Tensor
    query: Tensor
    A: Tensor
    u: Tensor
    rows: Tensor
    """The label row before the first layer and after every layer."""

    def state_row(self, t: int, sign: float, star: Tensor | None = None) -> Tensor:
        """The row w*ᵀ∏(I − ΣA) + sign·Σ_i uᵀΣA∏(I − ΣA) that (12) and (13) apply to X and x_q."""
        S = self.X.mT @ self.X / len(self.X)
        row = self.star if star is None else star
        # The sum's earlier terms get each new factor, its last one has none.
        for A, u in zip(self.A[:t], self.u[:t], strict=True):
            row = row - row @ S @ A + sign * u @ S @ A
        return row

    def name_case(self, t: int) -> Case:
        n, d = self.X.shape
        ones = n == 2 and bool((self.X == 1).all())
        return Case(
            d=d, n=n, t=t, note="$w* = 0$, all of $x$, $x_q$, $A$ and $u$ are 1" if ones else ""
        )

    def change_with_sign_of_u(self) -> float:
        """Relative change of the squared query error, averaged over ±w*, when u changes sign."""
        stars = (self.star, -self.star)
        one, other = (
            sum(float(self.state_row(len(self.A), sign, w) @ self.query) ** 2 for w in stars)
            for sign in (1.0, -1.0)
        )
        return abs(one - other) / max(one, 1e-300)


def judge_rows(data: list[Stack]) -> Evidence:
    form = {name: Equality(statement) for name, statement in STATEMENTS.items()}

    def add(name: str, each: Stack, t: int, found: Tensor, stated: Tensor) -> None:
        form[name].add(found, stated, each.name_case(t))

    for each in data:
        n, label = len(each.X), each.query @ each.star
        for t, row in enumerate(each.rows):
            for suffix, sign in (("", 1.0), (", corrected", -1.0)):
                stated = each.state_row(t, sign)
                add(f"12{suffix}", each, t, row[:n], each.X @ stated)
                add(f"13{suffix}", each, t, -row[n], label - stated @ each.query)
                if not bool(each.u.any()) and sign > 0:
                    right = torch.cat([each.X @ stated, (stated @ each.query - label)[None]])
                    add("u = 0", each, t, row, right)
        for t, (before, after) in enumerate(pairwise(each.rows)):
            y, A = before[:n], each.A[t]
            alone = y @ each.X @ A / n
            moved = (each.X @ each.u[t] + y) @ each.X @ A / n
            add("step of $y", each, t + 1, after[:n], y - each.X @ alone)
            add("step of $y, corrected", each, t + 1, after[:n], y - each.X @ moved)
            old, new = -before[n], -after[n]
            add("step of $y_q", each, t + 1, new, old - alone @ each.query)
            add("step of $y_q, corrected", each, t + 1, new, old + moved @ each.query)
    pairs = {name: (form[name], form[f"{name}, corrected"]) for name in ("12", "13")}
    return Evidence(
        parts=[Part(printed=one.check(), corrected=two.check()) for one, two in pairs.values()],
        errata=[
            *(
                as_erratum(f"proof of Theorem A.1, {at}^(t)$", form[at], form[f"{at}, corrected"])
                for at in ("step of $y", "step of $y_q")
            ),
            misprint(
                "proof of Theorem A.1",
                "$XXᵀ = Σ$",
                "$XXᵀ = nΣ$, as the factor $1/n$ of the line before is used up",
                "$n = 2$, both examples 1: $XXᵀ = 2$, $Σ = 1$",
            ),
            misprint(
                "proof of Theorem A.1, update rule",
                "$Z^(t) = Z^(t−1) − (1/n) P^(t)MZ^(t)A^(t)Z^(t)ᵀ$",
                "(2) and (3): $Z^(t−1) − (1/n) P^(t)Z^(t−1)M(Z^(t−1)ᵀQ^(t)Z^(t−1))$",
                "$P$ is $(d+1)×(d+1)$ and $M$ is $(n+1)×(n+1)$: $PM$ has no meaning",
            ),
        ],
        beyond=[form["u = 0"].check()],
        numbers={
            "largest d": LARGEST_D,
            "largest n": LARGEST_N,
            "most layers": LAYERS,
            "(13) with u and −u: largest relative difference of the error², averaged over ±w*": max(
                each.change_with_sign_of_u() for each in data
            ),
        },
    )


STATEMENTS = {
    "12": "(12): $y^(t)ᵀ = w*ᵀ∏(I − ΣA)X + ∑_i u^(i)ᵀΣA^(i)∏(I − ΣA)X$",
    "12, corrected": "$y^(t)ᵀ = w*ᵀ∏(I − ΣA)X − ∑_i u^(i)ᵀΣA^(i)∏(I − ΣA)X$",
    "13": "(13): $y_q^(t) = y_q − w*ᵀ∏(I − ΣA)x_q − ∑_i u^(i)ᵀΣA^(i)∏(I − ΣA)x_q$",
    "13, corrected": "$y_q^(t) = y_q − w*ᵀ∏(I − ΣA)x_q + ∑_i u^(i)ᵀΣA^(i)∏(I − ΣA)x_q$",
    "u = 0": "(12) and (13) as printed at $u = 0$",
    "step of $y": "$y^(t+1)ᵀ = y^(t)ᵀ − (1/n) y^(t)ᵀXᵀA^(t)X$",
    "step of $y, corrected": "$y^(t+1)ᵀ = y^(t)ᵀ − (1/n)(u^(t)ᵀX + y^(t)ᵀ)XᵀA^(t)X$",
    "step of $y_q": "$y_q^(t+1) = y_q^(t) − (1/n) y^(t)ᵀXᵀA^(t)x_q$",
    "step of $y_q, corrected": "$y_q^(t+1) = y_q^(t) + (1/n)(u^(t)ᵀX + y^(t)ᵀ)XᵀA^(t)x_q$",
}


def change_rows(change: Callable[[Stack], Tensor]) -> Callable[[Any], Any]:
    return lambda data: [replace(each, rows=change(each)) for each in data]


@claim(
    "gatmiry2024.theorem-A.1",
    "After $t$ layers of linear attention with parameters $A$ and $u$ of their own the labels of "
    "the context are $w*ᵀ∏(I − ΣA)X$ plus a sum over $u$, and those of the query $y_q$ minus the "
    "same at $x_q$.",
    where="Appendix A.1, Theorem A.1, (11) to (13)",
    kind="equality",
    hypotheses={"$A^(t)$ and $u^(t)$ arbitrary": "the theorem"},
    quick={"trials": 300},
    full={"trials": 20_000},
    tiny={"trials": 20},
    judge=judge_rows,
    falsified={
        "labels 0.1 % larger": change_rows(lambda each: 1.001 * each.rows),
        "labels with u of the opposite sign": change_rows(
            lambda each: run_stack(each.X, each.star, each.query, each.A, -each.u)
        ),
    },
)
def theorem_a_1(generator: torch.Generator, *, trials: int) -> list[Stack]:
    one = torch.ones(1, dtype=torch.float64)
    few = [(torch.ones(2, 1, dtype=torch.float64), 0 * one, one, one[None, None], one[None])]
    X, w = torch.eye(3, 2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    for build in HARD_MATRICES.values():
        few.append((X, w, w, build(2).expand(2, 2, 2), w.expand(2, 2)))
    drawn = [draw_stack(generator, 1 + k % LARGEST_D, k % 3) for k in range(trials)]
    return [Stack(*parts, run_stack(*parts)) for parts in (*few, *drawn)]


def draw_stack(
    generator: torch.Generator, d: int, kind: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Draw a stack. Kind 0: parameters per layer; kind 1: shared by all; kind 2: u = 0."""
    n, layers = draw_integer(generator, d + 1, LARGEST_N), draw_integer(generator, 1, LAYERS)
    X, A = draw_normal(generator, n, d), draw_normal(generator, layers, d, d)
    u = draw_normal(generator, layers, d)
    size = torch.linalg.matrix_norm(A, 2).max() * torch.linalg.matrix_norm(X.mT @ X / n, 2)
    A = 0.5 * A / size
    if kind == 1:
        A, u = A[:1].expand_as(A), u[:1].expand_as(u)
    u = torch.zeros_like(u) if kind == 2 else u
    return X, draw_normal(generator, d), draw_normal(generator, d), A, u


def run_stack(X: Tensor, star: Tensor, query: Tensor, A: Tensor, u: Tensor) -> Tensor:
    """Run the layers; the label row before the first and after every layer."""
    found = run_prompt(X, star, query, map(form_layer, A, u), sign=-1.0)
    return torch.stack([Z[-1] for Z in found])
