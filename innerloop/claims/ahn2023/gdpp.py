"""After Theorem 5: its points are GD++, and make the covariates better conditioned.

Printed    Σ = I, A_i = a_i I, B_i = b_i I: the layers are GD++ (steps of gradient descent on
           covariates x ← (I − γXXᵀ)x), up to the step size; the Gram matrix has a better condition
           number with each iteration; X_{k+1} = X_k (I − |a_k b_k| M X_kᵀ X_k) (6.1)
Tested     (4) on tokens with (13) against GD++ written apart from it: weights w and covariates, the
           context first; the update of 6.1 for a, b of any sign and any Σ; the condition number of
           X_kX_kᵀ, over random prompts, at the best point of S for several d, n and layers
Correction X_{k+1} = X_k (I + (a_k b_k/n) M X_kᵀ Σ⁻¹ X_k): it is |a_k b_k| because a_k < 0 < b_k at
           the best points. With c = −a_k b_k an eigenvalue g of X_kX_kᵀ/n becomes g(1 − cg)², which
           grows up to g = 1/(3c) and is 0 at 1/c: the condition number falls where the largest g is
           at most 1/(3c), and is infinite on prompts with a g of 1/c. The typical one (median)
           falls with the first layer; with the second of three it rises at the best point that was
           found for the source's own d = 5, n = 10
Beyond     for Σ ≠ I it is Σ^{−1/2}X_k that gets better conditioned; X_k itself approaches the
           condition number of Σ, from either side
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.claims.ahn2023.critical import least_family_loss
from innerloop.claims.ahn2023.query_label import form_13_matrices
from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Check, Evidence, Figure, Part, Value
from innerloop.claims.prompts import (
    attention,
    build_tokens,
    draw_covariance,
    draw_integer,
    draw_normal,
)
from innerloop.claims.trials import Equality, Inequality

QUICK = [[2, 5, 2], [5, 10, 2], [5, 10, 3], [5, 20, 3]]
"""Triples (d, n, layers); d = 5, n = 10 with three layers is the setting of 6.1."""
Update = Callable[[Tensor, Tensor, float, float], Tensor]


def gd_plus_plus(
    X: Tensor, y: Tensor, query: Tensor, a: Tensor, b: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Run GD++ on a context X (n, d); returns covariates, residual labels, query prediction.

    Each step is gradient descent with rate η = −a on the residual labels, then
    x ← (I − γXᵀX)x with γ = −ab/n.
    """
    n = len(X)
    told = torch.zeros((), dtype=X.dtype)
    for eta, gamma in zip(-a, -a * b / n, strict=True):
        w = eta * X.mT @ y / n
        y, told = y - X @ w, told + query @ w
        curve = gamma * X.mT @ X
        X, query = X - X @ curve, query - query @ curve
    return X, y, told


def corrected_update(X: Tensor, S: Tensor, a: float, b: float) -> Tensor:
    """The corrected update of X, which is (d, n+1)."""
    n = X.shape[1] - 1
    M = torch.ones(n + 1, 1, dtype=X.dtype)
    M[-1] = 0.0
    return X + a * b / n * X @ (M * (X.mT @ torch.linalg.inv(S) @ X))


def printed_update(X: Tensor, a: float, b: float) -> Tensor:
    M = torch.ones(X.shape[1], 1, dtype=X.dtype)
    M[-1] = 0.0
    return X - abs(a * b) * X @ (M * (X.mT @ X))


@claim(
    "ahn2023.gdpp",
    "At the identity covariance the weights of Theorem 5 are GD++, and the Gram matrix of the "
    "covariates has a better condition number after every layer.",
    where="Section 6, after Theorem 5, and 6.1",
    kind="equality",
    quick={
        "trials": 300,
        "prompts": 4000,
        "cases": [[2, 5, 2], [5, 10, 2], [5, 10, 3], [5, 20, 3]],
    },
    full={
        "trials": 10_000,
        "prompts": 100_000,
        "cases": [
            [2, 5, 2],
            [5, 10, 2],
            [5, 20, 2],
            [5, 10, 3],
            [5, 20, 3],
            [5, 50, 3],
            [5, 20, 4],
        ],
    },
    tiny={"trials": 20, "prompts": 200, "cases": [[2, 5, 2], [5, 10, 3]]},
    falsified={
        "a step of twice the size": {"pace": 2.0},
        "a + b for ab": {"update": lambda X, S, a, b: corrected_update(X, S, a + b, 1.0)},
        "b of the other sign": {"turn": -1.0},
    },
)
def gdpp(
    generator: torch.Generator,
    *,
    trials: int,
    prompts: int,
    cases: list[list[int]],
    pace: float = 1.0,
    update: Update = corrected_update,
    turn: float = 1.0,
) -> Evidence:
    conditions, rows, figure = _conditions(generator, prompts, cases, turn)
    parts = [
        Part(printed=_check_same_as_layers(generator, trials, pace)),
        _updates(generator, trials, update),
        *conditions,
    ]
    return Evidence(
        parts=parts,
        numbers=_measure_coloured_data(generator, prompts),
        table=rows,
        figures=[figure],
    )


def _check_same_as_layers(generator: torch.Generator, trials: int, pace: float) -> Check:
    trial = Equality("layers with A_i = a_i I, B_i = b_i I are GD++ with η = −a_i, γ = −a_i b_i/n")
    for k in range(trials):
        d, n, layers = 1 + k % 4, draw_integer(generator, 1, 8), 1 + k % 5
        X, w, query = (
            draw_normal(generator, n, d),
            draw_normal(generator, d),
            draw_normal(generator, d),
        )
        a, b = draw_normal(generator, layers) / 4, draw_normal(generator, layers) / 4
        Z, eye = build_tokens(X, w, query), torch.eye(d, dtype=torch.float64)
        for i in range(layers):
            P, Q = form_13_matrices(a[i] * eye, b[i] * eye)
            Z = Z + attention(Z, P, Q) / n
        inputs, left, told = gd_plus_plus(X, X @ w, query, pace * a, b)
        known = torch.cat([inputs.flatten(), left, told[None]])
        found = torch.cat([Z[:d, :n].mT.flatten(), Z[d, :n], -Z[d, n:]])
        about = f"d = {d}, n = {n}, {layers} layers"
        trial.add(found, known, size=(d, n, layers), about=about)
    return trial.check()


def _updates(generator: torch.Generator, trials: int, update: Update) -> Part:
    printed = Equality("X_{k+1} = X_k (I − |a_k b_k| M X_kᵀ X_k)")
    corrected = Equality("X_{k+1} = X_k (I + (a_k b_k/n) M X_kᵀ Σ⁻¹ X_k)")
    for k in range(trials):
        first = k == 0
        d, n = (1, 2) if first else (1 + k % 4, draw_integer(generator, 2, 8))
        S = draw_covariance(generator, d, 10.0) if k % 2 else torch.eye(d, dtype=torch.float64)
        a, b = (-1.0, 0.5) if first else draw_normal(generator, 2).tolist()
        drawn = torch.linalg.cholesky(S) @ draw_normal(generator, d, n + 1)
        X = torch.ones(1, 3, dtype=torch.float64) if first else drawn
        P, Q = form_13_matrices(a * torch.linalg.inv(S), b * torch.eye(d, dtype=torch.float64))
        Z = torch.cat([X, X[:1]])
        after = (Z + attention(Z, P, Q) / n)[:d]
        about = f"d = {d}, n = {n}, ab = {a * b:.2g}"
        about = "d = 1, n = 2, all x = 1, a = −1, b = ½: (4) gives ½, printed 0" if first else about
        printed.add(printed_update(X, a, b), after, size=(d, n, k), about=about)
        corrected.add(update(X, S, a, b), after, size=(d, n, k), about=about)
    return Part(printed=printed.check(), corrected=corrected.check())


def _conditions(
    generator: torch.Generator, prompts: int, cases: list[list[int]], turn: float
) -> tuple[list[Part], list[dict[str, Value]], Figure]:
    printed = Inequality("κ(X_{k+1}X_{k+1}ᵀ) ≤ κ(X_kX_kᵀ) on every prompt, at the best point of S")
    corrected = Inequality(
        "a_k b_k < 0 there, and κ falls where the largest eigenvalue of X_kX_kᵀ/n is at most "
        "1/(3|a_k b_k|)",
        rounding=1e-9,
    )
    typical = Inequality("the median of κ(X_kX_kᵀ) falls with every layer, at the best point of S")
    at_first = Inequality("the median of κ(X_kX_kᵀ) falls with the first layer")
    rows: list[dict[str, Value]] = []
    for d, n, layers in cases:
        scales, _ = least_family_loss(d, n, layers, True)
        g = torch.linalg.svdvals(draw_normal(generator, prompts, d, n)) ** 2 / n
        name = f"d = {d}, n = {n}, {layers} layers"
        rows.append({"prompts": name, "layer": 0, **_spread(g), "share that fell": 1.0})
        for i in range(layers - 1):
            product = float(turn * scales[i] * scales[layers + i])
            about, size = f"{name}, after layer {i + 1}", (d, n, i)
            corrected.add(product, 0.0, size=size, about=f"{about}, a_k b_k")
            safe = g[:, 0] <= 1 / (3 * abs(product))
            before, g = g, (g * (1 + product * g) ** 2).sort(dim=1, descending=True)[0]
            old, new = before[:, 0] / before[:, -1], g[:, 0] / g[:, -1]
            worst = int((new / old).argmax())
            told = ", ".join(f"{value:.3g}" for value in before[worst].tolist())
            about_worst = f"{about}, a_k b_k = {product:.4g}, eigenvalues of X_kX_kᵀ/n {told}"
            printed.add(new[worst], old[worst], size=size, about=about_worst)
            for one, two in zip(new[safe][:50].tolist(), old[safe][:50].tolist(), strict=True):
                corrected.add(one, two, size=size, about=about)
            medians = (new.median(), old.median())
            told = f"{about}, a_k b_k = {product:.4g}, medians over {prompts} prompts"
            typical.add(*medians, size=size, about=told)
            if i == 0:
                at_first.add(*medians, size=size, about=told)
            fell = float((new < old).double().mean())
            rows.append({"prompts": name, "layer": i + 1, **_spread(g), "share that fell": fell})
    figure = Figure(
        title="The condition number of the covariates, layer by layer",
        rows=rows,
        x=Axis(field="layer", title="layer"),
        y=Axis(field="median κ", title="condition number of X_kX_kᵀ, median", scale="log"),
        colour=Axis(field="prompts", title="best points of S, Σ = I", scale="category"),
        band=("κ at 5 %", "κ at 95 %"),
        caption=f"{prompts} prompts each; the bands hold nine prompts in ten.",
    )
    parts = [
        Part(printed=printed.check(), corrected=corrected.check()),
        Part(printed=typical.check(), corrected=at_first.check(), matters="result"),
    ]
    return parts, rows, figure


def _spread(g: Tensor) -> dict[str, Value]:
    ratio = g[:, 0] / g[:, -1]
    low, middle, high = torch.quantile(ratio, torch.tensor([0.05, 0.5, 0.95]).double()).tolist()
    return {"κ at 5 %": low, "median κ": middle, "κ at 95 %": high}


def _measure_coloured_data(generator: torch.Generator, prompts: int) -> dict[str, Value]:
    """Condition numbers for Σ = diag(1, 100), n = 50, two layers: of X, and of whitened X."""
    scales, _ = least_family_loss(2, 50, 2, True)
    root = torch.tensor([1.0, 10.0], dtype=torch.float64)[:, None]
    X = draw_normal(generator, min(prompts, 2000), 2, 50)
    after = X + float(scales[0] * scales[2]) / 50 * X @ X.mT @ X
    numbers: dict[str, Value] = {}
    for name, factor in (("X_k", root), ("Σ^{−1/2}X_k", torch.ones_like(root))):
        old, new = torch.linalg.cond(factor * X) ** 2, torch.linalg.cond(factor * after) ** 2
        words = f"Σ = diag(1, 100), n = 50: κ of {name}"
        numbers[f"{words}, median before"] = float(old.median())
        numbers[f"{words}, median after one layer"] = float(new.median())
        numbers[f"{words}, share of prompts where it fell"] = float((new < old).double().mean())
    return numbers
