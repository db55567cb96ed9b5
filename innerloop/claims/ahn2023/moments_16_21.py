"""Equations (16) to (21): the moments behind the single-layer optimum.

Printed    C = (1/n) Σ z zᵀ, z = (x, y), y = ⟨w*, x⟩, w* ~ N(0, I), x ~ N(0, Λ), Λ = diag(λ) or I:
           E[w_j y x_k] = λ_j 1[j = k] (16), E[w_j C] = λ_j (E_{d+1,j} + E_{j,d+1}) (17, 20), the
           products ⟨w, x⟩x_j ⟨w, x'⟩x'_j' (18 and its like): 0 for j ≠ j', else λ_j² for two
           examples and λ_j Σ_k λ_k + 2λ_j² for one, and
           E[⟨C, E_{d+1,j}⟩ C] = ((n+1)/n λ_j² + λ_j Σ_k λ_k / n)(E_{d+1,j} + E_{j,d+1}) (19, 21);
           on the way ⟨C, E_{d+1,j}⟩ = Σ_i ⟨w, x_i⟩ x_i[j]
Tested     expectations over tokens by a product rule that is exact for them, for all j, k, and for
           longer prompts against closed forms for any covariance (innerloop.theory.single_layer)
Correction ⟨C, E_{d+1,j}⟩ lacks 1/n: C is an average
Beyond     a dense Σ has Σe_j for λ_j e_j and ((n+1)/n Σ² + tr(Σ)/n Σ)e_j in (21): λ_j cannot be
           read as Σ_jj; the rotation of step 2 is needed
Note       E[w_j y] = 0 is stated where E[w_j y²] = 0 is used, and the corner of C is printed with
           y for y²; both vanish
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.claims.ahn2023.contexts import Contexts, symmetric_unit_matrix, unit_matrix
from innerloop.claims.base import claim
from innerloop.claims.evidence import Check, Evidence, Part
from innerloop.claims.prompts import draw_covariance, draw_integer
from innerloop.claims.trials import Equality
from innerloop.theory.single_layer import SingleLayerLoss

SIZES = ((1, 1), (1, 2), (2, 1), (1, 4), (2, 2), (3, 1), (2, 3), (3, 2))
"""Pairs (d, n) whose expectations are sums over at most 3⁹ prompts, larger ones last."""


def one_example(lam: Tensor, j: int, fourth: float = 2.0) -> Tensor:
    """Equation (18) for i = i': at λ = 1 this is d + 2."""
    return lam[j] * lam.sum() + fourth * lam[j] ** 2


def two_examples(lam: Tensor, j: int) -> Tensor:
    return lam[j] ** 2


def label(lam: Tensor, j: int) -> Tensor:
    """The moment of equations (16), (17) and (20)."""
    return lam[j]


def isotropic(lam: Tensor, j: int, n: int, offset: int = 2) -> Tensor:
    """The moment of equation (19)."""
    return lam[j] * ((n - 1) / n + (len(lam) + offset) / n)


def diagonal(lam: Tensor, j: int, n: int, share: int = 1) -> Tensor:
    """The moment of equation (21)."""
    return (n + share) / n * lam[j] ** 2 + lam[j] * lam.sum() / n


def divide_by_examples(value: Tensor, n: int) -> Tensor:
    return value / n


@claim(
    "ahn2023.moments-16-21",
    "The moments of the prompt's second-moment matrix C with the true weights and with itself, for "
    "isotropic data and for a diagonal covariance.",
    where="Appendix A, (16) to (21)",
    kind="equality",
    quick={"shortest": 8, "trials": 200},
    full={"shortest": 8, "trials": 20_000},
    tiny={"shortest": 5, "trials": 20},
    falsified={
        "the fourth moment of a Gaussian is 2": {"same": lambda lam, j: one_example(lam, j, 1.0)},
        "λ_j for λ_j² between examples": {"apart": lambda lam, j: 2 * lam[j]},
        "λ_j² in (16), (20), and twice that": {"first": lambda lam, j: 2 * lam[j] ** 2},
        "d + 1 in (19)": {"white": lambda lam, j, n: isotropic(lam, j, n, 1)},
        "n − 1 in (21)": {"coloured": lambda lam, j, n: diagonal(lam, j, n, -1)},
        "the other blocks are not 0": {"nought": 0.01},
        "C averages over n + 1": {"mean": lambda value, n: value / (n + 1)},
    },
)
def moments_16_21(
    generator: torch.Generator,
    *,
    shortest: int,
    trials: int,
    first: Callable[[Tensor, int], Tensor] = label,
    same: Callable[[Tensor, int], Tensor] = one_example,
    apart: Callable[[Tensor, int], Tensor] = two_examples,
    white: Callable[[Tensor, int, int], Tensor] = isotropic,
    coloured: Callable[[Tensor, int, int], Tensor] = diagonal,
    nought: float = 0.0,
    mean: Callable[[Tensor, int], Tensor] = divide_by_examples,
) -> Evidence:
    parts: list[Part] = []
    for alike, second in ((True, white), (False, coloured)):
        prompts = []
        for d, n in SIZES[:shortest]:
            lam = 0.2 + 2 * torch.rand(d, generator=generator, dtype=torch.float64)
            prompts.append(Contexts.from_spectrum(torch.ones_like(lam) if alike else lam, n))
        parts += [
            Part(printed=_first(prompts, first, nought, "(16)" if alike else "(16) for Λ")),
            Part(printed=_pairs(prompts, same, apart, "(18)" if alike else "(18) for Λ")),
            *_second(generator, trials, prompts, first, second, alike),
        ]
        if alike:
            parts.append(_inner(prompts, mean))
            parts.append(Part(printed=_other_blocks(prompts, nought)))
    return Evidence(parts=parts, numbers=_dense(generator, trials))


def _first(
    prompts: list[Contexts], first: Callable[[Tensor, int], Tensor], nought: float, name: str
) -> Check:
    trial = Equality(
        f"{name}: E[w_j y x_k] = λ_j 1[j = k], and E[w_j x xᵀ], E[w_j y], E[w_j y²] = 0"
    )
    for p in prompts:
        x, y = p.x[:, 0], p.y[:, 0]
        for j in range(len(p.lam)):
            w = p.w[:, j]
            mixed = p.mean(w[:, None] * y[:, None] * x)
            right = torch.zeros_like(p.lam)
            right[j] = first(p.lam, j)
            rest = [w[:, None] * x[:, k : k + 1] * x for k in range(len(p.lam))]
            rest += [(w * y)[:, None], (w * y**2)[:, None]]
            others = p.mean(torch.cat(rest, dim=1))
            left = torch.cat([mixed, others])
            right = torch.cat([right, torch.full_like(others, nought)])
            trial.add(left, right, size=(*p.size, j), about=f"{p.description}, j = {j + 1}")
    return trial.check()


def _pairs(
    prompts: list[Contexts],
    same: Callable[[Tensor, int], Tensor],
    apart: Callable[[Tensor, int], Tensor],
    name: str,
) -> Check:
    trial = Equality(
        f"{name}: E[⟨w, x⟩x_j ⟨w, x'⟩x'_j'] = 0 for j ≠ j', λ_j² for two examples, "
        "λ_j Σλ + 2λ_j² for one"
    )
    for p in prompts:
        terms = p.y.unsqueeze(-1) * p.x
        for i in range(min(2, p.x.shape[1])):
            left = p.mean(terms[:, 0, :, None] * terms[:, i, None, :])
            stated = same if i == 0 else apart
            right = torch.diag(torch.stack([stated(p.lam, j) for j in range(len(p.lam))]))
            about = f"{p.description}, {'one example' if i == 0 else 'two examples'}"
            trial.add(left, right, size=(*p.size, i), about=about)
    return trial.check()


def _second(
    generator: torch.Generator,
    trials: int,
    prompts: list[Contexts],
    first: Callable[[Tensor, int], Tensor],
    second: Callable[[Tensor, int, int], Tensor],
    alike: bool,
) -> list[Part]:
    """Check (17) and (19), or (20) and (21): by tokens, then longer prompts by closed forms."""
    names = ("(17)", "(19)") if alike else ("(20)", "(21)")
    amount = "((n−1)/n + (d+2)/n)" if alike else "((n+1)/n λ_j² + λ_j Σλ/n)"
    with_w = Equality(f"{names[0]}: E[w_j C] = λ_j (E_{{d+1,j}} + E_{{j,d+1}})")
    form = f"E[⟨C, E_{{d+1,j}}⟩ C] = {amount} (E_{{d+1,j}} + E_{{j,d+1}})"
    with_itself = Equality(f"{names[1]}: {form}")
    for p in prompts:
        d, n = p.size
        for j in range(d):
            size, about = (d, n, j), f"{p.description}, j = {j + 1}"
            left = p.mean(p.w[:, j, None, None] * p.C)
            with_w.add(left, first(p.lam, j) * symmetric_unit_matrix(j, d), size=size, about=about)
            left = p.mean(p.C[:, d, j, None, None] * p.C)
            with_itself.add(
                left, second(p.lam, j, n) * symmetric_unit_matrix(j, d), size=size, about=about
            )
    for k in range(trials):
        d, n = 1 + k % 8, draw_integer(generator, 1, 1000)
        drawn = 0.2 + 2 * torch.rand(d, generator=generator, dtype=torch.float64)
        lam = torch.ones_like(drawn) if alike else drawn
        j, layer = draw_integer(generator, 0, d - 1), SingleLayerLoss(torch.diag(lam), n)
        size, about, E = (d, n, j), f"d = {d}, n = {n}", unit_matrix(j, d)
        with_w.add(
            layer.linear_moment(E[d, :d]),
            first(lam, j) * symmetric_unit_matrix(j, d),
            size=size,
            about=about,
        )
        right = second(lam, j, n) * symmetric_unit_matrix(j, d)
        with_itself.add(layer.second_moment(E), right, size=size, about=about)
    return [Part(printed=with_w.check()), Part(printed=with_itself.check())]


def _inner(prompts: list[Contexts], mean: Callable[[Tensor, int], Tensor]) -> Part:
    printed = Equality("⟨C, E_{d+1,j}⟩ = Σ_i ⟨w, x_i⟩ x_i[j]")
    corrected = Equality("⟨C, E_{d+1,j}⟩ = (1/n) Σ_i ⟨w, x_i⟩ x_i[j]")
    ones = torch.ones(1, 2, 1, dtype=torch.float64)
    told = "d = 1, n = 2, w = x_1 = x_2 = 1: C_{21} = 1, and the sum is 2"
    printed.add((ones.mT @ ones / 2).squeeze(), ones.sum(), size=(0, 0), about=told)
    for p in prompts:
        d, n = p.size
        total = (p.y.unsqueeze(-1) * p.x).sum(1)
        printed.add(p.C[:, d, :d], total, size=p.size, about=p.description)
        corrected.add(p.C[:, d, :d], mean(total, n), size=p.size, about=p.description)
    return Part(printed=printed.check(), corrected=corrected.check(), matters="print")


def _other_blocks(prompts: list[Contexts], nought: float) -> Check:
    trial = Equality("E[⟨C, E_{d+1,j}⟩ Σ x xᵀ] = 0 and E[⟨C, E_{d+1,j}⟩ Σ y²] = 0")
    for p in prompts:
        d, n = p.size
        for j in range(d):
            products = n * p.mean(p.C[:, d, j, None, None] * p.C)
            left = torch.cat([products[:d, :d].flatten(), products[d, d, None]])
            trial.add(left, torch.full_like(left, nought), size=(d, n, j), about=p.description)
    return trial.check()


def _dense(generator: torch.Generator, trials: int) -> dict[str, float]:
    """Error of (20) and (21) for a dense Σ when λ_j is read as Σ_jj."""
    far = [0.0, 0.0]
    for k in range(trials):
        d, n = 2 + k % 5, draw_integer(generator, 1, 50)
        S = draw_covariance(generator, d, 10.0)
        layer, lam = SingleLayerLoss(S, n), S.diagonal()
        E, both = unit_matrix(0, d), symmetric_unit_matrix(0, d)
        one, two = layer.linear_moment(E[d, :d]), layer.second_moment(E)
        stated = (lam[0] * both, diagonal(lam, 0, n) * both)
        for i, (left, right) in enumerate(zip((one, two), stated, strict=True)):
            far[i] = max(far[i], float((left - right).norm() / left.norm()))
    return {
        "dense Σ, (20) with λ_j = Σ_jj: largest relative difference": far[0],
        "dense Σ, (21) with λ_j = Σ_jj: largest relative difference": far[1],
    }
