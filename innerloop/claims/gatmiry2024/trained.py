"""Looped and layered linear attention, trained on sampled prompts with Σ* = I from several starts.

Objective  E‖∏(I − ΣA_i)‖²/d, the error relative to that of predicting 0. It is exact over w* and
           the query; Σ is that of a fresh batch of prompts at every step. All loops share one A,
           each layer has its own
Training   by the recipes `looped-attention` (u = 0) and `linear-attention`: Adam from entries
           N(0, 0.05²), whose rate falls to 0 as a cosine. Gradients are not clipped, as in the
           notebook of the public code for Σ* = I, whose bound is 1000. Other notebooks clip at
           0.01, which weakens rare prompts: with five loops, 0.23 and 0.35 of A then became
           antisymmetric
Theory     the least loss among multiples of the identity, exact
Settings   `conventions` lists what the source does not print
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.claims.cases import Case
from innerloop.claims.prompts import draw_normal
from innerloop.claims.searching import search_minimum
from innerloop.recipes.base import Recipe, train
from innerloop.registry import make_member
from innerloop.theory.layers import restricted_loss
from innerloop.theory.looped import isotropic_loss, isotropic_minimum

Value = float | int | str | bool | None
RATE, SPREAD, RECORDS = 0.02, 0.05, 24


class Run(NamedTuple):
    """Trainings from several starts, recorded after some of the steps.

    `weights` is (records, seeds, 1 or layers, d, d), `losses` is (records, seeds).
    """

    d: int
    n: int
    loops: int
    steps: list[int]
    weights: Tensor
    losses: Tensor

    @property
    def seeds(self) -> int:
        return self.weights.shape[1]

    @property
    def case(self) -> Case:
        return Case(n=self.n, L=self.loops, d=self.d)

    @property
    def final(self) -> Tensor:
        return self.weights[-1]

    def identity_distance(self) -> Tensor:
        """Return the distance ‖A − I‖_F/√d of every record and seed."""
        return self._size(self.weights[:, :, 0] - self._eye)

    def antisymmetric_share(self) -> Tensor:
        """Return the norm of the antisymmetric part of A relative to ‖A‖_F."""
        A = self.weights[:, :, 0]
        return self._size((A - A.mT) / 2) / self._size(A)

    def nearest_multiple_distance(self) -> Tensor:
        """Return the distance to the nearest multiple of the identity, relative to ‖A‖_F."""
        A = self.weights[:, :, 0]
        mean = A.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
        return self._size(A - mean * self._eye) / self._size(A)

    @property
    def _eye(self) -> Tensor:
        return torch.eye(self.d, dtype=self.weights.dtype)

    def _size(self, matrices: Tensor) -> Tensor:
        return matrices.norm(dim=(-2, -1)) / self.d**0.5


def draw_covariances(generator: torch.Generator, batch: int, d: int, n: int) -> Tensor:
    """Draw sample covariances XXᵀ/n of prompts with x ~ N(0, I); n < d is allowed."""
    X = draw_normal(generator, batch, d, n)
    return X @ X.mT / n


def prompt_errors(S: Tensor, weights: Tensor, loops: int) -> Tensor:
    """Return the error ‖∏(I − SA_i)‖²/d of every prompt: (seeds, prompts), S (…, prompts, d, d)."""
    d = S.shape[-1]
    eye = torch.eye(d, dtype=S.dtype)
    if weights.shape[-3] == 1:
        R = torch.linalg.matrix_power(eye - S @ weights, loops)
    else:
        R = eye - S @ weights[..., :1, :, :]
        for i in range(1, loops):
            R = R - R @ S @ weights[..., i : i + 1, :, :]
    return (R**2).sum((-2, -1)) / d


def train_loops(
    generator: torch.Generator,
    d: int,
    n: int,
    loops: int,
    *,
    seeds: int,
    steps: int,
    batch: int,
    layered: bool = False,
    tested: int = 500,
) -> Run:
    """Train from several starts; losses are measured on `tested` prompts."""
    recipe = make_recipe(d, n, loops, steps=steps, batch=batch, layered=layered)
    recorded = sorted({round(k * steps / (RECORDS - 1)) for k in range(RECORDS)})
    trainings = [_train_once(recipe, recorded, generator) for _ in range(seeds)]
    weights = torch.stack(trainings, dim=1)
    # The loss at bI is exact, so only the difference to it is sampled.
    S = draw_covariances(generator, tested, d, n)
    multiple = best_multiple(d, n, loops) * torch.eye(d, dtype=torch.float64)[None, None]
    excess = prompt_errors(S, multiple, loops).mean() - least_loss(d, n, loops)
    losses = torch.stack([prompt_errors(S, record, loops).mean(-1) for record in weights])
    return Run(d, n, loops, recorded, weights, losses - excess)


def make_recipe(
    d: int, n: int, loops: int, *, steps: int, batch: int, layered: bool = False
) -> Recipe:
    """Make the recipe of one block that is looped, or of as many layers."""
    settings = {"d": d, "n": n, "batch": batch, "scale": SPREAD, "steps": steps}
    settings |= {"learning_rate": RATE, "beta2": 0.95, "schedule": "cosine", "clip": None}
    settings |= {"truth": "identity", "evaluate_every": steps}
    if layered:
        return make_member("recipes", Recipe, "linear-attention", settings | {"blocks": loops})
    settings |= {"loops": loops, "shift": False}
    return make_member("recipes", Recipe, "looped-attention", settings)


def _train_once(recipe: Recipe, recorded: list[int], generator: torch.Generator) -> Tensor:
    """Train from a new random start; return the weights after the recorded steps."""
    weights: list[Tensor] = []

    def watch(step: int, model: Any) -> None:
        if step in recorded:
            A = model.A.detach().clone()
            weights.append(A[None] if A.ndim == 2 else -A)  # layers have the sign of ahn2023

    train(recipe, seed=int(torch.randint(2**31, (), generator=generator)), watch=watch)
    return torch.stack(weights)


def turn_weights(run: Run) -> Run:
    """Make a run whose weights have an antisymmetric part, a fifth of their size."""
    skew = torch.ones(run.d, run.d, dtype=torch.float64).triu(1)
    skew = (skew - skew.mT) / skew.norm() * run.weights.norm(dim=(-2, -1), keepdim=True)
    return run._replace(weights=run.weights + 0.2 * skew)


def describe_run(run: Run) -> dict[str, Value]:
    return {
        "n": run.n,
        "loops": run.loops,
        "b, theory": best_multiple(run.d, run.n, run.loops),
        "mean diagonal of A": float(run.final[:, 0].diagonal(dim1=-2, dim2=-1).mean()),
        "distance to the nearest multiple of I": float(run.nearest_multiple_distance()[-1].max()),
        "distance to I": float(run.identity_distance()[-1].max()),
        "antisymmetric share of A": float(run.antisymmetric_share()[-1].max()),
        "loss": float(run.losses[-1].mean()),
        "least loss of a multiple of I": least_loss(run.d, run.n, run.loops),
    }


def best_multiple(d: int, n: int, loops: int) -> float:
    """Return the multiple b of the identity with the least loss."""
    return 1 - isotropic_minimum(d, n, loops)


@cache
def least_loss(d: int, n: int, loops: int) -> float:
    """Return the least loss of a looped multiple of the identity, divided by d."""
    return float(isotropic_loss(d, n, loops, Fraction(best_multiple(d, n, loops)))) / d


@cache
def least_layered_loss(d: int, n: int, layers: int) -> float:
    """Return the least loss of layers that are multiples of the identity, divided by d.

    The search starts at Chebyshev's iteration for eigenvalues within 1 + d/n ± 2√(d/n).
    """

    def objective(point: Tensor) -> Tensor:
        return restricted_loss(-point, None, d, n).log()

    angles = torch.arange(1, 2 * layers, 2, dtype=torch.float64) * torch.pi / (2 * layers)
    middle = 1 + d / n
    eigenvalues = middle + min(2 * (d / n) ** 0.5, 0.95 * middle) * angles.cos()
    best, _, _ = search_minimum(objective, 1 / eigenvalues[None], iterations=300)
    return float(restricted_loss(-best, None, d, n)) / d


def banded_rows(steps: list[int], values: Tensor, **columns: Value) -> list[dict[str, Value]]:
    """Return figure rows of the mean over seeds, with the least and the largest value."""
    return [
        {
            "step": step,
            "value": float(row.mean()),
            "low": float(row.min()),
            "high": float(row.max()),
            **columns,
        }
        for step, row in zip(steps, values, strict=True)
    ]


def distance_rows(run: Run, **columns: Value) -> list[dict[str, Value]]:
    """Return figure rows of the distances of A, and of the best multiple bI, from the identity."""
    near, exact = run.nearest_multiple_distance(), run.identity_distance()
    rows = banded_rows(run.steps, near, what="to the nearest multiple of I", **columns)
    rows += banded_rows(run.steps, exact, what="to I", **columns)
    far = 1 - best_multiple(run.d, run.n, run.loops)
    return rows + level_rows(run.steps, far, what="from the best multiple to I, exact", **columns)


def level_rows(steps: list[int], value: float, **columns: Value) -> list[dict[str, Value]]:
    """Return figure rows of a constant reference level."""
    return banded_rows([steps[0], steps[-1]], torch.full((2, 1), value), **columns)
