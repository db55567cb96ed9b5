"""Figure 2: the matrices that three trained layers learn are the stationary point of Theorem 4.

Printed    "Visualization of each Σ^½A_iΣ^½ at the end of training. Note that the learned weights
           match the stationary point discussed in Theorem 4": multiples of the identity; section
           6.1: that the matrices grow from layer to layer is "not as pronounced" as with B_i
Tested     the runs of Figure 1: entries off the diagonal, the spread on it, and the multiples a_i
           against the best point of Theorem 4 on the same batch, entry by entry, in some order
Beyond     layers in proportion can be swapped (Lemma 8): which of the six orders a run ends in is
           its start's choice, and a trend in the layers is no property of the minimum
"""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

from innerloop.claims.ahn2023.critical import least_family_loss
from innerloop.claims.ahn2023.trained import D, Run, draw_matrices, train_run
from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part, Value
from innerloop.claims.trials import Equality, Inequality

N = 20


@claim(
    "ahn2023.figure-2",
    "The matrices that three trained layers learn are, in whitened coordinates, multiples of the "
    "identity: a stationary point of Theorem 4.",
    where="Section 5.3, Figure 2",
    kind="figure",
    quick={"runs": 6, "grams": 25, "images": True, "iterations": 200, "white": True},
    full={"runs": 30, "grams": 100, "images": True, "iterations": 200, "white": True},
    paper={"runs": 5, "grams": 20_000, "images": False, "iterations": 2000, "white": False},
    tiny={"runs": 2, "grams": 2, "images": True, "iterations": 60, "white": True},
    falsified={
        "multiples of diag(1, …, 1, 2)": {"shape": torch.tensor([1.0, 1, 1, 1, 2]).double()},
        "a_i a tenth larger": {"factor": 1.1},
        "A_i grow threefold": {"growth": 3.0},
    },
)
def figure_2(
    generator: torch.Generator,
    *,
    runs: int,
    grams: int,
    images: bool,
    iterations: int,
    white: bool,
    shape: Tensor | None = None,
    factor: float = 1.0,
    growth: float = 1.0,
) -> Evidence:
    found = [
        train_run(
            generator,
            n=N,
            moving=False,
            grams=grams,
            images=images,
            iterations=iterations,
            white=white,
        )
        for _ in range(runs)
    ]
    orders = Counter(_order(run) for run in found)
    exact = least_family_loss(D, N, 3, False)[0]
    rows: list[dict[str, Value]] = [
        {"order of size, smallest first": name, "runs": count}
        for name, count in sorted(orders.items())
    ]
    told = ", ".join(f"{a:.3f}" for a in sorted(exact.tolist()))
    numbers: dict[str, Value] = {
        "a_i of the best point, exact": told,
        "a_i learned, mean over runs": ", ".join(f"{a:.3f}" for a in _mean(found)),
        "largest entry off the diagonal, of the mean on it": max(
            _distance_to_multiple(run) for run in found
        ),
    }
    figure = draw_matrices(
        found[0],
        "Three layers: what A_i become",
        f"Figure 2: one of {runs} runs. At the best point of Theorem 4 the multiples are {told}, "
        "in any order.",
    )
    parts = [_identity(found, shape), _stationary(found, factor), _trend(found, growth)]
    return Evidence(parts=parts, numbers=numbers, table=rows, figures=[figure])


def _distance_to_multiple(run: Run) -> float:
    mean = run.multiples[:, None, None]
    return float((run.final_whitened / mean - torch.eye(D, dtype=torch.float64)).abs().max())


def _mean(runs: list[Run]) -> list[float]:
    return torch.stack([run.multiples.sort().values for run in runs]).mean(0).tolist()


def _order(run: Run) -> str:
    sizes = run.multiples.abs()
    return " < ".join(f"A_{i}" for i in sizes.argsort().tolist())


def _identity(runs: list[Run], shape: Tensor | None) -> Part:
    trial = Inequality("every entry of Σ^½A_iΣ^½ is within 5 % of that of a_i I")
    wanted = torch.diag(torch.ones(D, dtype=torch.float64) if shape is None else shape)
    for k, run in enumerate(runs):
        for i in range(3):
            off = (run.final_whitened[i] / run.multiples[i] - wanted).abs().max()
            trial.add(off, 0.05, size=(k, i), about=f"run {k}, A_{i}, the largest difference")
    return Part(printed=trial.check(), matters="result")


def _stationary(runs: list[Run], factor: float) -> Part:
    """Compare with the theorem's best point on the same batch, found among its matrices only."""
    trial = Equality("the a_i are those of a stationary point of Theorem 4, in some order", 0.01)
    start = least_family_loss(D, N, 3, False)[0]
    for k, run in enumerate(runs):
        known = run.best_inside(start)[0].sort().values
        learned = factor * run.multiples.sort().values
        trial.add(learned, known, size=(k,), about=f"run {k}, a_i sorted")
    return Part(printed=trial.check(), matters="result")


def _trend(runs: list[Run], growth: float) -> Part:
    told = "no trend as pronounced as with B_i: the largest |a_i| is below 10 times the least"
    trial = Inequality(told)
    for k, run in enumerate(runs):
        sizes = run.multiples.abs()
        ratio = growth * sizes.max() / sizes.min()
        trial.add(ratio, 10.0, size=(k,), about=f"run {k}, largest over least |a_i|")
    return Part(printed=trial.check(), matters="step")
