"""Figure 1b: which methods gain when the support is known to lie in the first half.

Printed    support within the first 10 of d = 20, in training and test: Small TF and GPT-2 improve a
           lot, other baselines do not; LISTA-VM-SS (columns of X beyond the support set to zero)
           reaches about 0.07, almost ten times better than LISTA-VM
Tested     each trained here with and without the restriction but for the transformers, which are
           recorded ones as in liu2025.figure-1a; "almost ten times" is five times or more, "no
           significant improvement" at most a fifth, "a lot" at least a fifth. Without its recorded
           ones the package trains Small TF from random weights for as many steps as the others.
           LISTA-VM and LISTA-VM-SS see some X stretched in training, as in liu2025.figure-1a
Correction LISTA-VM is a baseline too, and trained on such supports it improves nearly as much as
           LISTA-VM-SS: it can select, rows of M that are zero keep β in the support. So where
           "almost ten times" fails: twice as good as LISTA-VM trained on any support. At sizes that
           are not the paper's a failure of the number is not held against it
Beyond     Small TF from random weights goes below the printed 0.07: 0.031 ± 0.002 on 32,768 fresh
           prompts (results/benchmarks/sparse_tails.json). LISTA-VM-SS does not: 0.144 on 409,600.
           With no X stretched in training it has 0.11 on 4,096 held-out ones, but 9 of 409,600 are
           beyond 10⁴; searches by L-BFGS from four other starts end at 0.109 to 0.119 on the
           examples they see.
           Without thresholds, 12 steps leave at least 1/13 of E ‖β‖² = 3, so 0.23, in the mean over
           large square X (the Christoffel number of the semicircle law at 0)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Evidence, Figure
from innerloop.claims.liu2025.contest import (
    EPOCHS,
    GPT2,
    OTHER_SIZES,
    SHORT_TRAINING,
    Pair,
    Sizes,
    classical_errors,
    compare_pairs,
    describe_bands,
    judge_pairs,
    load_transformers,
    mean_losses,
    method_rows,
    solver_errors,
    transformer_errors,
)
from innerloop.recipes.base import TrainedRun

ANY, FIRST = "any support", "support in the first half"
RESTRICTED = ", restricted"
METHODS = (GPT2, "Small TF", "LISTA-VM", "LISTA-VM-SS", "FISTA", "ISTA", "lasso, solved")
GROUPS = dict.fromkeys(METHODS, ANY) | {f"{name}{RESTRICTED}": FIRST for name in METHODS}
SELECTED, PLAIN = f"LISTA-VM-SS{RESTRICTED}", f"LISTA-VM{RESTRICTED}"
PAIRS = [
    Pair("LISTA-VM-SS is almost ten times better than LISTA-VM", SELECTED, PLAIN, 0.2),
    Pair("LISTA-VM itself does not improve", "LISTA-VM", PLAIN, 1.25),
    Pair("ISTA does not", "ISTA", f"ISTA{RESTRICTED}", 1.25),
    Pair("FISTA does not", "FISTA", f"FISTA{RESTRICTED}", 1.25),
    Pair("Small TF improves a lot", f"Small TF{RESTRICTED}", "Small TF", 0.8, SHORT_TRAINING),
]
GAIN = Pair("GPT-2 improves a lot", f"{GPT2}{RESTRICTED}", GPT2, 0.8, SHORT_TRAINING)
"""The pair added where GPT-2 takes part."""
CORRECTED = [
    Pair(
        "LISTA-VM-SS: twice as good as LISTA-VM trained on any support", SELECTED, "LISTA-VM", 0.5
    ),
    Pair("LISTA-VM improves by a tenth or more: M learns the support", PLAIN, "LISTA-VM", 0.9),
]
"""Corrections of the first pairs, used where those fail."""


def conclude(found: list[dict[str, Any]]) -> Evidence:
    first = found[0]
    ten, *rest = select_pairs(first["losses"])
    sized = ten if first["printed"] else ten._replace(excuse=OTHER_SIZES)
    parts = judge_pairs([sized, *rest], found)
    corrected = judge_pairs(CORRECTED, [{**cell, "pairs": cell["corrected"]} for cell in found])
    for k, part in enumerate(corrected):
        if parts[k].verdict == "fails":
            parts[k] = replace(parts[k], corrected=part.printed)
    table = method_rows(GROUPS, [cell["losses"] for cell in found])
    return Evidence(
        parts=parts,
        table=table,
        figures=[
            Figure(
                title="Label loss with and without a known support",
                rows=table,
                mark="point",
                x=Axis(field="loss", title="E (ŷ − y)² at the query", scale="log"),
                y=Axis(field="method", title="method", scale="category"),
                colour=Axis(field="setting", title="β has", scale="category"),
                band=("least", "largest"),
                caption=describe_bands(len(found), first["examples"]),
            )
        ],
    )


def select_pairs(taking_part: Collection[str]) -> list[Pair]:
    return [*PAIRS, *([GAIN] if GPT2 in taking_part else [])]


SMALL = {"d": 6, "n": 4, "sparsity": 1, "blocks": 4, "support": 3}


def recorded_names(before: str = "", after: str = "") -> dict[str, dict[str, str]]:
    """File names of the recorded transformers, without and with the restriction."""
    names = {"Small TF": "small-transformer", GPT2: "gpt2"}
    return {
        ending: {name: f"{before}{file}{middle}{after}" for name, file in names.items()}
        for ending, middle in (("", ""), (RESTRICTED, "-restricted"))
    }


@claim(
    "liu2025.figure-1b",
    "A support in the first half helps transformers and LISTA-VM-SS a lot, and not ISTA and FISTA.",
    where="Section 6, Figure 1b",
    kind="ordering",
    quick=[
        {**SMALL, "steps": 200, "batch": 128, "examples": 4000, "restart": k}
        | {"machines": recorded_names("quick-", f"-{k}")}
        for k in range(2)
    ],
    full={"d": 20, "n": 10, "sparsity": 3, "blocks": 12, "support": 10}
    | {"steps": 1500, "batch": 512, "examples": 4000, "restart": 0, "machines": recorded_names()},
    paper=[
        {"d": 20, "n": 10, "sparsity": 3, "blocks": 12, "support": 10}
        | {"steps": 17_000, "batch": 1000, "examples": 20_000, "restart": k}
        | {"epochs": EPOCHS}
        for k in range(3)
    ],
    tiny={"d": 4, "n": 3, "sparsity": 1, "blocks": 2, "support": 2}
    | {"steps": 12, "batch": 32, "examples": 300, "restart": 0},
    conclude=conclude,
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
    machines: Mapping[str, Mapping[str, str]] | None = None,
    epochs: int | None = None,
    share: float = 1.0,
    excused: bool = True,
) -> dict[str, Any]:
    sizes, errors = Sizes(d, n, sparsity, blocks), {}
    for ending, within in (("", None), (RESTRICTED, support)):
        tuning, problem = (
            sizes.distribution(support=within).sample(examples, generator=generator)
            for _ in range(2)
        )
        named = None if machines is None else machines[ending]
        taking_part = load_transformers(
            sizes, restart, machines=named, epochs=epochs, support=within
        )
        if not taking_part:
            taking_part = {"Small TF": _short(sizes, restart, steps, within)}
        iteration = sizes.train("lista-vm-learned", restart, steps, batch, support=within)
        found = {
            **{
                name: transformer_errors(each, problem)[:, -1] for name, each in taking_part.items()
            },
            "LISTA-VM": solver_errors(iteration, problem),
            **classical_errors(tuning, problem, blocks),
        }
        if within:
            given = {"support": within, "select": True}
            chosen = sizes.train("lista-vm-learned", restart, steps, batch, **given)
            found["LISTA-VM-SS"] = solver_errors(chosen, problem)
        errors |= {f"{name}{ending}": values for name, values in found.items()}
    return {
        "losses": mean_losses(errors),
        "examples": examples,
        "pairs": compare_pairs(errors, select_pairs(errors), share),
        "excused": excused and (epochs or 0) < EPOCHS,
        "corrected": compare_pairs(errors, CORRECTED, share),
        "printed": sizes.is_printed,
    }


def _short(sizes: Sizes, restart: int, steps: int, support: int | None) -> TrainedRun:
    """Train Small TF from random weights for `steps` steps, with the recorded ones' settings."""
    given = {"support": support, "learning_rate": 5e-3, "warmup": steps // 10, "scale": 0.1}
    given |= {"sharing": steps, "supervision": "weights", "emphasis": 2.0}
    return sizes.train("small-transformer", restart, steps, 64, **given)
