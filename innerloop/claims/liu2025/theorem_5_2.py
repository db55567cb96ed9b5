"""Theorem 5.2 and Remark 4: linear against query read-out.

Printed    linear: |y_n − ŷ_n| ≤ b_x(1 − 2γ/3)^K + c₄K/√n (1 − 2γ/3)^(K−1), with probability
           1 − nδ − δ'; query: ≤ c₅ e^(−α_n K), 1 − δ; c₄, c₅ constants. Remark 4: both linear in K,
           with a gap of order K/√n e^(−K) "which diminishes as n becomes large"
Tested     the query read-out as in liu2025.corollary-E.1, which the theorem quotes, y_{n+1} from
           token 2n+1; the linear one as in liu2025.theorem-E.1; the gap at fixed K over a decade of
           n from 474 > N_0 (δ = 0.1), γ = 1/2, where no prefix diverges, d = 4, S = 1. B' is below
           all scores, so p = 1 and E₁ fails: no B' was found with a positive probability and a
           bound that says something
Vacuous    the linear half, for the reason given with liu2025.theorem-E.1
Beyond     at p = 1 the gap does not fall like K/√n (1 − 2γ/3)^(K−1) in K. With B' below all scores
           and their negatives ŷ_n − y_n = 2/(2n−1) Σ_{1≤l<n} (⟨x_n, β_{2l+1}⟩ − y_n) − (y_n +
           B')/(2n−1), since the first token, which has seen no label, has β = 0 at every layer
           (insert it into 2/(2n−1) Σ_{0≤l<n} (⟨x_n, β_{2l+1}⟩ − B') + B', n terms). All but B' is
           odd in x_n: the errors at x_n and −x_n sum to −2B'/(2n−1), so that their sizes have a
           mean of at least |B'|/(2n−1) at every K. Remark 4's order is one of two bounds, of which
           that of the linear read-out is not stated at p = 1: this is no counterexample to it
Ours       "diminishes": a power of n below −1/4
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Check, Evidence, Part, misprint
from innerloop.claims.falsifying import change_field
from innerloop.claims.intervals import check_rate
from innerloop.claims.liu2025.corollary_e_1 import judge_query, measure_query
from innerloop.claims.liu2025.rates import Found, stop_learning
from innerloop.claims.liu2025.readouts import (
    Heard,
    Prefixes,
    measure_linear,
    measure_slow,
    simulate_prefixes,
)
from innerloop.claims.liu2025.theorem_e_1 import judge_linear
from innerloop.claims.trials import Inequality

GAMMA, LAYERS = 0.5, (2, 4, 8, 12, 40)
SIZES = (474, 842, 1_497, 2_662, 4_740)


class Gap(NamedTuple):
    """The two read-outs of y_n after K layers, draw by draw."""

    K: int
    n: int
    linear: Tensor
    """ŷ_n − y_n of the linear read-out."""
    query: Tensor
    mirrored: Tensor
    """ŷ_n − y_n of the linear read-out with −x_n for x_n."""
    floor: float
    """|B'|/(2n−1)."""

    @property
    def size(self) -> float:
        return float((self.linear.abs() - self.query.abs()).abs().mean())


class Data(NamedTuple):
    rates: Found
    heard: list[Heard]
    gaps: list[Gap]


def judge_read_outs(data: Data) -> Evidence:
    few = [each for each in data.gaps if LAYERS[0] == each.K]
    closing = check_rate(
        f"the gap diminishes as $n$ becomes large, $K = {LAYERS[0]}$, $p = 1$ (Remark 4)",
        [each.n for each in few],
        [each.size for each in few],
        -0.5,
        within=0.25,
        bound=True,
        what="n",
        ours="a power below −1/4",
    )
    return Evidence(
        parts=[judge_query(data.rates), judge_linear(data.heard), Part(printed=closing)],
        errata=[
            misprint(
                "Section 4.3, the estimation $ŷ_i$",
                "$ŷ_i = F(h_{2i+1})$, and $y_n$ with $α_n$ in Theorem 5.2",
                (
                    "$ŷ_i = F(h_{2i−1})$ and $α_{n−1}$, as in Corollary E.1: token $2i+1$ has "
                    "seen $y_i$"
                ),
                (
                    "$d = n = 1$, $x_1 = 1$: $β_3$ after a layer is $S_θ(M y_1/3)$, and moves "
                    "with $y_1$"
                ),
            ),
        ],
        beyond=_judge_order(data.gaps),
        table=[{"K": each.K, "n": each.n, "mean gap": each.size} for each in data.gaps],
    )


def _judge_order(gaps: list[Gap]) -> list[Check]:
    """One constant, the largest at the fewest layers, must do for more."""
    order = Inequality("at $p = 1$ the gap is of order $K/√n (1 − 2γ/3)^(K−1)$ at every $K$")
    floor = Inequality(
        "at $p = 1$ a floor is left at every $K$: $|B'|/(2n−1) ≤ |y_n − ŷ_n|$ in the mean of $x_n$ "
        "and $−x_n$, $B'$ below all scores"
    )

    def expect(each: Gap) -> float:
        return each.K / math.sqrt(each.n) * (1 - 2 / 3 * GAMMA) ** (each.K - 1)

    constant = max(each.size / expect(each) for each in gaps if LAYERS[0] == each.K)
    for each in gaps:
        case = Case(K=each.K, n=each.n, γ=GAMMA, note=f"constant {constant:.3g} from $K = 2$")
        if each.K in (LAYERS[0], LAYERS[-1]):
            order.add(each.size, constant * expect(each), case)
        floor.add(each.floor, ((each.linear.abs() + each.mirrored.abs()) / 2).min(), case)
    return [order.check(), floor.check()]


@claim(
    "liu2025.theorem-5.2",
    "The query read-out converges linearly in $K$; so does the linear one, up to a gap of "
    "order $K/√n e^(−K)$, which diminishes as $n$ becomes large.",
    where="Section 5.2, Theorem 5.2 and Remark 4",
    kind="rate",
    hypotheses={
        "$‖x‖ ≤ b_x$, $‖β*‖₁ ≤ b_β$, no noise": "Assumption 1",
        "$n ≥ N_0$": "Theorem E.1 and Corollary E.1, which are combined",
        "$δ'$ as the proof defines it": "Appendix E.1",
    },
    quick={"draws": 60},
    full={"draws": 300},
    tiny={"draws": 6},
    judge=judge_read_outs,
    falsified={
        "layers that do not lower the error": change_field("rates", stop_learning),
        "E₁ and E₂ hold in nine of ten draws": change_field("heard.missed", lambda _: 0.1),
        "a linear read-out that is off by 1 at every n": change_field(
            "gaps.linear", torch.ones_like
        ),
    },
)
def theorem_5_2(generator: torch.Generator, *, draws: int) -> Data:
    rates, heard = measure_query(generator, draws), measure_linear(generator, draws, 2_000)
    found = simulate_prefixes(generator, draws, max(SIZES), max(LAYERS), GAMMA, 0.1)
    cells = [(LAYERS[0], n) for n in SIZES] + [(K, SIZES[0]) for K in LAYERS[1:]]
    gaps = [_measure_gap(found, K, n) for K, n in cells]
    return Data(rates, heard + measure_slow(generator, draws, 2_000), gaps)


def _measure_gap(found: Prefixes, K: int, n: int) -> Gap:
    """Measure it with B' below all scores and their negatives, so that all scores reach it."""
    y, query = found.labels[:, n - 1], found.query_readout(K)[:, n - 1]
    B = -float(found.scores(K, n - 1).abs().max()) - 1.0
    other = found._replace(x=found.x.clone())
    other.x[:, n - 1] *= -1
    linear, mirrored = (each.linear_readout(K, n - 1, B) for each in (found, other))
    return Gap(K, n, linear - y, query - y, mirrored + y, -B / (2 * n - 1))
