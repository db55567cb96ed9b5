"""Measure how the time of a training step grows with d, n, layers and batch, for every recipe.

A step samples a batch, computes the loss and its gradient, and runs the optimiser. Starting from
one setting, each size is doubled three times. An exponent is the slope of log CPU time over log
size. For comparison, plain code takes the same step with one prompt after another. For linear
attention on Gram matrices, the plain code computes scores between all tokens in PyTorch; these
recipes are also measured with the settings kernel=c draws=numpy. If a recipe has no d or n, a
similar size is varied: the number of arms or states for d, the rounds of a game for n. All runs use
one thread; the recipe and the plain code run alternately.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from common import record
from torch import Tensor

from innerloop.recipes.alista import AlistaRecipe
from innerloop.recipes.base import Recipe
from innerloop.recipes.gram import GramRecipe
from innerloop.registry import load_members
from innerloop.training.loop import Training
from innerloop.training.parallel import Group

REPEATS, SEED = 3, 0
SIZES: dict[str, list[int]] = {
    "d": [4, 8, 16, 32],
    "n": [16, 32, 64, 128],
    "layers": [1, 2, 4, 8],
    "batch": [16, 32, 64, 128],
}
BASE = {"d": 8, "n": 32, "layers": 2, "batch": 32}
STANDS_FOR = {
    "layers": ("blocks", "loops"),
    "d": ("d", "states", "arms"),
    "n": ("horizon_steps", "n"),
    "batch": ("batch",),
}
"""The names of parameters for each size; the first one that a recipe has is used."""
FIXED = {
    **{"width": 64, "heads": 2, "hidden": 32, "pool": 64, "sparsity": 1, "warmup": 0},
    **{"scale": 0.02, "learning_rate": 1e-9},
}
"""Other settings, for recipes that have them; weights are small so that 8 layers do not
overflow."""
GRAM_PROMPTS = 50
"""The factor on the number of prompts for recipes on Gram matrices, whose prompts are cheap."""
ALISTA_FEATURES = 16
"""The factor on the number of features for ALISTA, which needs at least one per example."""

Step = Callable[[], object]


def make_recipe(kind: type[Recipe], sizes: dict[str, int]) -> Recipe:
    """Make a recipe of these sizes, with small values for all other settings."""
    known = kind.from_values({}).values()
    values: dict[str, Any] = {name: v for name, v in FIXED.items() if name in known}
    for size, names in STANDS_FOR.items():
        name = next(name for name in names if name in known)
        values[name] = sizes[size]
    values["batch"] *= GRAM_PROMPTS if issubclass(kind, GramRecipe) else 1
    if issubclass(kind, AlistaRecipe):
        values["d"] *= ALISTA_FEATURES
    small = {name: v for name, v in kind.small.items() if name not in values}
    return kind.from_values({**small, **values})


def make_step(recipe: Recipe) -> Step:
    """Make a function that takes a training step as `innerloop train` does."""
    model = recipe.build_model(torch.Generator().manual_seed(SEED))
    training = Training(model, recipe.build_objective(), recipe, SEED)
    return lambda: training.advance(evaluate=False)


def make_loop(recipe: Recipe) -> Step:
    """Make a function that takes a training step by a loop over prompts."""
    model = recipe.build_model(torch.Generator().manual_seed(SEED))
    objective, optimizer = recipe.build_objective(), recipe.make_optimizer(model)
    count, generator = recipe.values()["batch"], torch.Generator().manual_seed(SEED)

    def step() -> None:
        batch = objective.draw(generator)
        optimizer.zero_grad()
        for k in range(count):
            prompt, share = Group(k, count).take_share(objective, batch)
            (share * objective.loss(model, prompt)).backward()
        optimizer.step()

    return step


def make_token_step(recipe: GramRecipe, layers: int) -> Step:
    """Make a function that takes a training step of linear attention with n×n scores."""
    d, n, generator = recipe.d, recipe.n, torch.Generator().manual_seed(SEED)
    P, Q = (
        (0.1 * torch.randn(layers, d + 1, d + 1, generator=generator)).double().requires_grad_()
        for _ in range(2)
    )
    optimizer = torch.optim.Adam([P, Q])
    visible = torch.ones(n + 1, dtype=P.dtype)
    visible[-1] = 0.0

    def compute_loss(Z: Tensor, truth: Tensor) -> Tensor:
        for i in range(layers):
            scores = torch.einsum("bik,kl,bjl->bij", Z, Q[i], Z) * visible[:, None]
            Z = Z + torch.einsum("bij,bik->bjk", scores, Z @ P[i].mT) / n
        return ((Z[:, -1, -1] + truth) ** 2).mean()

    def step() -> None:
        x = torch.randn(recipe.batch, n + 1, d, generator=generator, dtype=P.dtype)
        y = x @ torch.randn(recipe.batch, d, 1, generator=generator, dtype=P.dtype)
        tokens, truth = torch.cat([x, y], dim=-1), y[:, -1, 0].clone()
        tokens[:, -1, -1] = 0.0
        optimizer.zero_grad()
        compute_loss(tokens, truth).backward()
        optimizer.step()

    return step


def measure_steps(kind: type[Recipe], sizes: dict[str, int]) -> dict[str, float]:
    """Measure the least CPU seconds of both steps, after one warm-up call each, alternating."""
    recipe = make_recipe(kind, sizes)
    plain = (
        make_token_step(recipe, sizes["layers"])
        if isinstance(recipe, GramRecipe)
        else make_loop(recipe)
    )
    steps, least = {"ours": make_step(recipe), "obvious": plain}, dict[str, float]()
    if isinstance(recipe, GramRecipe):
        steps["kernel=c"] = make_step(replace(recipe, kernel="c", draws="numpy"))
    for turn in range(REPEATS + 1):
        for name, step in steps.items():
            begin = time.process_time()
            step()
            if turn:
                spent = time.process_time() - begin
                least[name] = min(spent, least.get(name, spent))
    return least


def fit_exponent(values: list[int], times: list[float]) -> float:
    """Fit the slope of log time over log size."""
    logs = [math.log(value) for value in values]
    return statistics.linear_regression(logs, [math.log(t) for t in times]).slope


def measure_recipe(kind: type[Recipe]) -> dict[str, Any]:
    """Measure the exponents of one recipe in every size, with the seconds they are fitted to."""
    measured: dict[str, Any] = {}
    for size, values in SIZES.items():
        times = [measure_steps(kind, {**BASE, size: value}) for value in values]
        for name in times[0]:
            seconds = [each[name] for each in times]
            about = {"exponent": fit_exponent(values, seconds), "seconds": seconds}
            measured.setdefault(name, {})[size] = about
    return measured


def main() -> None:
    start, used = time.perf_counter(), time.process_time()
    torch.set_num_threads(1)
    print(f"{'exponents in':34}" + "".join(f"{size:>8}" for size in SIZES))
    recipes: dict[str, Any] = {}
    for name, kind in sorted(load_members("recipes", Recipe).items()):
        measured = recipes[name] = measure_recipe(kind)
        for who, sizes in measured.items():
            line = "".join(f"{sizes[size]['exponent']:>8.2f}" for size in SIZES)
            largest = [measured[each]["batch"]["seconds"][-1] for each in ("obvious", who)]
            times = f"{largest[0] / largest[1]:>8.1f} times the obvious code's speed"
            print(f"{name:24}{who:10}{line}{times if who != 'obvious' else ''}", flush=True)
    settings = {"sizes": SIZES, "base": BASE, "fixed": FIXED, "gram_prompts": GRAM_PROMPTS}
    settings |= {"alista_features": ALISTA_FEATURES, "repeats": REPEATS, "seed": SEED, "threads": 1}
    cpu = round(time.process_time() - used, 1)
    record("growth", start, settings, {"cpu_seconds": cpu, "recipes": recipes})


if __name__ == "__main__":
    main()
