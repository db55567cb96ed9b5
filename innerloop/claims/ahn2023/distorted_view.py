"""Section 5.2: regression on covariates that are seen through a distortion.

Printed    x = W x̄, y = ⟨x̄, w̄⟩, x̄ and w̄ ~ N(0, I), Σ = WWᵀ ≻ 0: for w* = Σ^{−1/2} w̄ it is
           y = ⟨x, w*⟩, x ~ N(0, Σ), w* ~ N(0, Σ⁻¹); R(w) = 1/(2n) (w−w*)ᵀXXᵀ(w−w*) has the Hessian
           XXᵀ/(2n); Newton's method has A ∝ (XXᵀ)⁻¹; Σ⁻¹ = E[XXᵀ]⁻¹
Tested     W of any kind: with negative determinant, not symmetric, rotations, symmetric with
           eigenvalues of both signs, and symmetric positive; covariances as matrices, the second by
           a rule that is exact; R and its derivatives by automatic differentiation
Correction w* = W⁻ᵀ w̄, which has the same law (W = Σ^{1/2} makes both the same); the Hessian is
           XXᵀ/n; Σ⁻¹ = n E[XXᵀ]⁻¹
Beyond     what follows in the source needs the law of (x, w*) alone, and so stands: the printed w*
           is the corrected one of w̄ rotated by WᵀΣ^{−1/2}, and w̄ does not tell a rotation
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Check, Evidence, Part
from innerloop.claims.prompts import draw_covariance, draw_integer, draw_normal
from innerloop.claims.trials import Equality
from innerloop.theory.gaussian import product_rule

KINDS = ("any", "rotation", "symmetric", "positive")
Map = Callable[[Tensor], Tensor]


def inverse_root(W: Tensor) -> Tensor:
    """Σ^{−1/2}, symmetric, of Σ = WWᵀ."""
    values, vectors = torch.linalg.eigh(W @ W.mT)
    return vectors * values**-0.5 @ vectors.mT


def inverse_transpose(W: Tensor) -> Tensor:
    return torch.linalg.inv(W).mT


def outer(W: Tensor) -> Tensor:
    return W @ W.mT


@claim(
    "ahn2023.distorted-view",
    "Latent isotropic covariates seen through a distortion are the setting x ~ N(0, Σ), "
    "w* ~ N(0, Σ⁻¹), with w* = Σ^{−1/2} times the latent weights.",
    where="Section 5.2, before Theorem 4",
    kind="equality",
    quick={"trials": 400},
    full={"trials": 20_000},
    tiny={"trials": 24},
    falsified={
        "w* = W⁻¹ w̄": {"star": torch.linalg.inv},
        "Σ = WᵀW": {"spread": lambda W: W.mT @ W},
        "w* = Σ^{−1} w̄": {"root": lambda W: torch.linalg.inv(W @ W.mT)},
        "R without its square": {"half": 1.0},
        "a Hessian of 2XXᵀ/n": {"curvature": 2.0},
        "Newton's A = −(XXᵀ)⁻¹": {"step": lambda n: 1.0},
        "n² E[XXᵀ]⁻¹": {"many": lambda n: float(n**2)},
    },
)
def distorted_view(
    generator: torch.Generator,
    *,
    trials: int,
    root: Map = inverse_root,
    star: Map = inverse_transpose,
    spread: Map = outer,
    half: float = 0.5,
    curvature: float = 1.0,
    step: Callable[[int], float] = float,
    many: Callable[[int], float] = float,
) -> Evidence:
    labels, numbers = _labels(generator, trials, root, star)
    parts = [
        labels,
        Part(printed=_laws(generator, trials, root, spread)),
        *_least_squares(generator, trials, half, curvature, step),
        _average(generator, many),
    ]
    return Evidence(parts=parts, numbers=numbers)


def _draw_distortion(generator: torch.Generator, k: int) -> tuple[Tensor, str]:
    """Draw a matrix W of each kind in turn, and name the kind."""
    d, kind = 1 + (k // 4) % 5, KINDS[k % 4]
    rotation, _ = torch.linalg.qr(draw_normal(generator, d, d))
    scales = 10 ** (torch.rand(d, generator=generator, dtype=torch.float64) - 0.5)
    if kind == "any":
        other, _ = torch.linalg.qr(draw_normal(generator, d, d))
        return rotation * scales @ other, kind
    if kind == "symmetric":
        scales[draw_integer(generator, 0, d - 1)] *= -1
    return rotation if kind == "rotation" else rotation * scales @ rotation.mT, kind


def _labels(
    generator: torch.Generator, trials: int, root: Map, star: Map
) -> tuple[Part, dict[str, float]]:
    printed = Equality("y = ⟨x, w*⟩ for w* = Σ^{−1/2} w̄, any W")
    corrected = Equality("y = ⟨x, w*⟩ for w* = W⁻ᵀ w̄, which is Σ^{−1/2} w̄ if W is positive")
    minus, one = -torch.ones(1, 1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    left = (minus @ one) @ (root(minus) @ one)
    about = "d = 1, W = −1, x̄ = w̄ = 1: y = 1; x = −1, Σ = 1, w* = 1 and ⟨x, w*⟩ = −1"
    printed.add(left, one @ one, size=(0, 0), about=about)
    worst: dict[str, float] = dict.fromkeys(KINDS, 0.0)
    for k in range(trials):
        W, kind = _draw_distortion(generator, k)
        d = len(W)
        x, w = draw_normal(generator, d), draw_normal(generator, d)
        about = f"d = {d}, W {kind}"
        off = printed.add((W @ x) @ (root(W) @ w), x @ w, size=(d, 1), about=about)
        corrected.add((W @ x) @ (star(W) @ w), x @ w, size=(d, 1), about=about)
        if kind == "positive":
            corrected.add(root(W) @ w, star(W) @ w, size=(d, 1), about=about)
        worst[kind] = max(worst[kind], off)
    words = "largest difference of ⟨x, Σ^{−1/2}w̄⟩ and y, W"
    told = {f"{words} {kind}": off for kind, off in worst.items()}
    return Part(printed=printed.check(), corrected=corrected.check()), told


def _laws(generator: torch.Generator, trials: int, root: Map, spread: Map) -> Check:
    trial = Equality("x = W x̄ ~ N(0, WWᵀ), Σ^{−1/2} w̄ and W⁻ᵀ w̄ ~ N(0, Σ⁻¹), any W")
    for k in range(trials):
        W, kind = _draw_distortion(generator, k)
        size, about = (len(W),), f"d = {len(W)}, W {kind}"
        points, mass = product_rule(len(W), 2)
        seen = points @ W.mT
        S = spread(W)
        trial.add(seen.mT * mass @ seen, S, size=size, about=about)
        for form in (root(W), inverse_transpose(W)):
            trial.add(form @ form.mT @ S, torch.eye(len(W)).double(), size=size, about=about)
    return trial.check()


def _least_squares(
    generator: torch.Generator, trials: int, half: float, curvature: float, step: Callable
) -> list[Part]:
    """R as a quadratic form, its Hessian, and Newton's step w + A∇R(w) of (11)."""
    form = Equality("R(w) = 1/(2n) (w−w*)ᵀXXᵀ(w−w*)")
    printed = Equality("∇²R = XXᵀ/(2n)")
    corrected = Equality("∇²R = XXᵀ/n")
    newton = Equality("A = −n (XXᵀ)⁻¹ takes any w to w* in one step (n ≥ d)", tolerance=1e-7)
    about = "d = n = 1, x = 1: R = (w − w*)²/2, whose second derivative is 1, printed 1/2"
    printed.add(0.5, 1.0, size=(0, 0), about=about)
    for k in range(trials // 4):
        d = 1 + k % 4
        n = d + draw_integer(generator, 0, 20)
        X = torch.linalg.cholesky(draw_covariance(generator, d, 10.0)) @ draw_normal(
            generator, d, n
        )
        w, goal = draw_normal(generator, d), draw_normal(generator, d)

        def loss(v: Tensor, X: Tensor = X, goal: Tensor = goal, n: int = n) -> Tensor:
            """(10)."""
            return ((v @ X - goal @ X) ** 2).sum() / (2 * n)

        G, size, about = X @ X.mT, (d, n), f"d = {d}, n = {n}"
        form.add(half / n * (w - goal) @ G @ (w - goal), loss(w), size=size, about=about)
        hessian = torch.as_tensor(torch.autograd.functional.hessian(loss, w))
        printed.add(G / (2 * n), hessian, size=size, about=about)
        corrected.add(curvature * G / n, hessian, size=size, about=about)
        slope = torch.as_tensor(torch.autograd.functional.jacobian(loss, w))
        landed = w - step(n) * torch.linalg.solve(G, slope)
        newton.add(landed, goal, size=size, about=about)
    return [
        Part(printed=form.check()),
        Part(printed=printed.check(), corrected=corrected.check()),
        Part(printed=newton.check()),
    ]


def _average(generator: torch.Generator, many: Callable[[int], float]) -> Part:
    printed = Equality("Σ⁻¹ = E[XXᵀ]⁻¹, X = [x_1 … x_n]")
    corrected = Equality("Σ⁻¹ = n E[XXᵀ]⁻¹, so that A ∝ Σ⁻¹ all the same")
    for d, n in ((1, 1), (1, 2), (2, 1), (2, 3), (3, 2)):
        S = draw_covariance(generator, d, 10.0) if d > 1 else torch.ones(1, 1, dtype=torch.float64)
        points, mass = product_rule(d * n, 2)
        X = torch.linalg.cholesky(S) @ points.reshape(-1, d, n)
        mean = torch.tensordot(mass, X @ X.mT, dims=1)
        inverse, target = torch.linalg.inv(mean), torch.linalg.inv(S)
        size, about = (d, n), f"d = {d}, n = {n}" + (", Σ = 1: E[XXᵀ] = n" if d == 1 else "")
        printed.add(inverse, target, size=size, about=about)
        corrected.add(many(n) * inverse, target, size=size, about=about)
    return Part(printed=printed.check(), corrected=corrected.check(), matters="print")
