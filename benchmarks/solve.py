"""Compare `solve` on many lasso, k-means and PCA problems with loops over other libraries.

    python benchmarks/solve.py --problems 100,1000 --rows 40 --features 20

Every lasso method must reduce the duality gap of every problem below the share `--gap` of ½ mean
y²;
the table reports the number of problems for which it did. Times are CPU seconds, including joblib's
workers, because they depend less on other load than elapsed time. Loops are measured on `--subset`
problems and scaled to all; the table states this. Libraries that are not installed are listed. The
last table has few large problems. The methods are:

plain       a loop over scikit-learn's Lasso, as most people write it
expert      one Lasso with precomputed Gram matrices, no checks of input, warm starts
joblib      the plain loop on all cores
celer       celer.Lasso in a loop             skglm   skglm.Lasso in a loop
solve       innerloop.solve, one batch        lista-vm  30 layers, approximate; its gap is reported
transformer TransformerLasso on few problems
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import torch
from common import record
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.linear_model import Lasso

import innerloop

Weights = np.ndarray
FEW = 5
"""The number of problems for the transformer."""
LEAST_CPU = 0.3
"""The least number of CPU seconds of a measurement."""
LARGE = {"problems": 10, "rows": 2000, "features": 100}
"""The sizes of few large problems, for which a batch is not an advantage."""


def draw(problems: int, n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw centred problems with three in ten weights that are not zero."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(problems, n, d))
    w = rng.normal(size=(problems, d)) * (rng.random((problems, d)) < 0.3)
    y = np.einsum("pnd,pd->pn", X, w) + 0.5 * rng.normal(size=(problems, n))
    X -= X.mean(axis=1, keepdims=True)
    return X, y - y.mean(axis=1, keepdims=True)


def measure_gaps(X: np.ndarray, y: np.ndarray, w: Weights, alpha: float) -> np.ndarray:
    """Return each problem's duality gap as a share of ½ mean y², computed from the data."""
    n = X.shape[1]
    residual = y - np.einsum("pnd,pd->pn", X, w)
    pull = np.abs(np.einsum("pnd,pn->pd", X, residual)).max(axis=1) / n
    dual = residual * np.minimum(1.0, alpha / np.maximum(pull, 1e-300))[:, None]
    primal = 0.5 * (residual**2).mean(axis=1) + alpha * np.abs(w).sum(axis=1)
    value = 0.5 * (y**2).mean(axis=1) - 0.5 * ((y - dual) ** 2).mean(axis=1)
    return (primal - value) / (0.5 * (y**2).mean(axis=1))


def loop_plain(X: np.ndarray, y: np.ndarray, alpha: float, gap: float) -> Weights:
    model = Lasso(alpha, tol=gap / 2, max_iter=100_000, fit_intercept=False)
    return np.stack([model.fit(x, t).coef_ for x, t in zip(X, y, strict=True)])


def loop_expert(X: np.ndarray, y: np.ndarray, alpha: float, gap: float) -> Weights:
    """Solve one lasso after another with precomputed Gram matrices and without input checks."""
    model: Any = Lasso(
        alpha, tol=gap / 2, max_iter=100_000, fit_intercept=False, copy_X=False, warm_start=True
    )
    solutions = []
    for x, t in zip(X, y, strict=True):
        model.precompute = x.T @ x
        solutions.append(model.fit(np.asfortranarray(x), t, check_input=False).coef_.copy())
    return np.stack(solutions)


def loop_joblib(X: np.ndarray, y: np.ndarray, alpha: float, gap: float) -> Weights:
    from joblib import Parallel, cpu_count, delayed

    parts = np.array_split(np.arange(len(X)), min(len(X), 4 * cpu_count()))
    solutions: Any = Parallel(n_jobs=-1)(delayed(loop_plain)(X[p], y[p], alpha, gap) for p in parts)
    return np.concatenate(list(solutions))


def loop_celer(X: np.ndarray, y: np.ndarray, alpha: float, gap: float) -> Weights:
    from celer import Lasso as CelerLasso  # pyright: ignore[reportMissingImports]

    model = CelerLasso(alpha, tol=gap / 2, fit_intercept=False)
    return np.stack([model.fit(x, t).coef_ for x, t in zip(X, y, strict=True)])


def loop_skglm(X: np.ndarray, y: np.ndarray, alpha: float, gap: float) -> Weights:
    from skglm import Lasso as SkglmLasso  # pyright: ignore[reportMissingImports]

    model = SkglmLasso(alpha, tol=gap / 10, fit_intercept=False)
    return np.stack([model.fit(x, t).coef_ for x, t in zip(X, y, strict=True)])


def solve_batch(X: np.ndarray, y: np.ndarray, alpha: float, gap: float) -> Weights:
    return innerloop.solve("lasso", X, y, penalty=alpha, tolerance=gap, fit_intercept=False).coef


def solve_lista(X: np.ndarray, y: np.ndarray, alpha: float, gap: float) -> Weights:
    return innerloop.solve(
        "lasso", X, y, penalty=alpha, algorithm="lista-vm", steps=30, fit_intercept=False
    ).coef


def run_transformer(X: np.ndarray, y: np.ndarray, alpha: float, gap: float) -> Weights:
    from innerloop.estimators import TransformerLasso

    model = TransformerLasso(alpha, tolerance=gap, fit_intercept=False)
    return np.stack([model.fit(x, t).coef_ for x, t in zip(X, y, strict=True)])


LOOPS: dict[str, Callable[..., Weights]] = {
    "plain": loop_plain,
    "expert": loop_expert,
    "joblib": loop_joblib,
    "celer": loop_celer,
    "skglm": loop_skglm,
}
BATCHES: dict[str, Callable[..., Weights]] = {"solve": solve_batch, "lista-vm": solve_lista}


def read_cpu() -> float:
    """Return the CPU seconds of this process and of the workers that it keeps."""
    times = [process.cpu_times() for process in psutil.Process().children(recursive=True)]
    return time.process_time() + sum(each.user + each.system for each in times)


def measure(work: Callable[[], Any], count: int, total: int) -> dict[str, float]:
    """Return CPU microseconds per problem, and CPU seconds and seconds for all of them.

    A fast function is called repeatedly, and the mean is returned.
    """
    first, start, repeats = read_cpu(), time.perf_counter(), 0
    while not repeats or (read_cpu() - first < LEAST_CPU and repeats < 100):
        work()
        repeats += 1
    cpu, seconds = (read_cpu() - first) / repeats, (time.perf_counter() - start) / repeats
    scale = total / count
    return {"cpu_us": 1e6 * cpu / count, "cpu": cpu * scale, "seconds": seconds * scale}


def compare_lasso(
    settings: argparse.Namespace, problems: int, n: int, d: int
) -> list[dict[str, Any]]:
    """Measure every method on problems of one size; the transformer only on small ones."""
    X, y = draw(problems, n, d, settings.seed)
    rows = []
    few = {**dict.fromkeys(LOOPS, settings.subset), "transformer": FEW}
    methods = {**LOOPS, **BATCHES}
    if n * d <= 40 * 20:
        methods["transformer"] = run_transformer
    for name, method in methods.items():
        count = min(problems, few.get(name, problems))
        x, t = X[:count], y[:count]
        try:
            method(x[:2], t[:2], settings.alpha, settings.gap)  # compilers, imports, certificates
        except ImportError as error:
            rows.append({"method": name, "missing": str(error)})
            continue
        solutions: list[Weights] = []
        row: dict[str, Any] = {"method": name, "problems": problems, "rows": n, "features": d}
        row["measured_on"] = count
        row |= measure(
            lambda m=method, x=x, t=t, f=solutions: f.append(m(x, t, settings.alpha, settings.gap)),
            count,
            problems,
        )
        gaps = measure_gaps(x, t, solutions[0], settings.alpha)
        row |= {"largest_gap": float(gaps.max()), "reached": float(np.mean(gaps <= settings.gap))}
        rows.append(row)
    return rows


def compare_others(settings: argparse.Namespace, problems: int) -> list[dict[str, Any]]:
    """Measure k-means from the same start, and PCA, with the differences of the answers."""
    X, _ = draw(problems, settings.rows, settings.features, settings.seed)
    count = min(problems, settings.subset)
    start = X[:, :4]
    results: dict[str, Any] = {}

    def loop_k_means() -> None:
        options: dict[str, Any] = {"n_init": 1, "tol": 0.0}
        models = [
            KMeans(4, init=c, **options).fit(x) for x, c in zip(X[:count], start, strict=False)
        ]
        results["k-means, plain"] = np.array([model.inertia_ for model in models])

    def solve_k_means() -> None:
        results["k-means, solve"] = innerloop.solve("k-means", X, clusters=4, start=start).inertia

    def loop_pca() -> None:
        models: list[Any] = [PCA(5).fit(x) for x in X[:count]]
        results["pca, plain"] = np.stack([model.explained_variance_ for model in models])

    def solve_pca() -> None:
        results["pca, solve"] = innerloop.solve("pca", X, components=5).explained_variance

    rows = []
    for kind, loop, batch in (
        ("k-means", loop_k_means, solve_k_means),
        ("pca", loop_pca, solve_pca),
    ):
        for name, work, on in (("plain", loop, count), ("solve", batch, problems)):
            row: dict[str, Any] = {"method": f"{kind}, {name}", "problems": problems}
            row |= {"rows": settings.rows, "features": settings.features, "measured_on": on}
            rows.append(row | measure(work, on, problems))
        ours, theirs = results[f"{kind}, solve"][:count], results[f"{kind}, plain"]
        rows[-1]["apart"] = float(np.max(np.abs(ours - theirs) / np.abs(theirs)))
    return rows


def print_rows(rows: list[dict[str, Any]]) -> None:
    """Print the table."""
    titles = ("method", "problems", "size", "on", "CPU µs each", "CPU s", "seconds", "accuracy")
    print("{:16} {:>9} {:>9} {:>7} {:>12} {:>9} {:>9} {}".format(*titles))
    for row in rows:
        if "missing" in row:
            print(f"{row['method']:16} not there: {row['missing']}")
            continue
        accuracy = f"apart by {row['apart']:.0e}" if "apart" in row else ""
        if "reached" in row:
            accuracy = f"{row['reached']:.0%} below the gap, largest {row['largest_gap']:.1e}"
        size = f"{row['rows']}×{row['features']}"
        print(
            f"{row['method']:16} {row['problems']:9} {size:>9} {row['measured_on']:7} "
            f"{row['cpu_us']:12.1f} {row['cpu']:9.2f} {row['seconds']:9.2f} {accuracy}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Many small problems: solve beside loops.")
    parser.add_argument("--problems", default="100,1000,10000,100000", help="numbers of problems")
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--gap", type=float, default=1e-8)
    parser.add_argument("--subset", type=int, default=300, help="problems that loops run on")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    settings = parser.parse_args()
    torch.set_num_threads(settings.threads)
    warnings.simplefilter("ignore")
    begun, rows = time.perf_counter(), list[dict[str, Any]]()
    for problems in map(int, settings.problems.split(",")):
        rows += compare_lasso(settings, problems, settings.rows, settings.features)
        rows += compare_others(settings, problems)
    rows += compare_lasso(settings, LARGE["problems"], LARGE["rows"], LARGE["features"])
    print_rows(rows)
    record("solve", begun, vars(settings), {"rows": rows})


if __name__ == "__main__":
    main()
