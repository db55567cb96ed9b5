"""Theorem 1: the global minimum of the in-context loss of one layer of linear attention.

Printed    x ~ N(0, Σ), w* ~ N(0, I), P = [0; bᵀ], Q = [A 0] (7): b = e_{d+1} and
           A = −[U diag(1/((n+1)/n λ_i + (1/n) Σ_k λ_k)) Uᵀ; 0] (8) is a global minimum of f(b, A),
           and so is (γb, A/γ); at Σ = I, A = −1/((n−1)/n + (d+2)/n) [I; 0]; for large n, A ≈ Σ⁻¹
Tested     f by exact moments, and against the layer (4) run on tokens by a product rule that
           integrates it exactly; the gradient in all of b and A; f(8) against random weights,
           weights nearby, weights of the other known minima and the ends of L-BFGS from random
           starts; Σ dense, of any rank, n from 1
Reading    A ≈ Σ⁻¹ up to its sign, which (8) and (11) give: −A is the preconditioner
Errata     the introduction calls the optimum unique, and the proof that of each f_j
Corrected  Σ ≻ 0: for d ≥ 2 the optimum is unique up to (γb, A/γ); for d = 1 there is one further
           family. f_j, Λ ≻ 0, is least exactly on X_j plus antisymmetric matrices
Proof      with b = (p, β), A = [R; aᵀ] and K = βRᵀ + apᵀ (innerloop.theory.single_layer),
           f − f(8) = tr(Σ (K − K*) E[G²] (K − K*)ᵀ) + E‖RᵀGp + β (wᵀGw) a‖²_Σ with K* invertible.
           Both are 0 at a minimum: K = K*; and in the second, by degree in w, βa = 0 and RᵀGp = 0
           almost surely. If β ≠ 0: a = 0, R = K*ᵀ/β is invertible, so Gp = 0, so Σp = 0, p = 0:
           a rescaling of (8). If β = 0: K* = apᵀ has rank 1, so d = 1, and R = 0: the second
           family. For f_j: ⟨C, X⟩ is ⟨C, (X + Xᵀ)/2⟩, and the entries G, Gw, wᵀGw of C on and above
           the diagonal are linearly independent, so that f_j is strictly convex in (X + Xᵀ)/2
Beyond     f − f(8) as these two squares is a proof of the theorem for all (b, A) at once. For d ≥ 2
           there are minima that are not global: Σ = diag(2, 1), n = 2, b = e_1,
           A = [0; 0; (−1/4.5, 0)]
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from innerloop.claims.ahn2023 import minima, one_layer
from innerloop.claims.ahn2023.hard_instances import build_covariances, build_matrices
from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part, misprint
from innerloop.claims.falsifying import change_field
from innerloop.claims.intervals import check_rate
from innerloop.claims.prompts import draw_covariance, draw_integer, draw_normal
from innerloop.claims.trials import Equality, Inequality, check_rows
from innerloop.theory.single_layer import SingleLayerLoss

Weights = tuple[Tensor, Tensor]
MISPRINTS = (
    misprint(
        "Section 4, (6)",
        "$f(P, Q) = E[[Z_0 + Attn/n]_{d+1,n+1} + w*ᵀx]$",
        "the square of it, as (5) and A.1 have it",
        "$d = n = 1$, $Σ = 1$, $P = Q = 0$: (6) is $E[w*x] = 0$, the loss (5) is $E[(w*x)²] = 1$",
    ),
    misprint(
        "Section 4, after (6)",
        "$f$ depends only on the last row of $P$ and the first $n$ columns of $Q$",
        "the first $d$ columns, as (7) and A.1 have it",
        "$d = 2$, $n = 1$, $x = w* = (1, 0)$, query (0, 1), $P = e₃e₃ᵀ$: Attn is 0 at "
        "$Q = 0$, 1 at $e₁e₂ᵀ$",
    ),
    misprint(
        "Section 4, remark 1 after Theorem 1",
        "$A ≈ Σ⁻¹$ when $n$ is large",
        "$−A ≈ Σ⁻¹$",
        "$d = 1$, $Σ = 1$: by (8) $A = −n/(n + 2)$, which is −0.998 at $n = 1000$",
    ),
    misprint(
        "proof (A.3), step 1, after Lemma 7",
        "$f(b, A) = ∑_j f_j(b, A_j)$",
        "$∑_j λ_j f_j$, since $E[x_j²] = λ_j$, as step 2 has it; each $f_j$ is least at (8) anyway",
        "$d = 1$, $λ = 2$, $b = 0$: $f = E[(w*x)²] = 2$, and $f_1 = E[w*²] = 1$",
    ),
    misprint(
        "proof (A.3), step 2, the display of $(bᵀCA + w*ᵀ)U$",
        "labels $⟨U x^(i), w*⟩$ in lines 2 and 3, $⟨x^(i), w̃*⟩$ in line 4",
        "$⟨U x̃^(i), w*⟩$ and $⟨x̃^(i), w̃*⟩$, since $x^(i) = U x̃^(i)$",
        "$d = 1$, $U = −1$, $x = w* = 1$: the label is 1, printed −1",
    ),
)


def equation_8(S: Tensor, n: int) -> Weights:
    """Equation (8) as printed."""
    values, U = torch.linalg.eigh(S)
    inverse = 1 / ((n + 1) / n * values + values.sum() / n)
    b = torch.cat([S.new_zeros(len(S)), S.new_ones(1)])
    return b, -torch.cat([U * inverse @ U.mT, S.new_zeros(1, len(S))])


@dataclass(frozen=True, eq=False)
class Point:
    """The loss at (8): its gradient, its value, after a rescaling, and at other weights."""

    case: Case
    slope: Tensor
    value: float
    rescaled: float
    others: dict[str, float]
    squares: dict[str, float]
    """f − f(8) at the other weights as a sum of two squares."""


@dataclass(frozen=True, eq=False)
class Landscape:
    """What was measured of the loss of one layer."""

    points: list[Point]
    tokens: list[tuple[Case, float, float]]
    """The loss at random weights, by tokens and by moments."""
    isotropic: list[tuple[Case, float, float]]
    """At Σ = I, the loss at the printed form and its least value."""
    limits: dict[str, list[float]] = field(default_factory=dict)
    """Relative distances of −A and Σ⁻¹ for `one_layer.EXAMPLES`, by covariance."""
    ends: list[minima.End] = field(default_factory=list)
    components: list[minima.Component] = field(default_factory=list)


def judge_landscape(data: Landscape) -> Evidence:
    flat = Equality("$∇f = 0$ at (8), in all entries of $b$ and $A$, for any $Σ$", tolerance=1e-9)
    lower = Inequality("$f(8) ≤ f(b, A)$ for all $b$ and $A$", rounding=1e-10)
    scaled = Equality("$f(γb, A/γ) = f(8)$ for $γ ≠ 0$")
    white = Equality("$Σ = I$: $f$ is least at $A = −1/((n−1)/n + (d+2)/n) [I; 0]$")
    tokens = Equality("$f(b, A)$ by moments is the loss (5) of the layer (4) on tokens")
    squares = Equality(
        "$f − f(8) = tr(Σ (K − K*) E[G²] (K − K*)ᵀ) + E‖RᵀGp + β (wᵀGw) a‖²_Σ$, where "
        "$b = (p, β)$, $A = [R; aᵀ]$, $K = βRᵀ + apᵀ$, $K*$ is $K$ at (8), "
        "$G = (1/n) ∑_i x_i x_iᵀ$, $w = w*$"
    )
    for point in data.points:
        flat.add(point.slope, torch.zeros_like(point.slope), point.case)
        scaled.add(point.rescaled, point.value, point.case)
        for name, other in point.others.items():
            case = point.case.extend(note=name)
            lower.add(point.value, other, case)
            squares.add((other - point.value) / other, point.squares[name] / other, case)
    for end in data.ends:
        lower.add(1.0, 1.0 + end.excess, end.case.extend(note="where a search ended"))
    effort = sum(end.evaluations for end in data.ends)
    lower.search_note = f"L-BFGS over $b$ and $A$, {effort} evaluations"
    limits = [
        check_rate(
            f"$−A → Σ⁻¹$ as $n → ∞$, {name}",
            one_layer.EXAMPLES[-7:],
            far[-7:],
            -1.0,
            within=0.02,
            bound=True,
            what="n",
            ours="the distance falls like $1/n$, to 0.02 of a power",
        )
        for name, far in data.limits.items()
    ]
    sign = "the sign is that of (8); the preconditioner of (11) is $−A$"
    return Evidence(
        parts=[
            *(Part(printed=trial.check()) for trial in (flat, lower, scaled)),
            Part(printed=check_rows(white, data.isotropic)),
            *(Part(printed=check, reading=sign) for check in limits),
        ],
        errata=[
            minima.check_uniqueness(data.ends, equation_8),
            minima.check_component_minimisers(data.components),
            *MISPRINTS,
        ],
        beyond=[squares.check(), check_rows(tokens, data.tokens)],
        numbers=minima.summarise_searches(data.ends),
        table=one_layer.tabulate_losses(),
        figures=[one_layer.draw_limit_figure(data.limits)],
    )


@claim(
    "ahn2023.theorem-1",
    "One layer's in-context loss has a global minimum at (8), for any covariance, and at "
    "its rescalings; for long prompts $−A$ is the inverse covariance.",
    where="Section 4, Theorem 1, with Appendix A",
    kind="equality",
    hypotheses={"$x ~ N(0, Σ)$, $w* ~ N(0, I)$": "the theorem", "no noise in labels": "Section 3"},
    quick={"trials": 100, "starts": 2},
    full={"trials": 5000, "starts": 60},
    tiny={"trials": 12, "starts": 1},
    judge=judge_landscape,
    falsified={
        "a gradient of a millionth at (8)": change_field("points.slope", lambda g: g + 1e-6),
        "a loss at (8) a thousandth above that nearby": change_field(
            "points.value", lambda value: 1.001 * value
        ),
        "losses that change with γ": change_field("points.rescaled", lambda loss: 1.001 * loss),
        "isotropic data with a loss a thousandth lower": lambda data: replace(
            data, isotropic=[(case, found, 0.999 * known) for case, found, known in data.isotropic]
        ),
        "distances that fall like 1/√n": change_field(
            "limits", lambda limits: {k: [d**0.5 for d in far] for k, far in limits.items()}
        ),
        "minima elsewhere": change_field("ends.A", lambda A: A + 0.01),
        "components with one more direction": change_field("components.free", lambda n: n + 1),
    },
)
def theorem_1(generator: torch.Generator, *, trials: int, starts: int) -> Landscape:
    ends = minima.search_minima(generator, starts)
    isotropic = []
    for d in range(1, 9):
        for n in (1, 2, 3, 10, 1000):
            layer = SingleLayerLoss(torch.eye(d, dtype=torch.float64), n)
            b, A = layer.optimum()
            printed = torch.cat([-torch.eye(d) / ((n - 1) / n + (d + 2) / n), torch.zeros(1, d)])
            values = (float(layer.loss(b, weights)) for weights in (printed.double(), A))
            isotropic.append((Case(d=d, n=n), *values))
    return Landscape(
        points=[*(_draw_point(generator, k) for k in range(trials)), *_measure_hard_points()],
        tokens=one_layer.compare_with_tokens(generator),
        isotropic=isotropic,
        limits=one_layer.measure_limits(generator, equation_8),
        ends=ends,
        components=minima.measure_components(generator, equation_8),
    )


def _draw_point(generator: torch.Generator, k: int) -> Point:
    """Measure at a dense covariance (some without full rank) and a number of examples."""
    d = 1 + k % 5
    S = draw_covariance(generator, d, 100.0)
    if k % 5 > 0 and k % 3 == 0:
        half = draw_normal(generator, d, d - 1)
        S = half @ half.mT
    n = (1, 2, 5, 20, 300)[draw_integer(generator, 0, 4)]
    b, A = equation_8(S, n)
    gamma = float(10 ** draw_normal(generator).clamp(-2, 2)) * (-1) ** k
    weights = {
        f"weights {spread} away": (
            b + spread * draw_normal(generator, d + 1),
            A + spread * draw_normal(generator, d + 1, d),
        )
        for spread in (1.0, 0.1, 0.01)
    }
    return _measure_point(Case(d=d, n=n, γ=gamma), S, weights)


def _measure_hard_points() -> list[Point]:
    """Measure at the hard covariances, next to weights made of the hard matrices."""
    points = []
    for name, S in build_covariances():
        d = len(S)
        one, row = torch.ones(d + 1).double(), torch.ones(1, d).double()
        weights = {told: (one, torch.cat([M, row])) for told, M in build_matrices(d).items()}
        for n in (1, 2, 10**4):
            points.append(_measure_point(Case(d=d, n=n, γ=-2.0, note=name), S, weights))
    return points


def _measure_point(case: Case, S: Tensor, weights: dict[str, Weights]) -> Point:
    """Measure the gradient at (8), and losses there, rescaled by γ, and at other weights."""
    d, n, gamma = (case[name] for name in ("d", "n", "γ"))
    layer, (b, A) = SingleLayerLoss(S, n), (part.requires_grad_() for part in equation_8(S, n))
    value = layer.loss(b, A)
    slopes = torch.autograd.grad(value, (b, A))
    b, A = b.detach(), A.detach()
    last = torch.zeros_like(A)
    last[d, 0] = A[0, 0]
    weights["labels as keys"] = (torch.eye(d + 1, dtype=torch.float64)[0], last)
    K = layer.odd_coefficient(b, A)
    squares = {}
    for name, other in weights.items():
        off = layer.odd_coefficient(*other) - K
        first = ((S @ off @ layer.square_moment()) * off).sum()
        squares[name] = float(first + layer.even_part(*other))
    return Point(
        case,
        torch.cat([slopes[0], slopes[1].flatten()]),
        float(value.detach()),
        float(layer.loss(gamma * b, A / gamma)),
        {name: float(layer.loss(*other)) for name, other in weights.items()},
        squares,
    )
