"""A claim of Polyak 1964: on quadratics, the optimal heavy ball contracts by the factor √β.

Printed    with η = 4/(√L + √μ)² and β = ((√L − √μ)/(√L + √μ))² the error falls like (√β)^k
Tested     the spectral radius of the linear map of (w, v) on eigenvalues drawn between μ and L
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from innerloop import Case, Evidence, Part, Source, claim
from innerloop.claims.trials import Inequality

POLYAK = Source(
    "B. Polyak", "Some methods of speeding up the convergence of iteration methods", 1964
)


def best_momentum(least: float, largest: float) -> float:
    """Return the stated momentum β for eigenvalues between `least` and `largest`."""
    low, high = math.sqrt(least), math.sqrt(largest)
    return ((high - low) / (high + low)) ** 2


class Contraction(NamedTuple):
    """The measured and the stated contraction factor of the heavy ball for one eigenvalue."""

    case: Case
    radius: float
    stated: float


def spectral_radius(eigenvalue: float, step: float, momentum: float) -> float:
    """Return the largest |λ| of the map (w, v) → (w + v', v') with v' = βv − ηhw."""
    move = torch.tensor(
        [[1 - step * eigenvalue, momentum], [-step * eigenvalue, momentum]], dtype=torch.float64
    )
    return float(torch.linalg.eigvals(move).abs().max())


def slow_down(data: list[Contraction]) -> list[Contraction]:
    """Falsify the data: the error does not decrease."""
    return [each._replace(radius=1.0) for each in data]


def judge_rate(data: list[Contraction]) -> Evidence:
    trial = Inequality("the spectral radius is at most √β", rounding=1e-6)
    for case, radius, stated in data:
        trial.add(radius, stated, case)
    return Evidence(parts=[Part(printed=trial.check())])


@claim(
    "polyak1964.rate",
    "With the best step and momentum the error of the heavy ball falls like (√β)^k.",
    where="section 3",
    kind="inequality",
    hypotheses={"quadratic with eigenvalues between μ and L": "section 3"},
    quick={"trials": 200},
    full={"trials": 20_000},
    tiny={"trials": 20},
    judge=judge_rate,
    falsified={"no contraction at all": slow_down},
    source=POLYAK,
)
def rate(generator: torch.Generator, *, trials: int) -> list[Contraction]:
    """Draw μ, L and an eigenvalue h between them; measure the spectral radius, and compute √β."""
    data = []
    for _ in range(trials):
        least, share, ratio = torch.rand(3, generator=generator, dtype=torch.float64).tolist()
        largest = (least + 0.01) * (1 + 100 * ratio)
        eigenvalue = (least + 0.01) * (1 - share) + largest * share
        step = 4 / (math.sqrt(least + 0.01) + math.sqrt(largest)) ** 2
        beta = best_momentum(least + 0.01, largest)
        case = Case(μ=round(least + 0.01, 3), L=round(largest, 3), h=round(eigenvalue, 3))
        radius = spectral_radius(eigenvalue, step, beta)
        data.append(Contraction(case, radius, math.sqrt(beta)))
    return data
