"""How fast errors fall over the layers of a trained transformer, and over Newton's and GD's steps.

Printed    transformers and Newton's iteration converge superlinearly, gradient descent sublinearly;
           the error at layer 8 matches Newton's after 3 iterations, and gradient descent needs
           hundreds for it
Missing    the sizes of the network and of the regressions, the length of the training, and the step
           of gradient descent. Three parts are undecided for these reasons:
           the transformer: trainings of the same sizes, which are ours, differ in the outcome
           layer 8: how many layers the network has is not printed, and ours has 6
           hundreds: with the step 1/λmax gradient descent needs 1 to 4 steps, but a small enough
           step makes any number hundreds. Only too many steps with 1/λmax, 2,000 or more, would
           refute it, because no step that converges is more than about twice as fast
Tested     a GPT-2 trained here (6 layers, width 64, d = 5, n = 10), read out after each layer. The
           order p of e_{ℓ+1} ~ e_ℓ^p is fitted from 1, the error of no layer at all, over all
           layers, and down to twice the last error, where training ends. The order of Newton's
           iteration and of gradient descent is fitted down to an error of 2 %. Superlinear is p >
           1, sublinear p < 1, by the middle 95 % over resampled prompts; for the transformer by
           both fits, so that no cut decides (p is below 1 over all layers, and above 1 without the
           last one). At `full` three trainings, which must agree
Reading    errors are means over prompts: the slide speaks of the error of a layer. The mean over
           prompts is dominated by worse and worse prompts, and gradient descent is sublinear. On
           each prompt it leaves at most 1 − λmin/λmax at every step, which is linear. This other
           reading is shown
Beyond     2^k steps of gradient descent are enough for k iterations of Newton's, α = 1/λmax²
Proof      k iterations leave (1 − x²)^(2^k) = (1 − x)^(2^k) (1 + x)^(2^k) at λ = x λmax, x ≤ 1, and
           2^k steps leave (1 − x)^(2^k). So gradient descent needs hundreds of steps only for 7
           iterations or more
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from innerloop.claims.base import claim
from innerloop.claims.cases import Case, format_entry
from innerloop.claims.evidence import Check, Evidence, Part
from innerloop.claims.intervals import Interval, check_within, take_central
from innerloop.claims.recorded import name_seeds
from innerloop.claims.trials import Inequality
from innerloop.claims.yang2025.networks import (
    LEARNED_SHARE,
    PAPER_SIZES,
    SHORT_TRAINING,
    SMALL_SIZES,
    Iteration,
    ProbedNetwork,
    change_each,
    curve_rows,
    draw_bootstrap_weights,
    draw_curves,
    first_below,
    gradient_descent,
    judge_each,
    layer_error_shares,
    load_networks,
    newton_iteration,
    repeat_curve,
    step_error_shares,
)
from innerloop.identification.hyper import predict_steps
from innerloop.identification.relation import order_of_convergence
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem

FEW, MOST, TIMES = 24, 600, 200
HUNDREDS, THOUSAND = 100, 1000
LAYER = 8
DOWN_TO = 0.02
"""The error down to which the iterations' orders are fitted."""
ALPHAS = (0.5, 1.0, 1.5, 1.9)
SMALLEST = 0.5
"""The eigenvalue beside 1 in counterexamples."""
Data = dict[str, Any]
"""Errors, layers or steps × prompts; bootstrap weights; steps of gradient descent that match."""


def judge_convergence(data: Data) -> Evidence:
    errors: dict[str, Tensor] = data["errors"]
    picks, last = data["picks"], float(errors["transformer"][-1].mean())
    orders = {
        "transformer, all layers": fit_orders(errors["transformer"], 0.0, picks),
        "transformer, down to twice the last error": fit_orders(
            errors["transformer"], 2 * last, picks
        ),
        "Newton": fit_orders(errors["Newton"], DOWN_TO, picks),
        "descent": fit_orders(errors["descent"], DOWN_TO, picks),
    }
    first, second, newton, descent = orders.values()
    both = None
    if first is not None and second is not None:
        both = Interval(first.value, min(first.low, second.low), max(first.high, second.high))
    means = {name: each.mean(dim=-1).tolist() for name, each in errors.items()}
    name = f"the transformer's layers ({data['description']}): errors fall superlinearly, $p > 1$"
    transformer = check_order(name, both, least=1.0)
    if last > LEARNED_SHARE:
        short = f"{SHORT_TRAINING}: its error is {last:.2g} of the labels' power"
        transformer = replace(transformer, passed=None, summary=short, counterexample="")
    return Evidence(
        parts=[
            Part(printed=transformer, trainings=1),
            Part(
                printed=check_order("Newton's iteration: superlinearly, $p > 1$", newton, least=1.0)
            ),
            Part(
                printed=check_order("gradient descent: sublinearly, $p < 1$", descent, most=1.0),
                reading="errors are means over prompts: the slide speaks of the error of a layer",
                other_readings={"on each prompt": check_each_prompt(data["linear"])},
            ),
            judge_layer(means["transformer"], means["Newton"], data["description"]),
            judge_hundreds(data),
        ],
        beyond=[check_powers(data)],
        numbers={f"order, {name}": order.value for name, order in orders.items() if order},
        table=match_layers(errors),
        figures=[
            draw_curves(
                f"Errors over layers and steps; a GPT-2 of {data['description']}",
                [row for name, e in errors.items() for row in curve_rows(name, e, picks, last / 3)],
            )
        ],
    )


def fit_orders(errors: Tensor, floor: float, picks: Tensor) -> Interval | None:
    """Fit the order of convergence; None where errors hardly fall."""

    def order(values: Sequence[float]) -> float | None:
        end = first_below(values, floor)
        fit = order_of_convergence(values if end is None else values[: end + 1])
        return None if fit is None else fit["order"]

    middle = order(errors.mean(dim=-1).tolist())
    again = [order(each) for each in (picks @ errors.mT).tolist()]
    known = [each for each in again if each is not None]
    if middle is None or len(known) < 0.95 * len(again):
        return None
    return take_central(known, middle)


def check_order(
    statement: str, order: Interval | None, least: float = -math.inf, most: float = math.inf
) -> Check:
    if order is None:
        return Check(statement=statement, passed=None, summary="fewer than 3 falls to fit")
    what = "order $p$, over resampled prompts"
    return check_within(statement, order, least=least, most=most, what=what)


def check_each_prompt(linear: Tensor) -> Check:
    return Check(
        statement="gradient descent's error falls sublinearly on each prompt",
        passed=not bool(linear.any()),
        summary=f"on {int(linear.sum())} of {len(linear)} prompts at most $1 − λmin/λmax$ is left "
        "at each of 60 steps: linearly",
        counterexample=f"{Case(d=2, λ=[1, SMALLEST], step=1)}: of $w_k − w*$ 0 and "
        f"{format_entry(1 - SMALLEST)} are left at each step"
        if bool(linear.any())
        else "",
    )


def judge_layer(layers: Sequence[float], newton: Sequence[float], description: str) -> Part:
    """Judge whether layer 8 errs as Newton's 3 iterations do; undecided for fewer layers."""
    statement, ours = (
        "layer 8 errs as Newton's iteration after 3 steps",
        "a factor of 2, either way",
    )
    count = len(layers) - 1
    if count < LAYER:
        check = Check(
            statement=statement,
            passed=None,
            summary=f"no layer 8: {count} layers ({description}); Newton's iteration reaches the "
            f"error of the last one after {first_below(newton, layers[-1])} steps",
            ours=ours,
        )
    else:
        ratio = layers[LAYER] / newton[3]
        errors = f"{layers[LAYER]:.4g} at layer 8, {newton[3]:.4g} after 3 steps ({description})"
        passed = 1 / 2 <= ratio <= 2
        check = Check(
            statement=statement,
            passed=passed,
            summary=f"error {errors}",
            counterexample="" if passed else f"error {errors}",
            ours=ours,
        )
    return Part(printed=check, trainings=1)


def judge_hundreds(data: Data) -> Part:
    """Judge "hundreds": few steps with 1/λmax leave it undecided, and thousands refute it."""
    least, most = min(map(min, data["steps for 3"])), max(map(max, data["steps for 3"]))
    statement = "what takes Newton's 3 iterations takes gradient descent hundreds of steps"
    counted = (
        f"{least} to {most} steps on {len(data['steps for 3'][0])} prompts, $d = 20$, $n = 40$, "
        f"$α = {ALPHAS[0]}$ to {ALPHAS[-1]} $/λmax²$, step $1/λmax$"
    )
    few, many = least < HUNDREDS, least >= 2 * THOUSAND
    within = not few and most < THOUSAND
    return Part(
        printed=Check(
            statement=statement,
            passed=True if within else (False if many else None),
            summary=counted if within or many else f"{counted}; the slides print no step",
            counterexample=counted if many else "",
            ours=f"hundreds are {HUNDREDS} to {THOUSAND - 1}; refuted from {2 * THOUSAND} on, as "
            "no step is much over twice as fast",
        ),
        reading="gradient descent with the authors' step, which the slides do not print",
        other_readings={
            "the step $1/λmax$ of each prompt": Check(
                statement=f"{statement} of size $1/λmax$",
                passed=within,
                summary=counted,
                counterexample=""
                if within
                else f"{Case(λmax=1, λ=SMALLEST)}: 3 iterations leave "
                f"{(1 - SMALLEST**2) ** 8:.4f} of it, 4 steps {(1 - SMALLEST) ** 4:.4f}",
            )
        },
    )


def check_powers(data: Data) -> Check:
    bound = Inequality("$2^k$ steps of gradient descent are enough for $k$ iterations of Newton's")
    for k, counts in enumerate(data["steps for k"]):
        for count in counts:
            bound.add(count, 2**k, Case(k=k, note="$d = 20$, $n = 40$"))
    return bound.check()


def replace_errors(name: str, curve: Callable[[int], float]) -> Callable[[list[Data]], list[Data]]:
    """Make a form in which the errors of one method are those of a curve, on every prompt."""

    def falsify(data: Data) -> Data:
        errors = repeat_curve(map(curve, range(12)), data["errors"][name])
        return {**data, "errors": {**data["errors"], name: errors}}

    return change_each(falsify)


@claim(
    "yang2025.fu.convergence",
    "A trained transformer's layers and Newton's iteration converge superlinearly, gradient "
    "descent sublinearly: layer 8 is 3 iterations of Newton's and hundreds of gradient descent.",
    where="First paper (Fu et al. 2023): key result 1",
    kind="rate",
    hypotheses={
        "$w* ~ N(0, I)$, $x ~ N(0, Σ)$, $y = w*ᵀx$ without noise": "the linear regression task",
        "$d = 5$, $n = 10$, 6 layers of width 64": "ours: the slides print no sizes",
        "gradient descent with step $1/λmax$": "ours: the slides print no step",
    },
    missing="The slides print no sizes of the network and of the regressions, no length of the "
    "training and no step of gradient descent, on which 'hundreds' depends.",
    quick={
        "machines": ["gpt2"],
        "sizes": SMALL_SIZES,
        "prompts": 400,
        "examples": 600,
        "trials": 20,
    },
    full={
        "machines": name_seeds("gpt2", 3),
        "sizes": SMALL_SIZES,
        "prompts": 1500,
        "examples": 3000,
        "trials": 400,
    },
    paper={"machines": [None] * 3, "sizes": {**PAPER_SIZES, "heads": 8}, "prompts": 4000}
    | {"examples": 4000, "trials": 400},
    tiny={"machines": [None], "sizes": SMALL_SIZES, "prompts": 30, "examples": 400, "trials": 3},
    judge=judge_each(judge_convergence),
    falsified={
        "layers whose errors fall like 1/k²": replace_errors(
            "transformer", lambda k: (k + 1.0) ** -2
        ),
        "Newton's errors that fall like 1/k²": replace_errors("Newton", lambda k: (k + 1.0) ** -2),
        "gradient descent's errors that are squared": replace_errors(
            "descent", lambda k: 0.9 ** (2.0**k)
        ),
        "gradient descent that needs thousands of steps": change_each(
            lambda data: {
                **data,
                "steps for 3": [[5000 for _ in each] for each in data["steps for 3"]],
            }
        ),
    },
)
def fu_convergence(
    generator: torch.Generator,
    *,
    machines: Sequence[str | None],
    sizes: Mapping[str, Any],
    prompts: int,
    examples: int,
    trials: int,
) -> list[Data]:
    networks = load_networks(machines, sizes, prompts)
    return [measure_errors(generator, layers, examples, trials) for layers in networks]


def measure_errors(
    generator: torch.Generator, layers: ProbedNetwork, examples: int, trials: int
) -> Data:
    problem = layers.draw_problems(examples, generator)
    shares = layer_error_shares(layers, problem)
    return {
        "description": layers.description,
        "errors": {
            "transformer": torch.cat([torch.ones_like(shares[:1]), shares]),
            "Newton": step_error_shares(newton_iteration, problem, FEW),
            "descent": step_error_shares(gradient_descent, problem, MOST),
        },
        "picks": draw_bootstrap_weights(examples, TIMES, generator),
        "linear": find_linear(problem),
        **count_steps(LinearRegression(d=20, n=40).sample(trials, generator=generator)),
    }


def find_linear(problem: RegressionProblem) -> Tensor:
    """Find prompts on which at most 1 − λmin/λmax of the weights' error is left at each step."""
    spectrum = torch.linalg.eigvalsh(problem.x.mT @ problem.x)
    left = 1 - spectrum[..., 0] / spectrum[..., -1]
    errors = weight_errors(problem, gradient_descent, 60)
    allowed = left ** torch.arange(len(errors)).unsqueeze(-1) * errors[0]
    return (errors <= allowed * (1 + 1e-9) + 1e-12).all(dim=0)


def weight_errors(problem: RegressionProblem, iteration: Iteration, steps: int) -> Tensor:
    """The errors ‖w_k − w*‖ for every step and prompt; unit vectors as queries read the weights."""
    assert problem.weights is not None
    units = torch.eye(problem.d).to(problem.x).expand(*problem.x.shape[:-2], -1, -1)
    weights = predict_steps(iteration(problem), replace(problem, x_query=units), steps)
    return (weights - problem.weights).norm(dim=-1)


def count_steps(problem: RegressionProblem) -> Data:
    """Count steps of gradient descent that reach the error of Newton's k-th, prompt by prompt."""
    slow = weight_errors(problem, gradient_descent, MOST)

    def count(fast: Tensor) -> list[int]:
        down = slow <= fast * (1 + 1e-9)
        return torch.where(down.any(dim=0), down.int().argmax(dim=0), MOST + 1).tolist()

    third = [weight_errors(problem, lambda p, a=a: newton_iteration(p, a), 3)[3] for a in ALPHAS]
    return {
        "steps for k": [count(fast) for fast in weight_errors(problem, newton_iteration, 8)],
        "steps for 3": [count(fast) for fast in third],
    }


def match_layers(errors: Mapping[str, Tensor]) -> list[dict[str, Any]]:
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
