"""Proposition 1: the induction of Appendix C.2, with its bounds on β and on B.

Printed    the stream before layer k holds x, y, the flags, and at odd tokens
           β^(k) = S_θ(β^(k−1) − γD_nᵀ(X_n β^(k) − y_n)); |β^(k−1)| ≤ C_β^k with
           C_β = 1 + b_x² d γ_max‖M‖ + b_β b_x γ_max‖M‖; and B ≥ b_β b_x + b_x√d (b_β + C_β^K)
           exceeds every |⟨β^(k), x⟩|, k ≤ K, which silences odd keys
Tested     the recursion with each index on the right; both bounds along the iterates of random
           instances at every prefix, b_x and b_β from 0.01 to 10⁶, the least that Assumption 1
           allows; layers with the printed weights (last bias −θ) and that B
Correction β^(k−1) on the right; C_β = 1 + b_x² d γ_max‖M‖ + b_β b_x² γ_max‖M‖: Xᵀy = XᵀXβ* brings
           b_x twice, and with one b_x both bounds fail for large b_x
Beyond     the iterates grow by C_β a layer at most from β^(1) = 0, so C_β^(k−1) is enough
Note       (C.7) and (C.8) bound |⟨β, x⟩| with ‖x‖_∞ ≤ b_x; Assumption 1 has ‖x‖ ≤ b_x
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.liu2025 import printed
from innerloop.claims.liu2025.lemma_1 import draw_uniform
from innerloop.claims.liu2025.printed import soft_threshold
from innerloop.claims.prompts import draw_integer, draw_normal
from innerloop.claims.trials import Equality, Inequality

Growth = Callable[[float, float, int, float], float]


def printed_growth(b_x: float, b_beta: float, d: int, g: float) -> float:
    """The printed growth constant C_β for g = γ_max‖M‖."""
    return 1 + b_x**2 * d * g + b_beta * b_x * g


def proper_growth(b_x: float, b_beta: float, d: int, g: float) -> float:
    return 1 + b_x**2 * d * g + b_beta * b_x**2 * g


def without_beta(b_x: float, b_beta: float, d: int, g: float) -> float:
    return 1 + b_x**2 * d * g


class Instance(NamedTuple):
    X: Tensor
    star: Tensor
    M: Tensor
    thetas: Tensor

    @property
    def bounds(self) -> tuple[float, float, float]:
        """The bounds b_x, b_β and γ_max‖M‖."""
        longest = float(self.X.norm(dim=-1).max())
        return longest, float(self.star.abs().sum()), float(torch.linalg.matrix_norm(self.M, 2))


@claim(
    "liu2025.proposition-1",
    "Layer by layer, odd tokens carry LISTA-VM's iterates, which stay below C_β^k, and the gate B "
    "exceeds every inner product it must silence.",
    where="Appendix C.2, Proposition 1",
    kind="inequality",
    quick={"trials": 250},
    full={"trials": 20_000},
    tiny={"trials": 25},
    falsified={
        "C_β without the term in b_β": {"growth": without_beta},
        "1/(2n) in place of 1/(2n + 1)": {"odd": 0},
    },
)
def proposition_1(
    generator: torch.Generator, *, trials: int, growth: Growth = proper_growth, odd: int = 1
) -> Evidence:
    implicit = Equality("β^(k) = S_θ(β^(k−1) − γD_nᵀ(X_n β^(k) − y_n))", tolerance=1e-8)
    explicit = Equality("β^(k) = S_θ(β^(k−1) − γD_nᵀ(X_n β^(k−1) − y_n))", tolerance=1e-8)
    ball = _pair("|β^(k−1)| ≤ C_β^k, C_β = 1 + (b_x² d + b_β {})γ‖M‖")
    gate = _pair("|⟨β^(k), x⟩| ≤ b_β b_x + b_x√d(b_β + C_β^K), k ≤ K, C_β with {}")
    for trial in range(trials):
        given = _smallest() if trial == 0 else _draw_instance(generator, trial)
        n, d, K = *given.X.shape, len(given.thetas)
        size, told = (d, n, trial), _describe_instance(given)
        found = _iterates(given, odd)
        for k, forms in enumerate((printed_growth, growth)):
            _add_bounds(given, found, forms, ball[k], gate[k], size, told)
        _layers(generator, given, found, (implicit, explicit), (d, n, K, trial), told)
    return Evidence(
        parts=[
            Part(printed=implicit.check(), corrected=explicit.check(), matters="print"),
            Part(printed=ball[0].check(), corrected=ball[1].check()),
            Part(printed=gate[0].check(), corrected=gate[1].check()),
        ],
        numbers={
            "share of iterates beyond the printed C_β^k": ball[0].violations / ball[0].cases,
            "share beyond the printed B": gate[0].violations / gate[0].cases,
        },
    )


def _pair(form: str) -> tuple[Inequality, Inequality]:
    return Inequality(form.format("b_x")), Inequality(form.format("b_x²"))


def _iterates(given: Instance, odd: int) -> list[Tensor]:
    """The iterates β^(1), …, β^(K+1), one row per prefix n ≥ 1."""
    rows, y = given.X.unsqueeze(0), given.X @ given.star
    n = torch.arange(1, len(y) + 1, dtype=torch.float64)
    seen = torch.ones(len(y), len(y), dtype=torch.float64).tril()
    beta = torch.zeros(len(y), len(given.star), dtype=torch.float64)
    found = [beta]
    for theta in given.thetas:
        residual = seen * ((rows * beta.unsqueeze(1)).sum(-1) - y)
        step = residual @ given.X @ given.M.mT / (2 * n + odd).unsqueeze(-1)
        beta = soft_threshold(beta - step, theta)
        found.append(beta)
    return found


def _add_bounds(
    given: Instance,
    found: list[Tensor],
    growth: Growth,
    ball: Inequality,
    gate: Inequality,
    size: tuple,
    told: str,
) -> None:
    d, K = len(given.star), len(given.thetas)
    b_x, b_beta, g = given.bounds
    C = growth(b_x, b_beta, d, g)
    for k in range(1, K + 1):  # β^(k) is found[k − 1]
        left = float(found[k - 1].norm(dim=-1).max())
        ball.add(left, C ** (k + 1), size=size, about=f"{told}, |β^({k})| against C_β^{k + 1}")
        inner = float((found[k - 1] @ given.X.mT).abs().max())
        B = b_beta * b_x + b_x * d**0.5 * (b_beta + C**K)
        gate.add(inner, B, size=size, about=f"{told}, k = {k}, K = {K}")


def _layers(
    generator: torch.Generator,
    given: Instance,
    found: list[Tensor],
    forms: tuple[Equality, Equality],
    size: tuple,
    told: str,
) -> None:
    """Compare layers of the printed weights with the recursion under either index."""
    d = given.X.shape[1]
    b_x, b_beta, g = given.bounds
    C, y = proper_growth(b_x, b_beta, d, g), given.X @ given.star
    bound = b_beta * b_x + b_x * d**0.5 * (b_beta + C ** len(given.thetas))
    if bound > 1e5:  # Beyond it, what rounding leaves of β x + B − B is too little to compare.
        return
    query = draw_normal(generator, d)
    H = printed.printed_prompt(given.X, y, query * b_x / query.norm())
    for k, theta in enumerate(given.thetas):
        H = printed.attend(H, printed.printed_heads(d, given.M, bound))
        H = printed.apply_mlp(H, printed.printed_units(d, float(theta), -1.0))
        after = H[d + 1 : 2 * d + 1, 2::2].mT
        same = _right_hand(given, found[k], after, float(theta), 2)
        forms[0].add(after, same, size=size, about=f"{told}, layer {k + 1}")
        forms[1].add(after, found[k + 1], size=size, about=f"{told}, layer {k + 1}")


def _right_hand(given: Instance, beta: Tensor, inner: Tensor, theta: float, twice: int) -> Tensor:
    """The step S_θ(β − D_nᵀ(X_n `inner` − y_n)), prefix by prefix."""
    rows = []
    for m in range(1, len(given.X) + 1):
        X = given.X[:m]
        step = given.M @ X.mT @ (X @ inner[m - 1] - X @ given.star) / (twice * m + 1)
        rows.append(soft_threshold(beta[m - 1] - step, theta))
    return torch.stack(rows)


def _smallest() -> Instance:
    """An instance with β^(2) = ⅓ γM x y = 3,333 > 2 b_β + C_β² = 2,121, beyond the printed B."""
    x, star = 1e6, 1e3
    one = torch.ones(1, 1, dtype=torch.float64)
    return Instance(x * one, star * one[0], 1e-11 * one, torch.zeros(2, dtype=torch.float64))


def _draw_instance(generator: torch.Generator, trial: int) -> Instance:
    d, n, K = (
        draw_integer(generator, 1, 4),
        draw_integer(generator, 1, 6),
        draw_integer(generator, 1, 4),
    )
    powers = 8 * draw_uniform(generator, 2) - 2 if trial % 2 else draw_uniform(generator, 2) - 0.5
    X, star = draw_normal(generator, n, d), draw_normal(generator, d)
    X = X / X.norm(dim=-1).max() * 10 ** powers[0]
    star[draw_integer(generator, 1, d) :] = 0
    star = star / star.abs().sum() * 10 ** powers[1]
    M = draw_normal(generator, d, d)
    M = (
        M
        / torch.linalg.matrix_norm(M, 2)
        * float(12 * draw_uniform(generator))
        / 10 ** (2 * powers[0])
    )
    return Instance(X, star, M, 0.01 * draw_uniform(generator, K) * star.abs().sum())


def _describe_instance(given: Instance) -> str:
    b_x, b_beta, g = given.bounds
    n, d = given.X.shape
    return f"d = {d}, n = {n}, b_x = {b_x:.3g}, b_β = {b_beta:.3g}, γ‖M‖ = {g:.3g}"
