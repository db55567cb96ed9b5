"""Proposition 3.1: looping one block of linear attention runs preconditioned gradient descent.

Printed    Z ← Z − (1/n) P Z M (ZᵀQZ) with (5), Q = diag(A, 0), P = diag(0, …, 0, 1), L times, read
           out as −Z_{d+1,n+1}: L steps w ← w − (1/n) A ∇ℓ(w) from w = 0, ℓ(w) = ‖Xᵀw* − y‖² (so
           in 3.2), where ∇ℓ(0) = Xy; (6) Attn_{d+1} = yᵀXᵀA [X x_q]; (7) = −(0 − (1/n) A∇ℓ(0))ᵀX
           = −w_1ᵀX; (8) Attn_{1:d} = 0; (9) the labels are yᵀ − w_tᵀX and −w_tᵀx_q, X stays
Tested     the block as printed on tokens, A dense and not symmetric, for every number of loops
Readings   ∇ℓ(0) = Xy taken as printed, or ℓ(w) = ‖Xᵀw − y‖² differentiated: (7) and (9) fail in
           both. ℓ as printed has no w in it, only w*: its gradient is 0
Correction ∇ℓ(0) = −2Xy; Attn_{d+1} = n w_1ᵀ[X x_q] with w_1 the step of ½ℓ with Aᵀ; (9) holds with
           w_{t+1} = w_t − (1/n) Aᵀ ∇½ℓ(w_t): half the gradient, the transpose of A
Note       the proposition itself asks for some choice of P and Q, and there is one: 2Aᵀ in Q.
           It is quoted as Lemma 1 of ahn2023, where it is Lemma 2; the zero of (8) is d×(n+1)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.prompts import (
    attention,
    build_tokens,
    draw_integer,
    draw_normal,
    unmasked_attention,
)
from innerloop.claims.trials import Equality

LARGEST_D, LARGEST_N, LOOPS = 4, 10, 6
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
Step = Callable[[Tensor, Tensor], Tensor]


def transposed_step(A: Tensor, gradient: Tensor) -> Tensor:
    """The corrected step without its 1/n: half the gradient of ℓ, multiplied by Aᵀ."""
    return A.mT @ gradient / 2


def query_block(A: Tensor) -> Tensor:
    """Q's block for gradient descent on ℓ with the preconditioner A."""
    return 2 * A.mT


@claim(
    "gatmiry2024.proposition-3.1",
    "For some P and Q a looped block of linear attention takes steps of preconditioned gradient "
    "descent; with (5) the preconditioner is A.",
    where="Section 3.4, Proposition 3.1 and its proof, (5) to (9)",
    kind="equality",
    quick={"trials": 300},
    full={"trials": 20_000},
    tiny={"trials": 20},
    falsified={
        "A for Aᵀ": {"step": lambda A, gradient: A @ gradient / 2},
        "the whole gradient": {"step": lambda A, gradient: A.mT @ gradient},
        "ascent": {"step": lambda A, gradient: -A.mT @ gradient / 2},
        "Q holds A": {"choice": lambda A: A},
        "the gradient is −Xy": {"slope": -1.0},
        "the query is a key": {"attend": unmasked_attention},
        "P moves x": {"moves": 1.0},
        "(6) with Aᵀ": {"inside": lambda A: A.mT},
    },
)
def proposition_3_1(
    generator: torch.Generator,
    *,
    trials: int,
    step: Step = transposed_step,
    choice: Callable[[Tensor], Tensor] = query_block,
    slope: float = -2.0,
    attend: Attention = attention,
    moves: float = 0.0,
    inside: Callable[[Tensor], Tensor] = lambda A: A,
) -> Evidence:
    forms = {name: Equality(statement) for name, statement in STATEMENTS.items()}
    one = torch.ones(1, dtype=torch.float64)
    smallest = _Instance(torch.ones(2, 1, dtype=torch.float64), one, one, one[:, None], 1)
    cases = [smallest] + [_Instance.draw(generator, 1 + k % LARGEST_D) for k in range(trials)]
    for case in cases:
        _equations(forms, case, step, slope, attend, moves, inside)
        _loops(forms, case, step, choice, attend, moves)
    check = {name: trial.check() for name, trial in forms.items()}
    parts = [
        Part(printed=check["exists"]),
        Part(printed=check["loss"], corrected=check["gradient, corrected"], matters="print"),
        Part(printed=check["gradient"], corrected=check["gradient, corrected"]),
        Part(printed=check["6"]),
        Part(printed=check["7, as printed"], corrected=check["7, corrected"]),
        Part(printed=check["7, derived"], corrected=check["7, corrected"]),
        Part(printed=check["8"]),
        Part(printed=check["9, as printed"], corrected=check["9, corrected"]),
        Part(printed=check["9, derived"], corrected=check["9, corrected"]),
    ]
    numbers = {"largest d": LARGEST_D, "largest n": LARGEST_N, "most loops": LOOPS}
    return Evidence(parts=parts, numbers=numbers)


STATEMENTS = {
    "exists": "for some P, Q and any A, L loops are L steps w − (1/n) A∇ℓ(w), ℓ = ‖Xᵀw − y‖²",
    "loss": "∇ℓ(0) = Xy, ℓ(w) = ‖Xᵀw* − y‖² as in section 3.2",
    "gradient": "∇ℓ(0) = Xy, ℓ(w) = ‖Xᵀw − y‖²",
    "gradient, corrected": "∇ℓ(0) = −2Xy, ℓ(w) = ‖Xᵀw − y‖²",
    "6": "(6): Attn_{d+1} = yᵀXᵀA [X x_q]",
    "7, as printed": "(7): Attn_{d+1} = −w_1ᵀ[X x_q], w_1 = −(1/n) A∇ℓ(0) with ∇ℓ(0) = Xy",
    "7, derived": "(7): Attn_{d+1} = −w_1ᵀ[X x_q], w_1 = −(1/n) A∇ℓ(0), ∇ℓ differentiated",
    "7, corrected": "Attn_{d+1} = n w_1ᵀ[X x_q], w_1 = −(1/n) Aᵀ∇½ℓ(0)",
    "8": "(8): Attn_{1:d} = 0",
    "9, as printed": "(9): the labels are yᵀ − w_1ᵀX and −w_1ᵀx_q, with ∇ℓ(0) = Xy",
    "9, derived": "(9): the labels are yᵀ − w_tᵀX and −w_tᵀx_q for every t, ∇ℓ differentiated",
    "9, corrected": "(9) for every t, and X stays, with w_{t+1} = w_t − (1/n) Aᵀ∇½ℓ(w_t)",
}


class _Instance(NamedTuple):
    """Examples in rows, the true weights, a query, a preconditioner and a number of loops."""

    X: Tensor
    star: Tensor
    query: Tensor
    A: Tensor
    loops: int

    @classmethod
    def draw(cls, generator: torch.Generator, d: int) -> _Instance:
        n, loops = draw_integer(generator, 1, LARGEST_N), draw_integer(generator, 1, LOOPS)
        X, A = draw_normal(generator, n, d), draw_normal(generator, d, d)
        # Steps small enough that iterates stay of order one: rounding is not what is tested.
        A = A * 0.5 / torch.linalg.matrix_norm(A, 2) / torch.linalg.matrix_norm(X.mT @ X / n, 2)
        return cls(X, draw_normal(generator, d), draw_normal(generator, d), A, loops)

    def gradient(self, w: Tensor) -> Tensor:
        """The gradient ∇‖Xᵀw − y‖², by automatic differentiation."""
        at = w.clone().requires_grad_()
        return torch.autograd.grad(((self.X @ at - self.X @ self.star) ** 2).sum(), at)[0]

    def block(self, attend: Attention, moves: float) -> Callable[[Tensor, Tensor], Tensor]:
        """Attn of (2) with P of (5): maps tokens and Q's block to n times what is subtracted."""
        d = len(self.star)
        P = torch.zeros(d + 1, d + 1, dtype=torch.float64)
        P[0, 0], P[d, d] = moves, 1.0
        return lambda Z, A: attend(Z, P, torch.nn.functional.pad(A, (0, 1, 0, 1)))

    def labels(self, w: Tensor) -> Tensor:
        """The label row of (9): yᵀ − wᵀX and −wᵀx_q."""
        query = (-(self.query @ w))[None]
        return torch.cat([self.X @ (self.star - w), query])

    def add(self, trial: Equality, left: Tensor, right: Tensor, t: int = 1) -> None:
        n, d = self.X.shape
        about = f"d = {d}, n = {n}, t = {t}"
        ones = bool((self.X == 1).all())
        if ones and left.numel() < 4:
            about = "d = 1, n = 2, all of x, w*, x_q and A are 1, t = 1"
            about += f", {left.tolist()} where {right.tolist()} is stated"
        trial.add(left, right, size=(0, 0, 0) if ones else (d, n, t), about=about)


def _equations(
    forms: dict[str, Equality],
    case: _Instance,
    step: Step,
    slope: float,
    attend: Attention,
    moves: float,
    inside: Callable[[Tensor], Tensor],
) -> None:
    """Check the first block, equation by equation."""
    (n, d), A = case.X.shape, case.A
    Z = build_tokens(case.X, case.star, case.query)
    attn = case.block(attend, moves)(Z, A)
    both = torch.cat([case.X, case.query[None]])
    Xy, zero = case.X.mT @ case.X @ case.star, torch.zeros_like(case.star)
    gradient = case.gradient(zero)
    case.add(forms["loss"], zero, Xy)
    case.add(forms["gradient"], gradient, Xy)
    case.add(forms["gradient, corrected"], gradient, slope * Xy)
    case.add(forms["6"], attn[d], both @ inside(A).mT @ Xy)
    case.add(forms["7, as printed"], attn[d], -both @ (-A @ Xy / n))
    case.add(forms["7, derived"], attn[d], -both @ (-A @ gradient / n))
    case.add(forms["7, corrected"], attn[d], n * both @ (-step(A, gradient) / n))
    case.add(forms["8"], attn[:d], torch.zeros_like(attn[:d]))
    case.add(forms["9, as printed"], (Z - attn / n)[d], case.labels(-A @ Xy / n))


def _loops(
    forms: dict[str, Equality],
    case: _Instance,
    step: Step,
    choice: Callable[[Tensor], Tensor],
    attend: Attention,
    moves: float,
) -> None:
    """Check the looped block against gradient descent, with Q of (5) and with the chosen Q."""
    (n, d), A, block = case.X.shape, case.A, case.block(attend, moves)
    Z = free = start = build_tokens(case.X, case.star, case.query)
    derived = corrected = torch.zeros_like(case.star)
    for t in range(1, case.loops + 1):
        Z = Z - block(Z, A) / n
        free = free - block(free, choice(A)) / n
        derived = derived - A @ case.gradient(derived) / n
        corrected = corrected - step(A, case.gradient(corrected)) / n
        case.add(forms["exists"], -free[d, n], case.query @ derived, t)
        case.add(forms["9, derived"], Z[d], case.labels(derived), t)
        right = torch.cat([start[:d], case.labels(corrected)[None]])
        case.add(forms["9, corrected"], Z, right, t)
