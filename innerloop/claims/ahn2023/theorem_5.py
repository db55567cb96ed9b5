"""Theorem 5: with B_i, weights A_i ∝ Σ⁻¹, B_i ∝ I contain points of vanishing gradient.

Printed    x ~ N(0, Σ), w* ~ N(0, Σ⁻¹), layers of form (13): over S = {A_i = a_i Σ⁻¹, B_i = b_i I},
           the infimum of Σ_i ‖∇_{A_i} f‖² + ‖∇_{B_i} f‖² is 0 (14). Proof: with
           r_i = tr(Σ^{1/2}R_iΣ^{1/2})/d and s_i = tr(Σ^{−1/2}S_iΣ^{1/2})/d, moving along
           R̃_i = r_i I, S̃_i = s_i I lowers f as much as along R, S (34); in step 1 R̃_j = r_j Σ⁻¹,
           S̃_j = s_j Σ⁻¹ (36, 37); the flow Ȧ_i = −tr(Σ^{1/2}∇_{A_i}fΣ^{1/2}) Σ⁻¹,
           Ḃ_i = −tr(Σ^{−1/2}∇_{B_i}fΣ^{1/2}) Σ⁻¹ has ḟ ≤ −Σ‖∇_{A_i}f‖² − Σ‖∇_{B_i}f‖² (35)
Tested     as Theorem 4: the exact loss, optimised inside S, then differentiated in every entry of
           every A_i and B_i; (34), (37) and (35) at random points of S, Σ of any size
Correction R̃_i = r_i Σ⁻¹ and S̃_i = s_i I throughout, and Ḃ_i = −s_i I: along Σ⁻¹ the flow leaves S,
           and f falls slower than (35) says where tr Σ⁻¹ < 1
Beyond     the infimum is attained; the best point of S is a strict local minimum among all A_i and
           B_i, and no search over all of them ended lower. Some searches inside S ran off to
           a_0 → 0, b_0 → ∞: the footnote's points whose gradient only tends to 0
Note       "any PSD matrix" cannot be singular: Σ⁻¹ is used. B_k, and by (5) A_k, have no effect
"""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.claims.ahn2023 import critical
from innerloop.claims.ahn2023.critical import Family, identity_family, inverse_family
from innerloop.claims.ahn2023.theorem_4 import draw_family_point, whitened_traces
from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Evidence, Figure, Part
from innerloop.claims.prompts import draw_normal
from innerloop.claims.trials import Inequality
from innerloop.theory.layers import LayeredLoss


@claim(
    "ahn2023.theorem-5",
    "With matrices that move the covariates, weights A_i ∝ Σ⁻¹, B_i ∝ I contain points where the "
    "gradient of the in-context loss, in all weights, vanishes.",
    where="Section 6, Theorem 5, with Appendix B.3",
    kind="equality",
    quick={
        "cases": [[1, 1, 2], [2, 1, 2], [2, 5, 2], [3, 1, 2], [2, 20, 2], [1, 4, 3]],
        "trials": 16,
        "free": 1,
        "deepest": 3,
    },
    full={
        "cases": [[d, n, 2] for d in (1, 2) for n in (1, 3, 10, 50)]
        + [[3, 1, 2], [3, 2, 2], [3, 6, 2], [1, 4, 3], [2, 1, 3], [2, 5, 3], [2, 20, 3]],
        "trials": 400,
        "free": 8,
        "deepest": 4,
    },
    tiny={"cases": [[1, 1, 2], [2, 3, 2]], "trials": 4, "free": 0, "deepest": 2},
    falsified={
        "A_i = a_i I": {"family": identity_family},
        "B_i = b_i Σ": {"other": lambda S: S},
        "R̃ = r Σ": {"moved": lambda S: S},
        "S̃ = s Σ": {"shifted": lambda S: S},
        "the flow of B at a fifth": {"speed": 0.2},
    },
)
def theorem_5(
    generator: torch.Generator,
    *,
    cases: list[list[int]],
    trials: int,
    free: int,
    deepest: int,
    family: Family = inverse_family,
    other: Family = identity_family,
    moved: Family = inverse_family,
    shifted: Family = identity_family,
    speed: float = 1.0,
) -> Evidence:
    found = critical.find_best_points(generator, cases, True, family, other)
    zero = "∇_{A_i} f = 0 and ∇_{B_i} f = 0 for all i at the best (A, B) in S"
    low = "the best (A, B) in S is a local minimum of f"
    parts = [
        Part(printed=critical.check_gradient_vanishes(found, zero)),
        Part(printed=critical.check_local_minima(generator, found, low)),
        *_directions(generator, trials, moved, shifted),
        _flow(generator, trials, speed),
    ]
    rows = critical.tabulate_points(generator, found, free)
    worst = min(float(str(row["least curvature / largest"])) for row in rows)
    figure, numbers = _depth(deepest)
    numbers["largest ‖∇f‖ at the best points"] = max(float(p.slope.norm()) for p in found)
    numbers["least curvature there, relative to the largest"] = worst
    return Evidence(parts=parts, numbers=numbers, table=rows, figures=[figure])


def _directions(
    generator: torch.Generator, trials: int, moved: Family, shifted: Family
) -> list[Part]:
    """Check (34) with r_i I and (37) with s_j Σ⁻¹; then both with members of S instead."""
    printed = [
        Inequality("(34), (36): df/dt along R̃_i = r_i I is at most that along R", rounding=1e-9),
        Inequality("(37): df/dt along S̃_j = s_j Σ⁻¹ is at most that along S", rounding=1e-9),
    ]
    corrected = [
        Inequality("(36): df/dt along R̃_i = r_i Σ⁻¹ is at most that along R", rounding=1e-7),
        Inequality("(37): df/dt along S̃_j = s_j I is at most that along S", rounding=1e-7),
    ]
    for k in range(trials):
        point = draw_family_point(generator, k, moving=True)
        S, count = point.law.covariance, point.law.layers
        inner = draw_normal(generator, len(point.scales), *S.shape)
        r = (whitened_traces(S, inner) / len(S))[:, None, None]
        s = (inner.diagonal(dim1=-2, dim2=-1).sum(-1) / len(S))[:, None, None]
        for which, keep in enumerate((slice(0, count), slice(count, None))):
            wrong, right = ((identity_family, moved), (inverse_family, shifted))[which]
            given = _only(inner, keep)
            size = r if which == 0 else s
            target = point.directional_derivative(given)
            for trial, base in ((printed[which], wrong), (corrected[which], right)):
                for sign in (1, -1):
                    left = sign * point.directional_derivative(_only(size * base(S), keep))
                    trial.add(left, sign * target, size=point.size, about=point.description)
    return [
        Part(printed=one.check(), corrected=two.check(), matters="print")
        for one, two in zip(printed, corrected, strict=True)
    ]


def _only(matrices: Tensor, keep: slice) -> Tensor:
    kept = torch.zeros_like(matrices)
    kept[keep] = matrices[keep]
    return kept


def _flow(generator: torch.Generator, trials: int, speed: float) -> Part:
    printed = Inequality("(35) with Ḃ_i = −tr(∇_{B_i}f) Σ⁻¹", rounding=1e-9)
    corrected = Inequality("(35) with Ḃ_i = −tr(∇_{B_i}f) I", rounding=1e-9)
    few = torch.tensor([-0.2, -0.2, 0.2], dtype=torch.float64)
    law = LayeredLoss(torch.full((1, 1), 4.0, dtype=torch.float64), 1, 2, True)
    simple = critical.family_point(law, few, inverse_family, identity_family)
    for k in range(-1, trials):
        point = simple if k < 0 else draw_family_point(generator, k, moving=True)
        about = point.description + (
            ", Σ = 4, A_i = −1/20, B_0 = 1/5, ḟ and the bound" if k < 0 else ""
        )
        S, count, slope = point.law.covariance, point.law.layers, point.slope
        bound = -(slope**2).sum()
        r = whitened_traces(S, slope)[:count, None, None]
        s = slope[count:].diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None]
        for trial, form in ((printed, inverse_family), (corrected, identity_family)):
            pace = speed if trial is corrected else 1.0
            flow = -torch.cat([r * inverse_family(S), pace * s * form(S)])
            size = (0, 0, 0) if k < 0 else point.size
            trial.add((slope * flow).sum(), bound, size=size, about=about)
    return Part(printed=printed.check(), corrected=corrected.check())


def _depth(deepest: int) -> tuple[Figure, dict[str, float]]:
    """Least loss inside S by the number of layers, with and without B_i."""
    rows, numbers = [], {}
    for n in (10, 20):
        for moving in (False, True):
            for layers in range(1, deepest + 1):
                _, least = critical.least_family_loss(5, n, layers, moving)
                name = f"n = {n}, {'A_i and B_i' if moving else 'A_i alone'}"
                rows.append({"layers": layers, "weights": name, "loss": least})
                if layers == min(deepest, 3):
                    numbers[f"d = 5, {layers} layers, least loss/d in S, {name}"] = least
    figure = Figure(
        title="What moving the covariates gains",
        rows=rows,
        x=Axis(field="layers", title="layers"),
        y=Axis(field="loss", title="least loss in S, over that of no layer", scale="log"),
        colour=Axis(field="weights", title="prompts and weights, d = 5", scale="category"),
        caption="Exact, for any Σ: the least that searches over a and b found.",
    )
    return figure, numbers
