"""Equations (16) to (21): the moments behind the single-layer optimum.

Printed    C = (1/n) Σ z zᵀ, z = (x, y), y = ⟨w*, x⟩, w* ~ N(0, I), x ~ N(0, Λ), Λ = diag(λ) or I:
           E[w_j y x_k] = λ_j 1[j = k] (16), E[w_j C] = λ_j (E_{d+1,j} + E_{j,d+1}) (17, 20), the
           products ⟨w, x⟩x_j ⟨w, x'⟩x'_j' (18 and its like): 0 for j ≠ j', else λ_j² for two
           examples and λ_j Σ_k λ_k + 2λ_j² for one, and
           E[⟨C, E_{d+1,j}⟩ C] = ((n+1)/n λ_j² + λ_j Σ_k λ_k / n)(E_{d+1,j} + E_{j,d+1}) (19, 21)
Tested     expectations over tokens by a product rule that is exact for them, for all j, k, and for
           longer prompts against closed forms for any covariance (innerloop.theory.single_layer);
           (16), (18) also with the moments that the text says are 0
Note       E[w_j y] = 0 is stated where E[w_j y²] = 0 is used: both vanish, and are tested
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from innerloop.claims.ahn2023.contexts import (
    Contexts,
    draw_spectrum,
    enumerate_contexts,
    symmetric_unit_matrix,
    unit_matrix,
)
from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part, misprint
from innerloop.claims.falsifying import change_field
from innerloop.claims.prompts import draw_integer
from innerloop.claims.trials import Equality
from innerloop.theory.single_layer import SingleLayerLoss


@dataclass(frozen=True, eq=False)
class Moment:
    """A moment as measured, of one of the equations, for isotropic data or for Λ."""

    equation: str
    alike: bool
    lam: Tensor
    n: int
    j: int
    value: Tensor


def _label_moments(found: Moment) -> Tensor:
    """λ_j at k = j, then the zeros E[w_j x xᵀ], E[w_j y], E[w_j y²]."""
    stated = torch.zeros_like(found.value)
    stated[found.j] = found.lam[found.j]
    return stated


def _pair_moments(found: Moment) -> Tensor:
    """One example against itself, then two examples if there are two: d × d matrices."""
    lam = found.lam
    pairs = [lam * lam.sum() + 2 * lam**2, lam**2]
    return torch.stack([pair.diag() for pair in pairs[: len(found.value)]])


def _matrix_with_label(found: Moment) -> Tensor:
    return found.lam[found.j] * symmetric_unit_matrix(found.j, len(found.lam))


def _matrix_with_itself(found: Moment) -> Tensor:
    lam, n, j, d = found.lam, found.n, found.j, len(found.lam)
    diagonal = (n + 1) / n * lam[j] ** 2 + lam[j] * lam.sum() / n
    amount = (n - 1) / n + (d + 2) / n if found.alike else diagonal
    return amount * symmetric_unit_matrix(j, d)


LABEL, PAIR, WITH_LABEL, WITH_ITSELF = "label", "pair", "C with label", "C with itself"
STATED: dict[str, Callable[[Moment], Tensor]] = {
    LABEL: _label_moments,
    PAIR: _pair_moments,
    WITH_LABEL: _matrix_with_label,
    WITH_ITSELF: _matrix_with_itself,
}
ZEROS = "$E[w_j x xᵀ] = 0$, $E[w_j y] = 0$, $E[w_j y²] = 0$"
PRODUCTS = "$E[⟨w, x⟩x_j ⟨w, x'⟩x'_j'] = 0$ for $j ≠ j'$, else"
UNITS = "(E_{d+1,j} + E_{j,d+1})"
PRINTED: dict[bool, dict[str, str]] = {
    True: {
        LABEL: f"(16), $x ~ N(0, I)$: $E[w_j y x_k] = 1[j = k]$, {ZEROS}",
        PAIR: f"(18), $x ~ N(0, I)$: {PRODUCTS} 1 for two examples, $d + 2$ for one",
        WITH_LABEL: f"(17), $x ~ N(0, I)$: $E[w_j C] = {UNITS[1:-1]}$",
        WITH_ITSELF: f"(19), $x ~ N(0, I)$: $E[⟨C, E_{{d+1,j}}⟩ C] = ((n−1)/n + (d+2)/n) {UNITS}$",
    },
    False: {
        LABEL: f"(16), $x ~ N(0, Λ)$: $E[w_j y x_k] = λ_j 1[j = k]$, {ZEROS}",
        PAIR: f"(18), $x ~ N(0, Λ)$: {PRODUCTS} $λ_j²$ for two examples, $λ_j ∑λ + 2λ_j²$ for one",
        WITH_LABEL: f"(20), $x ~ N(0, Λ)$: $E[w_j C] = λ_j {UNITS}$",
        WITH_ITSELF: "(21), $x ~ N(0, Λ)$: "
        f"$E[⟨C, E_{{d+1,j}}⟩ C] = ((n+1)/n λ_j² + λ_j ∑λ/n) {UNITS}$",
    },
}
"""The equations as they are printed, for isotropic data and for Λ."""


def judge_moments(data: list[Moment]) -> Evidence:
    parts = []
    for alike, statements in PRINTED.items():
        for equation, statement in statements.items():
            trial = Equality(statement)
            for found in data:
                if found.alike == alike and found.equation == equation:
                    case = Case(d=len(found.lam), n=found.n, j=found.j + 1, λ=found.lam)
                    trial.add(found.value, STATED[equation](found), case)
            parts.append(Part(printed=trial.check()))
    missing = misprint(
        "proof of Lemma 6, before (18)",
        "$⟨C, E_{d+1,j}⟩ = ∑_i ⟨w, x_i⟩ x_i[j]$",
        "$(1/n) ∑_i ⟨w, x_i⟩ x_i[j]$, as (19) counts it",
        "$d = 1$, $n = 2$, $w = x_1 = x_2 = 1$: $C_{21} = 1$, and the sum is 2",
    )
    return Evidence(parts=parts, errata=[missing])


@claim(
    "ahn2023.moments-16-21",
    "The moments of the prompt's second-moment matrix $C$ with the true weights and with "
    "itself, for isotropic data and for a diagonal covariance.",
    where="Appendix A, (16) to (21)",
    kind="equality",
    hypotheses={"$Λ$ diagonal": "Lemma 7", "no noise in the labels": "Section 3"},
    quick={"shortest": 8, "trials": 200},
    full={"shortest": 8, "trials": 20_000},
    tiny={"shortest": 5, "trials": 20},
    judge=judge_moments,
    falsified={
        "moments that are a thousandth larger": change_field("value", lambda value: 1.001 * value),
        "a thousandth where 0 is stated": change_field(
            "value", lambda value: value + 1e-3 * (value == 0)
        ),
    },
)
def moments_16_21(generator: torch.Generator, *, shortest: int, trials: int) -> list[Moment]:
    data = []
    for alike in PRINTED:
        for prompts in enumerate_contexts(generator, alike, shortest):
            data += _measure_tokens(prompts, alike)
        for k in range(trials):
            lam = draw_spectrum(generator, 1 + k % 8, alike)
            n, j = draw_integer(generator, 1, 1000), draw_integer(generator, 0, len(lam) - 1)
            layer, E = SingleLayerLoss(lam.diag(), n), unit_matrix(j, len(lam))
            data.append(Moment(WITH_LABEL, alike, lam, n, j, layer.linear_moment(E[-1, :-1])))
            data.append(Moment(WITH_ITSELF, alike, lam, n, j, layer.second_moment(E)))
    return data


def _measure_tokens(p: Contexts, alike: bool) -> list[Moment]:
    (d, n), x, y, data = p.size, p.x[:, 0], p.y[:, 0], []
    terms = p.y.unsqueeze(-1) * p.x
    pairs = [p.mean(terms[:, 0, :, None] * terms[:, i, None, :]) for i in range(min(2, n))]
    data.append(Moment(PAIR, alike, p.lam, n, 0, torch.stack(pairs)))
    for j in range(d):
        factors = [y[:, None] * x, *(x[:, k : k + 1] * x for k in range(d)), y[:, None]]
        found = {
            LABEL: p.mean(p.w[:, j, None] * torch.cat([*factors, y[:, None] ** 2], dim=1)),
            WITH_LABEL: p.mean(p.w[:, j, None, None] * p.C),
            WITH_ITSELF: p.mean(p.C[:, d, j, None, None] * p.C),
        }
        data += [Moment(name, alike, p.lam, n, j, value) for name, value in found.items()]
    return data
