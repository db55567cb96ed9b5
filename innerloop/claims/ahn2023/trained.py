"""Three layers trained as in sections 5.3 and 6.1: what figures 1 to 4 are drawn from.

Setting    d = 5, x ~ N(0, Σ), w* ~ N(0, Σ⁻¹), Σ = UᵀD²U with U uniformly random orthogonal and
           D = (1, 1, ½, ¼, 1), fresh in each run; entries of all matrices start at N(0, 0.1²)
Training   L-BFGS on one batch, every iteration kept. The loss is exact over w* and the query; a
           batch is Gram matrices, each with its images under signs and shifts of the axes, so that
           it has the symmetry of their law; or, as in the source, 20,000 draws without images.
           L-BFGS may see the entries of A_i, or of Σ^½A_iΣ^½, from the same start
Read       Dist(M, I) = min_α ‖M − αI‖_F / ‖M‖_F; the least loss on the batch of A_i = a_i Σ⁻¹,
           B_i = b_i I, which are the points of Theorems 4 and 5
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.optimize import OptimizeResult, minimize
from torch import Tensor

from innerloop.claims.evidence import Axis, Figure
from innerloop.claims.prompts import normal
from innerloop.claims.trials import search
from innerloop.training.kernel import Prompts
from innerloop.training.linear_attention import SampledLoss, root_of
from innerloop.training.stacks import Weights

D, LAYERS, SCALES, START = 5, 3, (1.0, 1.0, 0.5, 0.25, 1.0), 0.1


def rotated(generator: torch.Generator) -> Tensor:
    """Σ = UᵀD²U. The signs make U uniform, which a QR decomposition alone does not."""
    Q, R = torch.linalg.qr(normal(generator, D, D))
    U = Q * R.diagonal().sign()
    return U.mT * torch.tensor(SCALES, dtype=torch.float64) ** 2 @ U


@dataclass(frozen=True, eq=False)
class Run:
    """A training: its matrices after every iteration (A_i, then B_i), and the loss of each."""

    law: SampledLoss
    batch: Prompts
    layers: int
    points: list[Tensor]
    losses: list[float]

    def at(self, k: int) -> int:
        """Iteration k, or the last one."""
        return min(k, len(self.points) - 1)

    def distances(self, k: int) -> dict[str, float]:
        """Dist of each matrix after iteration k, by its name in the source."""
        found = self.law.distances(split(self.points[self.at(k)], self.layers))
        return {_title(name): value for name, value in found.items()}

    @cached_property
    def inner(self) -> Tensor:
        """At the end: Σ^½ A_i Σ^½, then B_i."""
        S = root_of(self.law.root @ self.law.root.mT)
        A, B, _ = split(self.points[-1], self.layers)
        return torch.cat([S @ A @ S, *([] if B is None else [B])])

    @cached_property
    def multiples(self) -> Tensor:
        """a_i, then b_i: the multiples of I that are nearest to `inner`."""
        return self.inner.diagonal(dim1=-2, dim2=-1).mean(-1)

    @cached_property
    def loss(self) -> float:
        """On the batch, over that of no layer, which is d."""
        return self.losses[-1] / self.law.d

    def best_inside(self, start: Tensor) -> tuple[Tensor, float]:
        """a and b of the least loss on the batch of A_i = a_i Σ⁻¹, B_i = b_i I, and that loss over
        that of no layer: where L-BFGS over these numbers alone ends from `start`."""
        white = SampledLoss(d=self.law.d, n=self.law.n, truth="inverse")
        eye = torch.eye(self.law.d, dtype=torch.float64)

        def loss(scales: Tensor) -> Tensor:
            matrices = scales[:, None, None] * eye
            return 1e3 * white.loss_of(split(matrices, self.layers), self.batch) / self.law.d

        scales, least, _ = search(loss, start[None], iterations=200)
        return scales, least / 1e3


def _title(name: str) -> str:
    _, matrix, *whitened = name.split()
    return f"Σ^½ {matrix} Σ^½" if whitened else matrix


def split(matrices: Tensor, layers: int) -> Weights:
    return Weights(matrices[:layers], matrices[layers:] if len(matrices) > layers else None)


def train(
    law: SampledLoss, batch: Prompts, start: Tensor, layers: int, iterations: int, white: bool
) -> Run:
    """L-BFGS from `start` (A_i, then B_i), in the entries of the matrices or of whitened ones."""
    plain = SampledLoss(d=law.d, n=law.n, truth="inverse")
    seen = plain if white else law

    def coloured(point: np.ndarray) -> Tensor:
        matrices = torch.tensor(point).reshape(start.shape)
        return _joined(law.coloured(split(matrices, layers))) if white else matrices

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        matrices = torch.tensor(point).reshape(start.shape).requires_grad_()
        value = seen.loss_of(split(matrices, layers), batch)
        (slope,) = torch.autograd.grad(value, matrices)
        if not (bool(torch.isfinite(value)) and bool(torch.isfinite(slope).all())):
            return 1e300, np.zeros_like(point)
        return float(value.detach()), slope.numpy().ravel()

    first = _joined(law.whitened(split(start, layers))) if white else start
    points, losses = [start], [objective(first.numpy().ravel())[0]]

    def keep(intermediate_result: OptimizeResult) -> None:
        points.append(coloured(intermediate_result.x))
        losses.append(float(intermediate_result.fun))

    minimize(
        objective,
        first.numpy().ravel(),
        jac=True,
        method="L-BFGS-B",
        callback=keep,
        options={"maxiter": iterations, "maxfun": 10**6, "maxcor": 50, "ftol": 0.0, "gtol": 1e-9},
    )
    return Run(law, batch, layers, points, losses)


def _joined(weights: Weights) -> Tensor:
    return torch.cat([weights.A, *([] if weights.B is None else [weights.B])])


def trained(
    generator: torch.Generator,
    *,
    n: int,
    moving: bool,
    grams: int,
    images: bool,
    iterations: int,
    white: bool,
    layers: int = LAYERS,
) -> Run:
    """One run of the source's experiment, with a Σ, a batch and a start of its own."""
    law = SampledLoss(
        d=D, n=n, covariance=rotated(generator), truth="inverse", batch=grams, images=images
    )
    batch = law.draw(generator)
    start = START * normal(generator, 2 * layers - 1 if moving else layers, D, D)
    return train(law, batch, start, layers, iterations, white)


def ticks(most: int) -> list[int]:
    """Iterations to draw: all of the first, then ever fewer."""
    return sorted({0, *(round(10 ** (k / 16)) for k in range(80)), most} & set(range(most + 1)))


def loss_curve(runs: list[Run], title: str, exact: float, caption: str) -> Figure:
    """The mean loss over the runs with its range, over that of no layer."""
    rows = []
    for k in ticks(max(len(run.points) for run in runs) - 1):
        found = [run.losses[run.at(k)] / D for run in runs]
        mean = sum(found) / len(found)
        rows.append({"iteration": k + 1, "loss": mean, "low": min(found), "high": max(found)})
    return Figure(
        title=title,
        rows=rows,
        x=Axis(field="iteration", title="iteration of L-BFGS, from 1", scale="log"),
        y=Axis(field="loss", title="loss, over that of no layer", scale="log"),
        band=("low", "high"),
        rules={"least loss of the theorem's points, exact": exact},
        caption=caption,
    )


def distance_curves(runs: list[Run], title: str, rules: dict[str, float]) -> Figure:
    """The mean over the runs of each distance, with its range."""
    names = list(runs[0].distances(0))
    rows = []
    for k in ticks(max(len(run.points) for run in runs) - 1):
        found = [run.distances(k) for run in runs]
        for name in names:
            values = [one[name] for one in found]
            matrix = next(part for part in name.split() if part[0] in "AB")
            rows.append(
                {
                    "iteration": k + 1,
                    "distance": sum(values) / len(values),
                    "low": min(values),
                    "high": max(values),
                    "matrix": matrix,
                    "of": f"Σ^½ {matrix[0]} Σ^½" if "Σ" in name else f"{matrix[0]} itself",
                }
            )
    return Figure(
        title=title,
        rows=rows,
        x=Axis(field="iteration", title="iteration of L-BFGS, from 1", scale="log"),
        y=Axis(field="distance", title="Dist(·, I)"),
        colour=Axis(field="of", title="distance of", scale="category"),
        panel="matrix",
        band=("low", "high"),
        rules=rules,
        caption=f"Mean and range of {len(runs)} runs.",
    )


def heat(run: Run, title: str, caption: str) -> Figure:
    """Σ^½ A_i Σ^½, and B_i, at the end of a run."""
    names = [f"Σ^½ A{i} Σ^½" for i in range(run.layers)]
    names += [f"B{i}" for i in range(len(run.inner) - run.layers)]
    rows = [
        {"matrix": name, "row": i + 1, "column": j + 1, "entry": float(matrix[i, j])}
        for name, matrix in zip(names, run.inner, strict=True)
        for i in range(D)
        for j in range(D)
    ]
    return Figure(
        title=title,
        rows=rows,
        x=Axis(field="column", title="column"),
        y=Axis(field="row", title="row"),
        mark="heat",
        colour=Axis(field="entry", title="entry"),
        panel="matrix",
        caption=caption,
    )
