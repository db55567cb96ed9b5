"""Figure 2: loops against layers, d = 10, Σ* = I.

Printed    "a 1-layer model looped L times performs similarly to an L layer multilayer model";
           "increasing the number of loops leads to lower loss" (caption, section 5.1)
Tested     both trained as in `trained`, n = 20 (not told), several random starts; the exact minima
           among multiples of the identity. Similar has two readings: by the difference, as on a
           linear axis, at most a tenth of the loss at the start; by the ratio, as on a logarithmic
           one, L layers do no better than L + 1 loops
Correction by the ratio it fails from three layers on: their least loss is 0.0913, and four loops'
           is 0.1095. L layers do at least as well as L loops and, for L ≤ 4 and n = 20, no
           better than 2L. A step of each layer's own is what Chebyshev's iteration has over plain
           gradient descent, and the ratio grows with L and n
Note       layers take longer to train: after as many steps they are nearer to the loops than their
           minimum is
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Check, Evidence, Figure, Part
from innerloop.claims.gatmiry2024.trained import (
    Value,
    banded_rows,
    least_layered_loss,
    least_loss,
    level_rows,
    measure_losses,
    train_loops,
)
from innerloop.claims.trials import Inequality

D, N = 10, 20
Matching = Callable[[int], int]
"""Map L layers to a number of loops that does at least as well."""


@claim(
    "gatmiry2024.figure-2",
    "Trained at d = 10, one layer looped L times does about as well as L layers, and more loops "
    "reach a lower loss.",
    where="Section 5.1, Figure 2",
    kind="figure",
    quick={"most": 3, "seeds": 2, "steps": 250, "batch": 64},
    full={"most": 4, "seeds": 5, "steps": 500, "batch": 128},
    tiny={"most": 3, "seeds": 1, "steps": 30, "batch": 16},
    falsified={
        "more loops, a higher loss": {"sign": -1.0},
        "within a thousandth of the start": {"apart": 1e-3},
        "no better than one loop more": {"matching": lambda L: L + 1},
    },
)
def figure_2(
    generator: torch.Generator,
    *,
    most: int,
    seeds: int,
    steps: int,
    batch: int,
    sign: float = 1.0,
    apart: float = 0.1,
    matching: Matching = lambda L: 2 * L,
) -> Evidence:
    rows: list[dict[str, Value]] = []
    ends: dict[tuple[int, bool], float] = {}
    for L in range(1, most + 1):
        for layered in (False, True):
            run = train_loops(
                generator, D, N, L, seeds=seeds, steps=steps, batch=batch, layered=layered
            )
            loss = measure_losses(generator, run, 500)
            ends[L, layered] = float(loss[-1].mean())
            low = least_layered_loss(D, N, L) if layered else least_loss(D, N, L)
            kind = "layers" if layered else "loops"
            panel = {"L": f"L = {L}"}
            rows += banded_rows(run.steps, loss, what=kind, **panel)
            rows += level_rows(run.steps, low, what=f"{kind}, theory", **panel)
    parts = [
        Part(printed=_check_monotone(ends, most, sign)),
        Part(printed=_check_apart(ends, most, apart)),
        _check_matching(most, matching),
    ]
    figure = Figure(
        title=f"Loops and layers in training, d = {D}, n = {N}",
        rows=rows,
        x=Axis(field="step", title="step of Adam"),
        y=Axis(field="value", title="squared error over that of predicting 0", scale="log"),
        colour=Axis(field="what", title="", scale="category"),
        panel="L",
        band=("low", "high"),
        caption=f"Mean over {seeds} random starts, from least to largest. Theory: least loss of "
        "multiples of the identity. The best of all predictors makes no error, as n > d.",
    )
    return Evidence(parts=parts, table=_table(most), figures=[figure])


def _check_monotone(ends: dict[tuple[int, bool], float], most: int, sign: float) -> Check:
    trial = Inequality("one loop more, a lower loss: trained, and at the exact minimum")
    for L in range(1, most):
        about = f"d = {D}, n = {N}, {L + 1} loops against {L}"
        trial.add(sign * ends[L + 1, False], sign * ends[L, False], size=(L,), about=about)
    for d in (1, 5, 10):
        for n in (d, 20, 100):
            for L in range(1, 2 * most):
                about = f"d = {d}, n = {n}, least loss of {L + 1} loops against {L}"
                left, right = sign * least_loss(d, n, L + 1), sign * least_loss(d, n, L)
                trial.add(left, right, size=(L, d, n), about=about)
    return trial.check()


def _check_apart(ends: dict[tuple[int, bool], float], most: int, apart: float) -> Check:
    trial = Inequality("trained L loops and L layers differ by a tenth of the loss at the start")
    for L in range(1, most + 1):
        far = abs(ends[L, False] - ends[L, True])
        told = f"{ends[L, False]:.4f} and {ends[L, True]:.4f}"
        trial.add(far, apart, size=(L,), about=f"d = {D}, n = {N}, L = {L}, losses {told}")
    return trial.check()


def _check_matching(most: int, matching: Matching) -> Part:
    """Compare loops and layers by the ratio of their exact minima."""
    printed = Inequality("L layers do no better than L + 1 loops")
    right = Inequality("L layers do at least as well as L loops and no better than 2L, n = 20")
    for L in range(1, most + 1):
        layers = least_layered_loss(D, N, L)
        about = f"d = {D}, n = {N}, L = {L}, least losses of loops and of layers"
        printed.add(least_loss(D, N, L + 1), layers, size=(L,), about=about)
        right.add(layers, least_loss(D, N, L) * (1 + 1e-9), size=(L,), about=about)
        right.add(least_loss(D, N, matching(L)), layers, size=(L,), about=about)
    return Part(printed=printed.check(), corrected=right.check())


def _table(most: int) -> list[dict[str, Value]]:
    """Tabulate the exact minima for other n."""
    rows: list[dict[str, Value]] = []
    for n in (11, N, 40, 100):
        for L in range(1, most + 1):
            loops, layers = least_loss(D, n, L), least_layered_loss(D, n, L)
            ratio = loops / layers
            rows.append({"n": n, "L": L, "loops": loops, "layers": layers, "ratio": ratio})
    return rows
