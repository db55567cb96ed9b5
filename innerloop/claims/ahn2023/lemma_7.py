"""Lemmas 6 and 7: the least of each component of the loss of one layer.

Printed    x ~ N(0, Λ), w* ~ N(0, I), f_j(X) = E[(⟨C, X⟩ + w*_j)²], C = (1/n) Σ z zᵀ over context
           tokens z = (x, y): a global minimum is X_j = −E_{d+1,j} / ((n+1)/n λ_j + (1/n) Σ_k λ_k)
           (Lemma 7), at Λ = I X_j = −E_{d+1,j} / ((n−1)/n + (d+2)/n) (Lemma 6)
Tested     the gradient at X_j on tokens, over all prompts of a product rule that is exact for it;
           f_j(X_j) against the least of the quadratic f_j, from its normal equations over all
           (d+1)×(d+1) matrices by exact moments, d up to 8, n up to 10⁴; Lemma 7 with λ from 0 to
           2.2, some exactly 0
Beyond     at Λ = I the least value is (d+1)/(n+d+1)
Note       the text at hand reads y^(i)ᵀ for y² in the corner of C, perhaps a fault of its
           conversion: not counted. That X_j is unique is said in the proof of Theorem 1: see there
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from innerloop.claims.ahn2023.contexts import (
    Contexts,
    draw_spectrum,
    enumerate_contexts,
    unit_matrix,
)
from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part, Value
from innerloop.claims.falsifying import change_field
from innerloop.claims.prompts import draw_integer
from innerloop.claims.trials import Equality
from innerloop.theory.single_layer import SingleLayerLoss


@dataclass(frozen=True, eq=False)
class Component:
    """The component f_j at the stated X_j: its gradient by tokens, its value and its least."""

    case: Case
    lemma: int
    value: Tensor
    least: Tensor
    slope: Tensor | None = None
    """Only for the shortest prompts."""


def printed_minimiser(lam: Tensor, n: int, j: int) -> Tensor:
    """The minimiser X_j of Lemma 7, j counted from 0."""
    return -unit_matrix(j, len(lam)) / ((n + 1) / n * lam[j] + lam.sum() / n)


def isotropic_minimiser(lam: Tensor, n: int, j: int) -> Tensor:
    """The minimiser X_j of Lemma 6; of λ = 1 only the length d is used."""
    return -unit_matrix(j, len(lam)) / ((n - 1) / n + (len(lam) + 2) / n)


STATED = {6: isotropic_minimiser, 7: printed_minimiser}


def judge_components(data: list[Component]) -> Evidence:
    where = "$Λ = I$" if data[0].lemma == 6 else "any $Λ$"
    flat = Equality(f"{where}: $∇f_j(X_j) = 0$ in all entries")
    least = Equality(f"{where}: $f_j(X_j)$ is the least value of $f_j$")
    for found in data:
        least.add(found.value, found.least, found.case)
        if found.slope is not None:
            flat.add(found.slope, torch.zeros_like(found.slope), found.case)
    return Evidence(
        parts=[Part(printed=flat.check()), Part(printed=least.check())],
        table=_tabulate_least() if data[0].lemma == 6 else [],
    )


def _tabulate_least() -> list[dict[str, Value]]:
    rows: list[dict[str, Value]] = []
    for d, n in ((1, 1), (5, 1), (5, 5), (5, 20), (5, 100), (20, 20)):
        lam = torch.ones(d, dtype=torch.float64)
        X = isotropic_minimiser(lam, n, 0)
        value = float(_evaluate(SingleLayerLoss(lam.diag(), n), X, 0))
        row = {"d": d, "n": n, "X_j": float(X[d, 0]), "f_j(X_j)": value}
        rows.append({**row, "(d+1)/(n+d+1)": (d + 1) / (n + d + 1)})
    return rows


SETTINGS: dict[str, Any] = {
    "kind": "equality",
    "quick": {"shortest": 8, "trials": 160},
    "full": {"shortest": 8, "trials": 8000},
    "tiny": {"shortest": 5, "trials": 16},
    "judge": judge_components,
    "falsified": {
        "a gradient of a millionth": change_field("slope", lambda slope: slope + 1e-6),
        "matrices with a loss that is a millionth lower": change_field(
            "least", lambda least: least - 1e-6
        ),
    },
}
NOISELESS = {"no noise in the labels": "Section 3"}


@claim(
    "ahn2023.lemma-6",
    "Each component of one layer's loss on isotropic data is least at a multiple of one unit "
    "matrix.",
    where="Appendix A.2, Lemma 6",
    hypotheses={"$x ~ N(0, I)$, $w* ~ N(0, I)$": "the lemma", **NOISELESS},
    **SETTINGS,
)
def lemma_6(generator: torch.Generator, **sizes: int) -> list[Component]:
    return measure_components(generator, 6, **sizes)


@claim(
    "ahn2023.lemma-7",
    "Each component of one layer's loss on data with a diagonal covariance is least at a multiple "
    "of one unit matrix.",
    where="Appendix A.3, Lemma 7",
    hypotheses={"$x ~ N(0, Λ)$, $w* ~ N(0, I)$": "the lemma", **NOISELESS},
    **SETTINGS,
)
def lemma_7(generator: torch.Generator, **sizes: int) -> list[Component]:
    return measure_components(generator, 7, **sizes)


def measure_components(
    generator: torch.Generator, lemma: int, *, shortest: int, trials: int
) -> list[Component]:
    data = []
    for prompts in enumerate_contexts(generator, lemma == 6, shortest):
        d, n = prompts.size
        for j in range(d):
            slope = _differentiate(prompts, STATED[lemma](prompts.lam, n, j), j)
            data.append(_measure(lemma, prompts.lam, n, j, slope))
    for k in range(trials):
        n = (1, 2, 5, 20, 300, 10_000)[draw_integer(generator, 0, 5)]
        lam = draw_spectrum(generator, 1 + k % 8, lemma == 6)
        if lemma == 7 and len(lam) > 1 and k % 3 == 0:
            lam[k % (len(lam) - 1)] = 0.0
        data.append(_measure(lemma, lam, n, draw_integer(generator, 0, len(lam) - 1)))
    return data


def _measure(lemma: int, lam: Tensor, n: int, j: int, slope: Tensor | None = None) -> Component:
    layer, d = SingleLayerLoss(lam.diag(), n), len(lam)
    units = torch.eye((d + 1) ** 2, dtype=torch.float64).reshape(-1, d + 1, d + 1)
    operator = torch.stack([layer.second_moment(unit).flatten() for unit in units], dim=1)
    side = layer.linear_moment(torch.eye(d, dtype=torch.float64)[j]).flatten()
    best = -(torch.linalg.pinv(operator, hermitian=True) @ side).reshape(d + 1, d + 1)
    value = _evaluate(layer, STATED[lemma](lam, n, j), j)
    return Component(Case(d=d, n=n, j=j + 1, λ=lam), lemma, value, _evaluate(layer, best, j), slope)


def _evaluate(layer: SingleLayerLoss, X: Tensor, j: int) -> Tensor:
    """f_j(X) = ⟨X, E[⟨C, X⟩ C]⟩ + 2⟨X, E[w_j C]⟩ + 1."""
    unit = torch.eye(layer.d, dtype=X.dtype)[j]
    return (X * layer.second_moment(X)).sum() + 2 * (X * layer.linear_moment(unit)).sum() + 1


def _differentiate(prompts: Contexts, X: Tensor, j: int) -> Tensor:
    """Differentiate f_j at X, summed over all prompts."""
    X = X.clone().requires_grad_()
    errors = (prompts.C * X).sum((-1, -2)) + prompts.w[:, j]
    (slope,) = torch.autograd.grad(prompts.mean(errors**2), X)
    return slope
