"""Theorem 1 of Wu et al.: L steps of gradient descent on an N-layer network in (2N + 4)L layers.

Printed    for r, r' Lipschitz and C⁴ there is a transformer of (2N + 4)L layers, heads ≤ Õ(ε⁻²) and
           dimensions ≤ O(NK²) + D_w whose layer (2N + 4)l holds w̄^(l) = Proj_W(w̄^(l−1) −
           η∇L_n(w̄^(l−1)) + ε^(l−1)), ‖ε^(l−1)‖ ≤ ηε, with w̄^(0) = 0. Introduction and conclusion
           of the slides say that it is about an N-layer ReLU network
Tested     the transformer `network-gradient-descent`, step by step from its own stream, against
           gradients by automatic differentiation; N from 2 to 5, several outputs, both losses,
           projections that bite; counts over N, K and L; the condition on r' at ReLU's kink; the
           start 0 for ReLU, and for tanh and the sigmoid, which meet the condition
Correction the ReLU is no function of the theorem: its r' jumps at 0. The built weights do run it,
           exactly outside a ramp of 1/S above 0. From w̄^(0) = 0 nothing is trained: with r(0) = 0
           and N ≥ 2 the gradient is 0 for ever, with any other r all units of a layer stay copies
           of one another; a start in the prompt trains
Beyond     2N layers a step are enough (the printed 2N + 4 by four that do nothing); the number of
           heads does not depend on ε at all
Note       the norm O(η) + C_w + 1 is not that of the built weights, whose ramp needs a slope S;
           for smooth r that is no obstacle, and nothing is told about it here. Composed from right
           to left as printed, the two plain layers come before the N that need the forward pass
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Axis, Evidence, Figure, Part
from innerloop.claims.trials import Inequality
from innerloop.constructions.base import iterate_streams
from innerloop.constructions.network_gradient_descent import NetworkGradientDescentConstruction
from innerloop.problems.network_regression import (
    NetworkProblem,
    NetworkRegression,
    NetworkWeights,
    activations,
)

ERROR, STEPS = 1e-9, 4
CASES: tuple[dict[str, Any], ...] = (
    {"layers": 2, "width": 3, "d": 1, "n": 1},
    {"layers": 2, "width": 4, "d": 3, "n": 6, "loss": "huber"},
    {"layers": 3, "width": 3, "d": 2, "n": 9, "box": 0.4},
    {"layers": 3, "width": 2, "d": 4, "n": 5, "outputs": 3},
    {"layers": 5, "width": 3, "d": 3, "n": 7, "outputs": 3, "step_size": 0.03},
)
Activation = Callable[[Tensor], Tensor]


@claim(
    "yang2025.wu.theorem-1",
    "A ReLU transformer with 2N + 4 layers for each step runs gradient descent on an N-layer "
    "network in context, with an error of at most ηε in each step, starting from the weights 0.",
    where="Second paper (Wu et al. 2024): Theorem 1, its conditions, introduction and conclusion",
    kind="equality",
    quick={"trials": 60, "steps": 100, "shapes": 5},
    full={"trials": 5_000, "steps": 1_000, "shapes": 5},
    tiny={"trials": 2, "steps": 20, "shapes": 3},
    falsified={
        "a sum of losses, not their mean": {"mean": False},
        "half the step": {"rate": 0.5},
        "2N − 1 layers a step": {"extra": -1},
        "the ReLU at every input": {"ramp": 0.1},
        "the start drawn is 0": {"start": 0.0},
    },
)
def wu_theorem_1(
    generator: torch.Generator,
    *,
    trials: int,
    steps: int,
    shapes: int,
    mean: bool = True,
    rate: float = 1.0,
    extra: int = 4,
    ramp: float = 1.0,
    start: float = 1.0,
) -> Evidence:
    followed = Inequality(f"‖ε^(l−1)‖ ≤ ηε in every step, ReLU network, ε = {ERROR:.0e}")
    refused = sum(
        _check_steps(generator, case, trials, followed, mean, rate) for case in CASES[:shapes]
    )
    zero, moved, rows = _starts(generator, steps, start)
    return Evidence(
        parts=[
            Part(printed=followed.check()),
            _counts(extra),
            _kink(generator, ramp),
            Part(printed=zero, corrected=moved, matters="result"),
        ],
        numbers={
            "layers of L steps, as built": "2NL, and N to read out",
            "heads of a layer, for every ε": "2NK − 2K + 2m",
            "networks of each shape": trials,
            "of all of them refused: a unit's input is in the ramp, or rounding of 0": refused,
        },
        figures=[
            Figure(
                title="From the weights 0 gradient descent trains nothing",
                rows=rows,
                x=Axis(field="step", title="steps of gradient descent"),
                y=Axis(field="risk", title="risk, over that at w = 0", scale="log"),
                colour=Axis(field="from", title="activation and start", scale="category"),
                caption="A three-layer network, d = K = 4. Only drawn weights learn.",
            )
        ],
    )


def _check_steps(
    generator: torch.Generator,
    settings: dict[str, Any],
    trials: int,
    followed: Inequality,
    mean: bool,
    rate: float,
) -> int:
    """Check each step of the built transformer against the risk's gradient, on a batch.

    Returns how many problems the construction refused.
    """
    built = NetworkGradientDescentConstruction(**settings, steps=STEPS)
    names = ("d", "n", "layers", "width", "outputs")
    sizes = {name: getattr(built, name) for name in names}
    problem = NetworkRegression(**sizes, noise=0.3).sample(trials, generator=generator)
    kept = _select_in_range(built, problem)
    problem = _select_problems(problem, kept)
    layers = range(1, built.layers + 1)
    held = [
        torch.cat([built.layout.read(stream, f"V{j}")[:, 0].flatten(1) for j in layers], dim=-1)
        for stream in iterate_streams(built, built.transformer, problem)
    ]
    eta = built.step_size * rate * (1 if mean else built.n)
    for step, (before, after) in enumerate(pairwise(held), 1):
        slope = _gradient(problem, before, built.loss, torch.relu)
        wanted = (before - eta * slope).clamp(-built.box, built.box)
        about = f"N = {built.layers}, K = {built.width}, n = {built.n}, step {step}"
        for trial, off in enumerate((after - wanted).norm(dim=-1).tolist()):
            size = (built.layers, built.width, step, trial)
            followed.add(off, built.step_size * ERROR, size=size, about=about)
    return trials - len(kept)


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


def _risk(problem: NetworkProblem, flat: Tensor, loss: str, active: Activation) -> Tensor:
    """The risk (2.2): the mean over examples of the loss of p_N, p_j = r(V_j p_{j−1})."""
    passed, place = problem.x, 0
    for rows, columns in problem.shapes:
        matrix = flat[..., place : place + rows * columns].unflatten(-1, (rows, columns))
        passed, place = active(passed @ matrix.mT), place + rows * columns
    off = passed - problem.y
    each = torch.nn.functional.huber_loss(passed, problem.y, reduction="none")
    return (each if loss == "huber" else off.square() / 2).sum(dim=-1).mean(dim=-1)


def _gradient(problem: NetworkProblem, flat: Tensor, loss: str, active: Activation) -> Tensor:
    at = flat.detach().clone().requires_grad_()
    (slope,) = torch.autograd.grad(_risk(problem, at, loss, active).sum(), at)
    return slope


def _counts(extra: int) -> Part:
    """Check the layers of L steps, and the width against N and K² with d = m = K."""
    most = Inequality(f"(2N + {extra})L layers, dimensions at most 8NK², d = m = K ≥ 2")
    for N, K, L in ((2, 2, 1), (2, 3, 7), (5, 2, 2)):
        built = NetworkGradientDescentConstruction(d=K, n=3, layers=N, width=K, outputs=K, steps=L)
        count, about = built.transformer.count(), f"N = {N}, K = {K}, L = {L}"
        layers = count["layers"] - N  # the last N only read out
        most.add(layers, (2 * N + extra) * L, size=(N, K), about=f"{about}, layers")
        most.add(count["width"], 8 * N * K**2, size=(N, K), about=f"{about}, width")
    return Part(printed=most.check())


def _kink(generator: torch.Generator, ramp: float) -> Part:
    """Check the Lipschitz constant of r' over 2h around 0, and the built indicator's ramp."""
    told = Inequality("the ReLU meets the conditions: r' is Lipschitz, constant up to 10¹²")
    for h in (1e-3, 1e-10, 1e-13):
        about = f"(r'({h:g}) − r'(−{h:g}))/{2 * h:g}"
        told.add(1 / (2 * h), 1e12, size=(h,), about=about)
    proper = Inequality("the built r' is the ReLU's for inputs ≤ 0 and ≥ 1/S, S = 10¹⁰")
    tried = torch.randn(200, generator=generator, dtype=torch.float64).exp()
    inputs = torch.cat([0 * tried[:1], tried / 1e10 + ramp / 1e10, tried, -tried, -tried / 1e10])
    built = NetworkGradientDescentConstruction(d=1, n=len(inputs), layers=2, width=1, steps=1)
    one = torch.ones(1, 1, dtype=torch.float64)
    problem = NetworkProblem(inputs[:, None], inputs[:, None], one[0], (one, one))
    trace = built.transformer.trace(built.prompt(problem))
    for value, off in zip(inputs.tolist(), trace[1]["off1"][:-1, 0].tolist(), strict=True):
        wrong = off != 0 if value > 0 else off < 1
        proper.add(float(wrong), 0.5, size=(abs(value),), about=f"input {value:g}, off {off:g}")
    return Part(printed=told.check(), corrected=proper.check())


def _starts(generator: torch.Generator, steps: int, scale: float) -> Any:
    """Check training from 0 and from a random start: risk over that at 0, and copies of units."""
    problem = NetworkRegression(d=4, n=40, layers=3, width=4).sample(generator=generator)
    # Labels that are not all 0, and a start whose output is not silent for all of them.
    problem = replace(problem, y=problem.x[:, :1].abs() / 2)
    drawn = torch.cat([problem.start[0].flatten(), *(v.abs().flatten() for v in problem.start[1:])])
    zero = Inequality("from w̄^(0) = 0 the steps train the network, units that differ")
    moved = Inequality("from a start in the prompt the steps train the network")
    kinds: dict[str, Activation] = {
        "ReLU": torch.relu,
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
    }
    rows: list[dict[str, float | int | str]] = []
    for k, (name, active) in enumerate(kinds.items()):
        first = float(_risk(problem, 0 * drawn, "squared", active))
        for whence, begin in (("0", 0 * drawn), ("drawn", scale * drawn)):
            flat = begin
            risk = first
            for step in range(steps + 1):
                risk = float(_risk(problem, flat, "squared", active))
                if step % max(1, steps // 50) == 0:
                    rows.append({"step": step, "risk": risk / first, "from": f"{name}, {whence}"})
                flat = flat - 0.1 * _gradient(problem, flat, "squared", active)
            units = flat[:16].reshape(4, 4)
            spread = float((units - units.mean(dim=0)).norm())
            about = f"{name}, N = 3, {steps} steps from {whence}: risk {risk:.4g} of {first:.4g}"
            about += f", units of layer 1 differ by {spread:.2g}"
            trial = zero if whence == "0" else moved
            trial.add(1e-6, spread, size=(k,), about=about)
            if name == "ReLU":
                start = float(_risk(problem, scale * drawn, "squared", active))
                before = first if whence == "0" else start
                trial.add(risk, 0.9 * before, size=(k, 1), about=f"{about}, after and 0.9 before")
    one = NetworkProblem.from_arrays([[1.0]], [1.0], [1.0], [[[0.0]], [[0.0]]])
    slope = _gradient(one, torch.zeros(2, dtype=torch.float64), "squared", torch.tanh)
    about = "N = 2, K = d = n = 1, x = y = 1, w = 0, tanh: the gradient (V₂'s and V₁'s factor 0)"
    zero.add(1e-6, float(slope.norm()), size=(-1,), about=about)
    return zero.check(), moved.check(), rows
