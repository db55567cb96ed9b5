"""Solve the lasso approximately by a fixed number of steps of ISTA, FISTA or LISTA-VM.

These algorithms are fast. Every answer has its duality gap, and counts as not converged if the gap
is above the tolerance. LISTA-VM has one matrix M and one threshold θ per step. By default they are
M = (2n+1)/L·I and θ = α n/L, with which `build("lista-vm")` makes a transformer. They can also be
learned by `innerloop train lista-vm-learned`; such a network knows only the penalty of its
training.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.ista import soft_threshold
from innerloop.errors import InputError, OutOfRangeError
from innerloop.limits import check_count
from innerloop.solving.base import Answers
from innerloop.solving.coordinate_descent import Descent
from innerloop.solving.data import Samples
from innerloop.solving.quadratic import intercepts, matvec, reduce_samples
from innerloop.solving.sparse import Lasso

ALGORITHMS = ("ista", "fista", "lista-vm")


@dataclass(frozen=True, kw_only=True, eq=False)
class ApproximateLasso(Lasso):
    """Solver that takes `steps` steps of an algorithm for the lasso.

    `matrices` and `thresholds` are those of a trained LISTA-VM, or None.
    """

    algorithm: str = "lista-vm"
    steps: int = 100
    matrices: Any = None
    thresholds: Any = None

    def solve_path(
        self, samples: Samples, penalties: Float[Tensor, "problems path"], tolerance: float
    ) -> Answers:
        quadratic = reduce_samples(samples, self.fit_intercept)
        curvature = torch.linalg.eigvalsh(quadratic.gram)[:, -1:].clamp_min(1e-300)
        solutions = []
        for penalty in penalties.unbind(dim=-1):
            descent = Descent(quadratic.gram, quadratic.moment, quadratic.square, penalty)
            weights = self._iterate(descent, curvature, samples.totals.unsqueeze(-1))
            measures = descent.measure(weights)
            solutions.append({"coef": weights, "optimality": measures})
            solutions[-1]["converged"] = measures <= descent.limit(tolerance)
            solutions[-1]["steps"] = torch.full_like(measures, self.layers, dtype=torch.int64)
        answers = {
            name: torch.stack([solution[name] for solution in solutions], 1)
            for name in solutions[0]
        }
        means = quadratic.x_mean, quadratic.y_mean
        return {"intercept": intercepts(answers["coef"], *means), **answers}

    @property
    def layers(self) -> int:
        """The number of steps: that of a trained LISTA-VM, or the option `steps`."""
        return self.steps if self.matrices is None else len(self.matrices)

    def _iterate(
        self,
        descent: Descent,
        curvature: Float[Tensor, "problems 1"],
        n: Float[Tensor, "problems 1"],
    ) -> Tensor:
        """Return the weights after all steps, for the largest curvature and total weight n."""
        weights = extrapolated = torch.zeros_like(descent.moment)
        t, threshold = 1.0, descent.penalty.unsqueeze(-1) / curvature
        for k in range(self.layers):
            correlation = descent.moment - matvec(descent.gram, extrapolated)
            if self.matrices is None:
                updated = soft_threshold(extrapolated + correlation / curvature, threshold)
            else:
                # A learned layer divides Xᵀ(y − Xβ) by 2n + 1; `correlation` is divided by n.
                step = n / (2 * n + 1) * correlation @ self.matrices[k].mT
                updated = soft_threshold(extrapolated + step, self.thresholds[k])
            momentum = 0.0
            if self.algorithm == "fista":
                after = (1 + (1 + 4 * t * t) ** 0.5) / 2
                momentum, t = (t - 1) / after, after
            extrapolated = updated + momentum * (updated - weights)
            weights = updated
        return weights


def make_approximate(algorithm: Any, d: int, options: dict[str, Any]) -> ApproximateLasso:
    """Make a solver from the name of an algorithm, or from the folder of a trained LISTA-VM."""
    if not isinstance(algorithm, str | os.PathLike):
        raise InputError(f"algorithm must be a name or a folder, got {algorithm!r}")
    if algorithm in ALGORITHMS:
        solver = ApproximateLasso.from_options("lasso", {"algorithm": algorithm, **options})
        check_count("steps", solver.steps, 1)
        return solver
    from innerloop.recipes.base import load
    from innerloop.recipes.runs import find_model

    path = Path(algorithm)
    if not path.exists():
        raise InputError(
            f"algorithm must be {', '.join(ALGORITHMS)}, auto, or the folder of a run that "
            f"learned lista-vm; got {algorithm!r}"
        )
    recipe, model, _ = load(find_model(path))
    if recipe.name != "lista-vm-learned":
        raise InputError(f"{path} must contain a run of lista-vm-learned, got one of {recipe.name}")
    matrices, thresholds = model.double().matrices().detach(), model.thresholds.detach()  # pyright: ignore
    if matrices.shape[-1] != d:
        raise OutOfRangeError(
            f"{path} was trained for d={matrices.shape[-1]} features, these problems have {d}"
        )
    return ApproximateLasso(
        algorithm="lista-vm", matrices=matrices, thresholds=thresholds, **options
    )
