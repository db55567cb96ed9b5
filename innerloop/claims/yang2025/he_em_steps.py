"""Softmax attention performs the E and the M step of EM for multi-class clustering.

Printed    softmax attention layers are connected to EM for multi-class clustering, with bounds for
           the approximation of the expectation and of the maximisation step; no formula, no bound
Tested     the transformers `em` and `lloyd`: E, one softmax head from points to centroids, against
           γ_ik ∝ π_k exp(−‖x_i − μ_k‖²/2σ²) written out; M, one softmax head from centroids to
           points, against Σ_i γ_ik x_i / Σ_i γ_ik; the step's error over knots; the hard limit
           against k-means. Unequal π, σ from 0.3 to 3, means that are nobody's, N < K, N = 1; the
           hard clouds of this source, for k-means those without points half way between centres
Proof      of that bound, which tends to 0 with m: in `innerloop.constructions.em`
Beyond     E is exact. M needs log γ, which no block gives exactly: with the entropy on m + 1 knots
           its error is at most 2B tanh(e/4), e = K/(2m²), B the largest entry. Four layers a step:
           squares of the means, E, the logarithm of the normaliser, M; the hard limit is a step of
           k-means, in three layers. The measured error falls at least like 1/m, a rate that was
           set after the numbers had been seen
Note       softmax normalises over keys, points for E and centroids for M: not one head for both
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Evidence, Part
from innerloop.claims.falsifying import Rows, change_column
from innerloop.claims.figures import draw_lines
from innerloop.claims.intervals import check_rate
from innerloop.claims.prompts import draw_normal
from innerloop.claims.trials import Equality, Inequality
from innerloop.claims.yang2025.hard_instances import list_hard_clouds
from innerloop.constructions.em import EMConstruction
from innerloop.constructions.lloyd import LloydConstruction
from innerloop.problems.gaussian_mixture import ClusteringProblem

KNOTS: tuple[int, ...] = (10, 30, 100, 300, 1000)
SIZES = ((3, 25, 3, 1.0), (1, 1, 2, 1.0), (2, 3, 4, 0.3), (4, 40, 5, 3.0), (2, 12, 1, 1.0))
"""d, N, K, σ."""


def gaussian_responsibilities(squares: Tensor, weights: Tensor, noise: float) -> Tensor:
    """Logarithms of the responsibilities γ from ‖x_i − μ_k‖², N by K."""
    return (weights.log() - squares / (2 * noise**2)).log_softmax(dim=-1)


def weighted_means(logs: Tensor, x: Tensor) -> Tensor:
    """The means Σ_i γ_ik x_i / Σ_i γ_ik, from log γ: a far centre's γ are below any float."""
    return logs.softmax(dim=-2).mT @ x


def judge_steps(rows: Rows) -> Evidence:
    shares = Equality("E: one softmax head gives $γ_ik$, exactly", tolerance=1e-9)
    means = Inequality(
        "M: one softmax head gives $∑γx/∑γ$ up to $2B tanh(e/4)$, $e = K/(2m²)$, which "
        "$m$ makes as small as wanted"
    )
    limit = Inequality("sharpened, the two heads make a step of k-means, up to the stated bound")
    errors: dict[int, float] = dict.fromkeys(KNOTS, 0.0)
    for row in rows:
        case = row["case"]
        if "told" in row:
            shares.add(row["told"], row["wanted"], case)
        elif "hard" in row:
            limit.add(row["hard"], row["allowed"], case)
        else:
            means.add(row["off"], row["allowed"], case)
            if case["K"] > 1 and case["N"] > 1:
                errors[row["knots"]] = max(errors[row["knots"]], row["off"])
    fall = check_rate(
        "the M step's error falls at least like 1/knots",
        list(errors),
        list(errors.values()),
        -1.0,
        within=0.0,
        bound=True,
        what="knots",
        ours="1/knots, set after the numbers had been seen: the slides give no rate",
    )
    table = [{"knots": m, "largest error of a mean": e} for m, e in errors.items()]
    return Evidence(
        parts=[Part(printed=shares.check()), Part(printed=means.check())],
        beyond=[limit.check(), fall],
        numbers={
            "largest error of γ": shares.worst,
            "layers of an EM step": 4,
            "layers of a k-means step": 3,
        },
        table=table,
        figures=[
            draw_lines(
                "The M step's error falls with the number of knots",
                table,
                "knots: knots of −γ log γ",
                "largest error of a mean: largest error of an entry of μ",
                log="xy",
            )
        ],
    )


@claim(
    "yang2025.he.em-steps",
    "Softmax attention performs the E step and, with an error that more width makes as "
    "small as wanted, the M step of EM for a mixture of Gaussians.",
    where="Fifth paper (Transformers versus the EM algorithm): introduction and conclusion",
    kind="equality",
    hypotheses={
        "a mixture of Gaussians with covariance $σ²I$": "the experimental set-up on the slides",
        "known $σ$ and weights, points within a bound": "ours: the slides give no formula",
    },
    quick={"trials": 40, "sizes": 5},
    full={"trials": 2_000, "sizes": 5},
    tiny={"trials": 4, "sizes": 2},
    judge=judge_steps,
    falsified={
        "equal shares for every centre": change_column("told", lambda t: 0 * t + 1 / t.shape[-1]),
        "means that are off by 0.1": change_column("off", lambda _: 0.1),
    },
)
def he_em_steps(generator: torch.Generator, *, trials: int, sizes: int) -> Rows:
    rows: Rows = []
    for size in SIZES[:sizes]:
        rows += measure_soft(*_draw_clouds(generator, size, trials), size[3])
        rows += measure_hard(_draw_clouds(generator, size, trials)[0])
    for d, n, K, noise in SIZES[:sizes]:
        for name, problem in list_hard_clouds(d, n, K):
            equal = torch.full((K,), 1 / K, dtype=torch.float64)
            rows += measure_soft(problem, equal, noise, name)
            rows += measure_hard(problem, name)
    return rows


def _draw_clouds(
    generator: torch.Generator, size: tuple[int, int, int, float], trials: int
) -> tuple[ClusteringProblem, Tensor]:
    """Draw points in clouds, means unrelated to them, and weights."""
    d, n, K, noise = size
    normal = partial(draw_normal, generator)
    centres, which = 2 * normal(trials, K, d), torch.randint(K, (trials, n), generator=generator)
    x = centres.gather(1, which.unsqueeze(-1).expand(-1, -1, d)) + noise * normal(trials, n, d)
    weights = (0.7 * normal(K)).softmax(dim=0)
    return ClusteringProblem(x, centres + normal(trials, K, d)), weights


def _squares(problem: ClusteringProblem) -> Tensor:
    return (problem.x.unsqueeze(-2) - problem.start.unsqueeze(-3)).square().sum(dim=-1)


def measure_soft(
    problem: ClusteringProblem, weights: Tensor, noise: float, told: str = "drawn"
) -> Rows:
    """Measure the read-out's E step, and one step at each number of knots."""
    d, n, K = problem.d, problem.n, problem.clusters
    case = Case(d=d, N=n, K=K, σ=noise, note=told)
    largest = float(torch.cat([problem.x, problem.start], dim=-2).abs().max()) * 1.01
    logs = gaussian_responsibilities(_squares(problem), weights, noise)
    rows: Rows = []
    for knots in KNOTS:
        built = EMConstruction(
            d=d, n=n, clusters=K, bound=largest, noise=noise, weights=weights, knots=knots, steps=1
        )
        stream, machine = built.prompt(problem), built.transformer
        if knots == KNOTS[0]:
            said = built.decode(problem, machine.run_epilogue(stream, n))
            rows.append({"case": case, "told": said, "wanted": logs.exp()})
        moved = built.layout.read(machine.step(stream, 0, n), "mu")[..., n:, :]
        off = float((moved - weighted_means(logs, problem.x)).abs().max())
        e = K / (2 * (knots - 1) ** 2)
        allowed = 2 * largest * math.tanh(e / 4) + 1e-9
        rows.append({"case": case, "knots": knots, "off": off, "allowed": allowed})
    return rows


def measure_hard(problem: ClusteringProblem, told: str = "drawn") -> Rows:
    """Compare a step of the sharp heads with the mean of each centre's own points.

    Nothing where a point is as near to two centres, up to what the heads can tell.
    """
    d, n, K = problem.d, problem.n, problem.clusters
    largest = float(torch.cat([problem.x, problem.start], dim=-2).abs().max()) * 1.01
    built = LloydConstruction(d=d, n=n, clusters=K, bound=largest, steps=1)
    if built.usage(built.prompt(problem)) > 1:
        return []
    members = torch.nn.functional.one_hot(_squares(problem).argmin(dim=-1), K).double()
    counts = members.sum(dim=-2).unsqueeze(-1)
    own = members.mT @ problem.x / counts.clamp(min=1e-300)
    # A mean without points of its own goes to the mean of all of them.
    wanted = torch.where(counts > 0, own, problem.x.mean(dim=-2, keepdim=True))
    stream = built.transformer.step(built.prompt(problem), 0, n)
    off = float((built.layout.read(stream, "mu")[..., n:, :] - wanted).abs().max())
    allowed = built.tolerance(torch.float64)
    return [{"case": Case(d=d, N=n, K=K, note=told), "hard": off, "allowed": allowed}]
