"""Proposition 3.1: looping one block of linear attention runs preconditioned gradient descent.

Printed    for appropriate P and Q, Z ← Z − (1/n) P Z M (ZᵀQZ), L times, read out as −Z_{d+1,n+1},
           is L steps of preconditioned gradient descent on the regression instance. The proof takes
           (5), Q = diag(A, 0), P = diag(0, …, 0, 1), and ∇ℓ(0) = Xy for ℓ(w) = ‖Xᵀw − y‖²:
           (7) Attn_{d+1} = −w_1ᵀ[X x_q], w_1 = −(1/n) A∇ℓ(0); (9) the labels are yᵀ − w_tᵀX and
           −w_tᵀx_q, X stays
Tested     the block on tokens, for every number of loops: with 2Aᵀ in Q against w − (1/n) A∇ℓ(w),
           A any matrix; with A in Q, as (5) has it, against (7) and (9)
Proof      with Q = diag(C, 0) the labels of X change by −(1/n) yᵀXᵀC[X x_q], which is a step with
           Cᵀ and ½∇ℓ; so C = 2Aᵀ serves every A, and C = A a symmetric one up to the factor 2
Wrong      ∇ℓ(0) is −2Xy: with (5) w_{t+1} = w_t − (1/n) Aᵀ∇½ℓ(w_t), and Attn_{d+1} = n w_1ᵀ[X x_q].
           (9) is right with these w_t: what its w_1 owes to the slip in ∇ℓ(0) is not counted again
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part, misprint
from innerloop.claims.falsifying import change_field
from innerloop.claims.gatmiry2024.hard_instances import HARD_MATRICES
from innerloop.claims.prompts import draw_integer, draw_normal, form_layer, run_prompt
from innerloop.claims.trials import Equality, as_erratum

LARGEST_D, LARGEST_N, LOOPS = 4, 10, 6


@dataclass(frozen=True, eq=False)
class Loops:
    """A prompt, examples in rows, a matrix A, and what the looped block made of it."""

    X: Tensor
    star: Tensor
    query: Tensor
    A: Tensor
    slope: Tensor
    """The gradient ∇ℓ at 0, differentiated by machine."""
    answers: Tensor
    """Minus the query's label after every loop, with 2Aᵀ in Q."""
    first: Tensor
    """The label row of Attn in the first loop, with A in Q."""
    tokens: Tensor
    """Z before the first loop and after every loop, with A in Q."""

    def list_iterates(self, step: Callable[[Tensor, Tensor], Tensor]) -> list[Tensor]:
        """List w_t from w_0 = 0 on, w_{t+1} = w_t − step(A, ∇ℓ(w_t))/n."""
        w, found, n = torch.zeros_like(self.star), [], len(self.X)
        for _ in self.answers:
            w = w - step(self.A, 2 * self.X.mT @ (self.X @ (w - self.star))) / n
            found.append(w)
        return found

    def stated_tokens(self, w: Tensor) -> Tensor:
        """The tokens of (9): X, yᵀ − wᵀX and −wᵀx_q."""
        row = torch.cat([self.X @ (self.star - w), (-(self.query @ w))[None]])
        return torch.cat([self.tokens[0, :-1], row[None]])

    def name_case(self, t: int) -> Case:
        n, d = self.X.shape
        ones = n == 2 and bool((self.X == 1).all())
        return Case(d=d, n=n, t=t, note="all of $x$, $w*$, $x_q$ and $A$ are 1" if ones else "")


def judge_loops(data: list[Loops]) -> Evidence:
    form = {name: Equality(statement) for name, statement in STATEMENTS.items()}

    def add(name: str, each: Loops, t: int, found: Tensor, stated: Tensor) -> None:
        form[name].add(found, stated, each.name_case(t))

    for each in data:
        n, both = len(each.X), torch.cat([each.X, each.query[None]])
        Xy = each.X.mT @ each.X @ each.star
        add("gradient", each, 1, each.slope, Xy)
        add("gradient, corrected", each, 1, each.slope, -2 * Xy)
        add("7", each, 1, each.first, both @ each.A @ Xy / n)
        add("7, corrected", each, 1, each.first, both @ each.A.mT @ Xy)
        descent = each.list_iterates(lambda A, slope: A @ slope)
        halved = each.list_iterates(lambda A, slope: A.mT @ slope / 2)
        for t, (w, half) in enumerate(zip(descent, halved, strict=True), 1):
            add("exists", each, t, each.answers[t - 1], each.query @ w)
            add("9", each, t, each.tokens[t], each.stated_tokens(half))
    errata = [
        as_erratum(f"proof of Proposition 3.1, {where}", form[name], form[f"{name}, corrected"])
        for name, where in {"gradient": "after (8)", "7": "(7)"}.items()
    ]
    loss = misprint(
        "Section 3.2",
        "$ℓ(w) = ‖Xᵀw* − y‖²$",
        "$‖Xᵀw − y‖²$",
        "as printed it has no $w$ in it and is 0, as $y = Xᵀw*$",
    )
    rows = misprint(
        "proof of Proposition 3.1, (8)",
        "the first $d$ rows of $Attn$ are $0_{d×n}$",
        "$0_{d×(n+1)}$",
        "$Z$ and $Attn$ have $n + 1$ columns",
    )
    numbers = {"largest d": LARGEST_D, "largest n": LARGEST_N, "most loops": LOOPS}
    return Evidence(
        parts=[Part(printed=form["exists"].check())],
        errata=[*errata, loss, rows],
        beyond=[form["9"].check()],
        numbers=numbers,
    )


STATEMENTS = {
    "exists": (
        "for some $P$, $Q$ and any $A$, $L$ loops are $L$ steps $w − (1/n) A∇ℓ(w)$, "
        "$ℓ = ‖Xᵀw − y‖²$"
    ),
    "gradient": "$∇ℓ(0) = Xy$, $ℓ(w) = ‖Xᵀw − y‖²$",
    "gradient, corrected": "$∇ℓ(0) = −2Xy$",
    "7": "(7): $Attn_{d+1} = −w_1ᵀ[X x_q]$, $w_1 = −(1/n) A∇ℓ(0)$ with $∇ℓ(0) = Xy$",
    "7, corrected": "$Attn_{d+1} = n w_1ᵀ[X x_q]$, $w_1 = −(1/n) Aᵀ∇½ℓ(0)$",
    "9": "(9), the labels $yᵀ − w_tᵀX$ and $−w_tᵀx_q$, holds for every $t$, and $X$ stays, with "
    "$w_{t+1} = w_t − (1/n) Aᵀ∇½ℓ(w_t)$",
}


@claim(
    "gatmiry2024.proposition-3.1",
    "For some $P$ and $Q$ a looped block of linear attention takes steps of preconditioned "
    "gradient descent on the regression instance, whatever the preconditioner.",
    where="Section 3.4, Proposition 3.1",
    kind="equality",
    hypotheses={
        "labels without noise, $n > d$": "Section 3.2",
        "A arbitrary": "the sentence before it",
    },
    quick={"trials": 300},
    full={"trials": 20_000},
    tiny={"trials": 20},
    judge=judge_loops,
    falsified={
        "answers of the opposite sign": change_field("answers", lambda answers: -answers),
        "answers of a step 0.1 % longer": change_field("answers", lambda answers: 1.001 * answers),
        "a gradient of half the length": change_field("slope", lambda slope: slope / 2),
        "attention divided by n + 1": change_field("first", lambda row: row * 0.9),
    },
)
def proposition_3_1(generator: torch.Generator, *, trials: int) -> list[Loops]:
    one = torch.ones(1, dtype=torch.float64)
    data = [run_loops(torch.ones(2, 1, dtype=torch.float64), one, one, one[:, None], 1)]
    X, w = torch.eye(3, 2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    data += [run_loops(X, w, w, build(2), 2) for build in HARD_MATRICES.values()]
    for k in range(trials):
        d = 1 + k % LARGEST_D
        n = draw_integer(generator, d + 1, LARGEST_N)
        X, A = draw_normal(generator, n, d), draw_normal(generator, d, d)
        # Steps small enough that iterates stay of order one: rounding is not what is tested.
        A = A * 0.5 / torch.linalg.matrix_norm(A, 2) / torch.linalg.matrix_norm(X.mT @ X / n, 2)
        star, query = draw_normal(generator, d), draw_normal(generator, d)
        data.append(run_loops(X, star, query, A, draw_integer(generator, 1, LOOPS)))
    return data


def run_loops(X: Tensor, star: Tensor, query: Tensor, A: Tensor, loops: int) -> Loops:
    """Run the block of (2) and (3) with 2Aᵀ in Q, and with A in Q."""
    n, d = X.shape

    def loop(inner: Tensor) -> Tensor:
        return torch.stack(run_prompt(X, star, query, [form_layer(inner)] * loops, sign=-1.0))

    tokens, at = loop(A), torch.zeros_like(star).requires_grad_()
    (slope,) = torch.autograd.grad(((X @ (at - star)) ** 2).sum(), at)
    first = n * (tokens[0] - tokens[1])[d]
    return Loops(X, star, query, A, slope, -loop(2 * A.mT)[1:, d, n], first, tokens)
