"""Lemma 4: the iterates never leave a ball.

Printed    if ‖β^(k)‖ ≤ C_x then ‖β^(k+1)‖ ≤ C_x = d b_x b_β (N+1)/σ_min(XᵀX), for every token.
           The proof sets M^V = 2/σ_d² I and leaves γ open. It uses ‖I − A‖ ≤ 1 − σ_min(A), bounds
           ‖XᵀY‖/i by d b_x b_β, and σ_min of a prefix by that of all of X ("interlacing")
Tested     LISTA-VM's step at every prefix n ≥ d (for n < d, σ_min(X_nᵀX_n) = 0), M^V as in the
           proof, any scale of x, γ‖D_nᵀX_n‖ ≤ 1, β in the ball; b_x and b_β the least possible
Corrected  C = n b_x² b_β/σ_min(X_nᵀX_n) with the token's own n examples, for M^V = mI and
           A = γD_nᵀX_n ≼ I. Proof: S_θ lowers norms, so that ‖β₊‖ ≤ ‖(I − A)β + Aβ*‖
           ≤ (1 − λ_min(A))C + λ_max(A)b_β, which is at most C if C ≥ b_β λ_max(A)/λ_min(A); and
           λ_max(X_nᵀX_n) ≤ n b_x²
Wrong      the proof has three errors, and C_x inherits the last two. With i = 2n+1:
           (i) loses the 2 of M^V: ‖β₊‖ ≤ (1 − λ_min(A))‖β‖ + 2γ/(iσ_d²)‖X_nᵀY‖
           (ii) puts σ_min(XᵀX)/(N+1) for σ_min(X_nᵀX_n)/i. By interlacing the smallest singular
           value of a prefix is at most that of X, which is the opposite direction
           (ii) puts d b_x b_β for ‖X_nᵀY‖/i, but y = ⟨x, β*⟩ contains a second factor b_x:
           ‖X_nᵀY‖ ≤ n b_x · b_x b_β
Beyond     γ = 3/2 is too large for this: where γ‖D_nᵀX_n‖ > 2, steps without a threshold diverge
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case, format_entry
from innerloop.claims.evidence import Erratum, Evidence, Part, misprint
from innerloop.claims.falsifying import change_field
from innerloop.claims.liu2025.hard_instances import HARD_MATRICES
from innerloop.claims.liu2025.lemma_1 import draw_uniform
from innerloop.claims.liu2025.printed import soft_threshold
from innerloop.claims.prompts import draw_integer, draw_normal
from innerloop.claims.searching import search_counterexample
from innerloop.claims.trials import Inequality, Working, as_erratum


class Step(NamedTuple):
    """The largest ‖β₊‖ from the printed and the corrected ball, and both sides of the proof."""

    printed: float
    """From the printed ball."""
    proper: float
    """From the corrected ball."""
    wide: float
    """From the corrected ball with γ = 3/2."""
    radii: tuple[float, float]
    """Radii of the printed and of the corrected ball."""
    scale: float
    """g = γ/(iσ_d²)."""
    lines: list[tuple[float, float]]
    """‖β‖ and ‖β₊‖, for β = 0 and others."""
    least: tuple[float, float]
    """σ_min of X_nᵀX_n and of XᵀX."""
    pull: float
    """‖X_nᵀY‖."""
    bounds: tuple[float, float]
    """b_x and b_β."""
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
    for step in data.steps:
        C, own_C = step.radii
        case, working = _show_step(step)
        printed.add(step.printed, C, case, working=working)
        proper.add(step.proper, own_C, step.case)
        note = f"from $‖β‖ = C = {format_entry(own_C)}$"
        wide.add(step.wide, own_C, step.case.extend(γ=torch.tensor(1.5), note=note))
    length, at, summary = data.searched
    proper.add(length, 1.0, at)
    proper.search_note = summary
    return Evidence(
        parts=[Part(printed=printed.check(), corrected=proper.check())],
        errata=[
            *_judge_proof(data.steps),
            misprint(
                "proof, the first two displays",
                "rows $1 : i−1$, and $−$ before $XᵀY$ in the second",
                "rows $1 : (i−1)/2$, as in (C.12), and $+$",
                "token $i = 3$ contains one example; from $β = 0$ the step is $+γM^V XᵀY/i$",
            ),
        ],
        beyond=[wide.check()],
    )


def _show_step(step: Step) -> tuple[Case, Working]:
    """Describe the step from the printed ball; for d = 1 with the computation of β₊."""
    C = format_entry(step.radii[0])
    case = step.case.extend(note=f"from $‖β‖ = C = {C}$")
    if step.case["d"] > 1:
        return case, ("", "")
    A = format_entry(2 * step.scale * step.least[0])
    return case, (f"{C} + {A} · ({format_entry(step.bounds[1])} − {C})", "")


def _judge_proof(steps: list[Step]) -> list[Erratum]:
    line = "(i): $‖β₊‖ ≤ (1 − gσ_min(X_nᵀX_n))‖β‖ + g‖X_nᵀY‖$, $g = {}γ/(iσ_d²)$, $i = 2n+1$"
    once, twice = Inequality(line.format("")), Inequality(line.format("2"), rounding=1e-9)
    prefix = Inequality("(ii): $σ_min(XᵀX)/(N+1) ≤ σ_min(X_nᵀX_n)/i$, $i = 2n+1$", rounding=1e-9)
    rows = Inequality("interlacing: $σ_min(X_nᵀX_n) ≤ σ_min(XᵀX)$", rounding=1e-9)
    pull = Inequality("(ii): $‖X_nᵀY‖/i ≤ d b_x b_β$, $i = 2n+1$", rounding=1e-9)
    scaled = Inequality("$‖X_nᵀY‖/i ≤ n b_x² b_β/i$, $i = 2n+1$", rounding=1e-9)
    for step in steps:
        d, N, n = (step.case[name] for name in ("d", "N", "n"))
        i, (own, whole), (b_x, b_beta) = 2 * n + 1, step.least, step.bounds
        for k, (before, after) in enumerate(step.lines):
            case = step.case.extend(note="$β ≠ 0$" if k else "$β = 0$")
            for trial, g in ((once, step.scale), (twice, 2 * step.scale)):
                right = (1 - g * own) * before + g * step.pull
                numbers = [format_entry(number) for number in (g, own, before, step.pull)]
                working = "(1 − {0} · {1}) · {2} + {0} · {3}".format(*numbers)
                trial.add(after, right, case, working=("", working))
        sides = format_entry(whole), format_entry(own), format_entry(step.pull)
        working = f"{sides[0]}/{N + 1}", f"{sides[1]}/{i}"
        prefix.add(whole / (N + 1), own / i, step.case, working=working)
        rows.add(own, whole, step.case)
        working = f"{sides[2]}/{i}", f"{d} · {format_entry(b_x)} · {format_entry(b_beta)}"
        pull.add(step.pull / i, d * b_x * b_beta, step.case, working=working)
        scaled.add(step.pull / i, n * b_x**2 * b_beta / i, step.case)
    return [
        as_erratum("proof, (i)", once, twice),
        as_erratum('proof, (ii), "interlacing"', prefix, rows),
        as_erratum("proof, (ii), the bound of $XᵀY$", pull, scaled),
    ]


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
            "steps.lines", lambda lines: [(a, 1.1 * b) for a, b in lines]
        ),
        "a prefix with larger singular values than all of $X$": change_field(
            "steps.least", lambda least: (2 * least[1], least[1])
        ),
        "labels ten times as large": change_field("steps.pull", lambda pull: 10 * pull),
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
        return float(soft_threshold(moved, theta).norm(dim=-1).max())

    case = Case(d=d, N=N, n=n, γ=torch.tensor(gamma), b_x=torch.tensor(b_x), note=note)
    lines = []
    for beta in proper * points:
        after = float(soft_threshold(beta - gamma * (beta - star) @ G, theta).norm())
        lines.append((float(beta.norm()), after))
    return Step(
        printed=lengthen(printed, gamma),
        proper=lengthen(proper, gamma),
        wide=lengthen(proper, 1.5),
        radii=(printed, proper),
        scale=gamma / (2 * n + 1) / least,
        lines=lines,
        least=(own_low, low),
        pull=float((own @ star).norm()),
        bounds=(b_x, b_beta),
        case=case,
    )


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
