"""Proposition 2: on the event of Lemma 3 the error falls like e^(−α_n K).

Printed    on the event A (D.4) there are parameters such that for n ≥ N_0
           ‖β^(K+1) − β*‖ ≤ c₁ e^(−α_n K), c₁ = ‖β*‖₁. The proof takes the step γ, which needs
           γ max D_iᵀX_i ≤ 1 (D.11), finds ((n+2)/n)/(1 + a) ≥ 2/(1 + …) ≥ 1.6 (D.14), and Lemma 1's
           θ = γσ_max c₁ e^(−c₂(k−2))
Tested     every DᵀX on A, not only those of random X: the diagonal within its bounds on 𝕊 and in
           [0, 10] elsewhere, the other entries anywhere in ±b, at random and at the corners; c =
           1/4, n from N_0 to 1,000 N_0, K to 12, γ up to 3/2
Reading    parameters that may depend on X and β*, as σ_max and c₁ in the proof's θ do
Proof      with the step s = min(γ, 1) and θ = sσ_max c₁ e^(−c₂(k−1)), as with liu2025.theorem-5.1
Wrong      θ with k − 2: the first threshold can exceed β* itself. With c₁ = e^α ‖β*‖₁, as the
           proof's first line has it, that θ does give the bound: Lemma 1 leaves ‖β*‖₁ e^(−c₂(K−1)).
           (D.6) asks for all i ∈ [d], and A bounds i ∈ 𝕊; off 𝕊 β is 0 (Lemma 2), so that D_iᵀX_i
           enters nowhere, and i ∈ 𝕊 will do. (D.14): the least of its bounds ((n+2)/n)/(1 + a) is
           at most 1 + 2/n, and 0.90 at n = N_0 for S = 1; the factor 2 in the proof's chain has no
           source
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part, misprint
from innerloop.claims.falsifying import change_field
from innerloop.claims.liu2025.hard_instances import list_hard_grams
from innerloop.claims.liu2025.lemma_1 import draw_uniform
from innerloop.claims.liu2025.measurements import iterate
from innerloop.claims.liu2025.theorem_5_1 import GAMMA_RANGE
from innerloop.claims.prompts import draw_integer, draw_normal
from innerloop.claims.trials import Inequality
from innerloop.theory import sparse

C, MOST_LAYERS = 0.25, 12


class Instance(NamedTuple):
    """A matrix DᵀX on the event A, and β*."""

    G: Tensor
    star: Tensor
    n: float
    delta: float
    S: int

    def run(self, gamma: float, first: int) -> list[float]:
        """Errors after 0, 1, … layers with θ = γσ_max c₁ e^(−c₂(k−first))."""
        least, _, most = sparse.coherence(self.G, self.S)
        shrink = sparse.contraction(gamma, self.S, least, most).clamp_min(1e-12)
        powers = torch.arange(1, MOST_LAYERS + 1) - first
        thetas = gamma * most * self.star.abs().sum() * shrink**powers
        return (iterate(self.G, self.star, gamma, thetas) - self.star).norm(dim=-1).tolist()

    def bound(self, gamma: float, K: int) -> float:
        """The bound c₁ e^(−α_n K), with (D.3) for α_n."""
        factor = sparse.rate_factor(self.n, self.S, len(self.star), self.delta, C, gamma)
        return float(self.star.abs().sum()) * factor**K


class Run(NamedTuple):
    """Errors layer by layer against the bound, and γ max D_iᵀX_i of two γ."""

    errors: list[float]
    early: list[float]
    """The errors with θ as printed, k − 2."""
    bounds: list[float]
    stated: float
    """For γ = 1.59."""
    allowed: float
    """For the γ that (D.14) allows."""
    everywhere: float
    """For that γ, i not in 𝕊 included."""
    case: Case


def judge_event(runs: list[Run]) -> Evidence:
    line = "$‖β^(K+1) − β*‖ ≤ ‖β*‖₁ e^(−α_n K)$ on $A$, $n ≥ N_0$, $θ$ with {}"
    late = Inequality(line.format("$k − 1$, the step $min(γ, 1)$"), rounding=1e-9)
    early = Inequality(line.format("$k − 2$, the step $min(γ, 1)$"), rounding=1e-9)
    large = Inequality("(D.11): $γ max_{i∈𝕊} D_iᵀX_i ≤ 1$ for every $γ < 1.6$")
    small = Inequality("(D.11): $γ max_{i∈𝕊} D_iᵀX_i ≤ 1$ for $γ ≤ ((n+2)/n)/(1 + a)$")
    every = Inequality("(D.6): $γ D_iᵀX_i ≤ 1$ for all $i ∈ [d]$, $γ ≤ ((n+2)/n)/(1 + a)$, on $A$")
    first = Inequality("$θ$ with $k − 2$: error at most $‖β*‖₁ e^(−α_n(K−1))$, $c₁ = e^α‖β*‖₁$")
    for run in runs:
        for trial, errors in ((late, run.errors), (early, run.early)):
            for K in (1, 2, 5, MOST_LAYERS):
                left = max(errors[K] - 1e-13, 0.0)
                length = run.bounds[0]
                rate = run.bounds[1] / length if length else 0.0
                working = ("", f"{length:.6g} · {rate:.6g}^{K}")
                trial.add(left, run.bounds[K], run.case.extend(K=K), working=working)
                if trial is early:
                    first.add(left, run.bounds[K - 1] * (1 + 1e-9), run.case.extend(K=K))
        working = (f"1.59 · {run.stated / 1.59:.6g}", "")
        large.add(run.stated, 1.0, run.case.extend(γ=torch.tensor(1.59)), working=working)
        largest = _largest_step(run.case["S"], float(run.case["n"]), float(run.case["δ"]))
        case = run.case.extend(γ=torch.tensor(largest, dtype=torch.float64))
        small.add(run.allowed, 1.0, case)
        working = (f"{largest:.7g} · {run.everywhere / largest:.6g}", "")
        every.add(run.everywhere, 1.0, case, working=working)
    held, inside = late.check(), small.check()
    return Evidence(
        parts=[Part(printed=held, reading="$θ$ may depend on $X$ and $‖β*‖₁$, as in the proof")],
        errata=[
            Part(printed=large.check(), corrected=inside).as_erratum("proof, (D.14)"),
            Part(printed=every.check(), corrected=inside).as_erratum(
                "proof, (D.6), which needs $i ∈ 𝕊$ only"
            ),
            Part(printed=early.check(), corrected=held).as_erratum("proof, $θ$ from Lemma 1"),
            GAMMA_RANGE,
            misprint(
                "(D.4) and the first line of the proof",
                "$|D_iᵀX_i|$ for $i ≠ j$, and $c₁ = e^α ‖β*‖₁$",
                "$|D_iᵀX_j|$, and $c₁ = ‖β*‖₁$ as in the statement",
                "$|D_iᵀX_i| ≤ b$ contradicts the first line of (D.4) for $n ≥ N_0$, by (D.9)",
            ),
        ],
        beyond=[first.check()],
        numbers={
            f"((n+2)/n)/(1 + a) at n = N_0, S = {S}, d = 20, δ = 0.1": _largest_step(
                S, sparse.least_examples(S, 20, 0.1, C), 0.1
            )
            for S in (1, 3)
        },
    )


@claim(
    "liu2025.proposition-2",
    (
        "On the event of Lemma 3 and for $n ≥ N_0$, $K$ layers leave an error of at most "
        "$‖β*‖₁ e^(−α_n K)$."
    ),
    where="Appendix D.1, Proposition 2",
    kind="inequality",
    hypotheses={
        "the event $A$, $n ≥ N_0$": "the proposition",
        "$|D_iᵀX_j|$ for $i ≠ j$ in $A$": "Lemma 1, where $σ_max$ is defined",
        "$γ ≤ 3/2$": "Theorem 5.1; else $α_n$ is no number for large $n$",
    },
    quick={"trials": 800},
    full={"trials": 60_000},
    tiny={"trials": 40},
    judge=judge_event,
    falsified={
        "layers that do not lower the error": change_field(
            "errors", lambda errors: [errors[0]] * len(errors)
        ),
        "diagonals twice as large": change_field("allowed", lambda allowed: 2 * allowed),
    },
)
def proposition_2(generator: torch.Generator, *, trials: int) -> list[Run]:
    given = [
        _smallest(),
        _large_outside(),
        *_list_hard(),
        *(_draw_instance(generator, k) for k in range(trials)),
    ]
    return [
        _run(instance, gamma)
        for instance in given
        for gamma in (1.5, 1.5 * float(draw_uniform(generator)))
    ]


def _run(given: Instance, gamma: float) -> Run:
    step = min(gamma, 1.0)
    most = float(sparse.coherence(given.G, given.S)[1])
    largest = _largest_step(given.S, given.n, given.delta)
    allowed, everywhere = largest * most, largest * float(given.G.diagonal().max())
    bounds = [given.bound(gamma, K) for K in range(MOST_LAYERS + 1)]
    told: dict[str, Any] = {"DᵀX": given.G, "β*": given.star}
    for name, value in (("n", given.n), ("δ", given.delta), ("γ", gamma)):
        told[name] = torch.tensor(value, dtype=torch.float64)
    case = Case(S=given.S, d=len(given.star), **told)
    runs = given.run(step, 1), given.run(step, 2)
    return Run(*runs, bounds, 1.59 * most, allowed, everywhere, case)


def _smallest() -> Instance:
    """D_iᵀX_i = 1 everywhere, D_2ᵀX_1 = 0.1: γ = 1 removes the error at once."""
    G = torch.eye(2, dtype=torch.float64)
    G[1, 0] = 0.1
    return Instance(G, torch.eye(2, dtype=torch.float64)[0], 400.0, 0.1, 1)


def _large_outside() -> Instance:
    """DᵀX = diag(1, 10): on A, which bounds the first entry only."""
    G = torch.diag(torch.tensor([1.0, 10.0], dtype=torch.float64))
    return Instance(G, torch.eye(2, dtype=torch.float64)[0], 400.0, 0.1, 1)


def _list_hard() -> list[Instance]:
    """List hard matrices at n = N_0, entries off the diagonal as large as A allows."""
    found = []
    for S in (1, 2):
        n = sparse.least_examples(S, S + 3, 0.1, C)
        b = sparse.deviation_width(S + 1, 0.1, n, C)
        for _, G in list_hard_grams(S, b):
            star = (torch.arange(len(G)) < S).double()
            found.append(Instance(n / (n + 2) * G, star, n, 0.1, S))
    return found


def _draw_instance(generator: torch.Generator, trial: int) -> Instance:
    S, delta = draw_integer(generator, 1, 3), float(0.01 + 0.3 * draw_uniform(generator))
    d = max(2, S + draw_integer(generator, 0, 5))
    n = sparse.least_examples(S, d, delta, C) * 1_000 ** float(draw_uniform(generator))
    a, b = sparse.deviation_width(S, delta, n, C), sparse.deviation_width(d, delta, n, C)
    corner = trial % 2 == 0
    off = 2 * draw_uniform(generator, d, d) - 1
    off = b * (off.sign() if corner else off)
    sides = 2 * draw_uniform(generator, d) - 1
    diagonal = n / (n + 2) * (1 + a * (sides.sign() if corner else sides))
    diagonal[S:] = 10 * draw_uniform(generator, d - S)
    G = off - torch.diag(off.diagonal()) + torch.diag(diagonal)
    star = torch.zeros(d, dtype=torch.float64)
    star[:S] = draw_normal(generator, S)
    return Instance(G, star, n, delta, S)


def _largest_step(S: int, n: float, delta: float) -> float:
    """The largest step that (D.14) allows."""
    return (n + 2) / n / (1 + sparse.deviation_width(S, delta, n, C))
