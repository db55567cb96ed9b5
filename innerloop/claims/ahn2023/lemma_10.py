"""Lemma 10: how the label in the query's slot enters the later layers.

Printed    under (54), X_i does not depend on [Y_0]_{n+1}; for j ≠ n+1, [Y_i]_j does not;
           [Y_i]_{n+1} depends on it additively: for C = [0 … 0 c], F_X(Y_0 + C) = F_X(Y_0) and
           F_Y(Y_0 + C) = F_Y(Y_0) + C
Tested     two runs on tokens that differ in c alone, c from 10⁻³ to 10³, after every layer; then
           the derivative of all entries with respect to [Y_0]_{n+1}, which no cancellation can
           hide; A_i symmetric and not, B_i any, n from 1
"""

from __future__ import annotations

import torch

from innerloop.claims.ahn2023.query_label import TwoRuns, change_within, leak, measure_two_runs
from innerloop.claims.base import claim
from innerloop.claims.evidence import Evidence, Part, misprint
from innerloop.claims.trials import Equality

SHAPE = misprint(
    "Lemma 10, after item 3",
    "$C = [0 … 0 c] ∈ R^{(d+1)×1}$ is added to $Y_0$",
    "$C ∈ R^{1×(n+1)}$, the shape of $Y_0$",
    "$d = 2$, $n = 1$: three entries in a column for two in a row",
)


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
