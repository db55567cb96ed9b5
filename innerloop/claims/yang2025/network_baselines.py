"""Other ways to predict what a random network says: it is trained on the prompt, or not used.

Training     a network of the teacher's shape, by plain gradient descent on four fifths of the
             prompt's examples; several starts and step sizes at once. Each stops where its error on
             the last fifth was least, and the one that is best there answers the query: as it is,
             and trained again on all examples, from its start for its number of steps
Others       ridge, nearest neighbours and kernel ridge regression of scikit-learn, on all examples;
             each with the numbers of a small grid that are best on other prompts
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.network_gradient_descent import NetworkGradientDescent
from innerloop.problems.network_regression import (
    NetworkProblem,
    NetworkRegression,
    NetworkWeights,
    activations,
)

STEP_SIZES = (0.1, 0.3)
TUNING_PROMPTS = 60
"""Further prompts on which the numbers of scikit-learn's methods are chosen."""
TOGETHER = 30
"""Prompts that are trained on at once: their networks fit into the cache of a processor."""
Predictor = Callable[[NetworkProblem], Float[Tensor, " batch"]]


class Answers(NamedTuple):
    """Predictions at the query by the network that validates best."""

    part: Float[Tensor, " batch"]
    """As it was when it validated best, trained on four fifths."""
    whole: Float[Tensor, " batch"]
    """Trained again on all examples."""


def train_networks(
    problem: NetworkProblem, starts: int, steps: int, generator: torch.Generator
) -> Answers:
    """Train networks on every prompt, and predict the query by the one that validates best."""
    begun = tuple(
        (2 / columns) ** 0.5
        * torch.randn(
            len(problem.x), starts, rows, columns, generator=generator, dtype=torch.float64
        )
        for rows, columns in problem.shapes
    )
    parts = [slice(k, k + TOGETHER) for k in range(0, len(problem.x), TOGETHER)]
    found = [_train_part(problem[part], tuple(w[part] for w in begun), steps) for part in parts]
    return Answers(*(torch.cat(each) for each in zip(*found, strict=True)))


def _train_part(problem: NetworkProblem, begun: NetworkWeights, steps: int) -> Answers:
    """Train from several starts on each of a few prompts, with every step size."""
    batch, starts = begun[0].shape[:2]
    kept, combined = problem.n - max(problem.n // 5, 1), starts * len(STEP_SIZES)
    begun = tuple(
        w.unsqueeze(2).expand(-1, -1, len(STEP_SIZES), -1, -1).reshape(-1, *w.shape[-2:])
        for w in begun
    )
    sizes = torch.tensor(STEP_SIZES, dtype=torch.float64).repeat(batch * starts)

    def repeat(tensor: Tensor) -> Tensor:
        return tensor.double().repeat_interleave(combined, dim=0)

    x, y, query = (repeat(each) for each in (problem.x, problem.y, problem.x_query))
    weights, seen = begun, NetworkProblem(x[:, :kept], y[:, :kept], query, begun)
    descent = NetworkGradientDescent(sizes.unsqueeze(0), torch.full_like(sizes, 1e6))
    least = torch.full((batch * combined,), torch.inf, dtype=torch.float64)
    answers, stops = torch.zeros_like(least), torch.zeros_like(least, dtype=torch.int64)
    for k in range(steps + 1):
        off = activations(weights, x[:, kept:])[-1] - y[:, kept:]
        error = off.square().mean(dim=(-2, -1)).nan_to_num(nan=torch.inf)
        better = error < least
        least = torch.where(better, error, least)
        answers = torch.where(better, descent.predict(seen, weights).squeeze(-1), answers)
        stops[better] = k
        weights = _keep_finite(descent.step(seen, weights, k), weights)
    best = least.reshape(batch, combined).argmin(dim=-1) + combined * torch.arange(batch)
    again = NetworkProblem(x[best], y[best], query[best], tuple(w[best] for w in begun))
    return Answers(answers[best], train_again(again, sizes[best], stops[best]))


def train_again(problem: NetworkProblem, sizes: Tensor, stops: Tensor) -> Tensor:
    """Train from the problem's start on all examples, each network for its number of steps."""
    descent = NetworkGradientDescent(sizes.unsqueeze(0), torch.full_like(sizes, 1e6))
    weights = problem.start
    for k in range(int(stops.max())):
        moved = _keep_finite(descent.step(problem, weights, k), weights)
        going = (k < stops)[:, None, None]
        weights = tuple(torch.where(going, v, w) for v, w in zip(moved, weights, strict=True))
    return descent.predict(problem, weights).squeeze(-1)


def _keep_finite(moved: NetworkWeights, before: NetworkWeights) -> NetworkWeights:
    """Leave networks that diverge where they were."""
    largest = torch.stack([v.abs().amax(dim=(-2, -1)) for v in moved]).amax(dim=0)
    fine = (largest < 1e3)[:, None, None]
    return tuple(torch.where(fine, new, old) for new, old in zip(moved, before, strict=True))


def run_descent(problem: NetworkProblem, steps: int, size: float) -> Float[Tensor, " batch"]:
    """Run `network-gradient-descent` from the prompt's own start, as the built transformer does."""
    sizes = torch.tensor([size], dtype=torch.float64)
    algorithm = NetworkGradientDescent(sizes, torch.tensor(1e6, dtype=torch.float64))
    *_, last = algorithm.states(problem.to(torch.float64), steps)
    return algorithm.predict(problem.to(torch.float64), last).squeeze(-1)


def tune_regressors(
    distribution: NetworkRegression, generator: torch.Generator
) -> dict[str, Predictor]:
    """Choose the numbers of scikit-learn's regressors on other prompts."""
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.linear_model import Ridge
    from sklearn.neighbors import KNeighborsRegressor

    other = distribution.sample(TUNING_PROMPTS, generator=generator)
    neighbours = [k for k in (1, 2, 3, 5) if k <= distribution.n]
    grids: dict[str, Sequence[Any]] = {
        "ridge": [Ridge(alpha=10.0**k) for k in range(-2, 3)],
        "nearest neighbours": [KNeighborsRegressor(k, weights="distance") for k in neighbours],
        "kernel ridge": [
            KernelRidge(kernel="rbf").set_params(alpha=alpha, gamma=gamma)
            for alpha in (0.01, 0.1)
            for gamma in (0.03, 0.1, 0.3)
        ],
    }

    def choose(options: Sequence[Any]) -> Predictor:
        errors = [
            float((_fit_each(each, other) - other.targets[:, 0]).square().mean())
            for each in options
        ]
        best = options[int(np.argmin(errors))]
        return lambda problem: _fit_each(best, problem)

    return {name: choose(options) for name, options in grids.items()}


def _fit_each(estimator: Any, problem: NetworkProblem) -> Float[Tensor, " batch"]:
    x, y, queries = (each.double().numpy() for each in (problem.x, problem.y, problem.x_query))
    said = [
        estimator.fit(rows, labels[:, 0]).predict(query[None])[0]
        for rows, labels, query in zip(x, y, queries, strict=True)
    ]
    return torch.tensor(np.array(said), dtype=torch.float64)
