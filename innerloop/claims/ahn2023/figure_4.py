"""Figure 4: with B_i the learned A_i grow from layer to layer.

Printed    the runs of Figure 3: "the matrices A_0, A_1, A_2 have increasing magnitude, in that
           order": a tiny gradient step with X_0, a large one with X_2; |a_k b_k| with a minus sign
           in the update of X_k, so that a_k b_k < 0; "similar trends are not as pronounced" without
           B_i (Figure 2)
Tested     as printed (`trained`): the ratios of magnitude ‖A_1‖/‖A_0‖ and ‖A_2‖/‖A_1‖ of
           Σ^½A_iΣ^½ as they are drawn, a_k b_k, and ‖A_2‖/‖A_0‖ next to the largest ratio of two
           |a_i| at the best point without B_i, n = 20; each over all runs
Beyond     not every minimum has this order: from random starts inside S some runs end at
           ‖A_1‖ > ‖A_2‖, or at the largest A_0 (gdpp has such runs)
"""

from __future__ import annotations

from typing import Any

import torch

from innerloop.claims.ahn2023 import trained
from innerloop.claims.ahn2023.critical import least_family_loss
from innerloop.claims.ahn2023.figure_1 import N as WITHOUT_N
from innerloop.claims.ahn2023.trained import LAYERS, Cell, D
from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.intervals import check_within, cover_values


def judge_figure_4(found: list[Cell]) -> Evidence:
    sizes = [torch.linalg.matrix_norm(trained.read_matrices(cell)[:LAYERS]) for cell in found]
    steps = [ratio for size in sizes for ratio in (size[1:] / size[:-1]).tolist()]
    products = []
    for cell in found:
        a, b = trained.read_multiples(cell).split([LAYERS, LAYERS - 1])
        products += (a[:-1] * b).tolist()
    plain = least_family_loss(D, WITHOUT_N, LAYERS, False)[0].abs()
    without = float(plain.max() / plain.min())
    runs = f"{len(found)} runs"
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
            (
                "without $B_i$, sizes differ less: $‖A_2‖/‖A_0‖$ with $B_i$ is above the "
                "largest ratio there"
            ),
            cover_values([float(size[2] / size[0]) for size in sizes]),
            least=without,
            what=f"$‖A_2‖/‖A_0‖$ with $B_i$, {runs}",
        ),
    ]
    return Evidence(
        parts=[Part(printed=check, trainings=len(found)) for check in checks],
        numbers={"largest over least |a_i| without B_i, at the best point": without},
        figures=[
            trained.draw_matrices(found[0], "Three layers that move x: what A_i and B_i become")
        ],
    )


def change_matrices(factors: tuple[float, float, float, float, float]) -> Any:
    """Make data whose matrices A_0, A_1, A_2, B_0, B_1 are multiples of what was learned."""
    scale = torch.tensor(factors, dtype=torch.float64)[:, None, None]

    def change(cell: Cell) -> None:
        cell["whitened"] = (scale * trained.read_matrices(cell)).tolist()

    return trained.change_cells(change)


def reverse_layers(cell: Cell) -> None:
    cell["whitened"][:LAYERS] = cell["whitened"][:LAYERS][::-1]


@claim(
    "ahn2023.figure-4",
    "With matrices $B_i$ that move the covariates, the learned $A_i$ grow from layer to "
    "layer, and more so than without them.",
    where="Section 6.1, Figure 4",
    **trained.MOVING,
    conclude=judge_figure_4,
    falsified={
        "A_i that shrink from layer to layer": trained.change_cells(reverse_layers),
        "B_i of the other sign": change_matrices((1, 1, 1, -1, -1)),
    },
)
def figure_4(generator: torch.Generator, **settings: Any) -> Cell:
    return trained.train_moving(generator, **settings)
