"""Section 5.2: regression on covariates that are seen through a distortion.

Printed    x = W x̄, y = ⟨x̄, w̄⟩, x̄ and w̄ ~ N(0, I), W any matrix with Σ = WWᵀ ≻ 0: for
           w* = Σ^{−1/2} w̄ it is y = ⟨x, w*⟩, x ~ N(0, Σ), w* ~ N(0, Σ⁻¹);
           R(w) = 1/(2n) (w−w*)ᵀXXᵀ(w−w*); Newton's method on it has A ∝ (XXᵀ)⁻¹
Tested     W of any kind: with negative determinant, not symmetric, rotations, symmetric with
           eigenvalues of both signs, and symmetric positive; covariances by a rule that is exact; R
           and its derivatives by automatic differentiation of (10)
Corrected  y = ⟨x, w*⟩ for w* = W⁻ᵀ w̄, any W; for W = Σ^{1/2} that is the printed w*
Proof      ⟨Wx̄, W⁻ᵀw̄⟩ = x̄ᵀWᵀW⁻ᵀw̄ = ⟨x̄, w̄⟩, and W⁻ᵀw̄ has the covariance W⁻ᵀW⁻¹ = Σ⁻¹
Beyond     what follows in the source needs the law of (x, w*) alone, and so stands: the printed w*
           is the corrected one of w̄ rotated by WᵀΣ^{−1/2}, and the law of w̄ is the same rotated
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from innerloop.claims.ahn2023.hard_instances import build_matrices
from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part, misprint
from innerloop.claims.falsifying import change_field
from innerloop.claims.prompts import draw_covariance, draw_integer, draw_normal
from innerloop.claims.trials import Equality
from innerloop.theory.gaussian import product_rule

KINDS = ("any", "rotation", "symmetric", "positive")
MISPRINTS = (
    misprint(
        "Section 5.2, before Theorem 4",
        "$∇²R = XXᵀ/(2n)$",
        "$XXᵀ/n$, of $R = 1/(2n) (w−w*)ᵀXXᵀ(w−w*)$",
        "$d = n = 1$, $x = 1$: $R = (w − w*)²/2$, whose second derivative is 1, printed 1/2",
    ),
    misprint(
        "Section 5.2, before Theorem 4",
        "$Σ⁻¹ = E[XXᵀ]⁻¹$, $X = [x_1 … x_n]$",
        "$n E[XXᵀ]⁻¹$, so that $A ∝ Σ⁻¹$ all the same",
        "$d = 1$, $n = 2$, $Σ = 1$: $E[XXᵀ] = 2$",
    ),
)


@dataclass(frozen=True, eq=False)
class View:
    """A distortion, one latent covariate with its weights and label, and exact covariances."""

    case: Case
    W: Tensor
    x: Tensor
    w: Tensor
    label: Tensor
    seen: Tensor
    """Covariance of x = W x̄."""
    star: Tensor
    """Covariance of Σ^{−1/2} w̄."""


@dataclass(frozen=True, eq=False)
class Square:
    """The least squares (10) of one prompt: value and gradient at some w, by differentiation."""

    case: Case
    X: Tensor
    w: Tensor
    goal: Tensor
    value: Tensor
    slope: Tensor


@dataclass(frozen=True, eq=False)
class Data:
    views: list[View] = field(default_factory=list)
    squares: list[Square] = field(default_factory=list)


def inverse_root(S: Tensor) -> Tensor:
    """Σ^{−1/2}, symmetric."""
    values, vectors = torch.linalg.eigh(S)
    return vectors * values**-0.5 @ vectors.mT


def judge_views(data: Data) -> Evidence:
    printed = Equality("$y = ⟨x, w*⟩$ for $w* = Σ^{−1/2} w̄$, any $W$")
    corrected = Equality("$y = ⟨x, w*⟩$ for $w* = W⁻ᵀ w̄$, any $W$")
    laws = Equality("$x = W x̄ ~ N(0, Σ)$, $Σ^{−1/2} w̄ ~ N(0, Σ⁻¹)$")
    for view in data.views:
        W, S = view.W, view.W @ view.W.mT
        printed.add((W @ view.x) @ (inverse_root(S) @ view.w), view.label, view.case)
        corrected.add((W @ view.x) @ torch.linalg.solve(W.mT, view.w), view.label, view.case)
        laws.add(view.seen, S, view.case)
        laws.add(view.star @ S, torch.eye(len(W), dtype=torch.float64), view.case)
    form = Equality("$R(w) = 1/(2n) (w−w*)ᵀXXᵀ(w−w*)$")
    newton = Equality("$w + A ∇R(w) = w*$ for all $w$ at $A = −n (XXᵀ)⁻¹$, $n ≥ d$", tolerance=1e-7)
    for square in data.squares:
        n, G, off = square.X.shape[1], square.X @ square.X.mT, square.w - square.goal
        form.add(off @ G @ off / (2 * n), square.value, square.case)
        newton.add(square.w - n * torch.linalg.solve(G, square.slope), square.goal, square.case)
    return Evidence(
        parts=[
            Part(
                printed=printed.check(),
                corrected=corrected.check(),
                reading="an identity, as the text states it; as an equality of laws it holds",
            ),
            *(Part(printed=trial.check()) for trial in (laws, form, newton)),
        ],
        errata=MISPRINTS,
    )


@claim(
    "ahn2023.distorted-view",
    "Latent isotropic covariates seen through a distortion are the setting $x ~ N(0, Σ)$, "
    "$w* ~ N(0, Σ⁻¹)$, with $w* = Σ^{−1/2}$ times the latent weights.",
    where="Section 5.2, before Theorem 4",
    kind="equality",
    hypotheses={"$W ∈ R^{d×d}$ with $WWᵀ ≻ 0$, not said to be symmetric": "the passage"},
    quick={"trials": 400},
    full={"trials": 20_000},
    tiny={"trials": 24},
    judge=judge_views,
    falsified={
        "labels of the opposite sign": change_field("views.label", lambda label: -label),
        "covariances a thousandth larger": change_field("views.seen", lambda S: 1.001 * S),
        "weights with a covariance a thousandth larger": change_field(
            "views.star", lambda S: 1.001 * S
        ),
        "losses a thousandth larger": change_field("squares.value", lambda value: 1.001 * value),
        "gradients a thousandth longer": change_field("squares.slope", lambda slope: 1.001 * slope),
    },
)
def distorted_view(generator: torch.Generator, *, trials: int) -> Data:
    views = []
    for d in (1, 2, 3):
        ones = torch.ones(d, dtype=torch.float64)
        for W in build_matrices(d).values():
            if float(torch.linalg.det(W)) != 0:
                case = Case(d=d, W=W, note="all entries of $x̄$ and $w̄$ are 1")
                views.append(_measure_view(W, ones, ones, case))
    for k in range(trials):
        W, case = _draw_distortion(generator, k)
        x, w = draw_normal(generator, len(W)), draw_normal(generator, len(W))
        views.append(_measure_view(W, x, w, case))
    return Data(views, [_measure_square(generator, k) for k in range(trials // 4)])


def _measure_view(W: Tensor, x: Tensor, w: Tensor, case: Case) -> View:
    points, mass = product_rule(len(W), 2)
    seen, star = points @ W.mT, points @ inverse_root(W @ W.mT).mT
    return View(case, W, x, w, x @ w, seen.mT * mass @ seen, star.mT * mass @ star)


def _draw_distortion(generator: torch.Generator, k: int) -> tuple[Tensor, Case]:
    """Draw a matrix W of each kind in turn."""
    d, kind = 1 + (k // 4) % 5, KINDS[k % 4]
    case = Case(d=d, note=f"$W$ {kind}")
    rotation, _ = torch.linalg.qr(draw_normal(generator, d, d))
    scales = 10 ** (torch.rand(d, generator=generator, dtype=torch.float64) - 0.5)
    if kind == "any":
        other, _ = torch.linalg.qr(draw_normal(generator, d, d))
        return rotation * scales @ other, case
    if kind == "symmetric":
        scales[draw_integer(generator, 0, d - 1)] *= -1
    return rotation if kind == "rotation" else rotation * scales @ rotation.mT, case


def _measure_square(generator: torch.Generator, k: int) -> Square:
    d = 1 + k % 4
    n = d + draw_integer(generator, 0, 20)
    X = torch.linalg.cholesky(draw_covariance(generator, d, 10.0)) @ draw_normal(generator, d, n)
    goal, w = draw_normal(generator, d), draw_normal(generator, d).requires_grad_()
    value = ((w @ X - goal @ X) ** 2).sum() / (2 * n)
    (slope,) = torch.autograd.grad(value, w)
    return Square(Case(d=d, n=n), X, w.detach(), goal, value.detach(), slope)
