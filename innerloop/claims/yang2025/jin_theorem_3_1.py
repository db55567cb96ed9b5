"""Theorem 3.1 of Jin et al.: prediction in a mixture of K regressions at high signal to noise.

Printed    for η ≥ CKρ_π log(Kρ_π), with probability 1 − 9δ, |read_y(TF(H)) − x_{n+1}ᵀβ^OR| is at
           most O(√log(d/δ) (√(dKρ_π² log²(nK²/δ)/n) + √(dK/n))). β^OR is the oracle's Σ_k π_k β_k
           and ρ_π the ratio of the largest and the least π_k, neither explained on the slides
Tested     gradient EM, which `mixture-of-regressions` runs (the same predictions on a small
           sample), from starts near the truth: the 1 − 9δ quantile of the error over problems,
           n over a decade or more, K from 2 to 4, d from 2 to 6, equal and unequal π
Correction none: the rate holds, with constant 1 and room of an order of magnitude
Beyond     errors are near ϑ√(d/n): neither K nor the logarithms show
Note       a condition is missing: the start. From random starts EM stays in wrong optima for K > 2
           and the error does not fall with n: told as a number. At η = 5, as tested, the condition
           on η has C = 1/3 for K = 3
"""

from __future__ import annotations

import math

import torch

from innerloop.algorithms.gradient_em import GradientEM
from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Check, Evidence, Figure, Part
from innerloop.claims.trials import Equality, Inequality
from innerloop.claims.yang2025.rates import check_power_law
from innerloop.constructions.mixture_of_regressions import MixtureOfRegressionsConstruction
from innerloop.problems.base import resolve_proportions
from innerloop.problems.mixture_of_regressions import MixtureOfRegressions

NOISE, DELTA, INNER = 0.2, 0.01, 4
CASES = ((2, (0.5, 0.5)), (3, (0.5, 0.3, 0.2)), (6, (0.25, 0.25, 0.25, 0.25)))
"""Pairs of d and π."""


@claim(
    "yang2025.jin.theorem-3.1",
    "In a mixture of K regressions at high signal to noise a transformer that runs EM predicts as "
    "the oracle does, up to Õ(√(dKρ²/n)).",
    where="Fourth paper (Jin et al. 2024): Theorem 3.1",
    kind="rate",
    quick={"batch": 80, "sizes": [100, 220, 480, 1000], "steps": 12},
    full={"batch": 2_000, "sizes": [100, 250, 600, 1600, 4000, 10_000], "steps": 60},
    tiny={"batch": 20, "sizes": [80, 250, 800], "steps": 5},
    falsified={
        "the first component in place of the oracle": {"oracle": False},
        "a rate of 1/n²": {"power": -2.0},
        "one step more": {"more": 1},
    },
)
def jin_theorem_3_1(
    generator: torch.Generator,
    *,
    batch: int,
    sizes: list[int],
    steps: int,
    oracle: bool = True,
    power: float = -0.5,
    more: int = 0,
) -> Evidence:
    below = Inequality("the error's 1 − 9δ quantile is below the printed bound, constant 1")
    rows: list[dict[str, float | int | str]] = []
    for d, shares in CASES:
        K, rho = len(shares), max(shares) / min(shares)
        for n in sizes:
            error = _quantile(generator, d, shares, n, batch, steps, oracle, warm=0.3)
            logs = math.log(n * K**2 / DELTA)
            bound = math.sqrt(d * K * rho**2 * logs**2 / n) + math.sqrt(d * K / n)
            bound *= math.sqrt(math.log(d / DELTA))
            about = f"d = {d}, K = {K}, π = {shares}, n = {n}"
            # In units of the noise: the slides have no ϑ, and the error is proportional to it.
            below.add(error / NOISE, bound, size=(d, n), about=about)
            case = f"d = {d}, K = {K}"
            rows.append({"case": case, "n": n, "error over ϑ": error / NOISE, "bound": bound})
    parts = [Part(printed=below.check())]
    for d, shares in CASES:
        case = f"d = {d}, K = {len(shares)}"
        measured = [float(row["error over ϑ"]) for row in rows if row["case"] == case]
        told = f"{case}: the error falls at least like n^(−1/2)"
        parts.append(
            Part(
                printed=check_power_law(
                    told, sizes, measured, power, within=0.15, what="n", bound=True
                )
            )
        )
    far = _quantile(generator, *CASES[2], sizes[-1], min(batch, 60), 2 * steps, True, warm=None)
    near = float(rows[-1]["error over ϑ"])
    return Evidence(
        parts=[*parts, Part(printed=_compare_construction(generator, more))],
        numbers={
            f"error over ϑ at n = {sizes[-1]}, K = 4, from starts near the truth": near,
            f"error over ϑ at n = {sizes[-1]}, K = 4, from random starts": far / NOISE,
        },
        table=rows,
        figures=[
            Figure(
                title="The prediction nears the oracle's like n^(−1/2)",
                rows=rows,
                x=Axis(field="n", title="examples n", scale="log"),
                y=Axis(field="error over ϑ", title="error over ϑ, 91 % quantile", scale="log"),
                colour=Axis(field="case", title="sizes", scale="category"),
            )
        ],
    )


def _quantile(
    generator: torch.Generator,
    d: int,
    shares: tuple[float, ...],
    n: int,
    batch: int,
    steps: int,
    oracle: bool,
    warm: float | None,
) -> float:
    """The 1 − 9δ quantile of |Σ_k π_k ⟨x, β̂_k⟩ − ⟨x, β^OR⟩| over problems and their queries."""
    weights = resolve_proportions(torch.tensor(shares, dtype=torch.float64), len(shares))
    problem = MixtureOfRegressions(
        d=d, n=n, components=len(shares), proportions=weights, noise=NOISE, warm=warm
    ).sample(batch, generator=generator)
    assert problem.betas is not None
    rate = n / (math.sqrt(n) + math.sqrt(d) + 5) ** 2
    step, noise = torch.tensor([rate, NOISE], dtype=torch.float64)
    algorithm = GradientEM(weights, noise, step, INNER)
    *_, found = algorithm.states(problem, steps)
    best = weights @ problem.betas if oracle else problem.betas[:, 0]
    queries = torch.randn(batch, 20, d, generator=generator, dtype=torch.float64)
    off = (queries @ (weights @ found - best).unsqueeze(-1)).abs().flatten()
    return float(off.quantile(1 - 9 * DELTA))


def _compare_construction(generator: torch.Generator, more: int) -> Check:
    same = Equality("the transformer's prediction is gradient EM's", tolerance=1e-8)
    for d, n, K in ((2, 20, 2), (3, 30, 3)):
        built = MixtureOfRegressionsConstruction(
            d=d, n=n, components=K, steps=4, inner=INNER, noise=NOISE, bound=30.0
        )
        drawn = MixtureOfRegressions(d=d, n=n, components=K, noise=NOISE, warm=0.3)
        problem = drawn.sample(3, generator=generator)
        told = built.decode(
            problem, built.transformer(built.prompt(problem), built.context_length(problem))
        )
        *_, state = built.algorithm.states(problem, 4 + more)
        wanted = built.algorithm.predict(problem, state)
        same.add(told, wanted, size=(d, n), about=f"d = {d}, n = {n}, K = {K}")
    return same.check()
