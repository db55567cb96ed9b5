"""Looped and layered linear attention trained on sampled prompts, Σ* = I, several starts at once.

Objective  E‖∏(I − ΣA_i)‖²/d, the error over that of predicting 0: exact over w* and the query, Σ of
           a fresh batch of prompts at every step; one A for all loops, or one for each layer
Optimiser  Adam, its rate constant and then falling to 0, from entries N(0, 0.05²). The paper takes
           that of ahn2023's code and tells neither n, nor rate, nor steps; n = 20 is the code's
Theory     the least loss among multiples of the identity, exact
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.claims.prompts import draw_normal
from innerloop.claims.searching import search_minimum
from innerloop.theory.layers import restricted_loss
from innerloop.theory.looped import isotropic_loss, isotropic_minimum

Value = float | int | str | bool | None
RATE, SPREAD, RECORDS = 0.02, 0.05, 24


class Run(NamedTuple):
    """A training run: weights (records, seeds, 1 or layers, d, d) after some of the steps."""

    d: int
    n: int
    loops: int
    steps: list[int]
    weights: Tensor

    @property
    def final(self) -> Tensor:
        return self.weights[-1]

    def distance_to_multiple(self, target: float) -> Tensor:
        """Distance ‖A − target·I‖_F/√d of every record and seed."""
        return self._size(self.weights[:, :, 0] - target * self._eye)

    def symmetric_distance(self, target: float) -> Tensor:
        """Distance of the symmetric part of A from target·I, of every record and seed."""
        A = self.weights[:, :, 0]
        return self._size((A + A.mT) / 2 - target * self._eye)

    def antisymmetric_share(self) -> Tensor:
        """Norm of the antisymmetric part of A over ‖A‖_F."""
        A = self.weights[:, :, 0]
        return self._size((A - A.mT) / 2) / self._size(A)

    def nearest_multiple_distance(self) -> Tensor:
        """Distance to the nearest multiple of the identity, over ‖A‖_F."""
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
    """The error ‖∏(I − SA_i)‖²/d of every prompt: (seeds, prompts), S (…, prompts, d, d)."""
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
) -> Run:
    shape = (seeds, loops if layered else 1, d, d)
    A = (SPREAD * draw_normal(generator, *shape)).requires_grad_()
    optimiser = torch.optim.Adam([A], lr=RATE, betas=(0.9, 0.95))  # gradients fall by decades
    falling = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda k: min(1.0, 2 * (1 - k / (steps + 1)))
    )
    told = sorted({round(k * steps / (RECORDS - 1)) for k in range(RECORDS)})
    records = [A.detach().clone()]
    for step in range(1, steps + 1):
        S = draw_covariances(generator, seeds * batch, d, n).reshape(seeds, batch, d, d)
        optimiser.zero_grad()
        prompt_errors(S, A, loops).mean(dim=-1).sum().backward()
        optimiser.step()
        falling.step()
        if step in told:
            records.append(A.detach().clone())
    return Run(d, n, loops, told, torch.stack(records))


def measure_losses(generator: torch.Generator, run: Run, count: int) -> Tensor:
    """Loss of every record and seed: exact at bI, plus the difference to it on samples."""
    S = draw_covariances(generator, count, run.d, run.n)
    b = best_multiple(run.d, run.n, run.loops)
    eye = torch.eye(run.d, dtype=torch.float64)
    known = prompt_errors(S, b * eye[None, None], run.loops).mean()
    found = torch.stack([prompt_errors(S, weights, run.loops).mean(-1) for weights in run.weights])
    return found - known + least_loss(run.d, run.n, run.loops)


def best_multiple(d: int, n: int, loops: int) -> float:
    """The multiple b of the identity with the least loss."""
    return 1 - isotropic_minimum(d, n, loops)


@cache
def least_loss(d: int, n: int, loops: int) -> float:
    """Least loss of a looped multiple of the identity, over d."""
    return float(isotropic_loss(d, n, loops, Fraction(best_multiple(d, n, loops)))) / d


@cache
def least_layered_loss(d: int, n: int, layers: int) -> float:
    """Least loss of layers that are multiples of the identity, over d.

    Searched from the steps of Chebyshev's iteration for eigenvalues within 1 + d/n ± 2√(d/n).
    """

    def objective(point: Tensor) -> Tensor:
        return restricted_loss(-point, None, d, n).log()

    angles = torch.arange(1, 2 * layers, 2, dtype=torch.float64) * torch.pi / (2 * layers)
    middle = 1 + d / n
    eigenvalues = middle + min(2 * (d / n) ** 0.5, 0.95 * middle) * angles.cos()
    best, _, _ = search_minimum(objective, 1 / eigenvalues[None], iterations=300)
    return float(restricted_loss(-best, None, d, n)) / d


def banded_rows(steps: list[int], values: Tensor, **columns: Value) -> list[dict[str, Value]]:
    """Figure rows with the mean over seeds, between the least and the largest."""
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


def level_rows(steps: list[int], value: float, **columns: Value) -> list[dict[str, Value]]:
    """Figure rows of a constant reference level."""
    return banded_rows([steps[0], steps[-1]], torch.full((2, 1), value), **columns)
