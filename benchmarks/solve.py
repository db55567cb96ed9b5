"""Many lasso problems, k-means and PCA: `solve` beside loops over other libraries, in one run.

    python benchmarks/solve.py --problems 100,1000 --rows 40 --features 20

Every method must bring every problem's duality gap below `--gap` of ½ mean y²; the table says how
many did, and CPU seconds as well as seconds (of joblib only the latter mean something: its workers'
CPU time is not the parent's). Methods that loop are measured on `--subset` problems
and scaled up, which is said. What is not installed is listed, never left out silently. Contenders:

plain       a loop over scikit-learn's Lasso, as most people write it
expert      one Lasso with precomputed Gram matrices, no checks of input, warm starts
joblib      the plain loop on all cores
celer       celer.Lasso in a loop             skglm   skglm.Lasso in a loop
solve       innerloop.solve, one batch        lista-vm  30 layers, approximate: its gap is told
transformer TransformerLasso on few problems
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.linear_model import Lasso

import innerloop

Weights = np.ndarray
FEW = 5
"""Problems that the transformer is run on."""


def draw(problems: int, n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw centred problems with three in ten weights that are not zero."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(problems, n, d))
    w = rng.normal(size=(problems, d)) * (rng.random((problems, d)) < 0.3)
    y = np.einsum("pnd,pd->pn", X, w) + 0.5 * rng.normal(size=(problems, n))
    return X - X.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)


def measure_gaps(X: np.ndarray, y: np.ndarray, w: Weights, alpha: float) -> np.ndarray:
    """Return each problem's duality gap as a share of ½ mean y², from the rows themselves."""
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
    model: Any = Lasso(
        alpha, tol=gap / 2, max_iter=100_000, fit_intercept=False, copy_X=False, warm_start=True
    )
    found = []
    for x, t in zip(X, y, strict=True):
        model.precompute = x.T @ x
        found.append(model.fit(np.asfortranarray(x), t, check_input=False).coef_.copy())
    return np.stack(found)


def loop_joblib(X: np.ndarray, y: np.ndarray, alpha: float, gap: float) -> Weights:
    from joblib import Parallel, cpu_count, delayed

    parts = np.array_split(np.arange(len(X)), min(len(X), 4 * cpu_count()))
    found: Any = Parallel(n_jobs=-1)(delayed(loop_plain)(X[p], y[p], alpha, gap) for p in parts)
    return np.concatenate(list(found))


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


def measure(work: Callable[[], Any], count: int, total: int) -> dict[str, float]:
    """Return microseconds per problem, and CPU seconds and seconds for all of them."""
    cpu, start = time.process_time(), time.perf_counter()
    work()
    cpu, seconds = time.process_time() - cpu, time.perf_counter() - start
    scale = total / count
    return {"cpu_us": 1e6 * cpu / count, "cpu": cpu * scale, "seconds": seconds * scale}


def compare_lasso(settings: argparse.Namespace, problems: int) -> list[dict[str, Any]]:
    """Measure every contender on problems of one size."""
    X, y = draw(problems, settings.rows, settings.features, settings.seed)
    rows = []
    few = {**dict.fromkeys(LOOPS, settings.subset), "transformer": FEW}
    methods = {**LOOPS, **BATCHES, "transformer": run_transformer}
    for name, method in methods.items():
        count = min(problems, few.get(name, problems))
        x, t = X[:count], y[:count]
        try:
            method(x[:2], t[:2], settings.alpha, settings.gap)  # compilers, imports, certificates
        except ImportError as error:
            rows.append({"method": name, "missing": str(error)})
            continue
        found: list[Weights] = []
        row: dict[str, Any] = {"method": name, "problems": problems, "measured_on": count}
        row |= measure(
            lambda m=method, x=x, t=t, f=found: f.append(m(x, t, settings.alpha, settings.gap)),
            count,
            problems,
        )
        gaps = measure_gaps(x, t, found[0], settings.alpha)
        row |= {"largest_gap": float(gaps.max()), "reached": float(np.mean(gaps <= settings.gap))}
        rows.append(row)
    return rows


def compare_others(settings: argparse.Namespace, problems: int) -> list[dict[str, Any]]:
    """Measure k-means from the same start, and PCA."""
    X, _ = draw(problems, settings.rows, settings.features, settings.seed)
    count = min(problems, settings.subset)
    start = X[:, :4]

    def loop_k_means() -> None:
        for x, centres in zip(X[:count], start, strict=False):
            options: dict[str, Any] = {"init": centres, "n_init": 1, "tol": 0.0}
            KMeans(4, **options).fit(x)

    works = {
        "k-means, plain": (loop_k_means, count),
        "k-means, solve": (
            lambda: innerloop.solve("k-means", X, clusters=4, start=start),
            problems,
        ),
        "pca, plain": (lambda: [PCA(5).fit(x) for x in X[:count]], count),
        "pca, solve": (lambda: innerloop.solve("pca", X, components=5), problems),
    }
    return [
        {"method": name, "problems": problems, "measured_on": on, **measure(work, on, problems)}
        for name, (work, on) in works.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Many small problems: solve beside loops.")
    parser.add_argument("--problems", default="100,1000", help="numbers of problems")
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--gap", type=float, default=1e-8)
    parser.add_argument("--subset", type=int, default=300, help="problems that loops run on")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="write the rows to this file")
    settings = parser.parse_args()
    torch.set_num_threads(settings.threads)
    warnings.simplefilter("ignore")
    rows = []
    for problems in map(int, settings.problems.split(",")):
        rows += [*compare_lasso(settings, problems), *compare_others(settings, problems)]
    titles = ("method", "problems", "on", "CPU µs each", "CPU s", "seconds", "gaps reached")
    print("{:16} {:>9} {:>7} {:>12} {:>9} {:>9} {}".format(*titles))
    for row in rows:
        if "missing" in row:
            print(f"{row['method']:16} not there: {row['missing']}")
            continue
        reached = (
            f"{row['reached']:.0%}, largest {row['largest_gap']:.1e}" if "reached" in row else ""
        )
        print(
            f"{row['method']:16} {row['problems']:9} {row['measured_on']:7} {row['cpu_us']:12.1f} "
            f"{row['cpu']:9.2f} {row['seconds']:9.2f} {reached}"
        )
    if settings.json:
        with open(settings.json, "w", encoding="utf-8") as file:
            json.dump({"settings": vars(settings), "rows": rows}, file, indent=2)


if __name__ == "__main__":
    main()
