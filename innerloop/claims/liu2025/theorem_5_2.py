"""Theorem 5.2 and Remark 4: linear against query read-out.

Printed    linear: |y_n − ŷ_n| ≤ b_x(1 − 2γ/3)^K + c₄K/√n (1 − 2γ/3)^(K−1); query: ≤ c₅ e^(−α_n K);
           both linear in K, with a gap of order K/√n e^(−K) that closes as n grows. Section 4.3
           reads ŷ_i from token 2i+1 with x of index 2i−1, that is ⟨x_i, β_{2i+1}⟩
Tested     z = ±1, d = 4, S = 1, γ = 1, n from N_0 to a decade beyond; c₅ = b_x b_β; whether ŷ_n
           depends on y_n; the gap's exponent in n, and how it goes with K
Correction the query read-out of y_n is ⟨x_n, β_{2n−1}⟩, with α_{n−1}: token 2n+1 has seen y_n.
           The gap falls like 1/n at fixed K and grows with K
Beyond     see liu2025.theorem-E.1 for the events behind the linear bound
"""

from __future__ import annotations

import math

import torch

from innerloop.claims.base import claim
from innerloop.claims.evidence import Check, Evidence, Part
from innerloop.claims.intervals import fit_exponent
from innerloop.claims.liu2025.readouts import DELTA, C, D, Prefixes, S, simulate_prefixes
from innerloop.claims.trials import Equality, Inequality
from innerloop.theory import sparse

GAMMA, LAYERS, B_X = 1.0, (2, 4, 8, 12), math.sqrt(D)
A = 1 - 2 / 3 * GAMMA


@claim(
    "liu2025.theorem-5.2",
    "The query read-out converges linearly in K; so does the linear one, up to a gap of order "
    "K/√n e^(−K).",
    where="Section 5.2, Theorem 5.2 and Remark 4",
    kind="rate",
    quick={"draws": 60},
    full={"draws": 600},
    tiny={"draws": 6},
    falsified={
        "the query read-out at twice the rate": {"faster": 2.0},
        "y_n is unseen one token later": {"token": 1},
        "the gap falls like 1/n²": {"exponent": -2.0},
    },
)
def theorem_5_2(
    generator: torch.Generator,
    *,
    draws: int,
    faster: float = 1.0,
    token: int = 0,
    exponent: float = -1.0,
) -> Evidence:
    start = math.ceil(sparse.least_examples(S, D, DELTA, C))
    found = simulate_prefixes(generator, draws, 10 * start, max(LAYERS), GAMMA, start)
    query = Inequality("query: |y_n − ŷ_n| ≤ c₅ e^(−α_n K), c₅ = b_x b_β")
    gaps = {(K, m): _gap(found, K, m) for K in LAYERS for m in _sizes(start)}
    for m in _sizes(start):
        rate = sparse.rate_factor(m, S, D, DELTA, C, GAMMA, weight=1.0)
        for K in LAYERS:
            errors = (found.query_readout(K) - found.labels)[:, m].abs()
            about = f"n = {m + 1}, K = {K}"
            query.add(errors.max(), B_X * rate ** (faster * K), size=(K, m), about=about)
    seen, unseen = _leak(generator, token)
    rows = [
        {"K": K, "n": m + 1, "mean gap": gap, "K/√n (1−2γ/3)^(K−1)": _order(K, m + 1)}
        for (K, m), gap in gaps.items()
    ]
    in_n, in_k = _in_n(gaps, start, exponent), _in_k(gaps)
    return Evidence(
        parts=[
            Part(printed=query.check()),
            Part(printed=seen.check(), corrected=unseen.check(), matters="print"),
            Part(printed=in_k, corrected=in_n, matters="result"),
        ],
        numbers={
            f"gap at n = {start + 1}, K = {K}": gaps[K, start] for K in (LAYERS[0], LAYERS[-1])
        },
        table=rows,
    )


def _sizes(start: int) -> list[int]:
    return [round(start * 10 ** (k / 4)) for k in range(5)]


def _order(K: int, n: int) -> float:
    return K / math.sqrt(n) * A ** (K - 1)


def _gap(found: Prefixes, K: int, m: int) -> float:
    """Mean error of the linear read-out minus that of the query read-out."""
    floor = float(found.scores(K, m).min()) - 1.0
    y = found.labels[:, m]
    linear, query = found.linear_readout(K, m, floor), found.query_readout(K)[:, m]
    return float(((linear - y).abs() - (query - y).abs()).abs().mean())


def _in_k(gaps: dict[tuple[int, int], float]) -> Check:
    """Check that one constant, fitted at the fewest layers, suffices for more."""
    found = Inequality("the gap is of order K/√n (1 − 2γ/3)^(K−1)")
    first = LAYERS[0]
    constant = max(gap / _order(K, m + 1) for (K, m), gap in gaps.items() if first == K)
    for (K, m), gap in gaps.items():
        about = f"n = {m + 1}, K = {K}, constant {constant:.3g} from K = {first}"
        found.add(gap, constant * _order(K, m + 1), size=(K, m), about=about)
    return found.check()


def _in_n(gaps: dict[tuple[int, int], float], start: int, exponent: float) -> Check:
    """Check how the gap falls over a decade of n; instances share their early prefixes."""
    sizes, told, right = _sizes(start), [], True
    for K in LAYERS[:2]:
        slope, low, high = fit_exponent(sizes, [gaps[K, m] for m in sizes])
        told.append(f"K = {K}: {slope:.2f} ({low:.2f} … {high:.2f})")
        right = right and abs(slope - exponent) < 0.5 and slope < -0.5
    few, many = gaps[LAYERS[1], start], gaps[LAYERS[-1], start]
    right = right and many > few
    told.append(f"at n = {start + 1} it is {few:.2g} for K = {LAYERS[1]}, {many:.2g} for K = 12")
    return Check(
        statement="the gap falls faster than 1/√n, like 1/n, at fixed K, and grows with K",
        passed=right,
        summary=f"exponents over a decade of n, {'; '.join(told)}",
        counterexample="" if right else "; ".join(told),
    )


def _leak(generator: torch.Generator, token: int) -> tuple[Equality, Equality]:
    """Check whether ŷ_n changes with y_n: at token 2n+1, as Section 4.3 has it, and at 2n−1."""
    seen = Equality("ŷ_n = ⟨x_n, β_{2n+1}⟩ does not depend on y_n", tolerance=1e-12)
    unseen = Equality("ŷ_n = ⟨x_n, β_{2n−1}⟩ does not depend on y_n", tolerance=1e-12)
    found = simulate_prefixes(generator, 5, 12, 2, 0.5, 100)
    for n in (1, 2, 5, 12):
        for trial, m in ((seen, n), (unseen, n - 1 + token)):
            change = _read(found, n, m, 1.0) - _read(found, n, m, 0.0)
            about = f"n = {n}, y_n raised by 1, token {2 * m + 1}, ŷ_n moves by {change:.3g}"
            trial.add(torch.tensor(change), torch.tensor(0.0), size=(n,), about=about)
    return seen, unseen


def _read(found: Prefixes, n: int, m: int, raised: float) -> float:
    """⟨x_n, β⟩ after two steps of γ = 1/2 on the first m examples, with y_n raised."""
    X = found.x[0, :m]
    y = X @ found.star[0] + raised * (torch.arange(1, m + 1) == n).double()
    beta = torch.zeros(D, dtype=torch.float64)
    for _ in range(2):
        beta = beta - X.mT @ (X @ beta - y) / (2 * m + 1)
    return float(found.x[0, n - 1] @ beta)
