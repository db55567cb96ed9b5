"""One layer of linear attention: what its loss is, depends on, and where its optimum goes.

Behind Theorem 1: equations (6) and (7), and the limit of long prompts.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.claims.evidence import Axis, Check, Figure, Part
from innerloop.claims.prompts import attention, covariance, every_prompt, normal, tokens, whole
from innerloop.claims.trials import Equality, fitted_exponent
from innerloop.theory.single_layer import SingleLayer

Stated = Callable[[Tensor, int], tuple[Tensor, Tensor]]
SIZES = ((1, 1), (1, 2), (2, 1), (1, 4), (2, 2), (3, 1))
"""d and n for which the tokens' expectation is summed exactly, at most 3⁹ prompts."""

AGAINST = "d = 1, Σ = 1: by (8) A = −n/(n + 2), which is −0.998 at n = 1000, and Σ⁻¹ = 1"


def loss(generator: torch.Generator, power: int) -> Part:
    """(6) on tokens, summed over all prompts of a rule that is exact for it."""
    printed = Equality("f(P, Q) = E[ [Z + Attn/n]_{d+1,n+1} + w*ᵀx ], the loss (5) (6)")
    corrected = Equality("(6) with the square: f(P, Q) = E[ (…)² ], by moments and by tokens")
    for d, n in SIZES:
        S = covariance(generator, d, 4.0)
        Z, w, mass = every_prompt(torch.linalg.cholesky(S), n, 5)
        P, Q = normal(generator, d + 1, d + 1), normal(generator, d + 1, d + 1)
        entry = (Z + attention(Z, P, Q) / n)[:, d, n] + (w * Z[:, :d, n]).sum(-1)
        right = SingleLayer(S, n).loss(P[d], Q[:, :d])
        for trial, exponent in ((printed, 1), (corrected, power)):
            left = (mass * entry**exponent).sum()
            about = f"d = {d}, n = {n}: {float(left):.4g} for a loss (5) of {float(right):.4g}"
            trial.add(left, right, size=(d, n), about=about)
    plain = "d = n = 1, Σ = 1, A = 0: (6) is E[w*x] = 0, the loss E[(w*x)²] = 1"
    printed.add(0.0, 1.0, size=(0, 0), about=plain)
    return Part(printed=printed.check(), corrected=corrected.check(), matters="print")


def dependence(generator: torch.Generator, trials: int, columns: Callable[[int], int]) -> Part:
    """Redraw what is said not to matter, and look at the prediction."""
    printed = Equality(
        "f depends neither on the first n rows of P nor on Q's columns after the nth"
    )
    corrected = Equality("f depends neither on the first d rows of P nor on Q's last column")
    _second_column(printed)
    for k in range(trials):
        d, n = 1 + k % 4, whole(generator, 1, 6)
        Z = tokens(normal(generator, n, d), normal(generator, d), normal(generator, d))
        P, Q = normal(generator, d + 1, d + 1), normal(generator, d + 1, d + 1)
        for trial, count in ((printed, n), (corrected, columns(d))):
            P2, Q2 = P.clone(), Q.clone()
            P2[:count] = normal(generator, *P2[:count].shape)
            Q2[:, count:] = normal(generator, *Q2[:, count:].shape)
            left, right = attention(Z, P2, Q2)[d, n], attention(Z, P, Q)[d, n]
            trial.add(left, right, size=(d, n), about=f"d = {d}, n = {n}, redrawn weights")
    return Part(printed=printed.check(), corrected=corrected.check(), matters="print")


def _second_column(trial: Equality) -> None:
    """The smallest case: one example, two features, and Q's second column matters."""
    one, two = torch.eye(2, dtype=torch.float64)
    Z = tokens(one[None], one, two)
    P, Q = torch.zeros(2, 3, 3, dtype=torch.float64)
    P[2, 2] = 1.0
    before = attention(Z, P, Q)[2, 1]
    Q[0, 1] = 1.0
    about = "d = 2, n = 1, x = w* = (1, 0), query (0, 1), P = e₃e₃ᵀ, Q = 0 or e₁e₂ᵀ, Attn 0 or 1"
    trial.add(attention(Z, P, Q)[2, 1], before, size=(0, 0), about=about)


def approach(
    generator: torch.Generator, stated: Stated, limit: Callable[[Tensor], Tensor]
) -> tuple[Part, list[dict[str, float | str]]]:
    """The distance of ±A to Σ⁻¹ against n, with the exponent fitted over the last three decades."""
    sizes = [round(10 ** (k / 2)) for k in range(15)]
    rows: list[dict[str, float | str]] = []
    slopes: dict[int, list[float]] = {1: [], -1: []}
    for d, condition in ((1, 1.0), (3, 4.0), (5, 100.0)):
        S = covariance(generator, d, condition)
        target = limit(S)
        for sign, fitted in slopes.items():
            off = [sign * stated(S, n)[1][:d] - target for n in sizes]
            far = [max(float(m.norm() / target.norm()), 1e-16) for m in off]
            fitted.append(fitted_exponent(sizes[-7:], far[-7:])[0])
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
            counterexample="" if reached[sign] else AGAINST,
        )
        for sign, fitted in slopes.items()
    }
    return Part(printed=checks[1], corrected=checks[-1], matters="print"), rows


def losses() -> list[dict[str, float | int]]:
    """What (8) gains over its limit: losses at Σ = I, d = 5, by the number of examples."""
    rows = []
    for n in (1, 2, 5, 10, 20, 50, 100, 1000):
        layer = SingleLayer(torch.eye(5, dtype=torch.float64), n)
        b, A = layer.optimum()
        least, plain = float(layer.loss(b, A)), float(layer.loss(b, A / -A[0, 0]))
        told = {"loss at (8)": least, "loss at A = −Σ⁻¹": plain, "loss at A = 0": 5.0}
        rows.append({"d": 5, "n": n, "−A": float(-A[0, 0]), **told})
    return rows


def figure(rows: list[dict[str, float | str]]) -> Figure:
    return Figure(
        title="The optimal weights approach the inverse covariance like 1/n",
        rows=rows,
        x=Axis(field="n", title="examples in the prompt, n", scale="log"),
        y=Axis(field="distance", title="‖−A − Σ⁻¹‖ / ‖Σ⁻¹‖ (Frobenius)", scale="log"),
        colour=Axis(field="data", title="covariance", scale="category"),
        caption="Printed is A ≈ Σ⁻¹; it is −A that approaches it.",
    )
