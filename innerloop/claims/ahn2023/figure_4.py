"""Figure 4: with B_i the learned A_i grow from layer to layer.

Printed    the runs of Figure 3: "the matrices A_0, A_1, A_2 have increasing magnitude, in that
           order": a tiny gradient step with X_0, a large one with X_2; X_{k+1} ≈ X_k(I − |a_k b_k|
           M X_kᵀX_k), so that a_k b_k < 0; "similar trends are not as pronounced" without B_i
Tested     as printed (`trained`): ‖A_0‖ < ‖A_1‖ < ‖A_2‖ in every run, a_k b_k, and |a_2| / |a_0|
           next to the largest ratio of two |a_i| that training without B_i leaves (Figure 2)
Correction some runs settle at a minimum with ‖A_1‖ > ‖A_2‖; there too A_0 is by far the smallest
Beyond     the best point of Theorem 5 on the exact loss has the same order
"""

from __future__ import annotations

import torch

from innerloop.claims.ahn2023.critical import least_family_loss
from innerloop.claims.ahn2023.trained import D, Run, draw_matrices, train_run
from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Evidence, Figure, Part, Value
from innerloop.claims.trials import Inequality

N = 10


@claim(
    "ahn2023.figure-4",
    "With matrices B_i that move the covariates, the learned A_i grow from layer to layer, and "
    "more so than without them.",
    where="Section 6.1, Figure 4",
    kind="figure",
    quick={"runs": 3, "grams": 12, "images": True, "iterations": 250, "white": True},
    full={"runs": 5, "grams": 50, "images": True, "iterations": 3000, "white": True},
    paper={"runs": 5, "grams": 20_000, "images": False, "iterations": 4000, "white": False},
    tiny={
        "runs": 1,
        "grams": 12,
        "images": True,
        "iterations": 30,
        "white": True,
        "near": 0.003,
    },
    falsified={
        "A_i shrink": {"order": -1.0},
        "B_i of the sign of A_i": {"turn": -1.0},
        "without B_i as much": {"least": 1e3},
    },
)
def figure_4(
    generator: torch.Generator,
    *,
    runs: int,
    grams: int,
    images: bool,
    iterations: int,
    white: bool,
    near: float = 0.0,
    order: float = 1.0,
    turn: float = 1.0,
    least: float = 1.0,
) -> Evidence:
    found = [
        train_run(
            generator,
            n=N,
            moving=True,
            grams=grams,
            images=images,
            iterations=iterations,
            white=white,
            near=near,
        )
        for _ in range(runs)
    ]
    still = least_family_loss(D, N, 3, False)[0]
    exact = least_family_loss(D, N, 3, True)[0]
    plain = float(still.abs().max() / still.abs().min())
    figures = [
        draw_matrices(
            found[0],
            "Three layers that move x: what A_i and B_i become",
            f"Figure 4: one of {runs} runs.",
        ),
        _sizes(found, exact),
    ]
    told = [f"{value:.3f}" for value in exact.tolist()]
    numbers: dict[str, Value] = {
        "exact best point: a": ", ".join(told[:3]),
        "exact best point: b": ", ".join(told[3:]),
        "without B_i, largest over least |a_i| at the best point": plain,
        "with B_i, |a_2| / |a_0| at the best point": float((exact[2] / exact[0]).abs()),
        "learned, least |a_2| / |a_0|": min(_growth(run) for run in found),
    }
    parts = [_grow(found, order), _signs(found, turn), _contrast(found, least * plain)]
    return Evidence(parts=parts, numbers=numbers, figures=figures)


def _growth(run: Run) -> float:
    return float((run.multiples[2] / run.multiples[0]).abs())


def _grow(runs: list[Run], order: float) -> Part:
    trial = Inequality("‖A_0‖ < ‖A_1‖ < ‖A_2‖, as Σ^½A_iΣ^½ are drawn")
    smallest = Inequality("‖A_0‖ is the smallest: the first step is tiny, the others in any order")
    for k, run in enumerate(runs):
        sizes = torch.linalg.matrix_norm(run.final_whitened[:3]) ** order
        for i in range(2):
            about = f"run {k}, ‖A_{i}‖ against ‖A_{i + 1}‖"
            trial.add(sizes[i], sizes[i + 1], size=(k, i), about=about)
            about = f"run {k}, ‖A_0‖ against ‖A_{i + 1}‖"
            smallest.add(sizes[0], sizes[i + 1], size=(k, i), about=about)
    return Part(printed=trial.check(), corrected=smallest.check(), matters="result")


def _signs(runs: list[Run], turn: float) -> Part:
    trial = Inequality("a_k b_k < 0: x shrinks where it is large")
    for k, run in enumerate(runs):
        for i in range(2):
            product = turn * run.multiples[i] * run.multiples[3 + i]
            trial.add(product, 0.0, size=(k, i), about=f"run {k}, a_{i} b_{i}")
    return Part(printed=trial.check(), matters="step")


def _contrast(runs: list[Run], plain: float) -> Part:
    told = "|a_2| / |a_0| is above the largest ratio of two |a_i| without B_i"
    trial = Inequality(told)
    for k, run in enumerate(runs):
        trial.add(plain, _growth(run), size=(k,), about=f"run {k}, without and with B_i")
    return Part(printed=trial.check(), matters="step")


def _sizes(runs: list[Run], exact: torch.Tensor) -> Figure:
    rows = []
    for i in range(3):
        found = [float(run.multiples[i].abs()) for run in runs]
        told = {"layer": i, "size": sum(found) / len(found), "of": "learned, mean and range"}
        rows.append({**told, "low": min(found), "high": max(found)})
        best = float(exact[i].abs())
        point = {"layer": i, "size": best, "of": "best point of Theorem 5, exact"}
        rows.append({**point, "low": best, "high": best})
    return Figure(
        title="Three layers that move x: steps grow from layer to layer",
        rows=rows,
        x=Axis(field="layer", title="layer i"),
        y=Axis(field="size", title="|a_i|, of Σ^½ A_i Σ^½ ≈ a_i I", scale="log"),
        colour=Axis(field="of", title="weights", scale="category"),
        band=("low", "high"),
        caption=f"{len(runs)} runs.",
    )
