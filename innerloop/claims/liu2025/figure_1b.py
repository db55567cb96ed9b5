"""Figure 1b: what gains when the support is known to lie in the first half.

Printed    support within the first 10 of d = 20, in training and test: Small TF and GPT-2 improve a
           lot, other baselines do not; LISTA-VM-SS (columns of X beyond the support set to zero)
           reaches about 0.07, almost ten times better than LISTA-VM
Tested     each trained here with and without the restriction; "almost ten times" is five times or
           more, "no significant improvement" at most a fifth, "a lot" at least a fifth. Small TF
           from random weights, trained for as many steps as the others
Correction where "almost ten times" fails: twice as good. At sizes that are not the paper's a
           failure of the number is not held against it
Beyond     0.07 was not reached at the paper's sizes: a recorded training ends at 0.11
           (results/sparse/lista-vm-ss; on 6 of 200,000 fresh X it overflows beyond 10⁴), and
           searches by L-BFGS from four other starts end at 0.109 to 0.119 on the examples they see.
           Without thresholds, 12 steps leave at least 1/13 of E ‖β‖² = 3, so 0.23, in the mean over
           large square X (the Christoffel number of the semicircle law at 0). LISTA-VM itself
           can select: rows of M that are zero keep β in the support
"""

from __future__ import annotations

from typing import Any

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Evidence, Figure, Part
from innerloop.claims.liu2025.contest import (
    SHORT,
    SIZES,
    Pair,
    Sizes,
    answered,
    classical,
    compared,
    judgements,
    means,
    recovered,
    rows,
)

ANY, FIRST = "any support", "support in the first half"
GROUPS = {
    **dict.fromkeys(("Small TF", "LISTA-VM", "FISTA", "ISTA", "lasso, solved"), ANY),
    **{
        f"{name}, restricted": FIRST
        for name in ("Small TF", "LISTA-VM", "LISTA-VM-SS", "FISTA", "ISTA", "lasso, solved")
    },
}
SELECTED, PLAIN = "LISTA-VM-SS, restricted", "LISTA-VM, restricted"
PAIRS = [
    Pair("LISTA-VM-SS is almost ten times better than LISTA-VM", SELECTED, PLAIN, 0.2),
    Pair("Small TF improves a lot", "Small TF, restricted", "Small TF", 0.8, SHORT),
    Pair("ISTA does not", "ISTA", "ISTA, restricted", 1.25),
    Pair("FISTA does not", "FISTA", "FISTA, restricted", 1.25),
]
TWICE = Pair("LISTA-VM-SS is twice as good as LISTA-VM", SELECTED, PLAIN, 0.5)


def concluded(found: list[dict[str, Any]]) -> Evidence:
    ten, *rest = PAIRS
    sized = ten if found[0]["printed"] else ten._replace(excuse=SIZES)
    printed, *others = judgements([sized, *rest], found)
    (twice,) = judgements([TWICE], [{**cell, "pairs": [cell["twice"]]} for cell in found])
    corrected = twice.printed if printed.verdict == "fails" else None
    table = rows(GROUPS, [cell["losses"] for cell in found])
    return Evidence(
        parts=[Part(printed=printed.printed, corrected=corrected, matters="result"), *others],
        table=table,
        figures=[
            Figure(
                title="Label loss with and without a known support",
                rows=table,
                mark="point",
                x=Axis(field="loss", title="E (ŷ − y)² at the query", scale="log"),
                y=Axis(field="method", title="method", scale="category"),
                colour=Axis(field="setting", title="β has", scale="category"),
            )
        ],
    )


SMALL = {"d": 8, "n": 6, "sparsity": 2, "blocks": 4, "support": 4}


@claim(
    "liu2025.figure-1b",
    "A support in the first half helps transformers and LISTA-VM-SS a lot, and not ISTA and FISTA.",
    where="Section 6, Figure 1b",
    kind="ordering",
    quick=[{**SMALL, "steps": 120, "batch": 128, "examples": 1000, "restart": k} for k in range(2)],
    full={"d": 20, "n": 10, "sparsity": 3, "blocks": 12, "support": 10}
    | {"steps": 1500, "batch": 512, "examples": 4000, "restart": 0},
    paper=[
        {"d": 20, "n": 10, "sparsity": 3, "blocks": 12, "support": 10}
        | {"steps": 17_000, "batch": 1000, "examples": 20_000, "restart": k}
        for k in range(3)
    ],
    tiny={"d": 4, "n": 3, "sparsity": 1, "blocks": 2, "support": 2}
    | {"steps": 12, "batch": 32, "examples": 300, "restart": 0},
    conclude=concluded,
    falsified={"a million times": {"share": 1e-6, "excused": False}},
)
def figure_1b(
    generator: torch.Generator,
    *,
    d: int,
    n: int,
    sparsity: int,
    blocks: int,
    support: int,
    steps: int,
    batch: int,
    examples: int,
    restart: int,
    share: float = 1.0,
    excused: bool = True,
) -> dict[str, Any]:
    sizes, errors = Sizes(d, n, sparsity, blocks), {}
    for ending, within in (("", None), (", restricted", support)):
        tuning, problem = (
            sizes.problems(support=within).sample(examples, generator=generator) for _ in range(2)
        )
        found = {
            "LISTA-VM": recovered(
                sizes.train("lista-vm-learned", restart, steps, batch, support=within), problem
            ),
            "Small TF": answered(_transformer(sizes, restart, steps, within), problem)[:, -1],
            **classical(tuning, problem, blocks),
        }
        if within:
            given = {"support": within, "select": True}
            chosen = sizes.train("lista-vm-learned", restart, steps, batch, **given)
            found["LISTA-VM-SS"] = recovered(chosen, problem)
        errors |= {f"{name}{ending}": values for name, values in found.items()}
    return {
        "losses": means(errors),
        "pairs": compared(errors, PAIRS, share),
        "excused": excused,
        "twice": compared(errors, [TWICE], share)[0],
        "printed": sizes.printed,
    }


def _transformer(sizes: Sizes, restart: int, steps: int, support: int | None) -> Any:
    given = {"support": support, "learning_rate": 5e-3, "warmup": steps // 10}
    return sizes.train("small-transformer", restart, steps, 64, **given)
