"""Lemma 9: the loss with the true label in the query's slot.

Printed    x_1 … x_{n+1} ~ p_x, w* ~ p_w, any laws, layers of form (13): E[([Z_k]_{d+1,n+1} +
           w*ᵀx_{n+1})²] from Z_0 with 0 in the query's slot is E tr((I−M) Ȳ_kᵀ Ȳ_k (I−M)) from Z̄_0
           with y_{n+1} there
Tested     the two losses for finite laws p_x, p_w with a few atoms of any probability, where both
           expectations are sums over all prompts; A_i symmetric and not
Beyond     the identity needs less than (13): any P_i, and Q_i whose last column is 0, the query
           masked as a key. A last column of Q_i can break it
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from innerloop.claims.ahn2023.lemma_10 import draw_weights, run_form_13
from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.falsifying import change_field
from innerloop.claims.prompts import attention, draw_integer, draw_normal, form_layer
from innerloop.claims.trials import Equality, Inequality, check_rows


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels after the last layer on every prompt, from 0 and from y in the query's slot."""

    case: Case
    mass: Tensor
    """Probabilities of the prompts."""
    hidden: Tensor
    """The query's label from 0, plus w*ᵀx."""
    bar: Tensor
    """All labels Ȳ from y in the slot, (prompts, 1, n+1)."""
    truth: Tensor
    """The true label y of the query."""


@dataclass(frozen=True, eq=False)
class Data:
    """Labels for finite laws, and how far other layers are from adding the query's label."""

    labels: list[Labels]
    free: list[tuple[Case, float]]
    """Any P, and any Q without its last column: the largest other change."""
    broken: list[tuple[Case, float]]
    """Form (13), with a last column of Q."""


def judge_losses(data: Data) -> Evidence:
    losses = Equality(
        "$E[([Z_k]_{d+1,n+1} + w*ᵀx_{n+1})²] = E tr((I−M) Ȳ_kᵀ Ȳ_k (I−M))$, finite laws "
        "$p_x$, $p_w$"
    )
    for found in data.labels:
        keep = torch.zeros(found.bar.shape[-1], dtype=torch.float64)
        keep[-1] = 1.0
        kept = found.bar * keep
        traces = (kept.mT @ kept).diagonal(dim1=-2, dim2=-1).sum(-1)
        left, right = (found.mass * found.hidden**2).sum(), (found.mass * traces).sum()
        losses.add(left, right, found.case)
    free = Equality(
        "with any $P_i$, and $Q_i$ whose last column is 0, a label in the slot is added"
    )
    broken = Inequality(
        "with a random last column of $Q_i$ and random prompts, a label of 1 changes others by "
        "over 10⁻⁶"
    )
    beyond = [
        check_rows(free, ((case, change, 0.0) for case, change in data.free)),
        check_rows(broken, ((case, 1e-6, change) for case, change in data.broken)),
    ]
    return Evidence(parts=[Part(printed=losses.check())], beyond=beyond)


def subtract_label(data: Data) -> Data:
    """Let the query's label be that of Z̄_0 with −y in the slot."""
    for found in data.labels:
        found.bar[..., -1] -= 2 * found.truth[:, None]
    return data


@claim(
    "ahn2023.lemma-9",
    "The in-context loss is the squared last label of the same transformer run on a prompt that "
    "has the true label in the query's slot.",
    where="Appendix C.1, Lemma 9",
    kind="equality",
    hypotheses={"layers of form (13), the query masked as a key": "Appendix C.1, (53)"},
    quick={"laws": 60},
    full={"laws": 2000},
    tiny={"laws": 6},
    judge=judge_losses,
    falsified={
        "labels a thousandth smaller": change_field("labels.bar", lambda bar: 0.999 * bar),
        "labels from −y in the slot": subtract_label,
    },
)
def lemma_9(generator: torch.Generator, *, laws: int) -> Data:
    labels = [_enumerate_law(generator, trial) for trial in range(laws)]
    free = [_measure_other_change(generator, k, False) for k in range(40)]
    return Data(labels, free, [_measure_other_change(generator, k, True) for k in range(40)])


def _enumerate_law(generator: torch.Generator, trial: int) -> Labels:
    """Run layers on every prompt of laws with a few atoms."""
    d, n, k = 1 + trial % 3, draw_integer(generator, 1, 4), draw_integer(generator, 1, 4)
    atoms, chances = _draw_law(generator, 3, d)
    stars, odds = _draw_law(generator, 2, d)
    drawn = torch.cartesian_prod(*[torch.arange(3)] * (n + 1), torch.arange(2)).reshape(-1, n + 2)
    X, w = atoms[drawn[:, :-1]].mT, stars[drawn[:, -1]].unsqueeze(1)
    mass = chances[drawn[:, :-1]].prod(1) * odds[drawn[:, -1]]
    bar = torch.cat([X, w @ X], dim=1)
    truth, hidden = bar[:, d, n], bar.clone()
    hidden[:, d, n] = 0.0
    A, B = draw_weights(generator, k, d)
    told = run_form_13(hidden, A, B)[-1][:, d, n] + truth
    last = run_form_13(bar, A, B)[-1][:, d:]
    return Labels(Case(d=d, n=n, layers=k, prompts=len(mass)), mass, told, last, truth)


def _draw_law(generator: torch.Generator, atoms: int, d: int) -> tuple[Tensor, Tensor]:
    """Draw a law that is neither centred nor symmetric."""
    chances = torch.rand(atoms, generator=generator, dtype=torch.float64)
    return draw_normal(generator, atoms, d) + 0.5, chances / chances.sum()


def _measure_other_change(
    generator: torch.Generator, trial: int, column: bool
) -> tuple[Case, float]:
    """How far a label of 1 is from entering additively, for two layers not of form (13)."""
    d, n = 1 + trial % 4, draw_integer(generator, 1, 8)
    Z = draw_normal(generator, d + 1, n + 1)
    bar = Z.clone()
    bar[d, n] += 1.0
    added = bar - Z
    for _ in range(2):
        first, second = draw_weights(generator, 1, d)
        P, Q = form_layer(first[0], B=second[0])
        if column:
            Q[:, d] = draw_normal(generator, d + 1) / 9
        else:
            P, Q[d, :d] = draw_normal(generator, d + 1, d + 1) / 9, draw_normal(generator, d) / 9
        Z, bar = Z + attention(Z, P, Q) / n, bar + attention(bar, P, Q) / n
    return Case(d=d, n=n), float((bar - Z - added).abs().max())
