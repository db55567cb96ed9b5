"""Lemma 4: the iterates never leave a ball.

Printed    if ‖β^(k)‖ ≤ C_x then ‖β^(k+1)‖ ≤ C_x = d b_x b_β (N+1)/σ_min(XᵀX), for every token.
           The proof sets M^V = 2/σ_d² I and leaves γ open; it uses ‖I − A‖ ≤ 1 − σ_min(A), bounds
           ‖XᵀY‖/i by d b_x b_β, and σ_min of a prefix by that of all of X ("interlacing")
Tested     LISTA-VM's step at every prefix n ≥ d (below, σ_min(X_nᵀX_n) = 0), M^V as in the proof,
           any scale of x, γ‖D_nᵀX_n‖ ≤ 1, β in the ball; b_x and b_β the least values possible
Corrected  C = n b_x² b_β/σ_min(X_nᵀX_n) with the token's own n examples, for M^V = mI and
           A = γD_nᵀX_n ≼ I. y = ⟨x, β*⟩ brings a second b_x, and σ_min of all of X says nothing of
           a prefix. Proof: S_θ lowers norms, so ‖β₊‖ ≤ ‖(I − A)β + Aβ*‖ ≤ (1 − λ_min(A))C +
           λ_max(A)b_β, at most C if C ≥ b_β λ_max(A)/λ_min(A); and λ_max(X_nᵀX_n) ≤ n b_x²
Wrong      (i) loses the 2 of M^V: with A = γD_nᵀX_n, i = 2n+1, ‖β₊‖ ≤ (1 − λ_min(A))‖β‖ +
           2γ/(iσ_d²)‖XᵀY‖ by the triangle inequality, where γ‖D_nᵀX_n‖ ≤ 1. (ii) takes a prefix for
           all of X: σ_min(X_nᵀX_n)/i need not be σ_min(XᵀX)/(N+1), as rows are left out and i > N+1
Beyond     γ = 3/2 is too large for that: where γ‖D_nᵀX_n‖ > 2, unthresholded steps diverge
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case, format_entry
from innerloop.claims.evidence import Evidence, Part, misprint
from innerloop.claims.falsifying import change_field
from innerloop.claims.liu2025.hard_instances import HARD_MATRICES
from innerloop.claims.liu2025.lemma_1 import draw_uniform
from innerloop.claims.liu2025.printed import soft_threshold
from innerloop.claims.prompts import draw_integer, draw_normal
from innerloop.claims.searching import search_counterexample
from innerloop.claims.trials import Inequality


class Step(NamedTuple):
    """The longest β₊ from a ball, in units of its radius."""

    printed: float
    """From the printed ball."""
    proper: float
    """From the corrected ball."""
    wide: float
    """From the corrected ball with γ = 3/2."""
    radius: float
    """That of the printed ball."""
    lines: list[tuple[float, float, float]]
    """‖β₊‖ from β = 0 and others, what (i) says of it, and (i) with the 2."""
    spectra: tuple[float, float]
    """σ_min(X_nᵀX_n)/i and σ_min(XᵀX)/(N+1)."""
    case: Case


class Data(NamedTuple):
    steps: list[Step]
    searched: tuple[float, Case, str]
    """The longest β₊ that a search found, in units of the corrected radius."""


def judge_ball(data: Data) -> Evidence:
    line = "$‖β₊‖ ≤ C$ where $‖β‖ ≤ C$, $C = {}$, $γ{}$"
    all_of, own = "d b_x b_β(N+1)/σ_min(XᵀX)", "n b_x² b_β/σ_min(X_nᵀX_n)"
    printed = Inequality(line.format(all_of, "‖D_nᵀX_n‖ ≤ 1"))
    proper = Inequality(line.format(own, "‖D_nᵀX_n‖ ≤ 1"), rounding=1e-9)
    wide = Inequality(line.format(own, " = 3/2"), rounding=1e-9)
    line = "(i): $‖β₊‖ ≤ (1 − gσ_min(X_nᵀX_n))‖β‖ + g‖XᵀY‖$, $g = {}γ/(iσ_d²)$"
    first, twice = Inequality(line.format("")), Inequality(line.format("2"), rounding=1e-9)
    prefix = Inequality("(ii): $σ_min(XᵀX)/(N+1) ≤ σ_min(X_nᵀX_n)/i$, $i = 2n+1$", rounding=1e-9)
    for step in data.steps:
        for k, (length, once, double) in enumerate(step.lines):
            case = step.case.extend(note="$β ≠ 0$" if k else "$β = 0$")
            first.add(length, once, case)
            twice.add(length, double, case)
        prefix.add(step.spectra[1], step.spectra[0], step.case)
        units = f"from $β = C$, in units of $C = {format_entry(step.radius)}$"
        printed.add(step.printed, 1.0, step.case.extend(note=units))
        proper.add(step.proper, 1.0, step.case)
        wide.add(step.wide, 1.0, step.case.extend(γ=torch.tensor(1.5)))
    length, case, summary = data.searched
    proper.add(length, 1.0, case)
    proper.search_note = summary
    return Evidence(
        parts=[Part(printed=printed.check(), corrected=proper.check())],
        errata=[
            Part(printed=first.check(), corrected=twice.check()).as_erratum("proof, (i)"),
            Part(printed=prefix.check()).as_erratum('proof, (ii), "interlacing"'),
            misprint(
                "proof, the first two displays",
                "rows $1 : i−1$, and $−$ before $XᵀY$ in the second",
                "rows $1 : (i−1)/2$, as in (C.12), and $+$",
                "$i = 3$ has seen one example; $β = 0$: the step is $+γM^V XᵀY/i$",
            ),
        ],
        beyond=[wide.check()],
    )


@claim(
    "liu2025.lemma-4",
    "A ball whose radius depends on the least singular value of $X$ holds all iterates.",
    where="Appendix E.1, Lemma 4",
    kind="inequality",
    hypotheses={
        "$M^V = 2/σ_d² I$": "the proof",
        "$γ‖D_nᵀX_n‖ ≤ 1$": "the proof's first inequality; Lemma 1 has $0 ≤ γ D_iᵀX_i ≤ 1$",
        "$n ≥ d$": "else $σ_min(X_nᵀX_n) = 0$",
    },
    quick={"trials": 700, "iterations": 60},
    full={"trials": 50_000, "iterations": 200},
    tiny={"trials": 60, "iterations": 5},
    judge=judge_ball,
    falsified={
        "iterates longer by a tenth": change_field("steps.proper", lambda proper: 1.1 * proper),
        "iterates longer than (i) allows": change_field(
            "steps.lines", lambda lines: [(1.1 * a, b, c) for a, b, c in lines]
        ),
    },
)
def lemma_4(generator: torch.Generator, *, trials: int, iterations: int) -> Data:
    steps = [_measure_step(generator, *given) for given in _list_by_hand()]
    for trial in range(1, trials):
        steps.append(_measure_step(generator, *_draw_case(generator), 0.01 * trial % 0.1))
    found = search_counterexample(
        _margin,
        [{"d": d} for d in (1, 2, 3)],
        generator,
        pool=HARD_MATRICES,
        descents=2,
        iterations=iterations,
    )
    return Data(steps, (1 - found.margin, found.case, found.summary))


def _margin(X: Tensor, *, d: int) -> tuple[Tensor, Tensor]:
    """1 − ‖β₊‖/C for n = d, β* = e₁, γ‖DᵀX‖ = 1 and β on the sphere where a step shrinks least."""
    values, vectors = torch.linalg.eigh(X.mT @ X)
    star = torch.zeros_like(X[..., 0])
    star[..., 0] = 1
    radius = d * X.square().sum(-1).amax(-1) / values[..., 0]
    beta = radius[..., None] * vectors[..., 0]
    beta = torch.where((beta[..., :1] < 0), -beta, beta)
    pull = (X.mT @ X @ (beta - star).unsqueeze(-1)).squeeze(-1) / values[..., -1:]
    return 1 - (beta - pull).norm(dim=-1) / radius, values[..., 0] / values[..., -1] - 1e-9


def _measure_step(
    generator: torch.Generator,
    X: Tensor,
    star: Tensor,
    n: int,
    gamma: float | None,
    share: float = 1.0,
    theta: float = 0.0,
    note: str = "",
) -> Step:
    """Measure a step with γ, or with γ‖D_nᵀX_n‖ = `share` where γ is None."""
    (N, d), own = X.shape, X[:n].mT @ X[:n]
    least = float(X.square().mean(0).min())  # σ_d²
    G = 2 * own / (2 * n + 1) / least
    gamma = gamma or share / float(torch.linalg.eigvalsh(G)[-1])
    b_x, b_beta = float(X.norm(dim=-1).max()), float(star.abs().sum())
    low, own_low = (float(torch.linalg.eigvalsh(A)[0]) for A in (X.mT @ X, own))
    printed, proper = d * b_x * b_beta * (N + 1) / low, n * b_x**2 * b_beta / own_low
    direction = draw_normal(generator, d)
    points = torch.stack(
        [0 * direction, direction / direction.norm(), torch.linalg.eigh(G)[1][:, 0]]
    )

    def lengthen(radius: float, step: float) -> float:
        moved = radius * points - step * (radius * points - star) @ G
        return float(soft_threshold(moved, theta).norm(dim=-1).max()) / radius

    case = Case(d=d, N=N, n=n, γ=torch.tensor(gamma), b_x=torch.tensor(b_x), note=note)
    lines, g = [], gamma / (2 * n + 1) / least
    for beta in proper * points:
        after = float(soft_threshold(beta - gamma * (beta - star) @ G, theta).norm())
        whole, size = float((own @ star).norm()), float(beta.norm())
        lines.append((after, *((1 - by * own_low) * size + by * whole for by in (g, 2 * g))))
    spectra = own_low / (2 * n + 1), low / (N + 1)
    lengths = lengthen(printed, gamma), lengthen(proper, gamma), lengthen(proper, 1.5)
    return Step(*lengths, printed, lines, spectra, case)


def _list_by_hand() -> list[tuple]:
    """One example x = 1, 2, …, 10, β* = γ = 1; two, of which the first is seen; hard matrices.

    From β = C_x = 2/x a step leads to (2/x + 2)/3 where γD₁ᵀX₁ = 2/3: beyond C_x from x = 3 on.
    """
    one = torch.ones(1, dtype=torch.float64)
    words = "$x = σ_d = {}$, $β* = 1$"
    found: list[tuple] = [
        (x * one[None], one, 1, 1.0, 1.0, 0.0, words.format(x)) for x in range(1, 11)
    ]
    for x, gamma in (((2, 1), 0.5), ((1, 10), 1.0)):
        two, words = torch.tensor(x, dtype=torch.float64)[:, None], f"$x = {x[0]}$ and ${x[1]}$"
        found.append((two, one, 1, gamma, 1.0, 0.0, f"{words}, of which the first is seen"))
    for name, build in HARD_MATRICES.items():
        for d in (1, 2, 3):
            found.append((build(d), torch.eye(d).double()[0], d, None, 1.0, 0.0, name))
    return found


def _draw_case(generator: torch.Generator) -> tuple[Tensor, Tensor, int, None, float]:
    d = draw_integer(generator, 1, 5)
    N = d + draw_integer(generator, 0, 20)
    scale = 10 ** (2 * float(draw_uniform(generator)) - 1)
    X = scale * draw_normal(generator, N, d) * (0.5 + draw_uniform(generator, d))
    star = draw_normal(generator, d)
    star[draw_integer(generator, 1, d) :] = 0
    n, share = draw_integer(generator, d, N), float(0.1 + 0.9 * draw_uniform(generator))
    return X, star, n, None, share
