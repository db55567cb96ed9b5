"""Corollary 10: the risk of the pre-trained transformer is O(n^(−1/5)) in the instances n.

Printed    L_PCA(θ, P) ≲ the error of approximation by a network of size ε, ε₀, plus the excess risk
           of Proposition 9; optimised over ε and ε₀, L_PCA ≲ n^(−1/5) with high probability, for
           parameters and d of constant scale
Reading    the size of the network may grow with n, as ε and ε₀ do in the proof: for each n the best
           of several sizes counts, chosen on fresh instances
Tested     ReLU transformers of one to three layers on pools of n instances (see proposition-9): the
           risk itself, not its excess, the mean over pools
Open       where networks do not minimise the loss on their pool (see proposition-9), or learned
           nothing, and where the interval is too wide, as that of one pool of each size is. Decided
           by three of each over two decades and a half (`full`), if trained to the end
Ours       a rate is held to within 0.05 of a power, as an upper bound: a faster fall is allowed;
           the largest pool must have taught something, a risk below 0.9, where answering 0 has 1
Beyond     the measured exponent; with one size of network, the risk stops at what it can express
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from innerloop.claims.base import claim
from innerloop.claims.encoders import Rows, mean_by, train_on_pools
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.figures import draw_lines
from innerloop.claims.intervals import check_rate, fit_exponent
from innerloop.claims.qliu2025.proposition_9 import (
    NETWORK,
    keep_risks_equal,
    measure_risk,
    require_minimisers,
)

ROOM = 0.05
LEARNED = 0.9
"""A risk above this is about that of answering 0, which is 1: nothing was learned."""


def judge_risks(cells: list[Rows]) -> Evidence:
    rows = [row for cell in cells for row in cell]
    best = pick_best(rows)
    n, means = mean_by(best, "pool", "risk")
    pools, risks = ([row[name] for row in best] for name in ("pool", "risk"))
    seeds = len({row["seed"] for row in rows})
    found = check_rate(
        "the risk falls like $n^(−1/5)$ or faster",
        pools,
        risks,
        -0.2,
        within=ROOM,
        bound=True,
        what=f"the number of instances, {seeds} pools of each size,",
        ours="0.05 of a power; a minimiser is within 0.01 of the least risk found on its pool",
    )
    found = require_minimisers(found, rows)
    if means[-1] > LEARNED:
        told = f"the networks learned nothing: the risk at $n = {n[-1]:g}$ is {means[-1]:.3g}"
        found = replace(found, passed=None, summary=told, counterexample="")
    return Evidence(
        parts=[
            Part(
                printed=found,
                reading=(
                    "the network's size may grow with $n$, as in the proof: the best of each $n$"
                ),
                trainings=seeds,
            )
        ],
        numbers={"exponent": str(fit_exponent(pools, risks))},
        table=rows,
        figures=[
            draw_lines(
                "The risk of the best network for each number of instances",
                [
                    *(
                        {"n": row["pool"], "risk": row["risk"]}
                        | {"of": f"{row['layers']} layers, seed {row['seed']}"}
                        for row in rows
                    ),
                    *(
                        {"n": size, "risk": risk, "of": "best size, mean of pools"}
                        for size, risk in zip(n, means, strict=True)
                    ),
                ],
                "n: instances in the pool",
                "risk: mean ‖v̂ − v‖₂ on fresh instances",
                "of: of",
                log="xy",
            )
        ],
    )


def pick_best(rows: Rows) -> Rows:
    """The rows of the size whose risk, averaged over seeds, is least for their number n."""
    found = []
    for pool in sorted({row["pool"] for row in rows}):
        same = [row for row in rows if row["pool"] == pool]
        layers, means = mean_by(same, "layers", "risk")
        best = min(zip(means, layers, strict=True))[1]
        found += [row for row in same if row["layers"] == best]
    return found


@claim(
    "qliu2025.corollary-10",
    "The risk of a transformer pre-trained for PCA on $n$ instances is $O(n^(−1/5))$.",
    where="Corollary 10",
    kind="rate",
    hypotheses={
        "Assumption 1, parameters and $d$ of constant scale": "the corollary",
        "$⟨p_i, v_i⟩ > 0$": "Theorem 7, whose error the corollary adds: it fixes the signs",
    },
    decided_by="networks that minimise the loss on their pool: trainings that go on until none "
    "has a lower one with twice the steps",
    quick=[
        {"pools": [20, 60, 200, 700], "layers": layers, "seeds": [0], "steps": 200}
        for layers in (1, 2)
    ],
    full=[
        {"pools": [20, 60, 200, 600, 2000, 6000], "seeds": [0, 1, 2], "steps": 3000}
        | {"layers": layers}
        for layers in (1, 2, 3)
    ],
    tiny={"pools": [2, 6, 20], "layers": 1, "seeds": [0], "steps": 3},
    conclude=judge_risks,
    falsified={"risks that do not fall": partial(keep_risks_equal, 0.0, 0.5)},
)
def corollary_10(
    generator: torch.Generator,
    *,
    pools: Sequence[int],
    layers: int,
    seeds: Sequence[int],
    steps: int,
) -> Rows:
    settings = {**NETWORK, "blocks": layers, "steps": steps, "warmup": steps // 10}
    found = train_on_pools("pca", settings, pools, seeds, measure_risk, longer=True)
    return [{**row, "layers": layers} for row in found]
