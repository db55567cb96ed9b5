"""Penalty paths, and cross-validation that chooses one penalty for each problem.

Folds are consecutive rows, as in scikit-learn's KFold. To train without a fold, the solver gets the
whole batch with weight 0 for the rows of the fold.
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
    """Return the penalties of each problem.

    `path` is a list of them, or the length of a geometric grid from the largest useful penalty
    down. None stands for the solver's default list, or a grid of `DEFAULT_LENGTH`.
    """
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
    """Solve every problem with the penalty of its path whose error on held-out rows is least."""
    penalties = resolve_path(solver, samples, path)
    errors = _measure_errors(solver, samples, penalties, folds, tolerance)
    best = errors.mean(dim=1).argmin(dim=-1, keepdim=True)
    chosen = penalties.gather(-1, best)
    solved = solver.solve_path(samples, chosen, tolerance)
    answers = {name: values[:, 0] for name, values in solved.items()}
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
    """Return the mean squared error on each fold of the weights that were fitted to the others."""
    number, errors = number_folds(samples, folds), []
    for fold in range(folds):
        held_out = (number == fold).to(samples.x)
        training = Samples(samples.x, samples.y, samples.weights * (1 - held_out), samples.places)
        fit = solver.solve_path(training, penalties, tolerance)
        predictions = samples.x @ fit["coef"].mT + fit["intercept"].unsqueeze(1)
        squares = (samples.labels.unsqueeze(-1) - predictions).square()
        weights = (samples.weights * held_out).unsqueeze(-1)
        errors.append((weights * squares).sum(dim=1) / weights.sum(dim=1))
    return torch.stack(errors, dim=1)


def number_folds(samples: Samples, folds: int) -> Int[Tensor, "problems n"]:
    """Return the number of every row's fold, and −1 for rows of weight 0.

    Folds are consecutive rows of equal number; the first folds have one more if that is uneven.
    """
    counts = (samples.weights > 0).sum(dim=-1)
    if int(counts.min()) < folds:
        raise InputError(
            f"cv={folds} folds need at least {folds} rows in every problem, got one with "
            f"{int(counts.min())}"
        )
    # Number the rows of positive weight one after another; the others belong to no fold.
    rows = (samples.weights > 0).long().cumsum(dim=-1) - 1
    short, longer = (counts // folds).unsqueeze(-1), (counts % folds).unsqueeze(-1)
    edge = longer * (short + 1)
    late = longer + (rows - edge).div(short, rounding_mode="floor")
    number = torch.where(rows < edge, rows.div(short + 1, rounding_mode="floor"), late)
    return torch.where(samples.weights > 0, number, -1)
