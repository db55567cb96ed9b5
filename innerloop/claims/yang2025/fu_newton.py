"""Newton's iteration for least squares, and a transformer that runs it.

Printed    M₀ = αS, S = XᵀX, M_{k+1} = 2M_k − M_k S M_k, ŵ_k = M_k Xᵀy, which approximates the
           pseudoinverse of S, and so the least-squares solution S⁺Xᵀy; transformers are said to run
           it. The slides print neither α nor weights nor counts
Tested     the transformers `relu-newton` and `newton` against the iteration written out, after
           every step, n < d and n > d, anisotropic rows, noise; the limit for αλmax(S)² from 1/8
           to 1.98, in rational numbers for d = 1 and in float64 for singular S too; the hard
           instances of this source, κ(S) to 10⁷. κ is that of the eigenvalues which are not 0.
           For every 0 < α < 2/λmax(S)² an eigenvalue λ has |1 − M_k λ| = |1 − αλ²|^(2^k) → 0, after
           more steps near the ends: at αλ² = 10⁻⁴ 0.903 are left after 10, at 1.999 0.359
Ours       the range of α, and the count of steps for it
Beyond     k + 2 layers, of width 3d + 2 (ReLU) and 2d + 2 (linear attention). In the paper (Fu et
           al. 2023), not on the slides: α = 2/‖SSᵀ‖₂ in Section 3.1 is the edge, from which I − MS
           keeps the eigenvalue (1 − 2)^(2^k) = 1 for ever; two heads with scores ±a and equal
           values make |a|, not a, in (28); M₁ = 2αS − α²S³, not 2αS − 4α²S³ as in (38)
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.falsifying import Rows, change_column
from innerloop.claims.figures import draw_lines
from innerloop.claims.trials import Equality, Inequality
from innerloop.claims.yang2025.hard_instances import list_hard_regressions
from innerloop.constructions.newton import NewtonConstruction
from innerloop.constructions.relu_newton import ReLUNewtonConstruction
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem

LARGEST_D, LARGEST_N, STEPS = 5, 14, 8
SHARES = (Fraction(1, 8), Fraction(1), Fraction(9, 5), Fraction(99, 50))
"""αλmax², below 2."""


def judge_newton(rows: Rows) -> Evidence:
    runs = Equality("the transformer predicts $⟨M_k Xᵀy, x⟩$ after every step $k$", tolerance=1e-9)
    limit = Inequality(
        "for $αλmax(S)²$ from 1/8 to 1.98, $M_k$ is $S⁺$ to 10⁻³ after $10 + 2 log₂ κ$ steps"
    )
    edge = Inequality("for $α = 2/‖SSᵀ‖₂$ of Fu et al. (2023), Section 3.1, $M_k$ approaches $S⁺$")
    depth = Inequality(
        "$k + 8$ layers of width $5d$ suffice, as in Theorem 5.1 of Fu et al. (2023)"
    )
    for row in rows:
        case = row["case"]
        if "told" in row:
            runs.add(row["told"], row["wanted"], case)
        elif "layers" in row:
            depth.add(row["layers"], case["k"] + 8, case.extend(note="layers"))
            depth.add(row["width"], 5 * case["d"], case.extend(note="width"))
        elif "edge" in row:
            edge.add(row["edge"], 1e-3, case)
        else:
            limit.add(row["off"], 1e-3, case)
    return Evidence(
        parts=[
            Part(printed=runs.check()),
            Part(
                printed=replace(limit.check(), ours="10⁻³, the count of steps, and the range of α"),
                reading="for a suitable $α$: the slides do not give it",
            ),
        ],
        beyond=[depth.check(), edge.check()],
        numbers={"layers for k steps": "k + 2", "width": "3d + 2 (ReLU), 2d + 2 (linear)"},
        figures=[
            draw_lines(
                "The start decides: |1 − M_k λ| at the largest eigenvalue λ of S",
                [
                    {"step": k, "left": max((start - 1) ** (2**k), 1e-16), "start": f"{start:g}"}
                    for start in (1.5, 1.9, 1.99, 2.0)
                    for k in range(12)
                ],
                "step: steps k of Newton's iteration",
                "left: |1 − M_k λ|, cut off at 1e-16",
                "start: αλ²",
                log="y",
                caption="At α = 2/λ² nothing ever changes; any smaller α converges quadratically.",
            )
        ],
    )


def delay_predictions(rows: Rows) -> Rows:
    """Let the transformer predict after step k what the iteration gives after step k − 1."""
    found = []
    for k, row in enumerate(rows):
        later = "told" in row and row["case"]["k"] > 0
        found.append({**row, "told": rows[k - 1]["told"]} if later else row)
    return found


@claim(
    "yang2025.fu.newton",
    "A transformer runs Newton's iteration for least squares, which approaches the least-squares "
    "solution.",
    where="First paper (Fu et al. 2023): connection between iterative Newton's and transformers",
    kind="equality",
    hypotheses={"$0 < α < 2/λmax(S)²$": "ours: the slides leave $α$ open, and some $α$ is needed"},
    quick={"trials": 120},
    full={"trials": 4_000},
    tiny={"trials": 5},
    judge=judge_newton,
    falsified={
        "predictions of the step before": delay_predictions,
        "iterations that stay half way": change_column("off", lambda _: 0.5),
    },
)
def fu_newton(generator: torch.Generator, *, trials: int) -> Rows:
    rows = [row for trial in range(trials) for row in run_construction(generator, trial)]
    rows += [measure_scalar(share, top) for top in (1, 3, Fraction(7, 2)) for share in (*SHARES, 2)]
    for n in (2, 3, 12, 20):
        X = torch.randn(n, 4, generator=generator, dtype=torch.float64)
        rows.append(measure_limit(X))
    for d in (1, 2, 4):
        for name, problem in list_hard_regressions(d):
            rows += follow_steps(ReLUNewtonConstruction, problem, name)
            rows += follow_steps(NewtonConstruction, problem, name)
            rows.append(measure_limit(problem.x, name))
    for kind in (NewtonConstruction, ReLUNewtonConstruction):
        for d, k in ((1, 1), (1, 20), (2, 3), (5, 8), (30, 1)):
            count = kind(d=d, n=2, steps=k, alpha=1e-3).transformer.count()
            case = Case(k=k, d=d, note=kind.__name__)
            rows.append({"case": case, "layers": count["layers"], "width": count["width"]})
    return rows


def measure_limit(X: Tensor, told: str = "drawn") -> dict[str, Any]:
    """Measure ‖M − S⁺‖ over ‖S⁺‖ after 10 + 2 log₂ κ steps from αλmax² = 1.98."""
    S = X.mT @ X
    values = torch.linalg.eigvalsh(S)
    values = values[values > 1e-12 * values[-1]]
    steps = 10 + math.ceil(2 * math.log2(float(values[-1] / values[0])))
    M = 1.98 / values[-1] ** 2 * S
    for _ in range(steps):
        M = newton_step(M, S)
    inverse = torch.linalg.pinv(S, hermitian=True)
    off = torch.linalg.matrix_norm(M - inverse) / torch.linalg.matrix_norm(inverse)
    case = Case(d=X.shape[1], n=len(X), note=f"$αλmax² = 1.98$, {steps} steps, {told}")
    return {"case": case, "off": float(off)}


def newton_step(M: Tensor, S: Tensor) -> Tensor:
    return 2 * M - M @ S @ M


def run_construction(generator: torch.Generator, trial: int) -> Rows:
    """Run a random problem through the built transformer: what it says, step by step."""
    kind = ReLUNewtonConstruction if trial % 3 else NewtonConstruction
    d = 1 + trial % LARGEST_D
    n = int(torch.randint(1, LARGEST_N, (), generator=generator))
    kappa = 10.0 if d > 1 else 1.0
    problem = LinearRegression(d=d, n=n, queries=2, noise=0.5, kappa=kappa).sample(
        generator=generator
    )
    return follow_steps(kind, problem)


def follow_steps(
    kind: type[NewtonConstruction] | type[ReLUNewtonConstruction],
    problem: RegressionProblem,
    told: str = "drawn",
) -> Rows:
    """Follow a built transformer and the iteration through all steps."""
    d, n = problem.d, problem.n
    S = problem.x.mT @ problem.x
    alpha = float(1.5 / torch.linalg.eigvalsh(S)[-1] ** 2)
    built = kind(d=d, n=n, steps=STEPS, alpha=alpha)
    transformer, M = built.transformer, alpha * S
    stream = transformer.run_prologue(built.prompt(problem), n)
    rows = []
    for k in range(STEPS + 1):
        if k:
            stream, M = transformer.step(stream, k - 1, n), newton_step(M, S)
        said = built.decode(problem, transformer.run_epilogue(stream, n))
        wanted = problem.x_query @ M @ problem.x.mT @ problem.y
        rows.append(
            {
                "case": Case(d=d, n=n, k=k, note=f"{built.name}, {told}"),
                "told": said,
                "wanted": wanted,
            }
        )
    return rows


def measure_scalar(share: Fraction | int, top: Fraction | int) -> dict[str, Any]:
    """Measure |1 − Mλ| after 10 steps for S = λ, in rational numbers; at the edge, M₁ = 0."""
    scale = Fraction(top)
    M = Fraction(share) / scale
    for _ in range(10):
        M = 2 * M - M * scale * M
    case = Case(d=1, λ=float(top), α=float(Fraction(share) / scale**2), note="10 steps")
    return {"case": case, "edge" if share == 2 else "off": float(abs(1 - M * scale))}
