"""Theorem 3.3 of Jin et al.: the excess risk in the mixture of β* and −β*, by regimes.

Printed    the excess risk of the transformer's prediction is O(√(d log²n/n)) for 0 < η ≤ e and
           O(d log²n/n) for η ≥ e, e = C(d log²(n/δ)/n)^(1/4). Neither risk nor prediction is
           defined
Reading    the squared distance of β̂ to β* up to sign: the risk above that of an oracle that knows
           β* and each example's sign, and the square of Theorem 3.2's. Its other reading, the risk
           of ⟨x, β̂⟩ above the least possible one, is shown: with equal weights the best prediction
           of y from x is 0, and the excess of ⟨x, β̂⟩ is ‖β̂‖², which tends to ‖β*‖²
Tested     gradient EM (see jin.theorem-3.2): the mean over problems, over n, at half the edge, at
           fixed η and along the edge
Beyond     η = 0, which the slide leaves out (0 < η)
Wrong      above the edge one constant for all η, as in Theorem 3.2: at the edge the two lines speak
           of the same η, and the second is the square of the first
Corrected  d log²n/(n min(1, η²)): the square of Kwon, Ho & Caramanis's bound (see jin.theorem-3.2)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.figures import draw_lines
from innerloop.claims.trials import Inequality
from innerloop.claims.yang2025.two_regressions import (
    HIGH,
    ROOM,
    STUCK,
    D,
    Rows,
    check_regime,
    draw_mixture,
    em_estimates,
    judge_high,
    measure_regimes,
)


def judge_risks(rows: Rows) -> Evidence:
    above = Inequality(
        "the risk of $⟨x, β̂⟩$ above the least possible one is $≤ d log²n/n$, $η = 2$"
    )
    for row in rows:
        if "length" in row:
            n = row["case"]["n"]
            above.add(row["length"], D * math.log(n) ** 2 / n, row["case"])
    drawn = [row for row in rows if row.get("regime", "Fisher") != "Fisher"]
    low = "low signal to noise: the risk falls at least like $n^(−1/2)$,"
    return Evidence(
        parts=[
            Part(
                printed=check_regime(
                    rows, "half the edge", -0.5, f"{low} $η$ at half the edge", 2 * ROOM
                )
            ),
            Part(
                printed=check_regime(
                    rows,
                    "η = 2",
                    -1.0,
                    "high signal to noise, $η = 2$: the risk falls like $1/n$",
                    2 * ROOM,
                ),
                reading="$‖β̂ ∓ β*‖²$, the square of Theorem 3.2; the slides define no risk",
                other_readings={"above the least possible risk": above.check()},
            ),
            judge_high(rows, 2, 1.0),
        ],
        beyond=[check_regime(rows, "η = 0", -0.5, f"{low} $η = 0$", 2 * ROOM)],
        table=drawn,
        figures=[
            draw_lines(
                "Excess risk by signal to noise",
                drawn,
                "n: examples n",
                "error: mean ‖β̂ ∓ β*‖²/ϑ²",
                "regime: signal to noise η",
                log="xy",
                caption="The edge is η = (d log²n/n)^(1/4), d = 2.",
            )
        ],
    )


@claim(
    "yang2025.jin.theorem-3.3",
    "The excess risk in the mixture of $β*$ and $−β*$ is of order $√(d log²n/n)$ in low "
    "and $d log²n/n$ in high signal to noise.",
    where="Fourth paper (Jin et al. 2024): Theorem 3.3",
    kind="rate",
    hypotheses={
        "risk above an oracle that knows $β*$ and the signs": "ours: the slides define no risk, "
        "and this one is the square of Theorem 3.2's error"
    },
    quick={"batch": 200, "sizes": [300, 450, 700, 1050, 1600, 3000]},
    full={"batch": 1_000, "sizes": [300, 600, 1200, 2500, 5000, 10_000, 30_000]},
    tiny={"batch": 30, "sizes": [100, 300, 1000]},
    judge=judge_risks,
    falsified=STUCK,
)
def jin_theorem_3_3(generator: torch.Generator, *, batch: int, sizes: list[int]) -> Rows:
    def average_squares(errors: Tensor) -> Tensor:
        return errors.square().mean()

    rows = measure_regimes(generator, batch, sizes, average_squares)
    n = sizes[0]
    x, y, _, start = draw_mixture(generator, 10, n, D, HIGH)
    for beta in em_estimates(x, y, start, 60):
        rows.append({"case": Case(d=D, n=n, η=HIGH), "length": float(beta.square().sum())})
    return rows
