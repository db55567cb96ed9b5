"""Figure 1c: three read-outs of Small TF over the number of examples.

Printed    the query read-outs (V free, or V of Theorem 5.2's proof) have a lower loss than the
           linear one; for large n the gap becomes insignificant; the two query read-outs behave
           very similarly
Tested     three trainings alike from the same random weights, loss at every prefix, on prompts up
           to three times as long as in training. In `full` the three are recorded ones
           (results/sparse/readout-linear, -query, -constructed), of three seeds, with 0.4 % of the
           paper's steps, most of which average gradients over features; V free begins at the
           proof's V, the linear read-out at 0. All are trained at every prefix, where the paper
           trains on y_{N+1}: the figure is over n
Ours       "similarly" is within a fifth, either way, at the n of the training; "insignificant" is a
           tenth of the linear read-out's loss at three times that n. All statements stay
           undecided, whatever their outcome, unless the networks are trained as in the paper
Beyond     in `full` V free has the lower loss at n = 10, 0.79, 0.82 and 0.75 against 1.68, 1.58 and
           1.26. The gap closes in size, not in proportion: at n = 30, as at n = 10, the linear
           read-out has about twice the loss. With V of the proof, seed by seed: of seed 0 one of
           4,000 prompts is at the cut of 10⁴ from n = 2 on, without it the loss at n = 10 is 0.89;
           of seed 1 one is so from n = 7 to 11, and 0.91 is left; of seed 2 none is at n = 10,
           where the loss is 1.20 ± 0.04, 1.6 times that of V free, and some are beyond n = 24.
           Theorem 5.2's gap is one of bounds for weights that are built, from N_0 on: of no n drawn
           here
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.figures import draw_lines
from innerloop.claims.liu2025 import contest
from innerloop.claims.liu2025.contest import Pair, Sizes
from innerloop.claims.recorded import name_trainings

READOUTS = {
    "linear": "linear",
    "query": "query, V free",
    "constructed": "query, V of the proof",
}
LONGER = 3
"""Test prompts are this many times as long as those in training."""
PAIRS = [
    Pair("query < linear", "query", "linear", needs="trained"),
    Pair("query, $V$ of the proof < linear", "constructed", "linear", needs="trained"),
    Pair("the two query read-outs behave very similarly", "constructed", "query", 1.2)._replace(
        both=True, needs="trained", ours="within a fifth, either way"
    ),
    Pair("for large $n$ the gap is insignificant", "last gap", "last linear", 0.1)._replace(
        needs="trained", ours="a tenth of the linear read-out's loss at three times $n$"
    ),
]
OTHER_GAP = PAIRS[-1]._replace(
    statement="for large $n$ the gap to $V$ of the proof is insignificant"
)
"""Judged from the curves: what is measured of pairs is without it."""


def judge_read_outs(found: list[dict[str, Any]]) -> Evidence:
    curves = contest.curve_rows([cell["curves"] for cell in found], "read-out", 0)
    curves = [{**row, "read-out": READOUTS[row["read-out"]]} for row in curves]
    told, n = contest.describe_bands(len(found), found[0]["examples"]), found[0]["n"]
    cut = contest.describe_cut(
        [
            {**cell, "losses": {READOUTS[name]: curve[n] for name, curve in cell["curves"].items()}}
            for cell in found
        ]
    )
    return Evidence(
        parts=[*contest.judge_pairs(PAIRS, found), _judge_other_gap(found)],
        figures=[
            draw_lines(
                "Loss of Small TF by its read-out",
                curves,
                "n: examples before the query",
                "loss: E (ŷ − y)²",
                by="read-out",
                log="y",
                band=("least", "largest"),
                caption=f"{told} Trained with up to {n} examples. "
                f"V free: {found[0]['training']}" + (f" At n = {n}: {cut}" if cut else ""),
            )
        ],
    )


def _judge_other_gap(found: list[dict[str, Any]]) -> Part:
    cells = []
    for cell in found:
        linear, query = (cell["curves"][name][-1] for name in ("linear", "constructed"))
        gap = [abs(linear[0] - query[0]), linear[1] + query[1]]
        cells.append({**cell, "pairs": [contest.bound_moments(gap, linear)]})
    return contest.judge_pair(OTHER_GAP, cells, 0)


def end_apart(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make data of the paper's training in which V of the proof ends at twice the linear loss."""
    for cell in found:
        cell["trained"] = True
        loss = cell["curves"]["linear"][-1][0]
        cell["curves"]["linear"][-1] = [loss, loss / 1000]
        cell["curves"]["constructed"][-1] = [2 * loss, loss / 1000]
    return found


SMALL = {"d": 4, "sparsity": 1, "blocks": 2}
RECORDED = {"learning_rate": 4e-3, "warmup": 100, "hidden": 84, "growth": [1200, 1800]} | {
    **{"sharing": 3500, "scale": 0.1, "stretch": 1.2}
}
"""Training settings of the recorded models; used to train anew where they are missing."""


@claim(
    "liu2025.figure-1c",
    "Query read-outs predict better than the linear one; for large $n$ the gap to both becomes "
    "insignificant, and the two query read-outs behave very similarly.",
    where="Section 6, Figure 1c",
    kind="ordering",
    hypotheses=contest.SETUP,
    decided_by="Small TF trained for $10^6$ steps, as in the paper, from three seeds for each "
    "read-out: about 111 core hours per read-out at the measured 0.13 s per step",
    quick=[
        {**SMALL, "n": 6, "steps": 150, "examples": 2000, "restart": k}
        | {"recipe": {"learning_rate": 5e-3, "warmup": 15}}
        for k in range(2)
    ],
    full=[
        {**contest.PAPER, "examples": 4000, "restart": k}
        | {"steps": 4000, "recipe": RECORDED, "machines": dict(zip(READOUTS, names, strict=True))}
        for k, names in enumerate(name_trainings([f"readout-{name}" for name in READOUTS], 3))
    ],
    paper=[
        {**contest.PAPER, "examples": 20_000, "restart": k}
        | {"steps": contest.EPOCHS, "recipe": {"learning_rate": 1e-4, "schedule": "constant"}}
        for k in range(3)
    ],
    tiny={**SMALL, "n": 2, "steps": 12, "examples": 300, "restart": 0, "recipe": {"warmup": 1}},
    conclude=judge_read_outs,
    falsified=contest.WORSE
    | {
        "V of the proof half as bad as V free": contest.set_ratio(0.5),
        "V of the proof ends at twice the linear loss": end_apart,
    },
)
def figure_1c(
    generator: torch.Generator,
    *,
    steps: int,
    examples: int,
    restart: int,
    recipe: Mapping[str, Any],
    machines: Mapping[str, str] | None = None,
    **given: int,
) -> dict[str, Any]:
    sizes, n = Sizes(**given), given["n"]
    problem = replace(sizes, n=LONGER * n).distribution().sample(examples, generator=generator)
    trained = contest.load_transformers(sizes, restart, machines=machines, epochs=None)
    if not trained:
        trained = {
            readout: sizes.train("small-transformer", restart, steps, 64, readout=readout, **recipe)
            for readout in READOUTS
        }
    found = {
        readout: contest.transformer_errors(each, problem) for readout, each in trained.items()
    }
    gap = found["linear"][:, -1] - found["query"][:, -1]
    errors = {name: each[:, n] for name, each in found.items()}
    errors |= {"last gap": gap * gap.mean().sign(), "last linear": found["linear"][:, -1]}
    return {
        "curves": {name: contest.mean_curve(each) for name, each in found.items()},
        "examples": examples,
        "n": n,
        "pairs": contest.compare_pairs(errors, PAIRS),
        "training": contest.describe_training(trained["query"]),
        "printed": sizes.is_printed,
        "trained": sizes.is_printed and steps >= contest.EPOCHS,
    }
