"""Approximate message passing for sparse weights, in four blocks per step.

Program    w ← S_θ(w + Xᵀz/√n),   θ = c ‖z‖/√n,   z ← (y − Xw)/√n + z ‖w‖₀/n,   from z = y/√n;
           the root of ‖z‖²/n is on knots, and an entry counts as min(1, slope·|w|)
Registers  every token holds w, token i its own z; a query answers ⟨w, x⟩
Agrees     with the algorithm `approximate-message-passing`, except for the knots
Exact for  the built n, every d, ‖z‖²/n within the knots, with these straight lines. The root on m
           geometric knots of ratio r is off by a factor of at most 1 − 2r^{1/4}/(1 + √r) ≈ ln² r/32
"""

from typing import Any

import torch

from innerloop.language import (
    Bound,
    Count,
    Data,
    Number,
    State,
    dot,
    entry_sum,
    geometric_knots,
    mean,
    piecewise,
    program,
    relu,
    soft_threshold,
    total,
)


@program(
    source="Donoho, Maleki and Montanari 2009, Message-passing algorithms, (1)–(2)",
    x=Data("d"),
    y=Data(),
    w=State("d", shared=True),
    z=State(),
    multiple=Number(1.0, "c, the threshold over the residuals' size", least=0),
    slope=Bound(1e6, "an entry of w between 0 and 1/slope counts as less than one"),
    least=Bound(1e-4, "the least ‖z‖²/n allowed", least=1e-12),
    most=Bound(1e2, "the largest ‖z‖²/n allowed"),
    knots=Count(600, "knots of the root", least=2),
)
def approximate_message_passing(
    me: Any, n: int, multiple: Any, slope: Any, least: Any, most: Any, knots: int
) -> None:
    """Take a step of ISTA with a correction of the residual by the previous residual."""
    places = geometric_knots(least, most, knots)
    theta = multiple * piecewise(mean(lambda j: j.z * j.z), torch.sqrt, places)
    moved = me.w + n**-0.5 * total(lambda j: j.z * j.x)
    # min(1, slope·u) for u > 0, without a difference of large numbers: 1 − slope·u is below 0 if
    # the entry counts fully.
    counts = [relu(1 - relu(1 - slope * u)) for u in (moved - theta, -moved - theta)]
    me.count = entry_sum(counts[0] + counts[1])
    me.w = soft_threshold(moved, theta)
    me.z = n**-0.5 * (me.y - dot(me.w, me.x)) + (me.count / n) * me.z


@approximate_message_passing.init
def _(me: Any, n: int) -> None:
    me.z = n**-0.5 * me.y
