"""How fast errors fall over the layers of a trained transformer, and over Newton's and GD's steps.

Printed    transformers and Newton's iteration converge superlinearly, gradient descent sublinearly;
           the error at layer 8 matches Newton's after 3 iterations, and gradient descent needs
           hundreds for it. The paper's GPT-2: 12 layers, 8 heads, width 256, d = 20, n = 40,
           500,000 steps of training
Tested     a GPT-2 trained here (6 layers, width 64, d = 5, n = 10 = 2d as there), read out after
           each layer. The order p of e_{ℓ+1} ~ e_ℓ^p from 1, the error of no layer at all, down to
           twice the last layer's, where training ends; Newton's and gradient descent's down to an
           error of 2 %. Superlinear is p > 1, sublinear p < 1, by the middle 95 % over prompts
           drawn again. Without GPT-2's last normalisation before the read-outs p is nearer to 1
           (1.06, from 0.99 to 1.14, on 600 prompts)
Sublinear  on no prompt: there gradient descent leaves at most 1 − λmin/λmax at every step, which is
           linear. In the mean over prompts it is sublinear: ever worse prompts are what is left
Hundreds   3 iterations leave (1 − x²)⁸ = (1 − x)⁸ (1 + x)⁸ at λ = x λmax, 8 steps of gradient
           descent (1 − x)⁸: so 2^k steps are enough for k iterations, on every prompt, and hundreds
           belong to 7 or more (α = 1/λmax²; other α are tried). Layer 8 then cannot match both
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.evidence import Check, Evidence, Part
from innerloop.claims.trials import Inequality
from innerloop.claims.yang2025.networks import (
    LEARNED_SHARE,
    PAPER_SIZES,
    SHORT_TRAINING,
    SMALL_SIZES,
    Iteration,
    ProbedNetwork,
    central_interval,
    curve_rows,
    draw_bootstrap_weights,
    draw_curves,
    first_below,
    gradient_descent,
    layer_error_shares,
    load_network,
    newton_iteration,
    slow_gradient_descent,
    step_error_shares,
    substitute_iteration,
)
from innerloop.identification.hyper import predict_steps
from innerloop.identification.relation import order_of_convergence
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem

FEW, MOST, TIMES, HUNDREDS = 24, 600, 200, 100
DOWN_TO = 0.02
"""The error down to which the iterations' orders are fitted."""


@claim(
    "yang2025.fu.convergence",
    "A trained transformer's layers and Newton's iteration converge superlinearly, gradient "
    "descent sublinearly: layer 8 is 3 iterations of Newton's and hundreds of gradient descent.",
    where="First paper (Fu et al. 2023): key result 1",
    kind="rate",
    quick={"machine": "gpt2", "sizes": SMALL_SIZES, "prompts": 400, "examples": 600, "trials": 20},
    full={
        "machine": "gpt2",
        "sizes": SMALL_SIZES,
        "prompts": 1500,
        "examples": 3000,
        "trials": 400,
    },
    paper={"machine": None, "sizes": {**PAPER_SIZES, "heads": 8}, "prompts": 4000}
    | {"examples": 4000, "trials": 400},
    tiny={"machine": None, "sizes": SMALL_SIZES, "prompts": 30, "examples": 400, "trials": 3},
    falsified={
        "gradient descent's steps for layers": {
            "layered": substitute_iteration(gradient_descent, *range(1, 25))
        },
        "gradient descent for Newton's": {"second": gradient_descent},
        "Newton's for gradient descent": {"first": newton_iteration},
        "gradient descent with a fifth of the step": {"first": slow_gradient_descent},
    },
)
def fu_convergence(
    generator: torch.Generator,
    *,
    machine: str | None,
    sizes: Mapping[str, Any],
    prompts: int,
    examples: int,
    trials: int,
    layered: Callable[..., ProbedNetwork] = load_network,
    first: Iteration = gradient_descent,
    second: Iteration = newton_iteration,
) -> Evidence:
    layers = layered("gpt2-regression", machine, sizes, prompts)
    problem = layers.draw_problems(examples, generator)
    found = layer_error_shares(layers, problem)
    fast, slow = step_error_shares(second, problem, FEW), step_error_shares(first, problem, MOST)
    start = torch.ones_like(found[:1])
    errors = {"transformer": torch.cat([start, found]), "Newton": fast, "descent": slow}
    last = float(found[-1].mean())
    picks = draw_bootstrap_weights(examples, TIMES, generator)
    ends = {"transformer": 2 * last, "Newton": DOWN_TO, "descent": DOWN_TO}
    orders = {name: _convergence_orders(each, ends[name], picks) for name, each in errors.items()}
    short = f"{SHORT_TRAINING}: its error is {last:.2g} of the labels' power"
    transformer = _superlinear(
        f"the transformer's layers ({layers.description})", orders["transformer"]
    )
    if last > LEARNED_SHARE:
        transformer = replace(transformer, passed=None, summary=short, counterexample="")
    table = _match_layers(errors)
    return Evidence(
        parts=[
            Part(printed=transformer, matters="result"),
            Part(printed=_superlinear("Newton's iteration", orders["Newton"]), matters="result"),
            Part(
                printed=_check_each_prompt(problem, first),
                corrected=_sublinear(orders["descent"]),
                matters="print",
            ),
            _hundreds(generator, trials, first, second),
        ],
        numbers={f"order, {name}": each[0] for name, each in orders.items() if each is not None},
        table=table,
        figures=[
            draw_curves(
                f"Errors over layers and steps; a GPT-2 of {layers.description}",
                [row for name, e in errors.items() for row in curve_rows(name, e, picks, last / 3)],
            )
        ],
    )


Order = tuple[float, float, float] | None
"""The order of convergence and its interval; None where errors hardly fall."""


def _convergence_orders(errors: Tensor, floor: float, picks: Tensor) -> Order:
    def order(values: Sequence[float]) -> float | None:
        end = first_below(values, floor)
        fit = order_of_convergence(values if end is None else values[: end + 1])
        return None if fit is None else fit["order"]

    middle = order(errors.mean(dim=-1).tolist())
    again = [order(each) for each in (picks @ errors.mT).tolist()]
    known = [each for each in again if each is not None]
    if middle is None or len(known) < 0.95 * len(again):
        return None
    return middle, *central_interval(known)


def _superlinear(what: str, order: Order) -> Check:
    statement = f"{what}: errors fall superlinearly, order p > 1"
    if order is None:
        return Check(statement=statement, passed=None, summary="fewer than 3 falls to fit")
    p, low, high = order
    told = f"p = {p:.3f}, 95 % interval [{low:.3f}, {high:.3f}]"
    passed = True if low > 1 else (False if high < 1 else None)
    return Check(
        statement=statement,
        passed=passed,
        summary=told,
        counterexample=told if passed is False else "",
    )


def _sublinear(order: Order) -> Check:
    """Judge sublinear convergence, the opposite verdict on the same fit."""
    found = _superlinear("", order)
    passed = None if found.passed is None else not found.passed
    return Check(
        statement="linearly on each prompt, sublinearly in the mean over prompts: order p < 1",
        passed=passed,
        summary=found.summary,
        counterexample=found.summary if passed is False else "",
    )


def _check_each_prompt(problem: RegressionProblem, iteration: Iteration) -> Check:
    """Check whether any prompt's weights converge slower than 1 − λmin/λmax per step."""
    spectrum = torch.linalg.eigvalsh(problem.x.mT @ problem.x)
    left = 1 - spectrum[..., 0] / spectrum[..., -1]
    errors = _weight_errors(problem, iteration, 60)
    allowed = left ** torch.arange(len(errors)).unsqueeze(-1) * errors[0]
    linear = (errors <= allowed * (1 + 1e-9) + 1e-12).all(dim=0)
    return Check(
        statement="gradient descent's error falls sublinearly",
        passed=not bool(linear.any()),
        summary=f"on {int(linear.sum())} of {len(linear)} prompts at most 1 − λmin/λmax is left at "
        "each of 60 steps: linearly",
        counterexample="XᵀX = diag(1, 1/2), step 1: w_k − w* = (0, 2^(−k)), half is left each time"
        if bool(linear.any())
        else "",
    )


def _weight_errors(problem: RegressionProblem, iteration: Iteration, steps: int) -> Tensor:
    """The errors ‖w_k − w*‖ for every step and prompt; unit vectors as queries read the weights."""
    assert problem.weights is not None
    units = torch.eye(problem.d).to(problem.x).expand(*problem.x.shape[:-2], -1, -1)
    weights = predict_steps(iteration(problem), replace(problem, x_query=units), steps)
    return (weights - problem.weights).norm(dim=-1)


def _hundreds(generator: torch.Generator, trials: int, first: Iteration, second: Iteration) -> Part:
    """Steps of gradient descent that reach the error of Newton's k-th, on the paper's problem."""
    problem = LinearRegression(d=20, n=40).sample(trials, generator=generator)
    slow = _weight_errors(problem, first, MOST)

    def needed(fast: Tensor) -> list[int]:
        down = slow <= fast * (1 + 1e-9)
        counts = torch.where(down.any(dim=0), down.int().argmax(dim=0), MOST + 1)
        return counts.tolist()

    bound = Inequality("2^k steps of gradient descent are enough for k iterations of Newton's")
    for k, fast in enumerate(_weight_errors(problem, second, 8)):
        for prompt, count in enumerate(needed(fast)):
            bound.add(count, 2**k, size=(k,), about=f"d = 20, n = 40, k = {k}, prompt {prompt}")
    tried = (0.5, 1.0, 1.5, 1.9)
    three = {
        a: needed(_weight_errors(problem, lambda p, a=a: newton_iteration(p, a), 3)[3])
        for a in tried
    }
    most = max(max(counts) for counts in three.values())
    passed = min(min(counts) for counts in three.values()) >= HUNDREDS
    printed = Check(
        statement="what takes Newton's 3 iterations takes gradient descent hundreds",
        passed=passed,
        summary=f"at most {most} steps on {trials} prompts, d = 20, n = 40, α = 0.5 to 1.9 /λmax²",
        counterexample=""
        if passed
        else "λ = λmax/2: 3 iterations leave (3/4)⁸ = 0.100 of it, 4 steps (1/2)⁴ = 0.063",
    )
    return Part(printed=printed, corrected=bound.check(), matters="step")


def _match_layers(errors: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    """For every layer, the steps at which Newton's and gradient descent reach its error."""
    means = {name: each.mean(dim=-1).tolist() for name, each in errors.items()}
    return [
        {
            "layer": layer,
            "error": error,
            "Newton's iterations": first_below(means["Newton"], error),
            "steps of gradient descent": first_below(means["descent"], error),
        }
        for layer, error in enumerate(means["transformer"])
    ]
