"""Newton's iteration in a transformer: k steps in k + O(1) layers of width O(d).

Printed    the slides: M₀ = αS, S = XᵀX, M_{k+1} = 2M_k − M_k S M_k, ŵ_k = M_k Xᵀy, which approaches
           the least-squares solution S⁺Xᵀy; transformers are said to run it. They print neither α
           nor weights nor counts. The paper they summarise (Fu et al. 2023) has: Theorem 5.1, k + 8
           layers and hidden dimension O(d); α = 2/‖SSᵀ‖₂ in Section 3.1; two ReLU heads with scores
           ±a and equal values, whose sum is put equal to a in (28); M₁ = 2αS − 4α²S³ in (38)
Tested     the transformer `relu-newton` (and `newton`) against the iteration written out, after
           every step, n < d and n > d, anisotropic rows, noise; counts over k and d; α in terms of
           αλ², exactly (rational numbers) at the edge and in float64 around it; the pair; (38)
Correction 0 < α < 2/λmax(S)²; at the edge I − MS has eigenvalue (1 − 2)^(2^k) = 1 for ever, in
           exact arithmetic: M₁ = 0 along the largest eigenvector. The pair's values are opposite,
           σ(a) − σ(−a). M₁ = 2αS − α²S³
Note       float64 may leave the edge by rounding, to either side: told as a number. With the
           Frobenius norm, α is at the edge only where S has rank one (d = 1, or n = 1)
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Evidence, Figure, Part, Rows
from innerloop.claims.trials import Equality, Inequality
from innerloop.constructions.newton import NewtonConstruction
from innerloop.constructions.relu_newton import ReLUNewtonConstruction
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem

LARGEST_D, LARGEST_N, STEPS = 5, 14, 8
EXTRA, PER_FEATURE = 8, 5
"""k + 8 layers; a width of O(d) is at most 5d for the built weights, d ≥ 1."""
Step = Callable[[Tensor, Tensor], Tensor]


def newton_step(M: Tensor, S: Tensor) -> Tensor:
    return 2 * M - M @ S @ M


def halved_step(M: Tensor, S: Tensor) -> Tensor:
    return M - M @ S @ M / 2


def third_order_step(M: Tensor, S: Tensor) -> Tensor:
    """One step of the family's next iteration, of third order."""
    return 3 * M - 3 * M @ S @ M + M @ S @ M @ S @ M


@claim(
    "yang2025.fu.newton",
    "A transformer runs k steps of Newton's iteration for least squares in k + O(1) layers of "
    "width O(d), and the iteration approaches the least-squares solution.",
    where="First paper (Fu et al. 2023): iterative Newton's method; Theorem 5.1 of that paper",
    kind="equality",
    quick={"trials": 120},
    full={"trials": 4_000},
    tiny={"trials": 5},
    falsified={
        "half a step": {"step": halved_step},
        "the iteration of third order": {"step": third_order_step},
        "layers k + 1": {"extra": 1},
        "α up to 3/λ²": {"below": Fraction(3)},
        "the pair's values are equal": {"sign": 1.0},
        "M₁ = 2αS − 3α²S³": {"cubic": 3.0},
    },
)
def fu_newton(
    generator: torch.Generator,
    *,
    trials: int,
    step: Step = newton_step,
    extra: int = EXTRA,
    below: Fraction = Fraction(2),
    sign: float = -1.0,
    cubic: float = 1.0,
) -> Evidence:
    runs = Equality("the transformer predicts ⟨M_k Xᵀy, x⟩ after every step k", tolerance=1e-9)
    for trial in range(trials):
        _check_construction(generator, trial, runs, step)
    return Evidence(
        parts=[
            Part(printed=runs.check()),
            _counts(extra),
            _starts(generator, below),
            _pairs(generator, trials, sign),
            _moments(generator, trials, cubic),
        ],
        numbers={
            "layers for k steps": "k + 2",
            "width, ReLU attention": "3d + 2",
            "width, linear attention": "2d + 2",
            **_edge(generator, min(trials, 20)),
        },
        figures=[_figure()],
    )


def _check_construction(generator: torch.Generator, trial: int, runs: Equality, step: Step) -> None:
    """Run a random problem through the built transformer, checking step by step."""
    kind = ReLUNewtonConstruction if trial % 3 else NewtonConstruction
    d = 1 + trial % LARGEST_D
    n = int(torch.randint(1, LARGEST_N, (), generator=generator))
    kappa = 10.0 if d > 1 else 1.0
    problem = LinearRegression(d=d, n=n, queries=2, noise=0.5, kappa=kappa).sample(
        generator=generator
    )
    S = problem.x.mT @ problem.x
    alpha = float(1.5 / torch.linalg.eigvalsh(S)[-1] ** 2)
    built = kind(d=d, n=n, steps=STEPS, alpha=alpha)
    transformer, M = built.transformer, alpha * S
    stream = transformer.run_prologue(built.prompt(problem), n)
    for k in range(STEPS + 1):
        if k:
            stream, M = transformer.step(stream, k - 1, n), step(M, S)
        told = built.decode(problem, transformer.run_epilogue(stream, n))
        about = f"{built.name}, d = {d}, n = {n}, step {k}"
        runs.add(told, _prediction(problem, M), size=(d, n, k), about=about)


def _prediction(problem: RegressionProblem, M: Tensor) -> Tensor:
    return problem.x_query @ M @ problem.x.mT @ problem.y


def _counts(extra: int) -> Part:
    """Count layers over k and width over d, for both kinds of attention."""
    most = Inequality(f"k + {extra} layers of width O(d) suffice, here at most {PER_FEATURE}d")
    for kind in (NewtonConstruction, ReLUNewtonConstruction):
        for d, k in ((1, 1), (1, 20), (2, 3), (5, 8), (30, 1)):
            count = kind(d=d, n=2, steps=k, alpha=1e-3).transformer.count()
            about = f"{kind.__name__}, d = {d}, k = {k}"
            most.add(count["layers"], k + extra, size=(k, d), about=f"{about}, layers")
            most.add(count["width"], PER_FEATURE * d, size=(k, d), about=f"{about}, width")
    return Part(printed=most.check())


def _starts(generator: torch.Generator, below: Fraction) -> Part:
    """Check |1 − M_k λ| in exact arithmetic against 1/2 after a few steps, λ the top eigenvalue.

    Also checks M_k against S⁺ for matrices S, including singular ones.
    """
    fall = "M_k approaches S⁺, |1 − M_k λmax| below 1/2 within 6 steps"
    edge = Inequality(f"from α = 2/‖SSᵀ‖₂ {fall}")
    inside = Inequality(f"from α < {below}/λmax² {fall}")
    for top in (Fraction(1), Fraction(3), Fraction(7, 2)):
        left = _least_residual(2 / top**2, top)
        about = f"d = 1, S = λ = {top}, α = {2 / top**2}: M₀ = {2 / top}, M₁ = 0, |1 − M_k λ|"
        edge.add(float(left), 0.5, size=(top != 1, float(top)), about=about)
        for share in (Fraction(1, 8), Fraction(1, 2), Fraction(9, 10), Fraction(99, 100)):
            alpha = share * below / top**2
            about = f"d = 1, λ = {top}, αλ² = {share * below}, |1 − M_k λ|"
            size = (float(top), float(share))
            inside.add(float(_least_residual(alpha, top)), 0.5, size=size, about=about)
    for n in (2, 3, 12, 20):
        X = torch.randn(n, 4, generator=generator, dtype=torch.float64)
        S = X.mT @ X
        M = 0.99 * float(below) / torch.linalg.eigvalsh(S)[-1] ** 2 * S
        for _ in range(22):
            M = newton_step(M, S)
        inverse = torch.linalg.pinv(S, hermitian=True)
        off = torch.linalg.matrix_norm(M - inverse) / torch.linalg.matrix_norm(inverse)
        about = f"d = 4, n = {n}, αλmax² = {0.99 * float(below)}, ‖M − S⁺‖/‖S⁺‖ after 22 steps"
        inside.add(float(off.nan_to_num(1e9, 1e9)), 1e-3, size=(4.0, n), about=about)
    return Part(printed=edge.check(), corrected=inside.check(), matters="result")


def _least_residual(alpha: Fraction, top: Fraction) -> Fraction:
    """The smallest |1 − M_k λ| over six steps from M₀ = αλ, as a rational number."""
    M, least = alpha * top, Fraction(10)
    for _ in range(6):
        M = 2 * M - M * top * M
        least = min(least, abs(1 - M * top))
    return least


def _pairs(generator: torch.Generator, trials: int, sign: float) -> Part:
    """Check (27) to (30): tokens (T x; x), scores ±a, a = −n/2 ⟨x_t, T x_j⟩, values T x_j over n.

    Then the MLP doubles. Both values have the same sign, as printed, or the second the opposite.
    """
    equal = Equality("two ReLU heads ±a of equal values, (28), make a step", tolerance=1e-10)
    opposite = Equality("two ReLU heads ±a of opposite values make a step", tolerance=1e-10)
    for trial in range(trials):
        d, n = (1, 1) if trial == 0 else (1 + trial % LARGEST_D, 1 + trial % LARGEST_N)
        X, T = (torch.randn(k, d, generator=generator, dtype=torch.float64) for k in (n, d))
        X, T = (X, T + T.mT) if trial else (torch.ones_like(X), torch.ones_like(T))
        held = X @ T
        wanted, a = X @ newton_step(T, X.mT @ X), -n / 2 * X @ held.mT
        for found, second in ((equal, 1.0), (opposite, sign)):
            out = 2 * (held + (a.relu() + second * (-a).relu()) @ held / n)
            about = f"d = {d}, n = {n}"
            if trial == 0:
                about += f", x = T = 1, found {float(out):.3g}, wanted {float(wanted):.3g}"
            found.add(out, wanted, size=(trial, d, n), about=about)
    return Part(printed=equal.check(), corrected=opposite.check())


def _moments(generator: torch.Generator, trials: int, cubic: float) -> Part:
    """Check (38), with S = λ = 1 and α = 1 first: M₁ = 2 − 1."""
    told = Equality("(38): M₁ = 2αS − 4α²S³", tolerance=1e-12)
    proper = Equality("M₁ = 2αS − α²S³", tolerance=1e-12)
    for trial in range(trials):
        d = 1 + trial % LARGEST_D
        X = torch.randn(d + 2, d, generator=generator, dtype=torch.float64)
        S = torch.ones(1, 1, dtype=torch.float64) if trial == 0 else X.mT @ X
        alpha = 1.0 if trial == 0 else float(1 / torch.linalg.eigvalsh(S)[-1] ** 2)
        M1 = newton_step(alpha * S, S)
        cube = alpha**2 * S @ S @ S
        about = f"d = {d}" + (", S = 1, α = 1, M₁ = 1 but −2 by (38)" if trial == 0 else "")
        told.add(2 * alpha * S - 4 * cube, M1, size=(d, trial), about=about)
        proper.add(2 * alpha * S - cubic * cube, M1, size=(d, trial), about=about)
    return Part(printed=told.check(), corrected=proper.check(), matters="print")


def _edge(generator: torch.Generator, runs: int) -> dict[str, int]:
    """Float64 runs with α = 2/‖SSᵀ‖₂ on random S: rounding decides where the iteration goes."""
    outcomes = {"near S⁺": 0, "elsewhere": 0}
    for _ in range(runs):
        X = torch.randn(10, 4, generator=generator, dtype=torch.float64)
        S = X.mT @ X
        M = 2 / torch.linalg.matrix_norm(S @ S.mT, 2) * S
        for _ in range(200):
            M = newton_step(M, S)
        left = torch.linalg.matrix_norm(torch.eye(4, dtype=torch.float64) - M @ S)
        near = bool(torch.isfinite(left)) and float(left) < 1e-6
        outcomes["near S⁺" if near else "elsewhere"] += 1
    told = f"of {runs} runs from the edge in float64, after 200 steps"
    return {f"{told} {where}": count for where, count in outcomes.items()}


def _figure() -> Figure:
    rows: list[dict[str, float | int | str]] = []
    for told, start in (("1.5", 1.5), ("1.9", 1.9), ("1.99", 1.99), ("2, the edge", 2.0)):
        left = start - 1
        for k in range(12):
            rows.append({"step": k, "left": max(left, 1e-16), "start": told})
            left = left**2
    tidy: Rows = rows
    return Figure(
        title="The start decides: |1 − M_k λ| at the largest eigenvalue λ of S",
        rows=tidy,
        x=Axis(field="step", title="steps k of Newton's iteration"),
        y=Axis(field="left", title="|1 − M_k λ|, cut off at 1e-16", scale="log"),
        colour=Axis(field="start", title="αλ²", scale="category"),
        caption="At α = 2/λ² nothing ever changes; any smaller α converges quadratically.",
    )
