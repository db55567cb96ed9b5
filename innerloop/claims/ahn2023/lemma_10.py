"""Lemma 10: how the label in the query's slot enters the later layers.

Printed    under (54), X_i does not depend on [Y_0]_{n+1}; for j ≠ n+1, [Y_i]_j does not;
           [Y_i]_{n+1} depends on it additively: for C = [0 … 0 c], F_X(Y_0 + C) = F_X(Y_0) and
           F_Y(Y_0 + C) = F_Y(Y_0) + C
Tested     two runs on tokens that differ in c alone, c from 10⁻³ to 10³, after every layer; then
           the derivative of all entries with respect to [Y_0]_{n+1}, which no cancellation can
           hide; A_i symmetric and not, B_i any, n from 1
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part, misprint
from innerloop.claims.prompts import draw_integer, draw_normal, form_layer, run_layers
from innerloop.claims.trials import Equality

SHAPE = misprint(
    "Lemma 10, after item 3",
    "$C = [0 … 0 c] ∈ R^{(d+1)×1}$ is added to $Y_0$",
    "$C ∈ R^{1×(n+1)}$, the shape of $Y_0$",
    "$d = 2$, $n = 1$: three entries in a column for two in a row",
)


@dataclass(frozen=True, eq=False)
class TwoRuns:
    """Tokens after every layer, without and with a label c in the query's slot."""

    case: Case
    c: float
    without: list[Tensor]
    within: list[Tensor]
    slope: Tensor
    """Derivative of the last tokens with respect to the query's first label."""


def judge_label(data: list[TwoRuns]) -> Evidence:
    inputs = Equality("$X_i$ does not depend on $[Y_0]_{n+1}$")
    others = Equality("$[Y_i]_j$, $j ≤ n$, does not depend on $[Y_0]_{n+1}$")
    query = Equality("$[Y_i]_{n+1}$ from $c$ added to $[Y_0]_{n+1}$ is $c$ more")
    slopes = Equality("$∂(X_i, Y_i)/∂[Y_0]_{n+1}$ is 1 at $[Y_i]_{n+1}$, 0 elsewhere")
    for runs in data:
        for i, (one, two) in enumerate(zip(runs.without, runs.within, strict=True), 1):
            case = runs.case.extend(layer=i)
            inputs.add(two[:-1], one[:-1], case)
            others.add(two[-1, :-1], one[-1, :-1], case)
            query.add(two[-1, -1], one[-1, -1] + runs.c, case)
        known = torch.zeros_like(runs.slope)
        known[-1, -1] = 1.0
        slopes.add(runs.slope, known, runs.case)
    parts = [Part(printed=trial.check()) for trial in (inputs, others, query, slopes)]
    return Evidence(parts=parts, errata=[SHAPE])


def change_within(change: Callable[[Tensor, float], Tensor]) -> Callable[..., list[TwoRuns]]:
    """Make data in which the tokens of the run with the label differ, and the slope likewise."""

    def falsify(data: list[TwoRuns]) -> list[TwoRuns]:
        return [
            replace(
                runs,
                within=[change(Z, runs.c) for Z in runs.within],
                slope=change(runs.slope, 1.0),
            )
            for runs in data
        ]

    return falsify


def leak(row: int, column: int, share: float) -> Callable[[Tensor, float], Tensor]:
    """Add a share of the label to one entry of the tokens."""

    def change(Z: Tensor, c: float) -> Tensor:
        Z = Z.clone()
        Z[row, column] += share * c
        return Z

    return change


@claim(
    "ahn2023.lemma-10",
    "The label in the query's slot changes nothing in later layers but the label in that slot, "
    "to which it is added.",
    where="Appendix C.1, Lemma 10",
    kind="equality",
    hypotheses={"layers of form (13), the query masked as a key": "Appendix C.1, (53)"},
    quick={"trials": 400},
    full={"trials": 20_000},
    tiny={"trials": 24},
    judge=judge_label,
    falsified={
        "a thousandth of the label in x": change_within(leak(0, 0, 1e-3)),
        "a thousandth of the label in another label": change_within(leak(-1, 0, 1e-3)),
        "a label that loses a thousandth": change_within(leak(-1, -1, -1e-3)),
    },
)
def lemma_10(generator: torch.Generator, *, trials: int) -> list[TwoRuns]:
    return [measure_two_runs(generator, trial) for trial in range(trials)]


def draw_weights(generator: torch.Generator, layers: int, d: int) -> tuple[Tensor, Tensor]:
    """Draw A_i (symmetric or not) and B_i, scaled to keep the stream of order one."""
    A = draw_normal(generator, layers, d, d) / (2 * d)
    if draw_integer(generator, 0, 1):
        A = (A + A.mT) / 2
    return A, draw_normal(generator, layers, d, d) / (2 * d)


def run_form_13(Z: Tensor, A: Tensor, B: Tensor) -> list[Tensor]:
    """Run layers of form (13) on tokens Z (…, d+1, n+1); the tokens after every layer."""
    return run_layers(Z, [form_layer(one, B=other) for one, other in zip(A, B, strict=True)])[1:]


def measure_two_runs(generator: torch.Generator, trial: int) -> TwoRuns:
    """Run random layers on a random prompt twice, c from 10⁻³ to 10³."""
    d, n, k = 1 + trial % 4, draw_integer(generator, 1, 8), draw_integer(generator, 1, 5)
    A, B = draw_weights(generator, k, d)
    Z = draw_normal(generator, d + 1, n + 1)
    c = float(draw_normal(generator) * 10.0 ** draw_integer(generator, -3, 3))
    added = Z.clone()
    added[d, n] += c

    def last(label: Tensor) -> Tensor:
        start = Z.index_put((torch.tensor(d), torch.tensor(n)), label)
        return run_form_13(start, A, B)[-1]

    slope = torch.as_tensor(torch.autograd.functional.jacobian(last, Z[d, n]))
    case = Case(d=d, n=n, layers=k, c=c)
    return TwoRuns(case, c, run_form_13(Z, A, B), run_form_13(added, A, B), slope)
