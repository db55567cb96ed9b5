"""`solve`: many small problems at once, to a known accuracy."""

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
"""Answers with an entry for every row of the data."""


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

    Objectives, intercepts and start conventions are scikit-learn's (SciPy's for nnls); each
    solver's file states them. Computed in float64, in chunks that fit memory.

    Args:
        name: least-squares, ridge, lasso, elastic-net, nnls, huber, pca, k-means, gaussian-mixture
            or mixture-of-regressions.
        X: The data: (problems, n, d), or (n, d) for one problem; a list of pairs (X, y) of
            different lengths, of X alone where there are no labels; or a data frame.
        y: The labels, (problems, n), where X is an array.
        penalty: scikit-learn's alpha, one number or one per problem.
        path: Solve for many penalties: their number, or a list.
        cv: Choose a penalty per problem by cross-validation with this many folds.
        algorithm: "auto"; or for an approximate lasso ista, fista, lista-vm (with `steps`), or the
            folder of a run that learned LISTA-VM.
        by: The label of the data frame's column that says which problem a row belongs to.
        target: The label of the data frame's column that has the values to predict.
        sample_weight: A weight per row, where the solver takes them.
        device: Where to compute; where the data are if None.
        tolerance: The largest measure of optimality that counts as converged.
        progress: True for a bar, or a callback.
        **options: The solver's own: `fit_intercept`, `l1_ratio`, `clusters`, `components`,
            `covariance`, `start`, `restarts`, `seed`, `epsilon`, `max_steps`.

    Returns:
        Arrays by name, problems first; problems that miss the tolerance are in `solution.failed`
        and named in a warning.

    Raises:
        InputError: The data do not fit the solver, or an option is none of its own.

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
            moved = samples if device is None else samples.to(device)
            answers = _solve_chunk(solver, moved, path, cv, tolerance)
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
            raise InputError(f"{name} has no penalty: leave it out")
        options = {**options, "penalty": _read_penalty(penalty, len(problems))}
    d = len(problems.features)
    if algorithm != "auto":
        if kind is not Lasso:
            raise InputError(f"algorithm= is for the lasso, {name} has one: leave it out")
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
    """Return, in the shape of `converged`, whether all numbers of an answer are finite."""
    shape = answers["converged"].shape
    fine = torch.ones_like(answers["converged"])
    for name, values in answers.items():
        if values.is_floating_point() and values.shape[: len(shape)] == shape and name != "path":
            fine &= torch.isfinite(values).reshape(*shape, -1).all(dim=-1)
    return fine


def _check_call(name: str, solver: Solver, problems: Problems, path: Any, cv: Any) -> None:
    """Refuse what does not go with a solver, instead of ignoring it."""
    if solver.labelled and problems.y is None:
        raise InputError(f"{name} needs labels: pass y, pairs (X, y), or target= of a data frame")
    if not solver.labelled and problems.y is not None:
        raise InputError(f"{name} takes no labels: leave y out")
    if problems.weight is not None and not solver.weighted:
        raise InputError(f"{name} has no sample_weight: leave it out")
    if (path is None and cv is None) or isinstance(solver, Lasso | Ridge):
        if cv is not None:
            check_count("cv", cv, 2)
            if isinstance(solver, PenalisedSolver) and solver.penalty is not None:
                raise InputError("cv= picks the penalty: give path= instead of penalty=")
        return
    raise InputError(f"path= and cv= are for ridge, lasso and elastic-net, not for {name}")


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
    """Put the chunks' answers in the order of the problems."""
    order = torch.cat([places for places, _ in arrays]).argsort()
    sizes = problems.sizes
    joined: dict[str, Any] = {}
    for key in arrays[0][1]:
        parts = [answers[key] for _, answers in arrays]
        if key in PER_ROW and len(set(sizes)) > 1:
            rows = [row for part in parts for row in part.unbind()]
            found = [rows[k][: sizes[j]] for j, k in enumerate(order.tolist())]
            joined[key] = found if keep_tensors else [part.cpu().numpy() for part in found]
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
