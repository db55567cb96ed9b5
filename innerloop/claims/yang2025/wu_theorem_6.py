"""Theorem 6 of Wu et al.: L steps of gradient descent on a general risk in 4L softmax layers.

Printed    for any B_w, ε > 0 and L there is a transformer with softmax attention whose 4l-th layer
           holds [x_i; y_i; w̄^(l); 0; 1; t_i] in every token, w̄^(l) = Proj_W(w̄^(l−1) −
           η∇L_n(w̄^(l−1)) + ε^(l−1)), ‖ε^(l−1)‖ ≤ ηε, w̄^(0) = 0, for a loss with Lipschitz gradient
           on bounded data
Proof      where ∇_wℓ is continuous in (w, x, y) together and Proj_W an MLP as in a transformer's
           layer (up to three hidden layers would do), for any ε. Block 1: one wide MLP adds
           (n + 1)/n ∇_wℓ(w, x_i, y_i) to within ε on the compact range, by universal
           approximation, and 0 at the query, whose t is 0. Block 2: uniform softmax attention
           averages over all n + 1 tokens, so that w − ηĝ is at hand in each. The MLPs of blocks 2
           to 4 apply Proj_W to it, and clear registers by relu(u) − relu(−u). What is built is a
           witness of this, with weights that are written down, for three losses
Erratum    in what the gradient is Lipschitz is not printed, and in w alone is not enough: ℓ =
           w·1[x > 0], whose gradient in w is constant, W = [−1, 1], n = 1, one step from 0. Left
           and right of x = 0 the exact steps differ by η, and the layers of a transformer are
           continuous in x: no ε < 1/2 is reached on both sides
Tested     the transformer `softmax-gradient-descent` with as many knots as its own bound asks for,
           ε = 1, 0.1 and 0.01, step by step from its own stream, against gradients by automatic
           differentiation of torch's losses; boxes that bite; every token, every other register;
           the source's hard instances, scaled into the range.
           ε^(l−1) is the least that explains the step, inside of the projection, as it is printed
Layers     of a step: product, slope, product, mean and projection, one head in the last alone. The
           read-out ⟨w, x⟩ is one layer more, which the theorem does not ask for
Beyond     the error of a step stays within the bound of the build, which falls like knots⁻²
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Check, Erratum, Evidence, Part, misprint
from innerloop.claims.falsifying import Rows, change_column
from innerloop.claims.figures import draw_lines
from innerloop.claims.trials import Inequality
from innerloop.claims.yang2025.hard_instances import list_hard_regressions
from innerloop.claims.yang2025.projections import (
    find_disturbance,
    measure_disturbance,
    shorten_steps,
)
from innerloop.constructions.base import iterate_streams
from innerloop.constructions.softmax_gradient_descent import SoftmaxGradientDescentConstruction
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem

CASES: tuple[dict[str, Any], ...] = (
    {"loss": "squared", "d": 2, "n": 6, "step_size": 0.3},
    {"loss": "logistic", "d": 2, "n": 5, "step_size": 0.8},
    {"loss": "huber", "d": 3, "n": 7, "step_size": 0.4, "box": 0.5},
)
STEPS = 4
SAME = 1e-9


def judge_descent(rows: Rows) -> Evidence:
    followed = Inequality("‖ε^(l−1)‖ ≤ ηε in every step; squared, logistic and Huber's loss")
    layers = Inequality("4L layers for L steps")
    stream = Inequality("after 4l layers every token holds [x; y; w̄^(l); 0; 1; t], up to 10⁻⁹")
    falls = Inequality("the error is within η(e₃ + B(λ d e₁ + e_σ)), which falls like knots⁻²")
    curves = []
    for row in rows:
        if "off" in row:
            followed.add(row["off"], row["η"] * row["ε"], row["case"])
        elif "layers" in row:
            layers.add(row["layers"], 4 * STEPS, row["case"])
        elif "apart" in row:
            stream.add(row["apart"], SAME, row["case"])
        elif "bound" in row:
            curves.append(row)
            falls.add(row["error"], row["bound"], row["case"])
    return Evidence(
        parts=[
            Part(printed=followed.check()),
            Part(printed=layers.check()),
            Part(printed=stream.check()),
        ],
        errata=[
            Erratum(
                where="Theorem 6, conditions: the loss has an L-Lipschitz gradient",
                printed=check_jump([row for row in rows if "jump" in row]),
                meant="a gradient that is continuous in $w$, $x$ and $y$ together",
                grade="print",
            ),
            misprint(
                "Theorem 6, conditions",
                "L ≥ 1 steps, and a loss with L-Lipschitz gradient: one letter for two numbers",
                "a Lipschitz constant of its own",
                "one step on (3w)²/2: L = 1 as the number of steps, L = 9 as the constant",
            ),
        ],
        beyond=[falls.check()],
        numbers={"heads of a layer": 1, "layers with attention in a step": "one of four"},
        figures=[
            draw_lines(
                "The error of a step falls with the knots, as the build declares",
                [
                    {"knots": row["knots"], "error": value, "loss": f"{row['loss']}{kind}"}
                    for row in curves
                    for value, kind in ((row["error"], ""), (row["bound"], ", its bound"))
                ],
                "knots: knots of each function",
                "error: largest error of a step",
                "loss: loss",
                log="xy",
                caption="Softmax attention averages, ReLU units multiply by squares on knots.",
            )
        ],
    )


@claim(
    "yang2025.wu.theorem-6",
    "A transformer with softmax attention and 4 layers for each step runs gradient descent on a "
    "general risk in context, with an error of at most $ηε$ in each step.",
    where="Second paper (Wu et al. 2024): Theorem 6",
    kind="equality",
    hypotheses={
        "bounded data, a loss with Lipschitz gradient, $W$ whose projection is an MLP": "Theorem 6",
        "$∇_wℓ$ is continuous in $(w, x, y)$": "a Lipschitz gradient, read for all three; for $w$ "
        "alone the statement is false, an erratum",
        "an MLP has one hidden layer": "the layers of transformers; the proof allows three",
        "squared, logistic and Huber's loss of a linear model, $W$ a box": "what is built, as "
        "witnesses of the proof",
    },
    quick={"trials": 40, "errors": [1.0, 0.1, 0.01], "knots": [100, 200, 400, 800]},
    full={"trials": 1000, "errors": [1.0, 0.1, 0.01, 0.001], "knots": [100, 200, 400, 800, 1600]},
    tiny={"trials": 2, "errors": [1.0], "knots": [40, 80]},
    judge=judge_descent,
    falsified={
        "half of each step": shorten_steps,
        "twice the layers": change_column("layers", lambda count: 2 * count),
        "a token that differs": change_column("apart", lambda apart: apart + 1.0),
    },
)
def wu_theorem_6(
    generator: torch.Generator, *, trials: int, errors: list[float], knots: list[int]
) -> Rows:
    rows: Rows = []
    for case in CASES:
        sizes = {"d": case["d"], "n": case["n"]}
        problem = LinearRegression(**sizes, noise=0.5).sample(trials, generator=generator)
        hard = [(name, scale_into_range(p)) for name, p in list_hard_regressions(**sizes)]
        for error in errors:
            built = choose_build(case, error)
            for told, each in (("drawn", problem), *hard):
                rows += measure_steps(built, each, error, told)
        rows += measure_fall(case, problem, knots)
    return rows + [measure_jump(10.0**-k) for k in range(1, 7)]


def measure_jump(near: float) -> dict[str, Any]:
    """Measure how far exact steps from w = 0 on ℓ = w·1[x > 0] are apart at x = −near and near."""
    size, steps = 0.5, []
    for x in (-near, near):
        at = torch.zeros(1, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad((at * float(x > 0)).sum(), at)
        steps.append(float((-size * slope).clamp(-1, 1)))
    case = Case(n=1, η=size, x=near, note="$ℓ = w·1[x > 0]$, one step from 0")
    return {"case": case, "jump": abs(steps[0] - steps[1]), "η": size}


def check_jump(rows: Rows) -> Check:
    """Check that exact steps at nearly equal x are as near as continuous layers need: 2ηε."""
    error = 0.4
    nearer = Inequality(
        f"any loss with a Lipschitz gradient in $w$: a step to within $ηε$, $ε = {error}$"
    )
    for row in rows:
        nearer.add(row["jump"], 2 * row["η"] * error, row["case"])
    return nearer.check()


def choose_build(case: dict[str, Any], error: float) -> SoftmaxGradientDescentConstruction:
    """Build with the fewest knots, a power of two of them, whose own bound is within ηε."""
    count = 8
    while True:
        built = SoftmaxGradientDescentConstruction(**case, steps=STEPS, knots=count)
        if math.sqrt(built.d) * built.step_bound <= built.step_size * error:
            return built
        count *= 2


def scale_into_range(problem: RegressionProblem) -> RegressionProblem:
    """Shrink an instance whose entries exceed 5, as a batch of one."""
    scale = min(1.0, 5.0 / float(problem.x.abs().max()))
    x, y, query = (scale * each for each in (problem.x, problem.y, problem.x_query))
    return RegressionProblem(x[None], y[None], query[None])


def measure_steps(
    built: SoftmaxGradientDescentConstruction, problem: RegressionProblem, error: float, told: str
) -> Rows:
    """Measure each step against the risk's gradient, and what else every token holds."""
    case = Case(d=built.d, n=built.n, ε=error, note=f"{built.loss}, {told}")
    rows: Rows = [{"case": case, "layers": len(built.body(0)) * built.transformer.steps}]
    held, apart = [], 0.0
    for stream in iterate_streams(built, built.transformer, problem):
        weights = built.layout.read(stream, "w")
        held.append(weights[:, 0])
        wanted = built.encode(problem, weights[:, 0])
        apart = max(apart, float((stream - wanted).abs().max()))
    rows.append({"case": case, "apart": apart})
    about = {"η": built.step_size, "ε": error}
    for step, (before, after) in enumerate(pairwise(held), 1):
        free = take_step(built, problem, before)
        found = measure_disturbance(before, after, free, built.box)
        rows += [{"case": case.extend(step=step), **about, **each} for each in found]
    return rows


def take_step(
    built: SoftmaxGradientDescentConstruction, problem: RegressionProblem, weights: Tensor
) -> Tensor:
    """w − η∇L_n(w), not yet projected, by automatic differentiation of torch's own losses."""
    at = weights.detach().clone().requires_grad_()
    said = (problem.x @ at.unsqueeze(-1)).squeeze(-1)
    if built.loss == "logistic":
        # The loss of labels that are chances; for other numbers it is the same formula.
        each = functional.softplus(said) - problem.y * said
    elif built.loss == "huber":
        each = functional.huber_loss(said, problem.y, reduction="none")
    else:
        each = (said - problem.y).square() / 2
    (slope,) = torch.autograd.grad(each.mean(dim=-1).sum(), at)
    return weights - built.step_size * slope


def measure_fall(case: dict[str, Any], problem: RegressionProblem, knots: list[int]) -> Rows:
    """Measure the largest error of a step from drawn weights, for several numbers of knots."""
    rows: Rows = []
    for count in knots:
        built = SoftmaxGradientDescentConstruction(**case, steps=1, knots=count)
        assert problem.weights is not None
        start = problem.weights.clamp(-built.box, built.box)
        stream = built.transformer.step(built.encode(problem, start), 0, problem.n)
        moved = built.layout.read(stream, "w")[:, 0]
        free = take_step(built, problem, start)
        error = float(find_disturbance(moved, free, built.box).abs().max())
        row = {"loss": built.loss, "knots": count, "error": error, "bound": built.step_bound}
        about = Case(d=built.d, knots=count, note=built.loss)
        rows.append({**row, "case": about})
    return rows
