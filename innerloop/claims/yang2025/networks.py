"""Trained networks layer by layer; Newton's iteration and gradient descent on the same prompts.

Read-outs  a linear one for each layer, refitted by ridge regression at every prefix; of GPT-2,
           after its last layer normalisation, as its own
Newton     M = S/λmax², S = XᵀX, prompt by prompt: I − M S is (1 − λ²/λmax²)^(2^k) after k steps
Descent    with the step 1/λmax, prompt by prompt: (1 − λ/λmax)^k
Errors     E (ŷ − y)² at the query, as shares of E y²
Trainings  of one network are judged one by one: a statement about it is decided where all agree.
           Prompts and queries are drawn anew for each
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from innerloop.algorithms.base import Algorithm
from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.algorithms.newton import Newton
from innerloop.claims.encoders import join_checks
from innerloop.claims.evidence import Evidence, Figure, Part
from innerloop.claims.figures import draw_lines
from innerloop.claims.intervals import take_central
from innerloop.claims.recorded import load_recorded
from innerloop.identification.hooked import HookedModel
from innerloop.identification.hyper import predict_steps
from innerloop.identification.instances import draw_prompts, find_targets
from innerloop.identification.models import Model, predict_layers
from innerloop.models.gpt2 import GPT2
from innerloop.models.lstm import LSTM
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.recipes.base import TrainedRun, train
from innerloop.recipes.sequence import RegressionRecipe

LEARNED_SHARE = 0.1
"""A network whose error is a larger share of the labels' power has not learned to solve."""
SHORT_TRAINING = "the network was trained too little to tell"
PAPER_SIZES = {
    "d": 20,
    "n": 40,
    "blocks": 12,
    "width": 256,
    "steps": 500_000,
    "learning_rate": 1e-4,
}
"""The paper's sizes, except the 8 heads of its GPT-2."""
SMALL_SIZES = {"d": 3, "n": 6, "blocks": 2, "width": 8, "heads": 2, "steps": 3, "batch": 8}
"""Sizes trained where no recorded network exists: hardly trained, so it decides nothing."""
Iteration = Callable[[RegressionProblem], Algorithm[Any, Any]]


def newton_iteration(problem: RegressionProblem, share: float = 1.0) -> Newton:
    return Newton(share / _largest_eigenvalues(problem) ** 2)


def gradient_descent(problem: RegressionProblem, share: float = 1.0) -> GradientDescent:
    return GradientDescent((share * problem.n / _largest_eigenvalues(problem)).unsqueeze(0))


def _largest_eigenvalues(problem: RegressionProblem) -> Tensor:
    """The largest eigenvalue λmax(XᵀX) of every prompt."""
    return torch.linalg.eigvalsh(problem.x.mT @ problem.x)[..., -1]


@dataclass(frozen=True, eq=False)
class ProbedNetwork:
    """A network with a read-out per layer, the problems it solves, and its training history."""

    model: Model
    problems: LinearRegression
    description: str
    history: Sequence[Mapping[str, float]] = ()

    def draw_problems(self, examples: int, generator: torch.Generator) -> RegressionProblem:
        return draw_prompts(self.problems, examples, generator)


def load_networks(
    machines: Sequence[str | None], sizes: Mapping[str, Any], prompts: int
) -> list[ProbedNetwork]:
    """Load several trainings of a GPT-2."""
    return [
        load_network("gpt2-regression", machine, sizes, prompts, seed)
        for seed, machine in enumerate(machines)
    ]


def load_network(
    recipe: str, machine: str | None, sizes: Mapping[str, Any], prompts: int, seed: int = 0
) -> ProbedNetwork:
    """Load the recorded network called `machine`, or train one now where none is named."""
    if machine is not None:
        trained = load_recorded("regression", machine)
    else:
        given = {"evaluate_every": sizes["steps"], "warmup": sizes["steps"] // 20, **sizes}
        trained = train(recipe, seed=seed, **given)
    made = trained.recipe
    assert isinstance(made, RegressionRecipe)
    told = f"{made.blocks} layers, width {made.width}, {trained.step} steps"
    return ProbedNetwork(
        probe_network(trained, prompts), made.build_distribution(), told, trained.history
    )


def merge_trainings(found: Sequence[Evidence]) -> Evidence:
    """Merge the evidence of several trainings: parts about trained networks are joined.

    What is said without a network is taken from the first, and so are the figures.
    """
    first = found[0]
    if len(found) == 1:
        return first
    return replace(
        first,
        parts=[
            join_parts(same) if same[0].trainings else same[0]
            for same in zip(*(each.parts for each in found), strict=True)
        ],
        numbers={
            f"{name}, seed {seed}": value
            for seed, each in enumerate(found)
            for name, value in each.numbers.items()
        },
        table=[{"seed": k, **row} for k, each in enumerate(found) for row in each.table],
        figures=[
            replace(figure, caption=f"{figure.caption} The first of {len(found)} trainings.")
            for figure in first.figures
        ],
    )


def join_parts(parts: Sequence[Part]) -> Part:
    """Join one part of several trainings."""
    first = parts[0]
    return replace(
        first,
        printed=join_checks([part.printed for part in parts]),
        other_readings={
            name: join_checks([part.other_readings[name] for part in parts])
            for name in first.other_readings
        },
        trainings=sum(part.trainings or 0 for part in parts),
    )


def judge_each(judge: Callable[[Any], Evidence]) -> Callable[[list[Any]], Evidence]:
    """Make the judge of several trainings from that of one."""
    return lambda found: merge_trainings([judge(data) for data in found])


def change_each(change: Callable[[Any], Any]) -> Callable[[list[Any]], list[Any]]:
    """Make data in which every training is changed."""
    return lambda found: [change(data) for data in found]


def repeat_curve(curve: Iterable[float], errors: Tensor) -> Tensor:
    """Make errors, layers or steps × prompts, that follow a curve on every prompt."""
    return torch.cat([value * torch.ones_like(errors[:1]) for value in curve])


class LayerTaps(nn.Module):
    """A network that passes the stream after each layer through an identity, for hooks."""

    def __init__(self, model: GPT2 | LSTM, layers: int) -> None:
        super().__init__()
        self.model = model
        self.after = nn.ModuleList(nn.Identity() for _ in range(layers))

    def forward(self, prompt: Tensor) -> None:
        streams = self.model.compute_streams(prompt)[-len(self.after) :]
        for ear, stream in zip(self.after, streams, strict=True):
            ear(stream)


def probe_network(trained: TrainedRun, prompts: int) -> HookedModel:
    """Fit a read-out to each layer of a network."""
    recipe, model = trained.recipe, trained.model
    assert isinstance(recipe, RegressionRecipe)
    assert isinstance(model, GPT2 | LSTM)
    ears, names = LayerTaps(model, recipe.blocks), [f"after.{k}" for k in range(recipe.blocks)]
    problems = recipe.build_distribution()
    return HookedModel.fit(
        ears, problems, recipe.encode_tokens, names, prompts=prompts, everywhere=True
    )


def error_shares(predictions: Tensor, problem: RegressionProblem) -> Tensor:
    """Squared errors of every layer or step, prompt by prompt, as shares of E y²."""
    target = find_targets(problem)
    assert target is not None
    return (predictions - target).square().sum(dim=-1) / target.square().sum(dim=-1).mean()


def layer_error_shares(layers: ProbedNetwork, problem: RegressionProblem) -> Tensor:
    """Error shares of a network's layers, prompts along the last dimension."""
    return error_shares(predict_layers(layers.model, problem), problem)


def step_error_shares(iteration: Iteration, problem: RegressionProblem, steps: int) -> Tensor:
    """Error shares of an iteration, starting before its first step."""
    return error_shares(predict_steps(iteration(problem), problem, steps), problem)


def first_below(errors: Sequence[float], level: float) -> int | None:
    """Index of the first error at or below a level; None if there is none."""
    return next((k for k, error in enumerate(errors) if error <= level), None)


def draw_bootstrap_weights(count: int, times: int, generator: torch.Generator) -> Tensor:
    """Draw bootstrap weights of prompts (sampling with replacement): times × prompts."""
    picks = torch.randint(count, (times, count), generator=generator)
    ones = torch.ones(times, count, dtype=torch.float64)
    return torch.zeros_like(ones).scatter_add_(1, picks, ones) / count


def predict_positions(
    answer: Callable[[RegressionProblem], Tensor], problem: RegressionProblem
) -> Tensor:
    """Predict at every x but the first, from those before it: k × prompts × positions."""
    return torch.cat([answer(each) for each in problem.prefixes()], dim=-1)


def predict_queries(
    answer: Callable[[RegressionProblem], Tensor], problem: RegressionProblem, queries: Tensor
) -> Tensor:
    """Predict at further queries of each prompt: k × prompts × queries."""
    found = answer(problem.with_queries(queries))
    return found.reshape(len(found), *queries.shape[:2])


CURVE_NAMES = {
    "transformer": "transformer, layers",
    "Newton": "Newton's iteration, steps",
    "descent": "gradient descent, steps",
}


def curve_rows(
    name: str, errors: Tensor, picks: Tensor, least: float, **more: str
) -> list[dict[str, Any]]:
    """Figure rows: mean errors over layers or steps, with bands, until below `least`."""
    means, again = errors.mean(dim=-1).tolist(), (picks @ errors.mT).mT.tolist()
    end = first_below(means, least) or len(means) - 1
    rows = []
    for k in (k for k in range(1, end + 1) if k <= 32 or k % (k // 16) == 0):
        _, low, high = take_central(again[k], means[k])
        ends = {"low": max(low, least / 10), "high": high}
        rows.append({"k": k, "error": means[k], **ends, "of": CURVE_NAMES.get(name, name), **more})
    return rows


def draw_curves(title: str, rows: list[dict[str, Any]], panel: str | None = None) -> Figure:
    caption = "Bands: the middle 95 % over prompts drawn again."
    axes = ("k: layers or steps", "error: E (ŷ − y)² / E y²", "of: of")
    more = {"log": "xy", "panel": panel, "band": ("low", "high"), "caption": caption}
    return draw_lines(title, rows, *axes, **more)
