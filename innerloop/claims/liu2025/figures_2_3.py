"""Figures 2 and 3: LISTA and LISTA-CP learn nothing from many X, LISTA-VM does.

Printed    K = 12, fresh X throughout: the label loss of LISTA and LISTA-CP stays around 3 and shows
           no trend (Figure 2); that of LISTA-VM ends around 0.68 (Figure 3)
Tested     each trained here on fresh X for every instance, history on examples held out. 3 is what
           β̂ = 0 scores, since E ‖β‖² = S. The paper prints neither start, learning rate nor batch,
           and trains by "gradient descent" on 17 million instances (340 epochs of 50,000, 100 X in
           each): here it is Adam, and at `full` 2.5 million. LISTA-VM starts with ISTA's steps, of
           which LISTA is the learned form (Section 4.2), and sees no X stretched
Ours       "around" is within a tenth, above and below; "no trend": not a tenth lower at the end
           than after a quarter of the training, set after the numbers were seen; "significantly
           more promising" than 3, half the loss of β̂ = 0. The number 0.68 is of the paper's
           training: with fewer instances it is left open, whether we end above or below
Beyond     LISTA-VM ends below 0.68 from either start: at 0.476 to 0.483 from ISTA's steps, at 0.492
           to 0.495 from Chebyshev's with some X stretched. All six are on the same 4,096 held-out
           prompts, which show no rare ones. On 409,600 fresh prompts (results/benchmarks/
           sparse_tails.json) one from Chebyshev's steps has 0.484, none beyond 10². With no X
           stretched its median is lower, 0.098 for 0.134, but 10 prompts are beyond 10⁴, and the
           mean is 0.77 ± 0.08
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.figures import Figure, draw_lines
from innerloop.claims.intervals import check_around, check_within, cover_values
from innerloop.claims.liu2025 import contest
from innerloop.claims.liu2025.contest import PRINTED_LOSS, SETUP, Sizes

POINTS = 20
INSTANCES = 17_000_000
"""Instances of the paper's training: 340 epochs of 50,000."""
SMALL, PAPER = {**contest.SMALL, "batch": 128}, {**contest.PAPER, "batch": 1024}
QUICK = [{**SMALL, "steps": 160, "restart": k} for k in range(2)]
TINY = [{"d": 4, "n": 2, "sparsity": 1, "blocks": 2, "batch": 32, "steps": 40, "restart": 0}]
FULL = [{**PAPER, "steps": 2400, "restart": k} for k in range(3)]
Cell = dict[str, Any]
"""Curves by method, the sparsity S, and whether sizes and instances are as many as the paper's."""


def _train_curves(recipes: Mapping[str, tuple[str, Cell]], settings: Cell) -> Cell:
    """Held-out loss of each recipe during training."""
    given = dict(settings)
    sizes = Sizes(*(given.pop(key) for key in ("d", "n", "sparsity", "blocks")))
    restart, steps = given.pop("restart"), given.pop("steps")
    every = max(1, steps // POINTS)
    curves = {}
    for name, (recipe, options) in recipes.items():
        run = sizes.train(recipe, restart, steps, evaluate_every=every, **given, **options)
        curves[name] = [[row["step"], row["loss"]] for row in run.history]
    trained = sizes.is_printed and steps * given["batch"] >= INSTANCES
    return {"curves": curves, "sparsity": sizes.sparsity, "trained": trained}


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

    def change(found: list[Cell]) -> list[Cell]:
        for cell in found:
            cell.update(more)
            for curve in cell["curves"].values():
                curve[-1][1] = factor * cell["sparsity"]
        return found

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


def judge_figure_3(found: list[Cell]) -> Evidence:
    lasts, level = _list_last(found, "LISTA-VM"), found[0]["sparsity"]
    restarts = f"last losses of {len(lasts)} restarts"
    learns = check_within(
        "LISTA-VM, trained on many $X$, is significantly more promising than $β̂ = 0$",
        cover_values(lasts),
        most=level / 2,
        what=restarts,
        ours="half of what $β̂ = 0$ scores",
    )
    near = {"within": PRINTED_LOSS / 10, "ours": "a tenth"}
    statement = f"LISTA-VM, trained on many $X$, ends around {PRINTED_LOSS}"
    around = check_around(statement, lasts, PRINTED_LOSS, what=restarts, **near)
    return Evidence(
        parts=[
            Part(printed=learns, trainings=len(found)),
            Part(printed=contest.leave_open(around, found), trainings=len(found)),
        ],
        numbers={
            f"mean last loss, {start}": cover_values(_list_last(found, name)).value
            for name, start in (("LISTA-VM", "ISTA's steps"), (FASTER, "Chebyshev's, X stretched"))
        },
        figures=[_draw_figure("Trained on many X: LISTA-VM", found)],
    )


FASTER = "LISTA-VM from Chebyshev's steps"


@claim(
    "liu2025.figure-3",
    "Trained on many $X$, LISTA-VM reaches a label loss of about 0.68.",
    where="Appendix F, Figure 3",
    kind="figure",
    hypotheses=SETUP,
    decided_by=contest.DECIDED_BY,
    quick=QUICK,
    full=FULL,
    paper=[{**PAPER, "steps": 17_000, "restart": k} for k in range(3)],
    tiny=[{**SMALL, "steps": 40, "restart": 0}],
    conclude=judge_figure_3,
    falsified={
        "curves that stay at β̂ = 0": _scale_curves(1.0),
        "as trained in the paper, an end at 0.3": _scale_curves(0.1, sparsity=3, trained=True),
        "as trained in the paper, an end at 0.9": _scale_curves(0.3, sparsity=3, trained=True),
    },
)
def figure_3(generator: torch.Generator, **settings: Any) -> Cell:
    plain = {"start": "ista", "stretch": 1.0}
    recipes = {"LISTA-VM": ("lista-vm-learned", plain), FASTER: ("lista-vm-learned", {})}
    return _train_curves(recipes, settings)
