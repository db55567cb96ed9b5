"""Theorem 3.2 of Jin et al.: estimates in the mixture of β* and −β*, low and high signal to noise.

Printed    n ≥ Cd log²(1/δ), with probability 1 − δ: ‖β̂ − β*‖ ≤ O((d log²(n/δ)/n)^(1/4)) where η ≤
           C(d log²n/n)^(1/4), and ≤ O(√(d log²(n/δ)/n)) where η ≥ C(d log²n/n)^(1/4)
Reading    up to sign: the mixture of β* and −β* does not tell which is which
Tested     gradient EM, which `mixture-of-two-regressions` runs (the same β on a small sample):
           errors' 90 % quantile over n, at η = 0, at half the edge, at fixed η and along the edge,
           ϑ = 1, d = 2; along the edge beyond n that can be drawn, by Fisher's information
Wrong      above the edge one constant for all η. At the edge itself both bounds speak of the same
           η, and differ by (n/(d log²n))^(1/4); no estimator does better than (d/n)^(1/2)/η there
Corrected  √(d log²(n/δ)/n)/min(1, η). Proved for EM, with the lower bound, by Kwon, Ho & Caramanis
           (2021), On the minimax optimality of the EM algorithm for learning two-component mixed
           linear regression, arXiv:2006.02601: they have a regime of medium η in between
Note       that it fails at the edge is their theorem and Fisher's information, not a measurement:
           at sizes that can be drawn, logarithms and an η that is not small hide it
"""

from __future__ import annotations

import torch

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part, misprint
from innerloop.claims.falsifying import change_column
from innerloop.claims.figures import draw_lines
from innerloop.claims.trials import check_told
from innerloop.claims.yang2025.two_regressions import (
    INNER_STEPS,
    STUCK,
    D,
    Rows,
    check_regime,
    draw_mixture,
    em_estimates,
    estimation_errors,
    fisher_error,
    judge_high,
    measure_regimes,
    regime_edge,
)
from innerloop.constructions.mixture_of_two_regressions import MixtureOfTwoRegressionsConstruction
from innerloop.problems.mixture_of_regressions import MixtureProblem

DELTA = 0.1


def judge_estimates(rows: Rows) -> Evidence:
    same = check_told("the transformer's $β$ is gradient EM's", rows, 1e-4)
    drawn = [row for row in rows if row.get("regime", "Fisher") != "Fisher"]
    low = "low signal to noise: errors fall at least like $n^(−1/4)$,"
    return Evidence(
        parts=[
            Part(printed=check_regime(rows, "η = 0", -0.25, f"{low} $η = 0$")),
            Part(printed=check_regime(rows, "half the edge", -0.25, f"{low} $η$ at half the edge")),
            Part(
                printed=check_regime(
                    rows,
                    "η = 2",
                    -0.5,
                    "high signal to noise, $η = 2$: errors fall like $n^(−1/2)$",
                )
            ),
            judge_high(rows, 1, DELTA),
            Part(printed=same),
        ],
        errata=[
            misprint(
                "Theorem 3.2",
                "$‖β̂ − β*‖$ is small",
                "the smaller of $‖β̂ − β*‖$ and $‖β̂ + β*‖$",
                "EM from the start $−s$ ends at $−β̂$ where it ends at $β̂$ from $s$",
            )
        ],
        numbers={row["told of"]: row["ratio"] for row in rows if "ratio" in row},
        table=drawn,
        figures=[
            draw_lines(
                "Errors of the estimate by signal to noise",
                drawn,
                "n: examples n",
                "error: ‖β̂ ∓ β*‖/ϑ, 90 % quantile",
                "regime: signal to noise η",
                log="xy",
                caption="The edge is η = (d log²n/n)^(1/4), d = 2.",
            )
        ],
    )


@claim(
    "yang2025.jin.theorem-3.2",
    "In the mixture of $β*$ and $−β*$ a transformer that runs EM estimates $β*$ with an "
    "error of order $(d log²n/n)^(1/4)$ in low and $√(d log²n/n)$ in high signal to noise.",
    where="Fourth paper (Jin et al. 2024): Theorem 3.2",
    kind="rate",
    hypotheses={
        "$n ≥ Cd log²(1/δ)$": "the theorem; here $n ≥ 300$ for $d log²(1/δ) = 11$",
        "up to sign": "the symmetric mixture: $β*$ and $−β*$ have one distribution",
    },
    quick={"batch": 100, "sizes": [300, 450, 700, 1050, 1600, 3000]},
    full={"batch": 1_000, "sizes": [300, 600, 1200, 2500, 5000, 10_000, 30_000]},
    tiny={"batch": 30, "sizes": [100, 300, 1000]},
    judge=judge_estimates,
    falsified={**STUCK, "a transformer's β of length 0": change_column("told", lambda b: 0 * b)},
)
def jin_theorem_3_2(generator: torch.Generator, *, batch: int, sizes: list[int]) -> Rows:
    rows = measure_regimes(generator, batch, sizes, lambda errors: errors.quantile(0.9))
    for d, n in ((2, 30), (3, 60)):
        x, y, star, start = draw_mixture(generator, 4, n, d, 1.0)
        built = MixtureOfTwoRegressionsConstruction(
            d=d, n=n, steps=5, inner=INNER_STEPS, noise=1.0, knots=2000
        )
        pair = torch.stack([start, -start], dim=-2)
        problem = MixtureProblem(x, y, x[:, :1], pair, torch.stack([star, -star], dim=-2))
        told = built.decode(problem, built.transformer(built.prompt(problem), n))
        rows.append({"case": Case(d=d, n=n), "told": told, "wanted": em_estimates(x, y, start, 5)})
    n = sizes[-1]
    for d, eta in ((3, 0.5), (D, regime_edge(n, D))):
        root = float(estimation_errors(generator, batch, n, d, eta).square().mean().sqrt())
        told = f"root mean square error over Fisher's, $n = {n}$, $d = {d}$, $η = {eta:.3g}$"
        rows.append({"told of": told, "ratio": root / fisher_error(n, d, eta)})
    return rows
