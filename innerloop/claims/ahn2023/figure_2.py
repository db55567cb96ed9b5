"""Figure 2: the matrices that three trained layers learn are the stationary point of Theorem 4.

Printed    "Visualization of each Σ^½A_iΣ^½ at the end of training. Note that the learned weights
           match the stationary point discussed in Theorem 4": multiples of the identity
Tested     the runs of Figure 1: every entry of the matrices, and the multiples a_i against the best
           point of Theorem 4, exact, in some order. A batch of 20,000 prompts decides the first
           part: smaller ones have their images, and so the symmetry
Ours       entries to within a twentieth of a_i; the multiples to within a tenth of the best point's
Beyond     layers in proportion can be swapped (Lemma 8): which of the six orders a run ends in is
           its start's choice (table)
Note       that sizes grow less from layer to layer than with B_i is said in 6.1: see figure-4
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from innerloop.claims.ahn2023 import trained
from innerloop.claims.ahn2023.critical import least_family_loss
from innerloop.claims.ahn2023.figure_1 import N
from innerloop.claims.ahn2023.trained import LAYERS, SMALL, Cell, D
from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.intervals import check_around, check_within, cover_values


def judge_figure_2(found: list[Cell]) -> Evidence:
    eye, exact = torch.eye(D, dtype=torch.float64), least_family_loss(D, N, LAYERS, False)[0]
    far, ratios = [], []
    for cell in found:
        a = trained.read_multiples(cell)
        far.append(float((trained.read_matrices(cell) / a[:, None, None] - eye).abs().max()))
        ratios += (a.sort().values / exact.sort().values).tolist()
    orders = Counter(_name_order(cell) for cell in found)
    identity = check_within(
        "$Σ^½ A_i Σ^½$ is a multiple $a_i I$ of the identity, entry by entry",
        cover_values(far),
        most=SMALL,
        what=f"largest difference of an entry over $a_i$, {len(found)} runs",
        ours="a twentieth",
    )
    stationary = check_around(
        "the $a_i$ are those of a stationary point of Theorem 4, the best one, in some order",
        ratios,
        1.0,
        within=0.1,
        what=f"learned $a_i$ over exact $a_i$, {len(found)} runs",
        ours="a tenth",
    )
    told = ", ".join(f"{a:.3f}" for a in sorted(exact.tolist()))
    return Evidence(
        parts=[
            Part(printed=trained.require_batch(identity, found), trainings=len(found)),
            Part(printed=stationary, trainings=len(found)),
        ],
        numbers={"a_i of the best point, exact": told},
        table=[{"order of size": name, "runs": times} for name, times in sorted(orders.items())],
        figures=[trained.draw_matrices(found[0], "Three layers: what A_i become")],
    )


def _name_order(cell: Cell) -> str:
    return " < ".join(f"A_{i}" for i in trained.read_multiples(cell).abs().argsort().tolist())


def _scale_entries(matrix: int, row: int, factor: float) -> Any:
    """Make matrices of which one row is a multiple of what was learned; row −1 is the last."""

    def change(cell: Cell) -> None:
        line = cell["whitened"][matrix][row]
        cell["whitened"][matrix][row] = [factor * entry for entry in line]

    return trained.change_cells(change)


def _scale_matrices(factor: float) -> Any:
    def change(cell: Cell) -> None:
        cell["whitened"] = (factor * trained.read_matrices(cell)).tolist()

    return trained.change_cells(change)


@claim(
    "ahn2023.figure-2",
    "The matrices that three trained layers learn are, in whitened coordinates, multiples of the "
    "identity: a stationary point of Theorem 4.",
    where="Section 5.3, Figure 2",
    kind="figure",
    hypotheses={"$d = 5$, $n = 20$, $Σ = UᵀD²U$, $D = (1, 1, ½, ¼, 1)$": "Section 5.3"},
    quick=trained.make_cells(3, batch=100, steps=8),
    full=trained.make_cells(5, batch=trained.PROMPTS, steps=20),
    tiny=trained.make_cells(1, batch=100, steps=6),
    conclude=judge_figure_2,
    falsified={
        "a multiple of diag(1, …, 1, 1.2)": _scale_entries(0, -1, 1.2),
        "a_i a fifth larger": _scale_matrices(1.2),
        "a_i a fifth smaller": _scale_matrices(0.8),
    },
)
def figure_2(generator: torch.Generator, **settings: Any) -> Cell:
    return trained.train_cell(generator, n=N, moving=False, **settings)
