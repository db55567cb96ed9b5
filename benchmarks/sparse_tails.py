"""How solvers of sparse recovery do on many fresh prompts: their mean, and their rare large errors.

d = 20, n = 10, S = 3, float32, one thread. Recorded models (results/sparse), and LISTA-VM and
LISTA-VM-SS trained here with no X stretched, as the paper does. The error is ‖β̂ − β‖² of LISTA-VM,
the label loss in expectation over queries, and (ŷ − y)² at one query of transformers. One beyond
10⁴ counts as 10⁴ in the mean.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from common import record
from torch import Tensor

from innerloop.claims.recorded import recorded
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.problems.sparse_recovery import SparseRecovery
from innerloop.recipes.base import Trained, train
from innerloop.recipes.sparse import OVERFLOW, Labels

SEED, CHUNK = 7, 4096
MANY, FEWER = 100 * CHUNK, 8 * CHUNK
"""Prompts for an iteration, and for a transformer."""
Missed = Callable[[RegressionProblem], Tensor]


def weights(trained: Trained) -> Missed:
    """‖β̂ − β‖² of every instance."""

    def missed(problem: RegressionProblem) -> Tensor:
        assert problem.weights is not None
        return (trained.model(problem.x, problem.y) - problem.weights).square().sum(dim=-1)

    return missed


def labels(trained: Trained) -> Missed:
    """(ŷ − y)² at the query of every prompt."""
    objective = trained.recipe.objective()
    assert isinstance(objective, Labels)
    return lambda problem: objective.errors(trained.model, problem)[:, -1]


def solvers() -> Iterator[tuple[str, int | None, int, Missed]]:
    """Names, supports, how many prompts, and errors."""
    for ending, select, support in (("", False, None), ("-ss", True, 10)):
        given: dict[str, Any] = {"select": select, "support": support, "stretch": 1.0}
        yield f"lista-vm{ending}", support, MANY, weights(recorded("sparse", f"lista-vm{ending}"))
        plain = weights(train("lista-vm-learned", **given))
        yield f"lista-vm{ending}, no X stretched", support, MANY, plain
    for ending, support in (("", None), ("-restricted", 10)):
        for name in ("small-transformer", "gpt2"):
            yield (
                f"{name}{ending}",
                support,
                FEWER,
                labels(recorded("sparse", f"{name}{ending}")),
            )
    near = "small-transformer-near"
    yield near, None, FEWER, labels(recorded("sparse", near))


@torch.no_grad()
def measured(support: int | None, prompts: int, missed: Missed) -> dict[str, Any]:
    """The mean with its standard error, and how many errors are how large."""
    generator, found = torch.Generator().manual_seed(SEED), []
    for _ in range(prompts // CHUNK):
        problem = SparseRecovery(support=support).sample(
            CHUNK, generator=generator, dtype=torch.float32
        )
        found.append(missed(problem).nan_to_num(float("inf")).double())
    errors = torch.cat(found)
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
    found = {}
    for name, support, prompts, missed in solvers():
        row = found[name] = measured(support, prompts, missed)
        print(
            f"{name}: {row['mean']:.3f} ± {row['standard error']:.3f} over {prompts:,} prompts, "
            f"largest {row['largest']:.3g}, beyond 10²: {row['beyond 10^2']}, "
            f"10⁴: {row['beyond 10^4']}",
            flush=True,
        )
    settings = {"d": 20, "n": 10, "sparsity": 3, "seed": SEED}
    record("sparse_tails", start, settings, {"solvers": found})


if __name__ == "__main__":
    main()
