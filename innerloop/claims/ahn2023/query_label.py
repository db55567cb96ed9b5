"""Layers of form (13) on tokens, and how a label in the query's slot enters them.

Behind Lemmas 9 and 10: two runs of (4) that differ in the query's label alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from innerloop.claims.cases import Case
from innerloop.claims.prompts import draw_integer, draw_normal, form_layer, run_layers


@dataclass(frozen=True, eq=False)
class TwoRuns:
    """Tokens after every layer, without and with a label c in the query's slot."""

    case: Case
    c: float
    without: list[Tensor]
    within: list[Tensor]
    slope: Tensor
    """Derivative of the last tokens with respect to the query's first label."""


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
