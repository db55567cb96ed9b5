"""Figures 3 and 4: three trained layers with B_i: loss to 0, A_i to Σ⁻¹, B_i to I, up to scale.

Printed    d = 5, n = 10, layers of form (13), L-BFGS, 5 runs with a Σ each. Figure 3: Dist(B_0, I)
           and Dist(B_1, I) "appear to be decreasing to 0", Dist(Σ^½A_iΣ^½, I) too; the loss
           "appears to be converging to 0". Figure 4: "the matrices A_0, A_1, A_2 have increasing
           magnitude, in that order": a tiny gradient step with X_0, a large one with X_2;
           |a_k b_k| with a minus sign in the update of X_k, so that a_k b_k < 0; "similar trends
           are not as pronounced" without B_i (Figure 2)
Missing    the number of prompts of the training batch, the number of iterations, the scale of the
           start ("suitably scaled"), and the prompts on which the loss is measured
Tested     as printed (`trained`), on a batch of 20,000 prompts as in the source's public code.
           Smaller batches cannot decide it. The loss is measured on that batch and on a fresh one.
           Figure 4: the ratios ‖A_1‖/‖A_0‖ and ‖A_2‖/‖A_1‖ of Σ^½A_iΣ^½ as they are drawn, a_k b_k,
           and ‖A_2‖/‖A_0‖ compared with the largest ratio of two |a_i| at the best point without
           B_i, n = 20; each over all runs
Ours       0 is at most a twentieth, of Dist and of the loss of no layer. Dist above half of its
           start refutes "to 0"; between the two it is undecided. The loss is decided where both
           batches agree. Both rules were set after a first run at `full`, in which the A_i ended at
           Dist 0.06 to 0.11, the loss on fresh prompts at 0.5 to 3·10⁴ and that on the batch fell
Result     Figure 3 is undecided: six runs have stopped moving (Dist changes by less than 4·10⁻⁴ in
           the last 400 iterations), and none has all A_i below 0.064 at any iteration. A batch has
           a minimum of its own, so this depends on the number of prompts
Beyond     the loss has a heavy tail: three layers that move x predict by a polynomial of degree 13
           in the Gram matrix, which is free where the batch has no prompts. The six runs at `full`
           end at 0.005 on their batch, and at 0.53, 1.7, 2.3, 4.6, 1.9·10³ and 3·10⁴ on fresh
           prompts, where no layer has 1 (tables). Not every minimum has the order of Figure 4: of
           four trainings inside S three do not. Those minima are worse: they end at 0.0095 to 0.014
           on as many prompts, two to three times the loss of the six runs, which all have the order
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import torch

from innerloop.claims.ahn2023 import trained
from innerloop.claims.ahn2023.critical import least_family_loss
from innerloop.claims.ahn2023.gdpp import measure_training
from innerloop.claims.ahn2023.trained import LAYERS, MOVING_N, PLAIN_N, PROMPTS, Cell, D
from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Check, Evidence, Part
from innerloop.claims.intervals import check_within, cover_values
from innerloop.claims.readings import decide_together
from innerloop.claims.trials import Inequality
from innerloop.theory.layers import restricted_loss

STARTS = 4
"""Number of trainings inside S whose order is compared with that of Figure 4."""
SETTING: dict[str, Any] = {
    "kind": "figure",
    "hypotheses": {"$d = 5$, $n = 10$, $Σ = UᵀD²U$, $D = (1, 1, ½, ¼, 1)$": "Section 6.1"},
    "quick": trained.make_cells(2, batch=4, steps=26, rotated=False),
    "full": trained.make_cells(3, batch=PROMPTS, steps=200),
    "paper": trained.make_cells(5, batch=PROMPTS, steps=200),
    "tiny": trained.make_cells(1, batch=2, steps=20, rotated=False),
}
"""Both figures have the same setting; each has its own runs."""


def judge_figure_3(cells: list[Cell]) -> Evidence:
    runs = f"last values of all matrices, {len(cells)} runs"
    distances = [
        trained.check_falling(statement, trained.list_curves(cells, letter, whitened), runs)
        for statement, letter, whitened in (
            ("$Dist(B_0, I)$ and $Dist(B_1, I)$ decrease to 0", "B", False),
            ("$Dist(Σ^½ A_i Σ^½, I)$ decreases to 0", "A", True),
        )
    ]
    return Evidence(
        parts=[
            *(
                Part(printed=trained.require_batch(check, cells), trainings=len(cells))
                for check in distances
            ),
            _judge_loss(cells),
        ],
        beyond=[_check_tail(cells)],
        table=[_tabulate_run(k, cell) for k, cell in enumerate(cells)],
        figures=[
            trained.draw_loss_curves(cells, "Three layers that move x: the loss in training"),
            trained.draw_distance_curves(
                cells, "Three layers that move x: A_i goes to the inverse covariance, B_i to I"
            ),
        ],
    )


def _judge_loss(cells: list[Cell]) -> Part:
    """Judge the loss on the training batch and on a fresh one, which decide together."""
    batch = min(cell["batch"] for cell in cells)
    readings = {
        "on a fresh batch": trained.check_test_loss(cells, "the loss converges to 0"),
        "on the batch that L-BFGS minimises": trained.check_vanishing(
            "the loss on the batch that it trains on converges to 0",
            [cell["losses"][-1] for cell in cells],
            f"loss on {batch} prompts over that of no layer, {len(cells)} runs",
        ),
    }
    loss = replace(decide_together("the loss converges to 0", readings), ours=trained.TWENTIETH)
    if batch < PROMPTS:
        note = f"the batch has {batch} prompts and their images; {PROMPTS} prompts decide"
        loss = replace(loss, passed=None, summary=f"{loss.summary}; {note}", counterexample="")
    return Part(
        printed=loss,
        reading="the source does not print on which prompts; its public code, at $n = 20$, plots "
        "the loss on a fresh batch. Both batches decide together",
        other_readings=readings,
        trainings=len(cells),
    )


def _compute_exact(cell: Cell) -> float:
    """Compute the exact loss (5) at the learned multiples, relative to the loss of no layer."""
    a, b = trained.read_multiples(cell).split([LAYERS, LAYERS - 1])
    return float(restricted_loss(a, b, D, MOVING_N)) / D


def _check_tail(cells: list[Cell]) -> Check:
    trial = Inequality(
        "the expectation (5) at the learned $a_i$, $b_i$ is above that of no layer",
        larger_first=True,
    )
    for run, cell in enumerate(cells):
        note = f"{cell['losses'][-1]:.2g} on its batch"
        trial.add(1.0, _compute_exact(cell), Case(run=run, note=note))
    return trial.check()


def _tabulate_run(k: int, cell: Cell) -> dict[str, Any]:
    multiples = [f"{value:.3f}" for value in trained.read_multiples(cell).tolist()]
    return {
        "run": k,
        "a": ", ".join(multiples[:LAYERS]),
        "b": ", ".join(multiples[LAYERS:]),
        "prompts in the batch": cell["batch"],
        "loss on the batch / d": cell["losses"][-1],
        f"loss on {PROMPTS} fresh prompts / d": cell["test"],
        "exact loss / d": _compute_exact(cell),
    }


@claim(
    "ahn2023.figure-3",
    "Three layers trained with matrices $B_i$ that move the covariates: the loss goes to "
    "0, every $A_i$ to a multiple of the inverse covariance, every $B_i$ to a multiple of "
    "the identity.",
    where="Section 6.1, Figure 3",
    missing="The source does not print how many prompts the training batch has, how many "
    "iterations L-BFGS takes, how the start is scaled, or on which prompts the loss is measured.",
    **SETTING,
    conclude=judge_figure_3,
    falsified={
        "A_i that end far from multiples of Σ⁻¹": trained.end_curves_at("A", 0.9, True),
        "B_i that end far from multiples of I": trained.end_curves_at("B", 0.9, False),
        "at the source's batch, losses that stay": trained.change_cells(
            lambda cell: cell.update(batch=PROMPTS, test=0.8, losses=[0.8, 0.8])
        ),
    },
)
def figure_3(generator: torch.Generator, **settings: Any) -> Cell:
    return trained.train_cell(generator, n=MOVING_N, moving=True, **settings)


def judge_figure_4(cells: list[Cell]) -> Evidence:
    sizes = [torch.linalg.matrix_norm(trained.read_matrices(cell)[:LAYERS]) for cell in cells]
    steps = [ratio for size in sizes for ratio in (size[1:] / size[:-1]).tolist()]
    products = []
    for cell in cells:
        a, b = trained.read_multiples(cell).split([LAYERS, LAYERS - 1])
        products += (a[:-1] * b).tolist()
    plain = least_family_loss(D, PLAIN_N, LAYERS, False)[0].abs()
    without = float(plain.max() / plain.min())
    runs = f"{len(cells)} runs"
    checks = [
        check_within(
            "$‖A_0‖ < ‖A_1‖ < ‖A_2‖$, of $Σ^½A_iΣ^½$ as they are drawn",
            cover_values(steps),
            least=1.0,
            what=f"$‖A_1‖/‖A_0‖$ and $‖A_2‖/‖A_1‖$, {runs}",
        ),
        check_within(
            "$a_k b_k < 0$: $x$ shrinks where it is large",
            cover_values(products),
            most=0.0,
            what=f"$a_0 b_0$ and $a_1 b_1$, {runs}",
        ),
        check_within(
            "without $B_i$, sizes differ less: $‖A_2‖/‖A_0‖$ with $B_i$ is above the "
            "largest ratio there",
            cover_values([float(size[2] / size[0]) for size in sizes]),
            least=without,
            what=f"$‖A_2‖/‖A_0‖$ with $B_i$, {runs}",
        ),
    ]
    return Evidence(
        parts=[Part(printed=check, trainings=len(cells)) for check in checks],
        beyond=[check_other_orders()],
        table=[_tabulate_run(k, cell) for k, cell in enumerate(cells)],
        numbers={"largest over least |a_i| without B_i, at the best point": without},
        figures=[
            trained.draw_matrices(cells[0], "Three layers that move x: what A_i and B_i become")
        ],
    )


@cache
def check_other_orders() -> Check:
    """Check whether every training inside S, where A_i and B_i are multiples, has the order.

    The starts are fixed: this is a finding about the loss and does not depend on the judged runs.
    """
    statement = "trained inside $S$, from every start: $|a_0| < |a_1| < |a_2|$"
    trial = Inequality(statement, larger_first=True)
    for seed in range(STARTS):
        scales, loss = measure_training(torch.Generator().manual_seed(seed))
        a, b = ([round(x, 3) for x in part.tolist()] for part in scales.split([LAYERS, LAYERS - 1]))
        sizes = scales[:LAYERS].abs()
        least = float((sizes[1:] / sizes[:-1]).min())
        case = Case(seed=seed, note=f"$a = {a}$, $b = {b}$, loss {loss:.2g} on its batch")
        trial.add(1.0, least, case, working=("", "least ratio of successive $|a_i|$"))
    return trial.check()


@claim(
    "ahn2023.figure-4",
    "With matrices $B_i$ that move the covariates, the learned $A_i$ grow from layer to "
    "layer, and more so than without them.",
    where="Section 6.1, Figure 4",
    **SETTING,
    conclude=judge_figure_4,
    falsified={
        "A_i that shrink from layer to layer": trained.change_matrices(
            lambda M: torch.cat([M[:LAYERS].flip(0), M[LAYERS:]])
        ),
        "B_i of the other sign": trained.change_matrices(
            lambda M: torch.cat([M[:LAYERS], -M[LAYERS:]])
        ),
    },
)
def figure_4(generator: torch.Generator, **settings: Any) -> Cell:
    return trained.train_cell(generator, n=MOVING_N, moving=True, **settings)
