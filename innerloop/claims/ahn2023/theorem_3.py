"""Theorem 3: two layers on isotropic data: diagonal matrices attain the global minimum.

Printed    x ~ N(0, I), w* ~ N(0, I), layers of form (9): "there are diagonal matrices A_0 and A_1
           that are the global minimizer of f". Proof, for symmetric matrices: f(UD_0Uᵀ, A_1) =
           f(D_0, UᵀA_1U), so that A_0 may be diagonal; f(D_0, A_1) = f(D_0, SA_1S) for every
           diagonal S of signs, and f is convex in A_1, so that f(D_0, diag A_1) ≤ f(D_0, A_1).
           It starts from f = E Tr(∏(I + XᵀA_iXM) XᵀX ∏(I + MXᵀA_jX))
Tested     on the exact loss, by an exact rule for the Gram matrix (or by Wishart words), with
           matrices symmetric or not: the least over diagonal ones against searches over all
           entries, every step of the proof at random points, its first display on every prompt
Correction the display wants 1/n in every factor, and the query's entry in place of the trace
Beyond     the minimum is at multiples of I, two of them that are each other's mirror image, and no
           search over all entries, symmetric or not, ended elsewhere than there
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.claims.ahn2023.two_layers import draw_landscape
from innerloop.claims.base import claim
from innerloop.claims.evidence import Check, Evidence, Part, Value
from innerloop.claims.prompts import draw_integer, draw_normal
from innerloop.claims.searching import search_minimum
from innerloop.claims.trials import Equality, Inequality
from innerloop.theory.bartlett import bartlett_rule
from innerloop.theory.gaussian import product_rule
from innerloop.theory.stack import expected_loss
from innerloop.training.kernel import Prompts
from innerloop.training.linear_attention import SampledLoss, distance_to_identity
from innerloop.training.stacks import Weights

SMALL = 3
"""Largest size at which the exact rule has few points; beyond it Wishart words are quicker."""


def exact_loss(d: int, n: int) -> Callable[[Tensor], Tensor]:
    """The loss f(A_0, A_1) over its value without layers; differentiable."""
    eye = torch.eye(d, dtype=torch.float64)
    if d > SMALL:
        return lambda A: expected_loss(A, eye, eye, n) / d
    gram, mass = bartlett_rule(d, n, 4)
    prompts = Prompts(
        gram.permute(1, 2, 0).contiguous(),
        mass[None],
        torch.zeros(d, d, 1, dtype=torch.float64),
    )
    law = SampledLoss(d=d, n=n)
    return lambda A: law.loss_at(Weights(A), prompts) / d


@claim(
    "ahn2023.theorem-3",
    "Two layers on isotropic data: diagonal matrices attain the global minimum of the in-context "
    "loss.",
    where="Section 5.1, Theorem 3, with Appendix B.1",
    kind="inequality",
    quick={
        "cases": [[1, 1], [2, 1], [2, 5], [3, 2], [3, 8]],
        "starts": 4,
        "trials": 40,
        "grid": 25,
    },
    full={
        "cases": [[d, n] for d in (1, 2, 3) for n in (1, 3, 10, 50)] + [[5, 20]],
        "starts": 20,
        "trials": 400,
        "grid": 60,
    },
    tiny={"cases": [[2, 3]], "starts": 1, "trials": 6, "grid": 5},
    falsified={
        "a hundredth above": {"share": 1.01},
        "turned the other way": {"turn": lambda U: U.mT},
        "diag A₁ doubled": {"kept": lambda A: 2 * A.diagonal().diag()},
        "1/n², not 1/n": {"power": 2},
    },
)
def theorem_3(
    generator: torch.Generator,
    *,
    cases: list[list[int]],
    starts: int,
    trials: int,
    grid: int,
    share: float = 1.0,
    turn: Callable[[Tensor], Tensor] = lambda U: U,
    kept: Callable[[Tensor], Tensor] = lambda A: A.diagonal().diag(),
    power: int = 1,
) -> Evidence:
    rows, least = _searches(generator, cases, starts, share)
    figure, numbers = draw_landscape(grid)
    parts = [
        Part(printed=least, matters="result"),
        Part(printed=_turns(generator, trials, turn)),
        Part(printed=_jensen(generator, trials, kept)),
        _display(generator, power),
    ]
    return Evidence(parts=parts, numbers=numbers, table=rows, figures=[figure])


def _searches(
    generator: torch.Generator, cases: list[list[int]], starts: int, share: float
) -> tuple[list[dict[str, Value]], Check]:
    """Compare the least loss over diagonal matrices with searches over all entries."""
    trial = Inequality("min over diagonal A_0, A_1 ≤ f(A_0, A_1) wherever a search ends", 1e-7)
    rows: list[dict[str, Value]] = []
    evaluations = 0
    for d, n in cases:
        loss, eye = exact_loss(d, n), torch.eye(d, dtype=torch.float64)

        def diagonal(entries: Tensor, loss=loss, eye=eye, d=d) -> Tensor:
            return 1e3 * loss(entries.reshape(2, d)[..., None] * eye)

        def free(entries: Tensor, loss=loss, d=d) -> Tensor:
            return 1e3 * loss(entries.reshape(2, d, d))

        first = torch.cat([torch.full((d,), -0.3), torch.full((d,), -0.9)]).double()
        drawn = first + 0.2 * draw_normal(generator, 1 + starts // 4, 2 * d)
        point, least, _ = search_minimum(diagonal, torch.cat([first[None], drawn]), iterations=400)
        ends: Counter[str] = Counter()
        for _ in range(starts):
            start = 0.3 * draw_normal(generator, 1, 2 * d * d)
            end, value, count = search_minimum(free, start, iterations=400)
            evaluations += count
            about = f"d = {d}, n = {n}, the least of diagonal ones and where a search ended"
            trial.add(share * least, value, size=(d, n), about=about)
            ends[_place(end.reshape(2, d, d), value / least - 1)] += 1
        rows += [
            {
                "d": d,
                "n": n,
                "least of diagonal ones / d": least / 1e3,
                "its entries": ", ".join(f"{v:.4f}" for v in point.tolist()),
                "searches end at": place,
                "times": count,
            }
            for place, count in sorted(ends.items())
        ]
    trial.search_note = f"L-BFGS over all entries from random starts, {evaluations} evaluations"
    return rows, trial.check()


def _place(A: Tensor, above: float) -> str:
    if float(distance_to_identity(A).max()) > 0.01:
        return f"elsewhere, {above:.1e} above"
    return ", ".join(f"{m.diagonal().mean():.3f} I" for m in A)


def _turns(generator: torch.Generator, trials: int, turn: Callable[[Tensor], Tensor]) -> Check:
    trial = Equality("f(UD_0Uᵀ, A_1) = f(D_0, UᵀA_1U) for orthogonal U")
    for _ in range(trials):
        d, n = draw_integer(generator, 2, SMALL), draw_integer(generator, 1, 8)
        loss, U = exact_loss(d, n), torch.linalg.qr(draw_normal(generator, d, d))[0]
        D, A = draw_normal(generator, d).diag(), draw_normal(generator, d, d)
        left = loss(torch.stack([U @ D @ U.mT, A]))
        V = turn(U)
        right = loss(torch.stack([D, V.mT @ A @ V]))
        trial.add(left, right, size=(d, n), about=f"d = {d}, n = {n}")
    return trial.check()


def _jensen(generator: torch.Generator, trials: int, kept: Callable[[Tensor], Tensor]) -> Check:
    trial = Inequality("f(D_0, diag A_1) ≤ f(D_0, A_1)")
    for _ in range(trials):
        d, n = draw_integer(generator, 1, SMALL), draw_integer(generator, 1, 8)
        loss, D, A = (
            exact_loss(d, n),
            draw_normal(generator, d).diag(),
            draw_normal(generator, d, d),
        )
        left, right = loss(torch.stack([D, kept(A)])), loss(torch.stack([D, A]))
        trial.add(left, right, size=(d, n), about=f"d = {d}, n = {n}")
    return trial.check()


def _display(generator: torch.Generator, power: int) -> Part:
    """Check the first display of B.1, its expectation over all tokens taken exactly."""
    printed = Equality("f = E Tr(∏_{i=2}^1(I + XᵀA_iXM) XᵀX ∏_{j=1}^2(I + MXᵀA_jX))")
    corrected = Equality(
        "f = E [∏(I + XᵀA_iᵀXM/n) XᵀX ∏(I + MXᵀA_jX/n)] at (n+1, n+1), A_0 next to XᵀX"
    )
    for d, n in ((1, 1), (1, 2), (1, 3), (2, 1)):
        points, mass = product_rule(d * (n + 1), 10)
        X = points.reshape(-1, d, n + 1)
        M = torch.ones(n + 1, dtype=torch.float64)
        M[-1] = 0.0
        for A in (torch.zeros(2, d, d, dtype=torch.float64), draw_normal(generator, 2, d, d)):
            known = d * exact_loss(d, n)(A)
            for trial, scale in ((printed, 1.0), (corrected, float(n) ** -power)):
                right = torch.eye(n + 1, dtype=torch.float64)
                for one in A:
                    right = right + scale * right @ (M[:, None] * (X.mT @ one @ X))
                whole_matrix = right.mT @ X.mT @ X @ right
                corner = whole_matrix[:, n, n]
                trace = whole_matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
                value = (mass * (trace if trial is printed else corner)).sum()
                zero = not bool(A.any())
                about = f"d = {d}, n = {n}, A = 0: {value:.4g}, and f = d" if zero else f"d = {d}"
                trial.add(value, known, size=(d, n), about=about)
    return Part(printed=printed.check(), corrected=corrected.check(), matters="print")
