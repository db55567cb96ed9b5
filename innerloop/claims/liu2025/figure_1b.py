"""Figure 1b: which methods gain when the support is known to lie in the first half.

Printed    support within the first 10 of d = 20, in training and test: Small TF and GPT-2 improve
           significantly, other baselines do not; LISTA-VM-SS (columns of X beyond it are set to
           zero) reaches approximately 0.07, "almost 10 times better than the standard version of
           LISTA-VM and comparable to the prediction error of Small TF"
Tested     each method is trained here with and without the restriction, except the transformers,
           which are recorded as in liu2025.figure-1a. A method is compared with itself, trained in
           the same way. Without recorded networks the package trains Small TF from random weights
           for as many steps as the others. There are three trainings of each at `full`, but one of
           GPT-2. LISTA, LISTA-CP and ALISTA are baselines too and are not measured here
Reading    "the standard version" is LISTA-VM of any support: 0.68 (Figure 3) over 0.07 is 9.7
Ours       "almost ten times" is five or more, "significantly" a fifth, "comparable" within a factor
           of 2, either way, "approximately 0.07" within a tenth. Statements about trained methods
           stay undecided unless these are trained as in the paper. LISTA-VM and LISTA-VM-SS begin
           at Chebyshev's steps and see some X stretched in training
Beyond     with 4.5 % of the paper's instances LISTA-VM-SS is 3.3 to 3.8 times better than LISTA-VM
           of any support. LISTA-VM, which is a baseline too, improves nearly as much when it is
           trained on such supports: rows of M that are zero keep β in the support. LISTA-VM-SS has
           3.4 to 5.4 times the loss of Small TF. Small TF goes below the printed 0.07: 0.031 ±
           0.002 on 32,768 fresh prompts (results/benchmarks/sparse_tails.json). LISTA-VM-SS does
           not: 0.144 on 409,600. Without thresholds, 12 steps leave at least 1/13 of E ‖β‖² = 3, so
           0.23, in the mean over large square X (the Christoffel number of the semicircle law at 0)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.intervals import check_around
from innerloop.claims.liu2025 import contest
from innerloop.claims.liu2025.contest import GPT2, Pair, Sizes
from innerloop.claims.recorded import name_trainings
from innerloop.recipes.base import TrainedRun

ANY, FIRST = "any support", "support in the first half"
RESTRICTED = ", restricted"
METHODS = (GPT2, "Small TF", "LISTA-VM", "LISTA-VM-SS", "FISTA", "ISTA", "lasso, solved")
GROUPS = dict.fromkeys(METHODS, ANY) | {f"{name}{RESTRICTED}": FIRST for name in METHODS}
SELECTED, PLAIN = f"LISTA-VM-SS{RESTRICTED}", f"LISTA-VM{RESTRICTED}"
PRINTED_SELECTED = 0.07
FIFTH = "a fifth"
PAIRS = [
    Pair(
        "LISTA-VM-SS is almost ten times better than LISTA-VM", SELECTED, "LISTA-VM", 0.2
    )._replace(needs="trained", ours="five times or more"),
    Pair("LISTA-VM does not improve significantly", "LISTA-VM", PLAIN, 1.25)._replace(
        needs="trained", ours=FIFTH
    ),
    Pair("ISTA does not improve significantly", "ISTA", f"ISTA{RESTRICTED}", 1.25, ours=FIFTH),
    Pair("FISTA does not improve significantly", "FISTA", f"FISTA{RESTRICTED}", 1.25, ours=FIFTH),
    Pair("Small TF improves significantly", f"Small TF{RESTRICTED}", "Small TF", 0.8)._replace(
        needs="trained", ours=FIFTH
    ),
]
GAIN = Pair("GPT-2 improves significantly", f"{GPT2}{RESTRICTED}", GPT2, 0.8)._replace(
    needs="trained", ours=FIFTH
)
"""The pair added where GPT-2 takes part."""
LIKE = Pair(
    "LISTA-VM-SS is comparable to Small TF", SELECTED, f"Small TF{RESTRICTED}", 2.0
)._replace(both=True, needs="trained", ours="within a factor of 2, either way")
"""Judged from the losses: what is measured of pairs is without it."""
FURTHER = [
    Pair(
        "LISTA-VM-SS is at least twice as good as LISTA-VM of any support", SELECTED, "LISTA-VM"
    )._replace(share=0.5, needs="printed"),
    Pair("LISTA-VM improves by a tenth or more: $M$ learns the support", PLAIN, "LISTA-VM", 0.9),
]
"""Pairs that the source does not state."""


def judge_support(found: list[dict[str, Any]]) -> Evidence:
    first, pairs = found[0], select_pairs(found[0]["losses"])
    judged = contest.judge_pairs(pairs, found)
    parts, further = judged[: -len(FURTHER)], judged[-len(FURTHER) :]
    parts[0] = replace(parts[0], reading="LISTA-VM of any support: 0.68 of Figure 3 over 0.07")
    told = contest.describe_bands(len(found), first["examples"])
    table = contest.method_rows(GROUPS, [cell["losses"] for cell in found])
    return Evidence(
        parts=[*parts, contest.judge_losses(LIKE, found), _judge_number(found)],
        beyond=[part.printed for part in further],
        table=table,
        figures=[
            contest.draw_losses(
                "Label loss with and without a known support",
                table,
                "β has",
                f"{told} {first['training']} LISTA-VM and LISTA-VM-SS begin at Chebyshev's steps "
                "and see some X stretched.",
            )
        ],
    )


def _judge_number(found: list[dict[str, Any]]) -> Part:
    """Judge the printed 0.07, which is of the paper's training."""
    losses = [cell["losses"][SELECTED][0] for cell in found]
    near = {"within": PRINTED_SELECTED / 10, "ours": "a tenth"}
    statement = "LISTA-VM-SS reaches approximately 0.07"
    check = check_around(statement, losses, PRINTED_SELECTED, what="loss", **near)
    return Part(printed=contest.leave_open(check, found), trainings=len(found))


def select_pairs(taking_part: Collection[str]) -> list[Pair]:
    return [*PAIRS, *([GAIN] if GPT2 in taking_part else []), *FURTHER]


def end_at(loss: float) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    """Make data of the paper's training: LISTA-VM-SS has this loss, Small TF has 0.07."""

    def change(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for cell in found:
            cell["trained"], cell["losses"][SELECTED] = True, [loss, 0.001]
            cell["losses"][LIKE.other] = [PRINTED_SELECTED, 0.001]
        return found

    return change


SMALL, PAPER = {**contest.SMALL, "support": 3}, {**contest.PAPER, "support": 10}
SMALL_TF = ["small-transformer", "small-transformer-restricted"]
TRAININGS = name_trainings(SMALL_TF, 3)
TRAININGS[1][1] = "small-transformer-restricted-seed-3"
"""Seed 1 of the restricted problems diverged after the network had grown (step 2,016, a gradient
that is no number) and leaves no network to judge: seed 3 takes its place."""
GPT2S = ["gpt2", "gpt2-restricted"]


def name_machines(small: Sequence[str], gpt2: Sequence[str]) -> dict[str, dict[str, str]]:
    """Name recorded transformers, without and with the restriction."""
    return {
        ending: {"Small TF": small[k], GPT2: gpt2[k]} for k, ending in enumerate(("", RESTRICTED))
    }


@claim(
    "liu2025.figure-1b",
    "Where the support is known to lie in the first half, transformers improve significantly and "
    "other baselines do not; LISTA-VM-SS reaches about 0.07, almost ten times better than LISTA-VM "
    "and comparable to Small TF.",
    where="Section 6, Figure 1b",
    kind="ordering",
    hypotheses={
        **contest.SETUP,
        "the support is within the first 10 entries": "caption of Figure 1b",
    },
    out_of_reach=contest.OUT_OF_REACH,
    quick=[
        {**SMALL, "steps": 200, "batch": 128, "examples": 4000, "restart": k}
        | {
            "machines": name_machines(
                [f"quick-{name}-{k}" for name in SMALL_TF], [f"quick-{name}-{k}" for name in GPT2S]
            )
        }
        for k in range(2)
    ],
    full=[
        {**PAPER, "steps": 1500, "batch": 512, "examples": 4000, "restart": k}
        | {"machines": name_machines(small, GPT2S)}
        for k, small in enumerate(TRAININGS)
    ],
    paper=[
        {**PAPER, "steps": 17_000, "batch": 1000, "examples": 20_000, "restart": k}
        | {"epochs": contest.EPOCHS}
        for k in range(3)
    ],
    tiny={"d": 4, "n": 3, "sparsity": 1, "blocks": 2, "support": 2}
    | {"steps": 12, "batch": 32, "examples": 300, "restart": 0},
    conclude=judge_support,
    falsified=contest.WORSE | {f"LISTA-VM-SS at {loss}": end_at(loss) for loss in (0.03, 0.15)},
)
def figure_1b(
    generator: torch.Generator,
    *,
    support: int,
    steps: int,
    batch: int,
    examples: int,
    restart: int,
    machines: Mapping[str, Mapping[str, str]] | None = None,
    epochs: int | None = None,
    **given: int,
) -> dict[str, Any]:
    sizes, errors, training, seeds = Sizes(**given), {}, "", {}
    for ending, within in (("", None), (RESTRICTED, support)):
        tuning, problem = (
            sizes.distribution(support=within).sample(examples, generator=generator)
            for _ in range(2)
        )
        named = None if machines is None else machines[ending]
        taking_part = contest.load_transformers(
            sizes, restart, machines=named, epochs=epochs, support=within
        )
        if not taking_part:
            taking_part = {"Small TF": _short(sizes, restart, steps, within)}
        training = contest.describe_training(taking_part["Small TF"])
        seeds |= contest.list_seeds(taking_part, ending)
        iteration = sizes.train("lista-vm-learned", restart, steps, batch, support=within)
        found = {
            **contest.last_errors(taking_part, problem),
            "LISTA-VM": contest.solver_errors(iteration, problem),
            **contest.classical_errors(tuning, problem, sizes.blocks),
        }
        if within:
            select = {"support": within, "select": True}
            chosen = sizes.train("lista-vm-learned", restart, steps, batch, **select)
            found["LISTA-VM-SS"] = contest.solver_errors(chosen, problem)
        errors |= {f"{name}{ending}": values for name, values in found.items()}
    return {
        "losses": contest.mean_losses(errors),
        "examples": examples,
        "pairs": contest.compare_pairs(errors, select_pairs(errors)),
        "training": training,
        "seeds": seeds,
        "printed": sizes.is_printed,
        "trained": sizes.is_printed and (epochs or 0) >= contest.EPOCHS,
    }


def _short(sizes: Sizes, restart: int, steps: int, support: int | None) -> TrainedRun:
    """Train Small TF from random weights for `steps` steps, with the recorded ones' settings."""
    given = {"support": support, "learning_rate": 5e-3, "warmup": steps // 10, "scale": 0.1}
    given |= {"sharing": steps, "supervision": "weights", "emphasis": 2.0}
    return sizes.train("small-transformer", restart, steps, 64, **given)
