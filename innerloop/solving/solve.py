"""The function `solve`, which solves many small problems at once and to a known accuracy."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from innerloop.errors import InputError, unknown_name_error
from innerloop.limits import check_count
from innerloop.progress import Progress, ignore_progress
from innerloop.solving.approximate import make_approximate
from innerloop.solving.base import Answers, PenalisedSolver, Solver, check_positive
from innerloop.solving.data import Problems, Samples, read_problems
from innerloop.solving.gaussian_mixture import GaussianMixture
from innerloop.solving.huber import Huber
from innerloop.solving.k_means import KMeans
from innerloop.solving.linear import LeastSquares, Ridge
from innerloop.solving.mixture_of_regressions import MixtureOfRegressions
from innerloop.solving.pca import PCA
from innerloop.solving.solution import Solution
from innerloop.solving.sparse import ElasticNet, Lasso, NonNegativeLeastSquares
from innerloop.solving.validation import cross_validate, resolve_path

SOLVERS: dict[str, type[Solver]] = {
    "least-squares": LeastSquares,
    "ridge": Ridge,
    "lasso": Lasso,
    "elastic-net": ElasticNet,
    "nnls": NonNegativeLeastSquares,
    "huber": Huber,
    "pca": PCA,
    "k-means": KMeans,
    "gaussian-mixture": GaussianMixture,
    "mixture-of-regressions": MixtureOfRegressions,
}
PER_ROW = ("labels", "responsibilities")
"""The names of the arrays that have an entry for every row of the data."""


def solve(
    name: str,
    X: Any,
    y: Any = None,
    *,
    penalty: Any = None,
    path: Any = None,
    cv: int | None = None,
    algorithm: Any = "auto",
    by: Any = None,
    target: Any = None,
    sample_weight: Any = None,
    device: Any = None,
    tolerance: float | None = None,
    progress: Progress | bool = False,
    **options: Any,
) -> Solution:
    """Solve many small problems of one kind at once, each to a known accuracy.

    Objectives, intercepts and initial values follow scikit-learn (SciPy for nnls); the file of each
    solver states its objective. Computations use float64, in chunks that fit into memory.

    Args:
        name: The kind of problem: least-squares, ridge, lasso, elastic-net, nnls, huber, pca,
            k-means, gaussian-mixture or mixture-of-regressions.
        X: The data: an array (problems, n, d), or (n, d) for one problem. For problems with
            different numbers of rows, a list of pairs (X, y), or of X alone if the problem has no
            labels. Or a data frame.
        y: The labels (problems, n), if X is an array.
        penalty: The penalty, which scikit-learn calls alpha: one number, or one per problem.
        path: Solve every problem for several penalties: a list of them, or their number.
        cv: Choose a penalty for each problem by cross-validation with this number of folds.
        algorithm: By default, "auto" solves to the tolerance. For an approximate lasso: "ista",
            "fista" or "lista-vm" (with the option `steps`), or the folder of a training run of
            the recipe `lista-vm-learned`.
        by: The label of the data frame's column that names the problem of each row.
        target: The label of the data frame's column with the labels to predict.
        sample_weight: The weight of every row, if the solver accepts weights.
        device: The device to compute on; by default that of the data.
        tolerance: The largest optimality measure that counts as converged.
        progress: True to show a progress bar, or a callback.
        **options: Options of the solver: `fit_intercept`, `l1_ratio`, `clusters`, `components`,
            `covariance`, `start`, `restarts`, `seed`, `epsilon`, `max_steps`.

    Returns:
        A `Solution` with arrays by name, whose first dimension is the problem. A warning and
        `solution.failed` name the problems whose optimality measure exceeds the tolerance.

    Raises:
        InputError: The data do not fit the solver, or the solver has no such option.

    Example:
        >>> import numpy as np, innerloop
        >>> X = np.eye(3)[None]
        >>> innerloop.solve("ridge", X, np.ones((1, 3)), penalty=1.0).coef.shape
        (1, 3)
    """
    problems = read_problems(X, y, by, target, sample_weight)
    solver = _make_solver(name, problems, penalty, algorithm, options)
    _check_call(name, solver, problems, path, cv)
    tolerance = solver.default_tolerance if tolerance is None else tolerance
    check_positive("tolerance", tolerance)
    device = None if device is None else _read_device(device)
    arrays: list[tuple[Tensor, Answers]] = []
    with _open_progress(progress) as report:
        done = 0
        for samples in problems.iterate_chunks(*solver.count_numbers(len(problems.features))):
            batch = samples if device is None else samples.to(device)
            answers = _solve_chunk(solver, batch, path, cv, tolerance)
            answers["converged"] = answers["converged"] & find_finite(answers)
            arrays.append((samples.places, answers))
            done += len(samples.places)
            report(done / len(problems), f"{done:,} of {len(problems):,} problems")
    solution = _join(name, solver, problems, arrays, keep_tensors=_holds_tensors(X))
    if len(solution.failed):
        from sklearn.exceptions import ConvergenceWarning

        warnings.warn(solution.describe(), ConvergenceWarning, stacklevel=2)
    return solution


def _make_solver(
    name: str, problems: Problems, penalty: Any, algorithm: Any, options: dict[str, Any]
) -> Solver:
    kind = SOLVERS.get(name.replace("_", "-")) if isinstance(name, str) else None
    if kind is None:
        raise unknown_name_error("problem to solve", str(name), SOLVERS)
    if penalty is not None:
        if not issubclass(kind, PenalisedSolver):
            raise InputError(f"{name} has no penalty: leave penalty= out")
        options = {**options, "penalty": _read_penalty(penalty, len(problems))}
    d = len(problems.features)
    if algorithm != "auto":
        if kind is not Lasso:
            raise InputError(f"algorithm= applies only to the lasso: leave it out for {name}")
        return make_approximate(algorithm, d, options)
    return kind.from_options(name, options).prepare(problems.sizes, d)


def _read_penalty(penalty: Any, count: int) -> Tensor:
    try:
        values = torch.as_tensor(np.asarray(penalty, dtype=np.float64))
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"penalty must be a number, or {count} of them; got {penalty!r}") from None
    if values.shape not in ((), (count,)):
        raise InputError(f"penalty must be a number, or {count} of them; got {values.numel()}")
    fine = (values >= 0) & torch.isfinite(values)
    if not bool(fine.all()):
        worst = float(values[~fine].reshape(-1)[0])
        expected = "at least 0" if worst < 0 else "a finite number"
        raise InputError(f"penalty must be {expected}, got {worst}")
    return values


def _read_device(device: Any) -> torch.device:
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise InputError(f"device={device!r} cannot be used here: {reason}") from None
    if place.type == "meta":
        raise InputError("device='meta' holds no numbers: use 'cpu' or a GPU")
    return place


def find_finite(answers: Answers) -> Tensor:
    """Return for each problem, or penalty of its path, whether all its numbers are finite."""
    shape = answers["converged"].shape
    fine = torch.ones_like(answers["converged"])
    for name, values in answers.items():
        if values.is_floating_point() and values.shape[: len(shape)] == shape and name != "path":
            fine &= torch.isfinite(values).reshape(*shape, -1).all(dim=-1)
    return fine


def _check_call(name: str, solver: Solver, problems: Problems, path: Any, cv: Any) -> None:
    """Raise an error if an argument of `solve` has no meaning for the solver."""
    if solver.labelled and problems.y is None:
        raise InputError(f"{name} needs labels: pass y, pairs (X, y), or target= of a data frame")
    if not solver.labelled and problems.y is not None:
        raise InputError(f"{name} takes no labels: leave y out")
    if problems.weight is not None and not solver.weighted:
        raise InputError(f"{name} does not accept sample_weight: leave it out")
    if (path is None and cv is None) or isinstance(solver, Lasso | Ridge):
        if cv is not None:
            check_count("cv", cv, 2)
            if isinstance(solver, PenalisedSolver) and solver.penalty is not None:
                raise InputError("cv= chooses the penalty: pass candidates as path=, not penalty=")
        return
    raise InputError(f"path= and cv= apply to ridge, lasso and elastic-net, not to {name}")


def _solve_chunk(
    solver: Solver, samples: Samples, path: Any, cv: int | None, tolerance: float
) -> Answers:
    if not isinstance(solver, PenalisedSolver):
        return solver.solve(samples, tolerance)
    if cv is not None:
        return cross_validate(solver, samples, path, cv, tolerance)
    if path is not None:
        penalties = resolve_path(solver, samples, path)
        return {**solver.solve_path(samples, penalties, tolerance), "penalty": penalties}
    penalties = solver.resolve_penalties(samples)
    return {**solver.solve(samples, tolerance), "penalty": penalties[:, 0]}


def _join(
    name: str,
    solver: Solver,
    problems: Problems,
    arrays: list[tuple[Tensor, Answers]],
    keep_tensors: bool,
) -> Solution:
    """Join the answers of all chunks, in the order of the problems."""
    order = torch.cat([places for places, _ in arrays]).argsort()
    sizes = problems.sizes
    joined: dict[str, Any] = {}
    for key in arrays[0][1]:
        parts = [answers[key] for _, answers in arrays]
        if key in PER_ROW and len(set(sizes)) > 1:
            rows = [row for part in parts for row in part.unbind()]
            cut = [rows[k][: sizes[j]] for j, k in enumerate(order.tolist())]
            joined[key] = cut if keep_tensors else [part.cpu().numpy() for part in cut]
            continue
        whole = torch.cat(parts)[order.to(parts[0].device)]
        joined[key] = whole if keep_tensors else whole.cpu().numpy()
    return Solution(name, solver.measure, problems.groups, problems.features, joined)


def _holds_tensors(X: Any) -> bool:
    while isinstance(X, list | tuple) and X:
        X = X[0]
    return isinstance(X, Tensor)


def _open_progress(progress: Progress | bool) -> Any:
    if progress is True:
        from innerloop.terminal import progress_bar

        return progress_bar("solving")
    return nullcontext(ignore_progress if progress is False else progress)
