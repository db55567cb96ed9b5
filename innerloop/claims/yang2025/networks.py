"""Trained networks layer by layer; Newton's iteration and gradient descent on the same prompts.

Read-outs  a linear one for each layer, refitted by ridge regression at every prefix; of GPT-2,
           after its last layer normalisation, as its own
Newton     M = S/λmax², S = XᵀX, prompt by prompt: I − M S is (1 − λ²/λmax²)^(2^k) after k steps
Descent    with the step 1/λmax, prompt by prompt: (1 − λ/λmax)^k
Errors     E (ŷ − y)² at the query, as shares of E y²
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from innerloop.algorithms.base import Algorithm
from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.algorithms.newton import Newton
from innerloop.claims.evidence import Axis, Figure
from innerloop.claims.recorded import is_recorded, recorded
from innerloop.identify.hooked import HookedModel
from innerloop.identify.hyper import ran
from innerloop.identify.instances import asked, drawn, prefixes, truth
from innerloop.identify.models import Model, predicted
from innerloop.models.gpt2 import GPT2
from innerloop.models.lstm import LSTM
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.recipes.base import Trained, train
from innerloop.recipes.sequence import RegressionRecipe

LEARNED = 0.1
"""A network whose error is a larger share of the labels' power has not learned to solve."""
SHORT = "the network was trained too little to tell"
PRINTED = {"d": 20, "n": 40, "blocks": 12, "width": 256, "steps": 500_000, "learning_rate": 1e-4}
"""The paper's, but for its GPT-2's 8 heads."""
SMALL = {"d": 3, "n": 6, "blocks": 2, "width": 8, "heads": 2, "steps": 3, "batch": 8}
"""What is trained where there is no recorded network: hardly at all, and nothing is told of it."""
Iteration = Callable[[RegressionProblem], Algorithm[Any, Any]]


def newton(problem: RegressionProblem, share: float = 1.0) -> Newton:
    return Newton(share / _top(problem) ** 2)


def descent(problem: RegressionProblem, share: float = 1.0) -> GradientDescent:
    return GradientDescent((share * problem.n / _top(problem)).unsqueeze(0))


def slow_descent(problem: RegressionProblem) -> GradientDescent:
    """With a fifth of the step."""
    return descent(problem, 0.2)


def _top(problem: RegressionProblem) -> Tensor:
    """λmax(XᵀX) of every prompt."""
    return torch.linalg.eigvalsh(problem.x.mT @ problem.x)[..., -1]


@dataclass(frozen=True, eq=False)
class Layers:
    """A network with a read-out for each layer, the problems it is for, and how it was trained."""

    model: Model
    problems: LinearRegression
    told: str
    history: Sequence[Mapping[str, float]] = ()

    def drawn(self, examples: int, generator: torch.Generator) -> RegressionProblem:
        return drawn(self.problems, examples, generator)


def network(
    recipe: str, machine: str | None, sizes: Mapping[str, Any], prompts: int, seed: int = 0
) -> Layers:
    """The recorded one called `machine` where there is one, or one that is trained now."""
    if machine is not None and is_recorded("regression", machine):
        trained = recorded("regression", machine)
    else:
        given = {"evaluate_every": sizes["steps"], "warmup": sizes["steps"] // 20, **sizes}
        trained = train(recipe, seed=seed, **given)
    made = trained.recipe
    assert isinstance(made, RegressionRecipe)
    told = f"{made.blocks} layers, width {made.width}, {trained.step} steps"
    return Layers(probed(trained, prompts), made.problems(), told, trained.history)


class Ears(nn.Module):
    """A network that says what is read out after each of its layers, to those who listen."""

    def __init__(self, model: GPT2 | LSTM, layers: int) -> None:
        super().__init__()
        self.model = model
        self.after = nn.ModuleList(nn.Identity() for _ in range(layers))

    def forward(self, prompt: Tensor) -> None:
        streams = self.model.streams(prompt)[-len(self.after) :]
        for ear, stream in zip(self.after, streams, strict=True):
            ear(stream)


def probed(trained: Trained, prompts: int) -> HookedModel:
    """A network's layers with read-outs of their own."""
    recipe, model = trained.recipe, trained.model
    assert isinstance(recipe, RegressionRecipe)
    assert isinstance(model, GPT2 | LSTM)
    ears, names = Ears(model, recipe.blocks), [f"after.{k}" for k in range(recipe.blocks)]
    problems = recipe.problems()
    return HookedModel.of(ears, problems, recipe.tokens, names, prompts=prompts, everywhere=True)


@dataclass(frozen=True, eq=False)
class Steps(Model):
    """An iteration in a network's place: its layers are some of the steps."""

    iteration: Iteration
    at: tuple[int, ...]

    @property
    def layers(self) -> list[str]:
        return [f"step {k}" for k in self.at]

    def predict(self, problem: Any) -> Tensor:
        return ran(self.iteration(problem), problem, max(self.at))[list(self.at)]


def in_its_place(iteration: Iteration, *at: int) -> Callable[..., Layers]:
    """What `network` gives, but of an iteration; for falsified forms."""

    def given(recipe: str, machine: Any, sizes: Mapping[str, Any], *_: Any, **__: Any) -> Layers:
        problems = LinearRegression(d=sizes["d"], n=sizes["n"], kappa=sizes.get("kappa", 1.0))
        return Layers(Steps(iteration, at), problems, f"{len(at)} layers, an iteration's steps")

    return given


def shares(predictions: Tensor, problem: RegressionProblem) -> Tensor:
    """Squared errors of every layer or step, prompt by prompt, as shares of E y²."""
    target = truth(problem)
    assert target is not None
    return (predictions - target).square().sum(dim=-1) / target.square().sum(dim=-1).mean()


def layer_shares(layers: Layers, problem: RegressionProblem) -> Tensor:
    """Those of a network, prompts along the last dimension."""
    return shares(predicted(layers.model, problem), problem)


def step_shares(iteration: Iteration, problem: RegressionProblem, steps: int) -> Tensor:
    """Those of an iteration, from before its first step on."""
    return shares(ran(iteration(problem), problem, steps), problem)


def reached(errors: Sequence[float], level: float) -> int | None:
    """The first place where errors are down to a level."""
    return next((k for k, error in enumerate(errors) if error <= level), None)


def resampled(count: int, times: int, generator: torch.Generator) -> Tensor:
    """Weights of prompts that are drawn again with replacement, so many times: times × prompts."""
    picks = torch.randint(count, (times, count), generator=generator)
    ones = torch.ones(times, count, dtype=torch.float64)
    return torch.zeros_like(ones).scatter_add_(1, picks, ones) / count


def between(values: Sequence[float]) -> tuple[float, float]:
    """The middle 95 % of values."""
    ends = torch.tensor([0.025, 0.975], dtype=torch.float64)
    low, high = torch.quantile(torch.tensor(values, dtype=torch.float64), ends).tolist()
    return low, high


def over_positions(
    answer: Callable[[RegressionProblem], Tensor], problem: RegressionProblem
) -> Tensor:
    """Predictions at every x but the first, from those before it: k × prompts × positions."""
    return torch.cat([answer(each) for each in prefixes(problem)], dim=-1)


def over_queries(
    answer: Callable[[RegressionProblem], Tensor], problem: RegressionProblem, queries: Tensor
) -> Tensor:
    """Predictions at further queries of each prompt: k × prompts × queries."""
    found = answer(asked(problem, queries))
    return found.reshape(len(found), *queries.shape[:2])


NAMES = {
    "transformer": "transformer, layers",
    "Newton": "Newton's iteration, steps",
    "descent": "gradient descent, steps",
}


def curve(
    name: str, errors: Tensor, picks: Tensor, least: float, **more: str
) -> list[dict[str, Any]]:
    """Rows of a figure: mean errors over layers or steps, with bands, to below `least`."""
    means, again = errors.mean(dim=-1).tolist(), (picks @ errors.mT).mT.tolist()
    end = reached(means, least) or len(means) - 1
    rows = []
    for k in (k for k in range(1, end + 1) if k <= 32 or k % (k // 16) == 0):
        low, high = between(again[k])
        ends = {"low": max(low, least / 10), "high": high}
        rows.append({"k": k, "error": means[k], **ends, "of": NAMES.get(name, name), **more})
    return rows


def curves(title: str, rows: list[dict[str, Any]], panel: str | None = None) -> Figure:
    return Figure(
        title=title,
        rows=rows,
        x=Axis(field="k", title="layers or steps", scale="log"),
        y=Axis(field="error", title="E (ŷ − y)² / E y²", scale="log"),
        colour=Axis(field="of", title="of", scale="category"),
        panel=panel,
        band=("low", "high"),
        caption="Bands: the middle 95 % over prompts drawn again.",
    )
