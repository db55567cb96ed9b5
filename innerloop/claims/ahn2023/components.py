"""The components f_j(X) = E[(⟨C, X⟩ + w_j)²] of the loss of one layer, exactly.

Behind Lemmas 6 and 7: C = (1/n) Σ z zᵀ over the context tokens z = (x, y), x ~ N(0, Λ), y = ⟨w, x⟩,
w ~ N(0, I). X is any (d+1)×(d+1) matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from innerloop.claims.ahn2023.contexts import Contexts
from innerloop.claims.evidence import Check, Part
from innerloop.claims.prompts import draw_integer, draw_normal
from innerloop.claims.searching import search_minimum
from innerloop.claims.trials import Equality, Inequality
from innerloop.theory.single_layer import SingleLayerLoss

StatedMinimiser = Callable[[Tensor, int, int], Tensor]
"""Map λ, n and j (counted from 0) to the stated minimiser X_j."""
Slope = Callable[[Contexts, Tensor, int], Tensor]
Display = Callable[[Tensor, Tensor], Tensor]
SIZES = ((1, 1), (1, 2), (2, 1), (1, 4), (2, 2), (3, 1), (2, 3), (3, 2))
"""Pairs (d, n) whose expectations are sums over at most 3⁹ prompts, larger ones last."""


def loss(layer: SingleLayerLoss, X: Tensor, j: int) -> Tensor:
    """f_j(X) = ⟨X, E[⟨C, X⟩ C]⟩ + 2⟨X, E[w_j C]⟩ + 1."""
    unit = torch.eye(layer.d, dtype=X.dtype)[j]
    return (X * layer.second_moment(X)).sum() + 2 * (X * layer.linear_moment(unit)).sum() + 1


def printed_slope(p: Contexts, X: Tensor, j: int) -> Tensor:
    """∇f_j = 2E[⟨C, X⟩ C] + 2E[w_j C]."""
    inner = (p.C * X).sum((-1, -2))
    return 2 * p.mean((inner + p.w[:, j])[:, None, None] * p.C)


def printed_display(x: Tensor, y: Tensor) -> Tensor:
    """C as the proof prints it, with the corner y instead of y²; shapes (…, n, d), (…, n)."""
    return _display(x, y, y)


def squared_display(x: Tensor, y: Tensor) -> Tensor:
    return _display(x, y, y**2)


def _display(x: Tensor, y: Tensor, corner: Tensor) -> Tensor:
    inner = x.unsqueeze(-1) * x.unsqueeze(-2)
    side = (y.unsqueeze(-1) * x).unsqueeze(-1)
    lower = torch.cat([side.mT, corner[..., None, None]], dim=-1)
    return torch.cat([torch.cat([inner, side], dim=-1), lower], dim=-2).mean(-3)


def enumerate_contexts(generator: torch.Generator, alike: bool, shortest: int) -> list[Contexts]:
    """Enumerate all prompts of the shortest sizes, with λ = 1 or random λ."""
    found = []
    for d, n in SIZES[:shortest]:
        lam = 0.2 + 2 * torch.rand(d, generator=generator, dtype=torch.float64)
        found.append(Contexts.from_spectrum(torch.ones_like(lam) if alike else lam, n))
    return found


def draw_spectra(
    generator: torch.Generator, alike: bool, trials: int
) -> list[tuple[Tensor, int, int]]:
    """Draw λ, n and j for exact moments; where λ is free, some entries are 0 or a thousandth."""
    found = []
    for k in range(trials):
        d, n = 1 + k % 8, (1, 2, 5, 20, 300, 10_000)[draw_integer(generator, 0, 5)]
        lam = 0.2 + 2 * torch.rand(d, generator=generator, dtype=torch.float64)
        if d > 1 and k % 3 == 0:
            lam[k % (d - 1)] = 0.0
        elif k % 3 == 1:
            lam[0] = 1e-3
        found.append((torch.ones_like(lam) if alike else lam, n, draw_integer(generator, 0, d - 1)))
    return found


def check_gradients(prompts: Sequence[Contexts], slope: Slope) -> Check:
    """Check the proof's gradient formula against differentiating f_j over all prompts."""
    trial = Equality("∇f_j(X) = 2E[⟨C, X⟩ C] + 2E[w_j C], any X")
    for p in prompts:
        d, n = p.size
        for j in range(d):
            X = torch.linspace(-1, 2, (d + 1) ** 2, dtype=torch.float64).reshape(d + 1, d + 1)
            X = X.requires_grad_()
            value = p.mean(((p.C * X).sum((-1, -2)) + p.w[:, j]) ** 2)
            (known,) = torch.autograd.grad(value, X)
            about = f"{p.description}, j = {j + 1}"
            trial.add(slope(p, X.detach(), j), known, size=(d, n, j), about=about)
    return trial.check()


def check_displays(prompts: Sequence[Contexts], square: Display) -> Part:
    """Check the C that the proof displays against C = (1/n) Σ z zᵀ of (15)."""
    printed = Equality("(1/n) Σ z zᵀ is displayed with the corner y_i")
    corrected = Equality("(1/n) Σ z zᵀ has the corner y_i²")
    two = torch.tensor([[[2.0]]], dtype=torch.float64)
    about = "d = n = 1, x = 1, w = y = 2: the corner of z zᵀ is 4, printed 2"
    printed.add(printed_display(two / 2, two[..., 0])[0, 1, 1], 4.0, size=(0, 0), about=about)
    for p in prompts:
        printed.add(printed_display(p.x, p.y), p.C, size=p.size, about=p.description)
        corrected.add(square(p.x, p.y), p.C, size=p.size, about=p.description)
    return Part(printed=printed.check(), corrected=corrected.check(), matters="print")


def check_stationary(
    prompts: Sequence[Contexts], cases: Sequence[tuple[Tensor, int, int]], stated: StatedMinimiser
) -> Check:
    """Check ∇f_j(X_j) = 0: over all prompts with either corner of C, then by moments."""
    trial = Equality("∇f_j(X_j) = 0 in all entries, whether the corner of C is y² or y")
    for p in prompts:
        d, n = p.size
        for j in range(d):
            X = stated(p.lam, n, j)
            for name, C in (("y²", p.C), ("y", printed_display(p.x, p.y))):
                left = printed_slope(p._replace(C=C), X, j)
                about = f"{p.description}, j = {j + 1}, corner {name}"
                trial.add(left, torch.zeros_like(left), size=(d, n, j), about=about)
    for lam, n, j in cases:
        d, layer = len(lam), SingleLayerLoss(torch.diag(lam), n)
        unit = torch.eye(d, dtype=torch.float64)[j]
        left = 2 * layer.second_moment(stated(lam, n, j)) + 2 * layer.linear_moment(unit)
        about = f"d = {d}, n = {n}, j = {j + 1}"
        trial.add(left, torch.zeros_like(left), size=(d, n, j), about=about)
    return trial.check()


def check_minimal(
    generator: torch.Generator, cases: Sequence[tuple[Tensor, int, int]], stated: StatedMinimiser
) -> Check:
    """Check that f_j is least at X_j: against matrices near and far, and the ends of L-BFGS."""
    trial = Inequality("f_j(X_j) ≤ f_j(X) for all X", rounding=1e-9)
    evaluations, searches = 0, 0
    for k, (lam, n, j) in enumerate(cases):
        d, layer = len(lam), SingleLayerLoss(torch.diag(lam), n)
        X = stated(lam, n, j)
        best, size = loss(layer, X, j), (d, n, j)
        for spread in (1.0, 0.1, 0.01):
            other = X + spread * draw_normal(generator, d + 1, d + 1)
            about = f"d = {d}, n = {n}, j = {j + 1}, X {spread} away"
            trial.add(best, loss(layer, other, j), size=size, about=about)
        if k % 8 < 3:
            shape = (d + 1, d + 1)
            end = search_minimum(
                lambda point, layer=layer, shape=shape, j=j: loss(layer, point.reshape(shape), j),
                draw_normal(generator, 1, (d + 1) ** 2),
            )
            evaluations, searches = evaluations + end[2], searches + 1
            trial.add(best, end[1], size=size, about=f"d = {d}, n = {n}, where a search ended")
    trial.search_note = (
        f"L-BFGS over all of X from {searches} random starts, {evaluations} evaluations"
    )
    return trial.check()
