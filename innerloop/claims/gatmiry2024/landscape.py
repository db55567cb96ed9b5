"""The loss around its minimum in whitened weights B = Σ*^½AΣ*^½, by exact expectations.

Two functions go by the name L(A, 0): the transformer's loss (section 3.5), E‖(I − SB)^L‖², and the
trace that Lemma 4.1 equates it with, E tr((I − SB)^{2L}). They agree on multiples of the identity.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import torch
from torch import Tensor

from innerloop.claims.cases import Case
from innerloop.claims.gatmiry2024.hard_instances import HARD_MATRICES
from innerloop.claims.searching import Margin, search_counterexample
from innerloop.theory.looped import LoopedLoss

Loss = Callable[[LoopedLoss, Tensor], Tensor]
FORMS: dict[str, Loss] = {
    "the loss": LoopedLoss.loss,
    "the trace of Lemma 4.1": LoopedLoss.trace_loss,
}


LOSS, TRACE = FORMS


@cache
def get_law(d: int, n: int, L: int) -> LoopedLoss:
    return LoopedLoss(d, n, L)


def delta(loops: int, d: int, n: int) -> float:
    """δ = (8Ld/√n)^{1/(2L)} of section 3.5."""
    return (8 * loops * d / n**0.5) ** (1 / (2 * loops))


def identity(d: int) -> Tensor:
    return torch.eye(d, dtype=torch.float64)


def farthest_within(inside: Callable[[Tensor], Tensor], start: float, rows: int) -> Tensor:
    """Largest t ≥ 0 of each row at which a condition still holds, by doubling and bisection."""
    low, high = torch.zeros(rows, dtype=torch.float64), torch.full((rows,), start).double()
    for _ in range(60):
        held = inside(high)
        if not bool(held.any()):
            break
        high = torch.where(held, 2 * high, high)
    for _ in range(30):
        middle = (low + high) / 2
        held = inside(middle)
        low, high = torch.where(held, middle, low), torch.where(held, high, middle)
    return low


def draw_directions(generator: torch.Generator, d: int, extra: int) -> Tensor:
    """Draw diagonals with largest entry 1: all equal, one eigenvalue, and random; either sign."""
    drawn = torch.randn(extra, d, generator=generator, dtype=torch.float64)
    rows = torch.cat([torch.ones(1, d, dtype=torch.float64), identity(d)[:1], drawn])
    rows = rows / rows.abs().amax(dim=1, keepdim=True)
    return torch.diag_embed(torch.cat([rows, -rows]))


def hoelder_factor(d: int, L: int) -> float:
    """The factor d^{−(L−1)/L} of Hölder's inequality between Σu² and Σu^{2L}."""
    return d ** (-(L - 1) / L)


def loss_and_squared_gradient(
    law: LoopedLoss, B: Tensor, loss: Loss = LoopedLoss.loss
) -> tuple[Tensor, Tensor]:
    """Return loss L and squared gradient norm ‖∇L‖² of every matrix, differentiable in B."""
    at = B if B.requires_grad else B.detach().clone().requires_grad_()
    value = loss(law, at)
    (slope,) = torch.autograd.grad(value.sum(), at, create_graph=B.requires_grad)
    return value if B.requires_grad else value.detach(), (slope**2).sum((-2, -1))


def measure_at_level(
    generator: torch.Generator, case: Case, form: str, level: float, extra: int
) -> list[dict[str, Any]]:
    """Measure loss and squared gradient where the loss is `level` or just above."""
    law = get_law(*(case[name] for name in ("d", "n", "L")))
    A = draw_at_level(generator, law, FORMS[form], level, extra)
    losses, slopes = loss_and_squared_gradient(law, A, FORMS[form])
    return [
        make_row(case.extend(A=each), each, loss, slope, form=form)
        for each, loss, slope in zip(A, losses, slopes, strict=True)
    ]


def make_row(
    case: Case,
    A: Tensor | Fraction,
    loss: Any,
    slope: Any,
    *,
    form: str = LOSS,
    symmetric: bool = True,
    search: str = "",
) -> dict[str, Any]:
    """Make the row of one measured gradient: case, form, loss, squared norm and search.

    `A` is the matrix, or the multiple of the identity; A^½ exists if no eigenvalue is negative.
    """
    values = torch.linalg.eigvalsh(A) if isinstance(A, Tensor) else torch.tensor([float(A)])
    root = symmetric and bool((values >= 0).all())
    sides = {"loss": float(loss), "slope": float(slope), "search": search}
    return {"case": case, "form": form, "symmetric": symmetric, "root": root, **sides}


def search_gradient(
    generator: torch.Generator, margin: Margin, sizes: Any, descents: int, *, symmetric: bool
) -> dict[str, Any]:
    """Search the least squared gradient relative to its bound; measure where the search ended."""
    options: dict[str, Any] = {"symmetric": symmetric, "pool": HARD_MATRICES, "descents": descents}
    result = search_counterexample(margin, sizes, generator, **options)
    law = get_law(*(result.case[name] for name in ("d", "n", "L")))
    A = result.case["A"]
    sides = loss_and_squared_gradient(law, A)
    return make_row(result.case, A, *sides, symmetric=symmetric, search=result.summary)


def draw_at_level(
    generator: torch.Generator, law: LoopedLoss, loss: Loss, level: float, extra: int
) -> Tensor:
    """Draw diagonal matrices (by rotation, all symmetric) whose loss is `level` or just above."""
    along = draw_directions(generator, law.d, extra)
    start = (1 - law.minimum_deviation()) * identity(law.d)

    def inside(t: Tensor) -> Tensor:
        return loss(law, start + t[:, None, None] * along) < level

    t = farthest_within(inside, level ** (1 / (2 * law.loops)), len(along)) * (1 + 1e-6)
    return start + t[:, None, None] * along
