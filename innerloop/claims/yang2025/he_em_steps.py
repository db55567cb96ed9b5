"""Softmax attention performs the E and the M step of EM for multi-class clustering.

Printed    softmax attention layers are connected to EM for multi-class clustering, with bounds for
           the approximation of the expectation and of the maximisation step; no formula, no bound
Tested     the transformers `em` and `lloyd`: E, one softmax head from points to centroids, against
           γ_ik ∝ π_k exp(−‖x_i − μ_k‖²/2σ²) written out; M, one softmax head from centroids to
           points, against Σ_i γ_ik x_i / Σ_i γ_ik; the step's error over knots; the hard limit
           against k-means. Unequal π, σ from 0.3 to 3, means that are nobody's, N < K, N = 1
Beyond     E is exact. M needs log γ, which no block gives exactly: with the entropy on m + 1 knots
           its error is at most 2B tanh(e/4), e = K/(2m²), B the largest entry. Four layers a step:
           squares of the means, E, the logarithm of the normaliser, M; three for the hard limit
Note       softmax normalises over keys, points for E and centroids for M: not one head for both
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Check, Evidence, Figure, Part
from innerloop.claims.intervals import fit_exponent
from innerloop.claims.trials import Equality, Inequality
from innerloop.constructions.em import EMConstruction
from innerloop.constructions.lloyd import LloydConstruction
from innerloop.problems.gaussian_mixture import ClusteringProblem

KNOTS: tuple[int, ...] = (10, 30, 100, 300, 1000)
SIZES = ((3, 25, 3, 1.0), (1, 1, 2, 1.0), (2, 3, 4, 0.3), (4, 40, 5, 3.0), (2, 12, 1, 1.0))
"""d, N, K, σ."""
Expect = Callable[[Tensor, Tensor, float], Tensor]
Means = Callable[[Tensor, Tensor], Tensor]


def gaussian_responsibilities(squares: Tensor, weights: Tensor, noise: float) -> Tensor:
    """Responsibilities γ from ‖x_i − μ_k‖², N by K."""
    return (weights.log() - squares / (2 * noise**2)).softmax(dim=-1)


def laplace_responsibilities(squares: Tensor, weights: Tensor, noise: float) -> Tensor:
    return (weights.log() - squares.sqrt() / noise).softmax(dim=-1)


def unweighted_responsibilities(squares: Tensor, weights: Tensor, noise: float) -> Tensor:
    return (-squares / (2 * noise**2)).softmax(dim=-1)


def weighted_means(shares: Tensor, x: Tensor) -> Tensor:
    """The means Σ_i γ_ik x_i / Σ_i γ_ik."""
    return shares.mT @ x / shares.sum(dim=-2).unsqueeze(-1)


def unnormalised_means(shares: Tensor, x: Tensor) -> Tensor:
    """The means with N in place of Σ_i γ_ik."""
    return shares.mT @ x / shares.shape[-2]


@claim(
    "yang2025.he.em-steps",
    "Softmax attention performs the E step and, with an error that more width makes as small as "
    "wanted, the M step of EM for a mixture of Gaussians.",
    where="Fifth paper (Transformers versus the EM algorithm): introduction and conclusion",
    kind="equality",
    quick={"trials": 40, "sizes": 5},
    full={"trials": 2_000, "sizes": 5},
    tiny={"trials": 4, "sizes": 2},
    falsified={
        "distances in place of their squares": {"expect": laplace_responsibilities},
        "mixture weights forgotten": {"expect": unweighted_responsibilities},
        "means over N": {"maximise": unnormalised_means},
        "an error that falls like 1/knots": {"power": -1.0},
        "the hard limit is EM itself": {"hard": False},
    },
)
def he_em_steps(
    generator: torch.Generator,
    *,
    trials: int,
    sizes: int,
    expect: Expect = gaussian_responsibilities,
    maximise: Means = weighted_means,
    power: float = -2.0,
    hard: bool = True,
) -> Evidence:
    shares = Equality("E: one softmax head gives γ_ik, exactly", tolerance=1e-9)
    means = Inequality("M: one softmax head gives Σγx/Σγ up to 2B tanh(e/4), e = K/(2m²)")
    limit = Inequality("sharpened, the two heads make a step of k-means, up to the stated bound")
    errors: dict[int, float] = dict.fromkeys(KNOTS, 0.0)
    for size in SIZES[:sizes]:
        _soft(generator, size, trials, shares, means, errors, (expect, maximise))
        _hard(generator, size, trials, limit, hard)
    fall, numbers = _rate(errors, power)
    return Evidence(
        parts=[
            Part(printed=shares.check()),
            Part(printed=means.check()),
            Part(printed=fall),
            Part(printed=limit.check()),
        ],
        numbers={
            **numbers,
            "largest error of γ": shares.worst,
            "layers of an EM step": 4,
            "layers of a k-means step": 3,
        },
        table=[{"knots m": m - 1, "largest error of a mean": e} for m, e in errors.items()],
        figures=[
            Figure(
                title="The M step's error falls with the square of the knots",
                rows=[{"knots": m, "error": e} for m, e in errors.items()],
                x=Axis(field="knots", title="knots of −γ log γ", scale="log"),
                y=Axis(field="error", title="largest error of an entry of μ", scale="log"),
            )
        ],
    )


def _draw_clouds(
    generator: torch.Generator, size: tuple[int, int, int, float], trials: int
) -> tuple[ClusteringProblem, Tensor]:
    """Draw points in clouds, means unrelated to them, and weights."""
    d, n, K, noise = size

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    centres, which = 2 * normal(trials, K, d), torch.randint(K, (trials, n), generator=generator)
    x = centres.gather(1, which.unsqueeze(-1).expand(-1, -1, d)) + noise * normal(trials, n, d)
    weights = (0.7 * normal(K)).softmax(dim=0)
    return ClusteringProblem(x, centres + normal(trials, K, d)), weights


def _squares(problem: ClusteringProblem) -> Tensor:
    return (problem.x.unsqueeze(-2) - problem.start.unsqueeze(-3)).square().sum(dim=-1)


def _soft(
    generator: torch.Generator,
    size: tuple[int, int, int, float],
    trials: int,
    shares: Equality,
    means: Inequality,
    errors: dict[int, float],
    wanted: tuple[Expect, Means],
) -> None:
    """Check the read-out's E step, and one step at each number of knots."""
    problem, weights = _draw_clouds(generator, size, trials)
    d, n, K, noise = size
    largest = float(torch.cat([problem.x, problem.start], dim=-2).abs().max()) * 1.01
    gamma = wanted[0](_squares(problem), weights, noise)
    about = f"d = {d}, N = {n}, K = {K}, σ = {noise}"
    for knots in KNOTS:
        built = EMConstruction(
            d=d, n=n, clusters=K, bound=largest, noise=noise, weights=weights, knots=knots, steps=1
        )
        stream, machine = built.prompt(problem), built.transformer
        if knots == KNOTS[0]:
            told = built.decode(problem, machine.run_epilogue(stream, n))
            shares.add(told, gamma, size=size, about=about)
        moved = built.layout.read(machine.step(stream, 0, n), "mu")[..., n:, :]
        off = float((moved - wanted[1](gamma, problem.x)).abs().max())
        e = K / (2 * (knots - 1) ** 2)
        bound = 2 * largest * math.tanh(e / 4) + 1e-9
        means.add(off, bound, size=(*size, -knots), about=f"{about}, {knots} knots")
        if K > 1 and n > 1:
            errors[knots] = max(errors[knots], off)


def _hard(
    generator: torch.Generator,
    size: tuple[int, int, int, float],
    trials: int,
    limit: Inequality,
    hard: bool,
) -> None:
    """Compare a step of the sharp heads with the mean of each centre's own points."""
    d, n, K, _ = size
    problem, _ = _draw_clouds(generator, size, trials)
    largest = float(torch.cat([problem.x, problem.start], dim=-2).abs().max()) * 1.01
    built = LloydConstruction(d=d, n=n, clusters=K, bound=largest, steps=1)
    squares = _squares(problem)
    members = torch.nn.functional.one_hot(squares.argmin(dim=-1), K).double()
    members = members if hard else (-squares / 2).softmax(dim=-1)
    counts = members.sum(dim=-2).unsqueeze(-1)
    own = members.mT @ problem.x / counts.clamp(min=1e-300)
    # A mean without points of its own goes to the mean of all of them.
    wanted = torch.where(counts > 0, own, problem.x.mean(dim=-2, keepdim=True))
    stream = built.transformer.step(built.prompt(problem), 0, n)
    off = float((built.layout.read(stream, "mu")[..., n:, :] - wanted).abs().max())
    near = float(squares.topk(min(2, K), dim=-1, largest=False).values.diff(dim=-1).sum(-1).min())
    about = f"d = {d}, N = {n}, K = {K}, least gap in ‖x − μ‖² {near:.2g}"
    limit.add(off, built.tolerance(torch.float64), size=size, about=about)


def _rate(errors: dict[int, float], power: float) -> tuple[Check, dict[str, float]]:
    exponent, low, high = fit_exponent(list(errors), list(errors.values()))
    passed = abs(exponent - power) <= 0.25
    told = f"exponent {exponent:.3f}, 95 % interval [{low:.3f}, {high:.3f}], {len(errors)} points"
    check = Check(
        statement=f"the M step's error falls like knots^{power:g}",
        passed=passed,
        summary=f"{told} from {min(errors)} to {max(errors)} knots",
        counterexample="" if passed else told,
    )
    return check, {"exponent of the M step's error over knots": exponent}
