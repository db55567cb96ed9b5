"""Theorem 1 of Wu et al.: L steps of gradient descent on an N-layer network in (2N + 4)L layers.

Printed    for r, r' and u Lipschitz and C⁴ there is a transformer of (2N + 4)L layers, heads ≤
           Õ(ε⁻²), dimensions ≤ O(NK²) + D_w and norms ≤ O(η) + C_w + 1 whose layer (2N + 4)l holds
           [x_i; y_i; w̄^(l); 0; 1; t_i], w̄^(l) = Proj_W(w̄^(l−1) − η∇L_n(w̄^(l−1)) + ε^(l−1)),
           ‖ε^(l−1)‖ ≤ ηε, with w̄^(0) = 0. Introduction and conclusion of the slides name N-layer
           ReLU networks, whose r' jumps at 0: no r of the theorem (an erratum of print), and a part
           of its own here
Tested     smooth r: weights that are written down with as many knots as their own bound requires
           (smooth_descent.py, which proves the bound for any such r and any u of one variable), for
           tanh, sigmoid and softplus, squared loss and log cosh, W a box. ReLU: the transformer
           `network-gradient-descent`, N from 2 to 5, several outputs, both losses; problems in
           which a unit's input is within rounding of 0, where r' jumps, are left out and counted.
           Both are followed step by step from their own stream, against gradients by automatic
           differentiation; projections that change the weights, starts at 0 and random ones, the
           source's hard instances. ε^(l−1) is the least disturbance that explains the step, inside
           the projection, as it is printed
Ours       ReLU: ε = 10⁻⁹; O(NK²) is at most 8NK² for d = m = K ≥ 2, D_w included
Undecided  two halves. Not printed: the norm. The slides print the bound O(η) + C_w + 1, where only
           η has a free constant and C_w bounds ‖θ‖ of the projection's MLP, but define no norm. In
           the norm of Liu's lecture (the sum of the operator norms of a block) clipping has at
           least 2√2, and our weights at η = 10⁻⁶ have about 27, far above C_w + 1. Mathematics:
           whether other weights are within the bound in that norm. ReLU attention is homogeneous,
           so registers may hold small multiples of p_j and s_j, and the update alone may undo the
           scale with a constant of η that depends on ε; we have not built such weights, so ours
           refute no existence. Also a loss of several variables, and other sets W: the proof of
           Theorem 6, by one wide MLP, exceeds the width O(NK²) + D_w
Beyond     2N + 1 layers a step are enough, for ReLU 2N; heads grow like ε^(−1/2), for ReLU they do
           not grow; norms grow no faster than η, and hardly with 1/ε. From w̄^(0) = 0 the hidden
           units of a layer never differ: with r(0) = 0 and N ≥ 2 the gradient stays 0, with any
           other r the hidden units of a layer have equal gradients (outputs may differ, as labels
           do)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Check, Evidence, Part, misprint
from innerloop.claims.falsifying import Rows, change_column
from innerloop.claims.figures import Figure, draw_lines
from innerloop.claims.intervals import check_rate
from innerloop.claims.trials import Inequality
from innerloop.claims.yang2025.hard_instances import list_hard_networks
from innerloop.claims.yang2025.projections import measure_disturbance, shorten_steps
from innerloop.claims.yang2025.smooth_descent import ACTIVATIONS, SmoothNetworkDescent
from innerloop.constructions.base import iterate_streams
from innerloop.constructions.network_gradient_descent import NetworkGradientDescentConstruction
from innerloop.problems.network_regression import (
    NetworkProblem,
    NetworkRegression,
    NetworkWeights,
    activations,
)

EXACT, STEPS, ROOM = 1e-9, 4, 8
SAME = 1e-9
RELU_CASES: tuple[dict[str, Any], ...] = (
    {"layers": 2, "width": 3, "d": 1, "n": 1},
    {"layers": 2, "width": 4, "d": 3, "n": 6, "loss": "huber"},
    {"layers": 3, "width": 3, "d": 2, "n": 9, "box": 0.4},
    {"layers": 3, "width": 2, "d": 4, "n": 5, "outputs": 3},
    {"layers": 5, "width": 3, "d": 3, "n": 7, "outputs": 3, "step_size": 0.03},
)
SMOOTH_CASES: tuple[dict[str, Any], ...] = (
    {"layers": 2, "width": 2, "d": 2, "n": 4, "outputs": 2, "activation": "tanh", "box": 0.8},
    {"layers": 2, "width": 3, "d": 3, "n": 5, "outputs": 3, "activation": "sigmoid"}
    | {"loss": "log cosh", "step_size": 1.0},
    {"layers": 3, "width": 2, "d": 2, "n": 3, "outputs": 2, "activation": "softplus", "box": 0.5},
    {"layers": 4, "width": 2, "d": 2, "n": 1, "outputs": 2, "activation": "sigmoid"},
)
"""Their d, K and m are equal, so that O(NK²) counts all weights."""
STEP_SIZES = (1e-6, 0.01, 10.0, 1000.0)
PROJECTION_NORM = 2 * 2**0.5
"""‖W₁‖ + ‖W₂‖ of relu(w + C) − relu(w − C), C ≤ 1: at least this for any scale between the two."""
WITNESSES = "built only for 3 activations, for squared loss and log cosh, and for a box"
Activation = Callable[[Tensor], Tensor]
Construction = NetworkGradientDescentConstruction | SmoothNetworkDescent


def judge_descent(rows: Rows) -> Evidence:
    smooth = Inequality("$r$ in $C⁴$: $‖ε^(l−1)‖ ≤ ηε$ in every step")
    kink = Inequality(f"ReLU network: $‖ε^(l−1)‖ ≤ ηε$ in every step, $ε = {EXACT:.0e}$")
    stream = Inequality("every token holds $[x; y; w̄^(l); 0; 1; t]$ after a step, up to 10⁻⁹")
    most = Inequality("$(2N + 4)L$ layers, dimensions at most $8NK²$, $d = m = K ≥ 2$")
    alike = Inequality("from $w̄^(0) = 0$ the hidden units of a layer stay equal")
    refused = 0
    for row in rows:
        case = row.get("case", Case())
        if "off" in row:
            followed = kink if row["r"] == "ReLU" else smooth
            followed.add(row["off"], row["η"] * row["ε"], case)
        elif "apart" in row:
            stream.add(row["apart"], SAME, case)
        elif "layers" in row:
            N, K, L = (case[name] for name in ("N", "K", "L"))
            most.add(row["layers"], (2 * N + 4) * L, case.extend(note="layers"))
            most.add(row["width"], ROOM * N * K**2, case.extend(note="width"))
            most.add(row["hidden"], ROOM * N * K**2, case.extend(note="units of an MLP"))
        elif "spread" in row:
            alike.add(row["spread"], 0.0, case)
        elif "refused" in row:
            refused += row["refused"]
    steps = smooth.check()
    return Evidence(
        parts=[
            Part(printed=steps),
            Part(printed=stream.check()),
            Part(printed=replace(most.check(), ours="the constant 8 of $O(NK²)$, $D_w$ included")),
            Part(printed=check_heads(rows)),
            Part(printed=judge_norm(rows, steps)),
            Part(printed=leave_open(steps, "any $u(t, y)$, any $W$", WITNESSES)),
            Part(
                printed=kink.check(),
                reading="ReLU networks, which introduction and conclusion of the slides name",
            ),
        ],
        errata=[
            misprint(
                "introduction and conclusion: gradient descent for N-layer ReLU networks",
                "ReLU networks, which the conditions of Theorem 1 exclude",
                "networks with a smooth $r$: the theorem asks for $r'$ Lipschitz and $r$ in $C⁴$",
                "$r = ReLU$: $r'(−h) = 0$ and $r'(h) = 1$ for every $h > 0$",
            )
        ],
        beyond=[check_norm_growth(rows), alike.check()],
        numbers={
            "layers of L steps, as built for smooth r": "(2N + 1)L, with log cosh (2N + 2)L",
            "layers of L steps, as built for ReLU": "2NL, and N to read out",
            "heads of a layer for ReLU, for every ε": "2NK − 2K + 2m",
            "problems left out: a unit's input is within rounding of 0": refused,
        },
        figures=[draw_heads(rows)],
    )


def leave_open(steps: Check, more: str, why: str) -> Check:
    """Check a stronger form: it fails where the steps do, and is undecided where they pass."""
    return Check(
        statement=f"{more}, and $‖ε^(l−1)‖ ≤ ηε$ in every step",
        passed=False if steps.passed is False else None,
        summary=f"{why}; its steps: {steps.summary}",
        counterexample=steps.counterexample,
    )


def check_heads(rows: Rows) -> Check:
    """Check that the heads of a layer grow no faster than ε⁻², in the first smooth case."""
    counted = [row for row in rows if "heads" in row]
    return check_rate(
        "heads of a layer at most like $ε⁻²$",
        [1 / row["ε"] for row in counted],
        [row["heads"] for row in counted],
        2.0,
        within=0.0,
        bound=True,
        what="1/ε",
    )


def draw_heads(rows: Rows) -> Figure:
    """Draw the heads that an error of ε takes, beside the printed bound with constant 1."""
    counted = [row for row in rows if "heads" in row]
    curves = [{"1/ε": 1 / row["ε"], "heads": row["heads"], "of": "built"} for row in counted]
    curves += [{"1/ε": 1 / row["ε"], "heads": row["ε"] ** -2, "of": "ε⁻²"} for row in counted]
    title = "Heads of a layer that descends on a smooth network to within ηε"
    return draw_lines(title, curves, "1/ε", "heads", "of", log="xy", caption="tanh, N = K = 2.")


def judge_norm(rows: Rows, steps: Check) -> Check:
    """Judge the printed norm at the smallest η: only a build within it decides."""
    built = min((row for row in rows if "norm" in row), key=lambda row: row["η"])
    allowed = PROJECTION_NORM + 1
    sides = f"the weights have norm {built['norm']:.4g} at {built['case']}, where "
    sides += f"$C_w + 1 = {allowed:.3g}$ is allowed; other weights may have a smaller one"
    check = replace(
        leave_open(steps, "norms at most $O(η) + C_w + 1$", sides),
        ours="the sum of the operator norms of a block: the slides define no norm",
    )
    within = check.passed is None and built["norm"] <= allowed
    return replace(check, passed=True) if within else check


def check_norm_growth(rows: Rows) -> Check:
    """Check that norms over η + C + 1 stay below twice the first while 1/ε and η grow."""
    built = [row for row in rows if "norm" in row]
    growth = Inequality("norms grow no faster than $η$, and at most double as $1/ε$ grows")
    for row in built:
        growth.add(
            row["norm"] / row["scale"], 2 * built[0]["norm"] / built[0]["scale"], row["case"]
        )
    norms = ", ".join(f"{row['norm']:.3g} at {row['case']}" for row in built)
    check = growth.check()
    return replace(check, summary=f"{check.summary}; {norms}", ours="a factor of 2")


@claim(
    "yang2025.wu.theorem-1",
    "A ReLU transformer with $2N + 4$ layers for each step runs gradient descent on an "
    "N-layer network in context, with an error of at most $ηε$ in each step, $Õ(ε⁻²)$ heads and "
    "weights of norm $O(η) + C_w + 1$.",
    where="Second paper (Wu et al. 2024): Theorem 1, its conditions, introduction and conclusion",
    kind="equality",
    hypotheses={
        "$r$, $r'$ and $u$ Lipschitz and in $C⁴$, bounded data": "the conditions of Theorem 1",
        "squared loss and log cosh, $W$ a box": "ours, in all parts but one: the theorem has any",
        "in the last part $r$ is ReLU instead": "introduction and conclusion of the slides",
    },
    decided_by="one half is not printed: the slides define no norm of the weights. The other half "
    "is mathematics: weights whose operator norms, summed over a block, are at most "
    "$O(η) + C_w + 1$, or a proof that there are none; and a transformer of the printed width for "
    "a loss of several variables and for other sets $W$",
    quick={"trials": 60, "shapes": 5, "errors": [1.0, 0.1, 0.01]},
    full={"trials": 5_000, "shapes": 5, "errors": [1.0, 0.1, 0.01, 0.001]},
    tiny={"trials": 2, "shapes": 2, "errors": [1.0, 0.3, 0.1]},
    judge=judge_descent,
    falsified={
        "half of each step": shorten_steps,
        "a token that differs": change_column("apart", lambda apart: apart + 1.0),
        "twice the layers": change_column("layers", lambda count: 2 * count),
        "ten times the width": change_column("width", lambda width: 10 * width),
        "heads that grow like 1/ε³": lambda rows: [
            {**row, "heads": row["ε"] ** -3} if "heads" in row else row for row in rows
        ],
    },
)
def wu_theorem_1(
    generator: torch.Generator, *, trials: int, shapes: int, errors: list[float]
) -> Rows:
    rows: Rows = []
    for number, case in enumerate(SMOOTH_CASES[:shapes]):
        for error in errors:
            built = choose_knots(case, error)
            rows += measure_smooth(generator, built, trials, error)
            if number == 0:
                rows += [{"ε": error, "heads": built.transformer.count()["heads"]}]
                rows += [measure_norm(built, error)]
    for size in STEP_SIZES:
        case = {**SMOOTH_CASES[0], "step_size": size}
        rows.append(measure_norm(choose_knots(case, errors[0]), errors[0]))
    for case in RELU_CASES[:shapes]:
        rows += measure_relu(generator, case, trials)
    return rows + measure_starts()


def choose_knots(case: dict[str, Any], error: float) -> SmoothNetworkDescent:
    """Build with the fewest knots whose own bound on the gradient's error is within ε."""
    knots = 2
    while (built := SmoothNetworkDescent(**case, steps=STEPS, knots=knots)).gradient_error > error:
        knots += 1
    return built


def measure_norm(built: SmoothNetworkDescent, error: float) -> dict[str, Any]:
    size = built.step_size
    norm, scale = built.transformer.operator_norm(), size + built.box + 1
    return {"case": Case(ε=error, η=size), "norm": norm, "scale": scale, "η": size}


def draw_problem(built: Construction, trials: int, generator: torch.Generator) -> NetworkProblem:
    names = ("d", "n", "layers", "width", "outputs")
    sizes = {name: getattr(built, name) for name in names}
    return NetworkRegression(**sizes, noise=0.3).sample(trials, generator=generator)


def start_from_zero(problem: NetworkProblem) -> NetworkProblem:
    return replace(_select_problems(problem, [0]), start=tuple(0 * v[:1] for v in problem.start))


def measure_smooth(
    generator: torch.Generator, built: SmoothNetworkDescent, trials: int, error: float
) -> Rows:
    """Measure a smooth build: counts, every step, and what else its tokens hold."""
    drawn = draw_problem(built, trials, generator)
    x, query = (scale_into_ball(each) for each in (drawn.x, drawn.x_query))
    start = tuple(v.clamp(-built.box, built.box) for v in drawn.start)
    inside = NetworkProblem(x, scale_into_ball(drawn.y), query, start)
    N, count = built.layers, built.transformer.count()
    about = {"N": N, "K": built.width, "ε": error}
    rows: Rows = []
    if built.d == built.outputs == built.width:
        sizes = {name: count[name] for name in ("layers", "width", "hidden")}
        rows.append({"case": Case(N=N, K=built.width, L=STEPS, note=built.activation), **sizes})
    hard = list_hard_networks(built.shapes, built.n, built.box)
    for told, problem in (("drawn", inside), ("from 0", start_from_zero(inside)), *hard):
        case = Case(**about, n=built.n, note=f"{built.activation}, {built.loss}, {told}")
        rows += follow_steps(built, problem, ACTIVATIONS[built.activation].value, error, case)
    return rows


def scale_into_ball(rows: Tensor) -> Tensor:
    """Shorten rows that are longer than 1, the bound of the build, to 1."""
    return rows / rows.norm(dim=-1, keepdim=True).clamp_min(1.0)


def measure_relu(generator: torch.Generator, settings: dict[str, Any], trials: int) -> Rows:
    """Measure each step of the transformer for ReLU networks, and count what is left out."""
    built = NetworkGradientDescentConstruction(**settings, steps=STEPS)
    drawn = draw_problem(built, trials, generator)
    hard = list_hard_networks(built.shapes, built.n, built.box)
    rows: Rows = []
    for told, problem in (("drawn", drawn), ("from 0", start_from_zero(drawn)), *hard):
        kept = _select_in_range(built, problem) if told != "from 0" else [0]
        rows.append({"refused": len(problem.x) - len(kept)})
        if kept:
            case = Case(N=built.layers, K=built.width, n=built.n, note=f"ReLU, {told}")
            rows += follow_steps(built, _select_problems(problem, kept), torch.relu, EXACT, case)
    return rows


def follow_steps(
    built: Construction, problem: NetworkProblem, active: Activation, error: float, case: Case
) -> Rows:
    """Measure each step against the risk's gradient, and what else every token holds."""
    names = [f"V{j}" for j in range(1, built.layers + 1)]
    held, apart = [], 0.0
    for stream in iterate_streams(built, built.transformer, problem):
        every = torch.cat([built.layout.read(stream, name).flatten(2) for name in names], dim=-1)
        held.append(every[:, 0])
        wanted = built.prompt(replace(problem, start=_split(problem, every[:, 0])))
        apart = max(apart, float((stream - wanted).abs().max()))
    kind = "ReLU" if active is torch.relu else "smooth"
    rows: Rows = [{"case": case, "apart": apart}]
    about = {"r": kind, "η": built.step_size, "ε": error}
    for step, (before, after) in enumerate(pairwise(held), 1):
        free = before - built.step_size * _gradient(problem, before, built.loss, active)
        found = measure_disturbance(before, after, free, built.box)
        rows += [{"case": case.extend(step=step), **about, **each} for each in found]
    return rows


def _select_in_range(
    built: NetworkGradientDescentConstruction, problem: NetworkProblem
) -> list[int]:
    """Select the problems of a batch that stay in the declared range in every step."""
    kept = []
    for k in range(len(problem.x)):
        one = _select_problems(problem, [k])
        if not any(_has_doubtful_sign(one, state) for state in built.algorithm.states(one, STEPS)):
            kept.append(k)
    return kept


def _has_doubtful_sign(problem: NetworkProblem, weights: NetworkWeights) -> bool:
    """Whether a unit with non-zero input has a pre-activation near 0: rounding decides its sign."""
    passed = activations(weights, problem.x)
    pairs = zip(weights, passed[:-1], strict=True)
    return any(
        bool((((below @ v.mT).abs() < 1e-9) & (below.abs().sum(-1, keepdim=True) > 0)).any())
        for v, below in pairs
    )


def _select_problems(problem: NetworkProblem, kept: list[int]) -> NetworkProblem:
    start = tuple(matrix[kept] for matrix in problem.start)
    return NetworkProblem(problem.x[kept], problem.y[kept], problem.x_query[kept], start)


def _split(problem: NetworkProblem, flat: Tensor) -> NetworkWeights:
    """Split a vector of all weights into V_1 … V_N."""
    sizes = [rows * columns for rows, columns in problem.shapes]
    parts = zip(flat.split(sizes, dim=-1), problem.shapes, strict=True)
    return tuple(part.unflatten(-1, shape) for part, shape in parts)


def _risk(problem: NetworkProblem, flat: Tensor, loss: str, active: Activation) -> Tensor:
    """The risk (2.2): the mean over examples of the loss of p_N, p_j = r(V_j p_{j−1})."""
    passed = problem.x
    for matrix in _split(problem, flat):
        passed = active(passed @ matrix.mT)
    off = passed - problem.y
    losses = {
        "squared": lambda: off.square() / 2,
        "huber": lambda: torch.nn.functional.huber_loss(passed, problem.y, reduction="none"),
        "log cosh": lambda: off.cosh().log(),
    }
    return losses[loss]().sum(dim=-1).mean(dim=-1)


def _gradient(problem: NetworkProblem, flat: Tensor, loss: str, active: Activation) -> Tensor:
    at = flat.detach().clone().requires_grad_()
    (slope,) = torch.autograd.grad(_risk(problem, at, loss, active).sum(), at)
    return slope


def measure_starts() -> Rows:
    """Measure how far two hidden units are apart after a step from 0, on one example."""
    one = torch.ones(1, 1, dtype=torch.float64)
    problem = NetworkProblem(one, one, one[0], (one.expand(2, 1), one.expand(1, 2)))
    rows: Rows = []
    for name, active in {"ReLU": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}.items():
        slope = _gradient(problem, torch.zeros(4, dtype=torch.float64), "squared", active)
        case = Case(N=2, K=2, x=1, y=1, note=f"{name}, one step from 0")
        rows.append({"case": case, "spread": float((slope[0] - slope[1]).abs())})
    return rows
