"""Corollary E.1: the query read-out predicts y_{n+1} as well as β* is recovered.

Printed    there are parameters such that for V = [0; I; 0] and ŷ_{n+1} = h_{2n+1}ᵀ V x_{n+1}
           and n ≥ N_0, with probability 1 − δ, |y_{n+1} − ŷ_{n+1}| ≤ c₆ e^(−α_n K),
           c₆ = √d b_x c₁, "c₁ and α_n defined in Theorem 5.1"
Tested     V on streams of the printed layers (last bias −θ), every n, hard x among them; the bound
           on ±1 at N_0 and 10 N_0, S = 1, 2, 3, d = 4 and 10, γ from 0.3 to 1.5, K to 12
Reading    c₁ = b_β, as in Theorem 5.1, a constant; parameters do not depend on β*: Lemma 1's θ for
           b_β = 1 serves ‖β*‖₁ = 1 and 10⁻⁴. With c₁ = ‖β*‖₁ (Theorem D.1) θ = 0 serves both, and
           that θ does not: it never sees a β* below its first threshold
Beyond     √d can go: Assumption 1 bounds ‖x‖ itself
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part, misprint
from innerloop.claims.falsifying import change_field
from innerloop.claims.liu2025 import printed, rates
from innerloop.claims.liu2025.hard_instances import list_hard_examples
from innerloop.claims.liu2025.measurements import draw_entries, draw_sparse_vectors, iterate
from innerloop.claims.liu2025.rates import DELTA, Curves, Found, K, judge_curves
from innerloop.claims.liu2025.theorem_5_1 import GAMMAS
from innerloop.claims.prompts import draw_normal
from innerloop.claims.trials import Equality
from innerloop.theory import sparse

C, SIZES = 0.25, ((1, 4), (2, 4), (3, 10))
"""The constant c for z = ±1, and pairs of S and d."""
SMALL, LARGE = (f"$θ$ fixed for $b_β = 1$, $‖β*‖₁ = {size}$" for size in ("10⁻⁴", "1"))
BOUND = "$|y_{n+1} − ŷ_{n+1}| ≤ √d b_x c₁ e^(−α_n K)$, $n ≥ N_0$, with probability $1 − δ$"


class Data(NamedTuple):
    read: list[tuple[Tensor, Tensor, Case]]
    """hᵀVx and ⟨x, β⟩ at every odd token."""
    rates: Found


def judge_query(rates: Found) -> Part:
    """Judge the bound of the query read-out, for parameters that do not depend on β*."""
    small = [each._replace(bound=1e4 * each.bound) for each in rates[SMALL]]
    return Part(
        printed=judge_curves(BOUND, rates[LARGE] + small, DELTA),
        reading=(
            "$c₁ = b_β$, as in Theorem 5.1, is a constant like $c₅$ of Theorem 5.2; one $θ$ serves "
            "all $‖β*‖₁ ≤ b_β$ and is tested with $b_β = 1$ at $‖β*‖₁ = 1$ and $10⁻⁴$"
        ),
        other_readings={
            "$c₁ = ‖β*‖₁$ (Theorem D.1), $θ = 0$": judge_curves(BOUND, rates["θ = 0"], DELTA),
            f"$c₁ = ‖β*‖₁$, {SMALL}": judge_curves(BOUND, rates[SMALL], DELTA),
        },
    )


def judge_corollary(data: Data) -> Evidence:
    reads = Equality("$hᵀ_{2n+1} V x_{n+1} = ⟨x_{n+1}, β_{2n+1}⟩$", tolerance=1e-9)
    for left, right, case in data.read:
        reads.add(left, right, case)
    narrow = [
        each._replace(bound=each.bound / math.sqrt(each.case["d"])) for each in data.rates["θ = 0"]
    ]
    return Evidence(
        parts=[Part(printed=reads.check()), judge_query(data.rates)],
        errata=[
            misprint(
                "Definition 4.2",
                "$i ∈ [N + 1]$",
                "$i ∈ [2N + 1]$, as there are $2N + 1$ tokens",
                "$N = 1$: the query is token 3, and $⌊(3 + 1)/2⌋ = 2$ its row of $X̃$",
            )
        ],
        beyond=[judge_curves(BOUND.replace("√d ", ""), narrow, DELTA)],
    )


@claim(
    "liu2025.corollary-E.1",
    "The query read-out predicts $y_{n+1}$ with an error of at most $√d b_x c₁ e^(−α_n K)$.",
    where="Appendix E.1, Corollary E.1",
    kind="rate",
    hypotheses={
        "$‖x‖ ≤ b_x$, $‖β*‖₁ ≤ b_β$, no noise": "Assumption 1",
        "$c$ is some constant": "Theorem 5.1; here that of Hoeffding's inequality",
    },
    quick={"draws": 200, "trials": 40},
    full={"draws": 2_000, "trials": 2_000},
    tiny={"draws": 6, "trials": 6},
    judge=judge_corollary,
    falsified={
        "layers that do not lower the error": change_field("rates", rates.stop_learning),
        "a read-out that is off by 1": change_field(
            "read", lambda read: [(left + 1, right, case) for left, right, case in read]
        ),
    },
)
def corollary_e_1(generator: torch.Generator, *, draws: int, trials: int) -> Data:
    return Data(_read_streams(generator, trials), measure_query(generator, draws))


def measure_query(generator: torch.Generator, draws: int) -> Found:
    """Measure |⟨x, β − β*⟩| after 0, …, K layers, for a fresh x of each draw."""
    found: Found = {"θ = 0": [], SMALL: [], LARGE: []}
    for S, d in SIZES:
        least = math.ceil(sparse.least_examples(S, d, DELTA, C))
        for n, count in ((least, draws), (10 * least, max(4, draws // 10))):
            G = 2 * rates.draw_grams(generator, "signs", n, d, count)
            x = draw_entries(generator, "signs", count, d)  # ‖x‖ = √d = b_x
            for gamma in GAMMAS:
                star = draw_sparse_vectors(generator, count, d, S)
                step, thetas = rates.choose_thresholds(n, S, d, C, gamma)
                tried = ("θ = 0", 0 * thetas, 1.0), (SMALL, thetas, 1e-4), (LARGE, thetas, 1.0)
                for name, used, scale in tried:
                    beta = iterate(G, scale * star, step, used)
                    errors = ((beta - scale * star) * x).sum(-1).abs()
                    bound = scale * d * rates.bound_errors(n, S, d, C, gamma, 1.0)
                    found[name].append(Curves(errors, bound, Case(d=d, S=S, n=n, γ=gamma, K=K)))
    return found


def _read_streams(generator: torch.Generator, trials: int) -> list[tuple[Tensor, Tensor, Case]]:
    """Read hᵀ_{2n+1} V x_{n+1} from two printed layers, and ⟨x_{n+1}, β⟩ after two steps."""
    given = [(each.X, each.star, each.M, each.bound) for each in list_hard_examples(1, 2, 3)]
    for k in range(trials):
        d, N = 1 + k % 4, 1 + k % 5
        X, star = draw_normal(generator, N + 1, d), draw_normal(generator, d)
        given.append((X, star, 0.3 * draw_normal(generator, d, d), 1e4))
    found, theta = [], 0.05
    for X, star, M, bound in given:
        N, d, y = len(X) - 1, len(star), X @ star
        H = printed.printed_prompt(X[:N], y[:N], X[N])
        V = torch.zeros(2 * d + 2, d, dtype=torch.float64)
        V[d + 1 : 2 * d + 1] = torch.eye(d, dtype=torch.float64)
        for _ in range(2):
            H = printed.run_layer(H, M, theta, bound)
        for n in range(1, N + 1):
            beta = torch.zeros(d, dtype=torch.float64)
            for _ in range(2):
                beta = printed.take_step(M, X[:n], y[:n], beta, theta)
            found.append((H[:, 2 * n] @ V @ X[n], X[n] @ beta, Case(d=d, N=N, n=n)))
    return found
