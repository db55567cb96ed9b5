"""Claims of Polyak 1964, on quadratics: with the best numbers, momentum contracts by its root.

Printed    with η = 4/(√L + √μ)² and β = ((√L − √μ)/(√L + √μ))² the error falls like (√β)^k
Tested     the spectral radius of the linear map of (w, v) on eigenvalues drawn between μ and L
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from innerloop import Evidence, Part, Source, claim
from innerloop.claims.trials import Inequality

POLYAK = Source(
    "B. Polyak", "Some methods of speeding up the convergence of iteration methods", 1964
)


def best_momentum(least: float, largest: float) -> float:
    """β as stated, for eigenvalues between `least` and `largest`."""
    low, high = math.sqrt(least), math.sqrt(largest)
    return ((high - low) / (high + low)) ** 2


def half_momentum(least: float, largest: float) -> float:
    """Half of it, which contracts more slowly."""
    return best_momentum(least, largest) / 2


def spectral_radius(eigenvalue: float, step: float, momentum: float) -> float:
    """The largest |λ| of (w, v) → (w + v', v') with v' = βv − ηhw."""
    move = torch.tensor(
        [[1 - step * eigenvalue, momentum], [-step * eigenvalue, momentum]], dtype=torch.float64
    )
    return float(torch.linalg.eigvals(move).abs().max())


@claim(
    "polyak1964.rate",
    "With the best step and momentum the error of the heavy ball falls like (√β)^k.",
    where="section 3",
    kind="inequality",
    quick={"trials": 200},
    full={"trials": 20_000},
    tiny={"trials": 20},
    falsified={"half of the momentum": {"momentum": half_momentum}},
    source=POLYAK,
)
def rate(
    generator: torch.Generator,
    *,
    trials: int,
    momentum: Callable[[float, float], float] = best_momentum,
) -> Evidence:
    """Draw μ, L and an eigenvalue between them, and compare radius and √β."""
    trial = Inequality("the spectral radius is at most √β", rounding=1e-6)
    for k in range(trials):
        least, share, ratio = torch.rand(3, generator=generator, dtype=torch.float64).tolist()
        largest = (least + 0.01) * (1 + 100 * ratio)
        eigenvalue = (least + 0.01) * (1 - share) + largest * share
        step = 4 / (math.sqrt(least + 0.01) + math.sqrt(largest)) ** 2
        beta = momentum(least + 0.01, largest)
        stated = math.sqrt(best_momentum(least + 0.01, largest))
        about = f"μ = {least + 0.01:.3g}, L = {largest:.3g}, h = {eigenvalue:.3g}"
        trial.add(spectral_radius(eigenvalue, step, beta), stated, size=(k,), about=about)
    return Evidence(parts=[Part(printed=trial.check())])
