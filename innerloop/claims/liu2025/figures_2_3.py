"""Figures 2 and 3: losses of LISTA, LISTA-CP and LISTA-VM trained on many X.

Printed    K = 12, fresh X throughout: the loss of LISTA and LISTA-CP stays around 3 and shows no
           trend (Figure 2); that of LISTA-VM ends around 0.68 (Figure 3). The loss of β̂ = 0 is
           E ‖β‖² = S = 3
Missing    the weights at the start, the learning rate and the batch. The text says "gradient
           descent", 340 epochs of 50,000 instances, 100 X in each
Tested     each method is trained here with Adam on 2.5 million instances at `full`, 17 million at
           `paper`, with a fresh X for every instance. The history is on held-out examples.
           LISTA-VM is trained in three ways: from ISTA's steps, of which LISTA is the learned form
           (Section 4.2), with the learning rates 0.02 and 0.001; and from Chebyshev's steps with
           some X stretched
Ours       "around" is within a tenth, above and below; "no trend" is not a tenth lower at the end
           than after a quarter of the training, set after the numbers were seen; "significantly
           more promising" than 3 is at most half the loss of β̂ = 0. The printed 0.68 is decided
           only if all ways of training LISTA-VM end on the same side of it
Result     From ISTA's steps LISTA-VM ends at 0.48 with the learning rate 0.02 and at 0.95 with
           0.001, on both sides of 0.68. An independent program (Adam, 3 million instances) ended at
           0.678, 0.691 and 0.680 for three seeds. A longer training does not decide the number,
           because the start and the learning rate do
Beyond     all runs are evaluated on the same 4,096 held-out prompts, which contain no rare prompts
           of huge error. On 409,600 fresh prompts (results/benchmarks/sparse_tails.json) one
           LISTA-VM from Chebyshev's steps has the loss 0.484, and no error above 10². If no X is
           stretched in training, its median error is lower, 0.098 for 0.134, but 10 prompts have
           errors above 10⁴, and the mean is 0.77 ± 0.08
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.figures import Figure, draw_lines
from innerloop.claims.intervals import Interval, check_around, check_within, cover_values
from innerloop.claims.liu2025 import contest
from innerloop.claims.liu2025.contest import PRINTED_LOSS, SETUP, Sizes

POINTS = 20
SMALL, PAPER = {**contest.SMALL, "batch": 128}, {**contest.PAPER, "batch": 1024}
QUICK = [{**SMALL, "steps": 160, "restart": k} for k in range(2)]
TINY = [{"d": 4, "n": 2, "sparsity": 1, "blocks": 2, "batch": 32, "steps": 40, "restart": 0}]
FULL = [{**PAPER, "steps": 2400, "restart": k} for k in range(3)]
Cell = dict[str, Any]
"""Curves by method, the sparsity S, and whether the sizes are the paper's."""


def _train_curves(recipes: Mapping[str, tuple[str, Cell]], settings: Cell) -> Cell:
    """Held-out loss of each recipe during training."""
    options = dict(settings)
    sizes = Sizes(*(options.pop(key) for key in ("d", "n", "sparsity", "blocks")))
    restart, steps = options.pop("restart"), options.pop("steps")
    every = max(1, steps // POINTS)
    curves = {}
    for name, (recipe, own) in recipes.items():
        run = sizes.train(recipe, restart, steps, evaluate_every=every, **options, **own)
        curves[name] = [[row["step"], row["loss"]] for row in run.history]
    return {"curves": curves, "sparsity": sizes.sparsity, "printed": sizes.is_printed}


def _draw_figure(title: str, found: list[Cell]) -> Figure:
    rows = [
        {"step": step, "loss": loss, "method": f"{name}, restart {k}"}
        for k, cell in enumerate(found)
        for name, curve in cell["curves"].items()
        for step, loss in curve
    ]
    x, y = "step: step of training", "loss: E ‖β̂ − β‖² on X never seen"
    zero = {"β̂ = 0": float(found[0]["sparsity"])}
    return draw_lines(title, rows, x, y, by="method", log="y", rules=zero)


def _list_last(found: list[Cell], name: str) -> list[float]:
    return [cell["curves"][name][-1][1] for cell in found]


def _scale_curves(factor: float, **more: Any) -> Callable[[list[Cell]], list[Cell]]:
    """Make data in which every curve ends at a multiple of the loss of β̂ = 0."""

    def change(cells: list[Cell]) -> list[Cell]:
        for cell in cells:
            cell.update(more)
            for curve in cell["curves"].values():
                curve[-1][1] = factor * cell["sparsity"]
        return cells

    return change


def judge_figure_2(found: list[Cell]) -> Evidence:
    level = found[0]["sparsity"]
    parts = []
    for name in found[0]["curves"]:
        statement = f"{name}, trained on many $X$, stays around {level}, the loss of $β̂ = 0$"
        lasts, around = _list_last(found, name), {"within": level / 10, "ours": "a tenth"}
        check = check_around(statement, lasts, level, what=f"{len(lasts)} restarts", **around)
        parts.append(Part(printed=check, trainings=len(found)))
        curves = [cell["curves"][name] for cell in found]
        trend = check_within(
            f"{name} shows no trend of improvement",
            cover_values([curve[-1][1] / curve[len(curve) // 4][1] for curve in curves]),
            least=0.9,
            what="last loss over that after a quarter of the training",
            ours="a tenth lower; set after the numbers were seen",
        )
        parts.append(Part(printed=trend, trainings=len(found)))
    return Evidence(
        parts=parts, figures=[_draw_figure("Trained on many X: LISTA, LISTA-CP", found)]
    )


@claim(
    "liu2025.figure-2",
    "Trained on many $X$, LISTA and LISTA-CP remain around a loss of 3, that of $β̂ = 0$, with no "
    "observable trend of improvement.",
    where="Appendix F, Figure 2",
    kind="figure",
    hypotheses=SETUP,
    quick=QUICK,
    full=FULL,
    paper=[{**PAPER, "steps": 17_000, "restart": k} for k in range(3)],
    tiny=TINY,
    conclude=judge_figure_2,
    falsified={
        "curves that fall to a third": _scale_curves(1 / 3),
        "curves that rise by a half": _scale_curves(1.5),
    },
)
def figure_2(generator: torch.Generator, **settings: Any) -> Cell:
    return _train_curves({"LISTA": ("lista", {}), "LISTA-CP": ("lista-cp", {})}, settings)


START = "from ISTA's steps"
VARIANTS: Mapping[str, Cell] = {
    f"{START}, learning rate 0.02": {"start": "ista", "stretch": 1.0},
    f"{START}, learning rate 0.001": {"start": "ista", "stretch": 1.0, "learning_rate": 1e-3},
    "from Chebyshev's steps, X stretched": {},
}
"""Ways to train LISTA-VM that the paper's words allow: options of its recipe."""


def judge_figure_3(cells: list[Cell]) -> Evidence:
    level = cells[0]["sparsity"]
    ends = {name: cover_values(_list_last(cells, name)) for name in VARIANTS}
    every = cover_values([last for name in VARIANTS for last in _list_last(cells, name)])
    count = f"last losses of {len(VARIANTS)} ways of training, restarts of each: {len(cells)}"
    learns = check_within(
        "LISTA-VM, trained on many $X$, is significantly more promising than $β̂ = 0$",
        every,
        most=level / 2,
        what=count,
        ours="half of what $β̂ = 0$ scores",
    )
    near = {"within": PRINTED_LOSS / 10, "ours": "a tenth"}
    statement = f"LISTA-VM, trained on many $X$, ends around {PRINTED_LOSS}"
    around = check_around(statement, every, PRINTED_LOSS, what=count, **near)
    if not all(cell["printed"] for cell in cells):
        around = contest.leave_open(around, cells, "printed")
    elif around.passed is None:
        around = replace(around, summary=_explain_ends(ends))
    return Evidence(
        parts=[Part(printed=check, trainings=len(cells)) for check in (learns, around)],
        numbers={f"last loss, {name}": str(interval) for name, interval in ends.items()},
        figures=[_draw_figure("Trained on many X: LISTA-VM", cells)],
    )


def _explain_ends(ends: Mapping[str, Interval]) -> str:
    """Explain why the printed loss is not confirmed, with the last loss of each way of training."""
    least = min(interval.value for interval in ends.values())
    better = f", better than the printed {PRINTED_LOSS}" if least < PRINTED_LOSS else ""
    values = "; ".join(f"{name}: {interval}" for name, interval in ends.items())
    return (
        f"We reach {least:.2f}{better}. The final value depends on the start and the learning "
        "rate, which the paper does not print, so the number cannot be confirmed. Last losses "
        f"{values}"
    )


@claim(
    "liu2025.figure-3",
    "Trained on many $X$, LISTA-VM reaches a label loss of about 0.68.",
    where="Appendix F, Figure 3",
    kind="figure",
    hypotheses=SETUP,
    missing="The paper prints neither the start of LISTA-VM nor its learning rate nor the batch, "
    "and its final loss depends on them.",
    quick=QUICK,
    full=FULL,
    paper=[{**PAPER, "steps": 17_000, "restart": k} for k in range(3)],
    tiny=[{**SMALL, "steps": 40, "restart": 0}],
    conclude=judge_figure_3,
    falsified={
        "curves that stay at β̂ = 0": _scale_curves(1.0),
        "at the paper's sizes, all ends at 0.3": _scale_curves(0.1, sparsity=3, printed=True),
        "at the paper's sizes, all ends at 0.9": _scale_curves(0.3, sparsity=3, printed=True),
    },
)
def figure_3(generator: torch.Generator, **settings: Any) -> Cell:
    recipes = {name: ("lista-vm-learned", options) for name, options in VARIANTS.items()}
    return _train_curves(recipes, settings)
