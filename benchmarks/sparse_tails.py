"""Measure the mean error and rare large errors of sparse recovery solvers on many new prompts.

The setting is d = 20, n = 10, S = 3, float32, one thread. The solvers are the recorded models
(results/sparse), and LISTA-VM and LISTA-VM-SS, which are trained here without stretching any X, as
in the paper. For LISTA-VM the error is
‖β̂ − β‖², the expected label loss over queries; for transformers it is (ŷ − y)² at one query. An
error above 10⁴ is replaced by 10⁴ in the mean.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from common import record
from torch import Tensor

from innerloop.claims.recorded import load_recorded
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.problems.sparse_recovery import SparseRecovery
from innerloop.recipes.base import TrainedRun, train
from innerloop.recipes.sparse import OVERFLOW, LabelObjective

SEED, CHUNK = 7, 4096
MANY, FEWER = 100 * CHUNK, 8 * CHUNK
"""The number of prompts for an iteration, and for a transformer."""
ErrorFunction = Callable[[RegressionProblem], Tensor]


def make_weight_errors(trained: TrainedRun) -> ErrorFunction:
    """Make a function that computes ‖β̂ − β‖² of every instance."""

    def errors(problem: RegressionProblem) -> Tensor:
        assert problem.weights is not None
        return (trained.model(problem.x, problem.y) - problem.weights).square().sum(dim=-1)

    return errors


def make_label_errors(trained: TrainedRun) -> ErrorFunction:
    """Make a function that computes (ŷ − y)² at the query of every prompt."""
    objective = trained.recipe.build_objective()
    assert isinstance(objective, LabelObjective)
    return lambda problem: objective.label_errors(trained.model, problem)[:, -1]


def list_solvers() -> Iterator[tuple[str, int | None, int, ErrorFunction]]:
    """Yield each solver's name, support, number of prompts and error function."""
    for ending, select, support in (("", False, None), ("-ss", True, 10)):
        settings: dict[str, Any] = {"select": select, "support": support, "stretch": 1.0}
        yield (
            f"lista-vm{ending}",
            support,
            MANY,
            make_weight_errors(load_recorded("sparse", f"lista-vm{ending}")),
        )
        plain = make_weight_errors(train("lista-vm-learned", **settings))
        yield f"lista-vm{ending}, no X stretched", support, MANY, plain
    for ending, support in (("", None), ("-restricted", 10)):
        for name in ("small-transformer", "gpt2"):
            yield (
                f"{name}{ending}",
                support,
                FEWER,
                make_label_errors(load_recorded("sparse", f"{name}{ending}")),
            )
    near = "small-transformer-near"
    yield near, None, FEWER, make_label_errors(load_recorded("sparse", near))


@torch.no_grad()
def measure(support: int | None, prompts: int, error_function: ErrorFunction) -> dict[str, Any]:
    """Measure the mean error with its standard error, the median, and counts of large errors."""
    generator, parts = torch.Generator().manual_seed(SEED), []
    for _ in range(prompts // CHUNK):
        problem = SparseRecovery(support=support).sample(
            CHUNK, generator=generator, dtype=torch.float32
        )
        parts.append(error_function(problem).nan_to_num(float("inf")).double())
    errors = torch.cat(parts)
    cut = errors.clamp_max(OVERFLOW)
    return {
        "prompts": len(errors),
        "mean": float(cut.mean()),
        "standard error": float(cut.std()) / len(cut) ** 0.5,
        "median": float(cut.median()),
        "beyond 10^2": int((errors > 1e2).sum()),
        "beyond 10^4": int((errors > OVERFLOW).sum()),
        "largest": float(cut.max()),
    }


def main() -> None:
    start = time.perf_counter()
    torch.set_num_threads(1)
    rows = {}
    for name, support, prompts, error_function in list_solvers():
        row = rows[name] = measure(support, prompts, error_function)
        print(
            f"{name}: {row['mean']:.3f} ± {row['standard error']:.3f} over {prompts:,} prompts, "
            f"largest {row['largest']:.3g}, beyond 10²: {row['beyond 10^2']}, "
            f"10⁴: {row['beyond 10^4']}",
            flush=True,
        )
    settings = {"d": 20, "n": 10, "sparsity": 3, "seed": SEED}
    record("sparse_tails", start, settings, {"solvers": rows})


if __name__ == "__main__":
    main()
