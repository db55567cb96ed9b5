"""Penalty paths, and cross-validation that picks one penalty for each problem.

Folds are consecutive rows, as scikit-learn's KFold cuts them. The training part of a fold is the
whole batch with weight 0 on the fold's rows, so that all folds of all problems are one batch more.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.arrays import as_tensor
from innerloop.errors import InputError
from innerloop.limits import check_count
from innerloop.solving.base import Answers, PenalisedSolver
from innerloop.solving.data import Samples

LEAST_SHARE = 1e-3
"""The smallest penalty of a default path, as a share of the largest."""
DEFAULT_LENGTH = 100


def resolve_path(
    solver: PenalisedSolver, samples: Samples, path: Any
) -> Float[Tensor, "problems path"]:
    """Return the penalties of each problem: given ones, or a geometric grid of `path` of them."""
    if path is None and (default := solver.default_path()) is not None:
        path = default
    path = DEFAULT_LENGTH if path is None else path
    if isinstance(path, int) and not isinstance(path, bool):
        count = check_count("path", path, 2)
        exponents = torch.linspace(0.0, 1.0, count, dtype=torch.float64, device=samples.x.device)
        largest = solver.largest_penalty(samples).clamp_min(torch.finfo(torch.float64).eps)
        return largest.unsqueeze(-1) * LEAST_SHARE**exponents
    values = as_tensor(path, "path").double().to(samples.x.device)
    fine = (values >= 0) & torch.isfinite(values)
    if values.ndim != 1 or not len(values) or not bool(fine.all()):
        raise InputError(
            "path must be a number of penalties, or a list of them that are finite and ≥ 0"
        )
    return values.expand(len(samples.x), len(values))


def cross_validate(
    solver: PenalisedSolver, samples: Samples, path: Any, folds: int, tolerance: float
) -> Answers:
    """Solve every problem at the penalty of its path with the least error on held-out rows."""
    penalties = resolve_path(solver, samples, path)
    errors = _measure_errors(solver, samples, penalties, folds, tolerance)
    best = errors.mean(dim=1).argmin(dim=-1, keepdim=True)
    chosen = penalties.gather(-1, best)
    found = solver.solve_path(samples, chosen, tolerance)
    answers = {name: values[:, 0] for name, values in found.items()}
    return {
        **answers,
        "penalty": chosen[:, 0],
        "path": penalties,
        "cv_error": errors.mean(dim=1),
    }


def _measure_errors(
    solver: PenalisedSolver,
    samples: Samples,
    penalties: Float[Tensor, "problems path"],
    folds: int,
    tolerance: float,
) -> Float[Tensor, "problems folds path"]:
    """Return the mean squared error on each fold, trained on the others."""
    number, errors = number_folds(samples, folds), []
    for fold in range(folds):
        held_out = (number == fold).to(samples.x)
        training = Samples(samples.x, samples.y, samples.weights * (1 - held_out), samples.places)
        found = solver.solve_path(training, penalties, tolerance)
        fitted = samples.x @ found["coef"].mT + found["intercept"].unsqueeze(1)
        squares = (samples.labels.unsqueeze(-1) - fitted).square()
        weights = (samples.weights * held_out).unsqueeze(-1)
        errors.append((weights * squares).sum(dim=1) / weights.sum(dim=1))
    return torch.stack(errors, dim=1)


def number_folds(samples: Samples, folds: int) -> Int[Tensor, "problems n"]:
    """Return the fold of every row: as many consecutive ones in each, the first ones longer."""
    counts = (samples.weights > 0).sum(dim=-1)
    if int(counts.min()) < folds:
        raise InputError(
            f"cv={folds} folds need at least {folds} rows in every problem, got one with "
            f"{int(counts.min())}"
        )
    # Rows that do not count belong to no fold: those that do are numbered one after another.
    rows = (samples.weights > 0).long().cumsum(dim=-1) - 1
    short, longer = (counts // folds).unsqueeze(-1), (counts % folds).unsqueeze(-1)
    edge = longer * (short + 1)
    late = longer + (rows - edge).div(short, rounding_mode="floor")
    number = torch.where(rows < edge, rows.div(short + 1, rounding_mode="floor"), late)
    return torch.where(samples.weights > 0, number, -1)
