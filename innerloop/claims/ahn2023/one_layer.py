"""One layer of linear attention: its loss, what the loss depends on, and the limit of its optimum.

Behind Theorem 1: equations (6) and (7), and the limit of long prompts.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.claims.evidence import Axis, Check, Figure, Part
from innerloop.claims.intervals import fit_exponent
from innerloop.claims.prompts import (
    attention,
    build_tokens,
    draw_covariance,
    draw_integer,
    draw_normal,
    enumerate_prompts,
)
from innerloop.claims.trials import Equality
from innerloop.theory.single_layer import SingleLayerLoss

StatedOptimum = Callable[[Tensor, int], tuple[Tensor, Tensor]]
SIZES = ((1, 1), (1, 2), (2, 1), (1, 4), (2, 2), (3, 1))
"""Pairs (d, n) whose token expectation is summed exactly, over at most 3⁹ prompts."""

COUNTEREXAMPLE = "d = 1, Σ = 1: by (8) A = −n/(n + 2), which is −0.998 at n = 1000, and Σ⁻¹ = 1"


def loss(generator: torch.Generator, power: int) -> Part:
    """The loss (6) on tokens, summed over all prompts of a rule that is exact for it."""
    printed = Equality("f(P, Q) = E[ [Z + Attn/n]_{d+1,n+1} + w*ᵀx ], the loss (5) (6)")
    corrected = Equality("(6) with the square: f(P, Q) = E[ (…)² ], by moments and by tokens")
    for d, n in SIZES:
        S = draw_covariance(generator, d, 4.0)
        Z, w, mass = enumerate_prompts(torch.linalg.cholesky(S), n, 5)
        P, Q = draw_normal(generator, d + 1, d + 1), draw_normal(generator, d + 1, d + 1)
        entry = (Z + attention(Z, P, Q) / n)[:, d, n] + (w * Z[:, :d, n]).sum(-1)
        right = SingleLayerLoss(S, n).loss(P[d], Q[:, :d])
        for trial, exponent in ((printed, 1), (corrected, power)):
            left = (mass * entry**exponent).sum()
            about = f"d = {d}, n = {n}: {float(left):.4g} for a loss (5) of {float(right):.4g}"
            trial.add(left, right, size=(d, n), about=about)
    plain = "d = n = 1, Σ = 1, A = 0: (6) is E[w*x] = 0, the loss E[(w*x)²] = 1"
    printed.add(0.0, 1.0, size=(0, 0), about=plain)
    return Part(printed=printed.check(), corrected=corrected.check(), matters="print")


def check_dependence(
    generator: torch.Generator, trials: int, columns: Callable[[int], int]
) -> Part:
    """Redraw the entries said not to matter and compare the predictions."""
    printed = Equality(
        "f depends neither on the first n rows of P nor on Q's columns after the nth"
    )
    corrected = Equality("f depends neither on the first d rows of P nor on Q's last column")
    _second_column(printed)
    for k in range(trials):
        d, n = 1 + k % 4, draw_integer(generator, 1, 6)
        Z = build_tokens(
            draw_normal(generator, n, d), draw_normal(generator, d), draw_normal(generator, d)
        )
        P, Q = draw_normal(generator, d + 1, d + 1), draw_normal(generator, d + 1, d + 1)
        for trial, count in ((printed, n), (corrected, columns(d))):
            P2, Q2 = P.clone(), Q.clone()
            P2[:count] = draw_normal(generator, *P2[:count].shape)
            Q2[:, count:] = draw_normal(generator, *Q2[:, count:].shape)
            left, right = attention(Z, P2, Q2)[d, n], attention(Z, P, Q)[d, n]
            trial.add(left, right, size=(d, n), about=f"d = {d}, n = {n}, redrawn weights")
    return Part(printed=printed.check(), corrected=corrected.check(), matters="print")


def _second_column(trial: Equality) -> None:
    """Add the smallest counterexample: one example, two features, Q's second column matters."""
    one, two = torch.eye(2, dtype=torch.float64)
    Z = build_tokens(one[None], one, two)
    P, Q = torch.zeros(2, 3, 3, dtype=torch.float64)
    P[2, 2] = 1.0
    before = attention(Z, P, Q)[2, 1]
    Q[0, 1] = 1.0
    about = "d = 2, n = 1, x = w* = (1, 0), query (0, 1), P = e₃e₃ᵀ, Q = 0 or e₁e₂ᵀ, Attn 0 or 1"
    trial.add(attention(Z, P, Q)[2, 1], before, size=(0, 0), about=about)


def check_limit(
    generator: torch.Generator, stated: StatedOptimum, limit: Callable[[Tensor], Tensor]
) -> tuple[Part, list[dict[str, float | str]]]:
    """Check the distance of ±A to Σ⁻¹ over n, its exponent fitted over the last three decades."""
    sizes = [round(10 ** (k / 2)) for k in range(15)]
    rows: list[dict[str, float | str]] = []
    slopes: dict[int, list[float]] = {1: [], -1: []}
    for d, condition in ((1, 1.0), (3, 4.0), (5, 100.0)):
        S = draw_covariance(generator, d, condition)
        target = limit(S)
        for sign, fitted in slopes.items():
            off = [sign * stated(S, n)[1][:d] - target for n in sizes]
            far = [max(float(m.norm() / target.norm()), 1e-16) for m in off]
            fitted.append(fit_exponent(sizes[-7:], far[-7:])[0])
            named = f"d = {d}, condition number {float(torch.linalg.cond(S)):.3g}"
            both = zip(sizes, far, strict=True)
            rows += [{"n": n, "data": named, "distance": v} for n, v in both if sign < 0]
    forms = {1: "A → Σ⁻¹ as n → ∞", -1: "−A → Σ⁻¹ as n → ∞, with a distance of order 1/n"}
    reached = {sign: all(abs(p + 1) < 0.02 for p in fitted) for sign, fitted in slopes.items()}
    checks = {
        sign: Check(
            statement=forms[sign],
            passed=reached[sign],
            summary=f"{len(fitted)} covariances, n from {sizes[-7]} to {sizes[-1]}, exponents of "
            f"the distance {', '.join(f'{slope:.4f}' for slope in fitted)}",
            counterexample="" if reached[sign] else COUNTEREXAMPLE,
        )
        for sign, fitted in slopes.items()
    }
    return Part(printed=checks[1], corrected=checks[-1], matters="print"), rows


def tabulate_losses() -> list[dict[str, float | int]]:
    """Tabulate the loss of (8) and of its limit by the number of examples, Σ = I, d = 5."""
    rows = []
    for n in (1, 2, 5, 10, 20, 50, 100, 1000):
        layer = SingleLayerLoss(torch.eye(5, dtype=torch.float64), n)
        b, A = layer.optimum()
        least, plain = float(layer.loss(b, A)), float(layer.loss(b, A / -A[0, 0]))
        told = {"loss at (8)": least, "loss at A = −Σ⁻¹": plain, "loss at A = 0": 5.0}
        rows.append({"d": 5, "n": n, "−A": float(-A[0, 0]), **told})
    return rows


def draw_limit_figure(rows: list[dict[str, float | str]]) -> Figure:
    return Figure(
        title="The optimal weights approach the inverse covariance like 1/n",
        rows=rows,
        x=Axis(field="n", title="examples in the prompt, n", scale="log"),
        y=Axis(field="distance", title="‖−A − Σ⁻¹‖ / ‖Σ⁻¹‖ (Frobenius)", scale="log"),
        colour=Axis(field="data", title="covariance", scale="category"),
        caption="Printed is A ≈ Σ⁻¹; it is −A that approaches it.",
    )
