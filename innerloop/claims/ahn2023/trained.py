"""Three layers trained as in sections 5.3 and 6.1: the runs behind figures 1 to 4.

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

from innerloop.claims.ahn2023.critical import least_family_loss
from innerloop.claims.evidence import Axis, Figure, Part
from innerloop.claims.prompts import draw_normal
from innerloop.claims.searching import search_minimum
from innerloop.claims.trials import Equality, Inequality
from innerloop.training.kernel import Prompts
from innerloop.training.linear_attention import SampledLoss, distance_to_identity, symmetric_root
from innerloop.training.stacks import Weights

D, LAYERS, SCALES, START = 5, 3, (1.0, 1.0, 0.5, 0.25, 1.0), 0.1
PAUSE = 40
"""A run ends once the loss has fallen by at most a millionth in this many iterations."""


def draw_rotated_covariance(generator: torch.Generator) -> Tensor:
    """Draw Σ = UᵀD²U. The signs make U uniform, which a QR decomposition alone does not."""
    Q, R = torch.linalg.qr(draw_normal(generator, D, D))
    U = Q * R.diagonal().sign()
    return U.mT * torch.tensor(SCALES, dtype=torch.float64) ** 2 @ U


@dataclass(frozen=True, eq=False)
class Run:
    """A training run: its matrices after every iteration (A_i, then B_i), and their losses."""

    law: SampledLoss
    batch: Prompts
    layers: int
    points: list[Tensor]
    losses: list[float]

    def clamp_iteration(self, k: int) -> int:
        """The iteration k, or the last one if k is larger."""
        return min(k, len(self.points) - 1)

    def distances(self, k: int) -> dict[str, float]:
        """Dist of each matrix after iteration k, keyed by its name in the source."""
        found = self.law.distances(split_weights(self.points[self.clamp_iteration(k)], self.layers))
        return {_title(name): value for name, value in found.items()}

    def final_distances(self, limit: str) -> list[float]:
        """Final Dist of every Σ^½A_iΣ^½, or of every A_i itself."""
        last = self.distances(len(self.points))
        first = "Σ" if limit == "Σ" else "A"
        return [value for name, value in last.items() if name.startswith(first)]

    @cached_property
    def final_whitened(self) -> Tensor:
        """Final matrices Σ^½ A_i Σ^½, then B_i."""
        S = symmetric_root(self.law.root @ self.law.root.mT)
        A, B, _ = split_weights(self.points[-1], self.layers)
        return torch.cat([S @ A @ S, *([] if B is None else [B])])

    @cached_property
    def inverse_distance(self) -> float:
        """Dist(Σ⁻¹, I), which is the same for every U."""
        return float(distance_to_identity(torch.linalg.inv(self.law.root @ self.law.root.mT)))

    @cached_property
    def multiples(self) -> Tensor:
        """The multiples a_i, then b_i, of I nearest to the final whitened matrices."""
        return self.final_whitened.diagonal(dim1=-2, dim2=-1).mean(-1)

    @cached_property
    def final_loss(self) -> float:
        """Final loss on the batch, over that of no layer, which is d."""
        return self.losses[-1] / self.law.d

    def best_inside(self, start: Tensor) -> tuple[Tensor, float]:
        """The theorem's best point on the batch, searched from `start`."""
        return best_inside(self.batch, self.law.n, self.layers, start)


def best_inside(batch: Prompts, n: int, layers: int, start: Tensor) -> tuple[Tensor, float]:
    """Scales a and b of the least batch loss of A_i = a_i Σ⁻¹, B_i = b_i I, and that loss.

    The loss is over that of no layer; L-BFGS over these numbers alone ends there from `start`.
    """
    white = SampledLoss(d=D, n=n, truth="inverse")
    eye = torch.eye(D, dtype=torch.float64)

    def loss(scales: Tensor) -> Tensor:
        return 1e3 * white.loss_at(split_weights(scales[:, None, None] * eye, layers), batch) / D

    scales, least, _ = search_minimum(loss, start[None], iterations=200)
    return scales, least / 1e3


def _title(name: str) -> str:
    _, matrix, *whitened = name.split()
    return f"Σ^½ {matrix} Σ^½" if whitened else matrix


def split_weights(matrices: Tensor, layers: int) -> Weights:
    return Weights(matrices[:layers], matrices[layers:] if len(matrices) > layers else None)


def train_lbfgs(
    law: SampledLoss, batch: Prompts, start: Tensor, layers: int, iterations: int, white: bool
) -> Run:
    """Train by L-BFGS from `start` (A_i, then B_i), on entries of plain or whitened matrices."""
    plain = SampledLoss(d=law.d, n=law.n, truth="inverse")
    seen = plain if white else law

    def coloured(point: np.ndarray) -> Tensor:
        matrices = torch.tensor(point).reshape(start.shape)
        return _join_weights(law.colour(split_weights(matrices, layers))) if white else matrices

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        matrices = torch.tensor(point).reshape(start.shape).requires_grad_()
        value = seen.loss_at(split_weights(matrices, layers), batch)
        (slope,) = torch.autograd.grad(value, matrices)
        if not (bool(torch.isfinite(value)) and bool(torch.isfinite(slope).all())):
            return 1e300, np.zeros_like(point)
        return float(value.detach()), slope.numpy().ravel()

    first = _join_weights(law.whiten(split_weights(start, layers))) if white else start
    points, losses = [start], [objective(first.numpy().ravel())[0]]

    def keep(intermediate_result: OptimizeResult) -> None:
        points.append(coloured(intermediate_result.x))
        losses.append(float(intermediate_result.fun))
        if len(losses) > 2 * PAUSE and losses[-PAUSE] - losses[-1] < 1e-6 * losses[-1]:
            raise StopIteration

    minimize(
        objective,
        first.numpy().ravel(),
        jac=True,
        method="L-BFGS-B",
        callback=keep,
        options={"maxiter": iterations, "maxfun": 10**6, "maxcor": 50, "ftol": 0.0, "gtol": 1e-9},
    )
    return Run(law, batch, layers, points, losses)


def _join_weights(weights: Weights) -> Tensor:
    return torch.cat([weights.A, *([] if weights.B is None else [weights.B])])


def train_run(
    generator: torch.Generator,
    *,
    n: int,
    moving: bool,
    grams: int,
    images: bool,
    iterations: int,
    white: bool,
    near: float = 0.0,
) -> Run:
    """Run the source's experiment once, with its own Σ, batch and start.

    `near` > 0 starts at that distance from the theorem's best point on the batch: a quick run.
    """
    law = SampledLoss(
        d=D,
        n=n,
        covariance=draw_rotated_covariance(generator),
        truth="inverse",
        batch=grams,
        images=images,
    )
    batch = law.draw(generator)
    noise = draw_normal(generator, 2 * LAYERS - 1 if moving else LAYERS, D, D)
    start = START * noise
    if near:
        best = best_inside(batch, n, LAYERS, least_family_loss(D, n, LAYERS, moving)[0])[0]
        inner = best[:, None, None] * (torch.eye(D, dtype=torch.float64) + near * noise)
        start = _join_weights(law.colour(split_weights(inner, LAYERS)))
    return train_lbfgs(law, batch, start, LAYERS, iterations, white)


def select_iterations(most: int) -> list[int]:
    """Iterations to plot: all of the first, then ever fewer."""
    return sorted({0, *(round(10 ** (k / 16)) for k in range(80)), most} & set(range(most + 1)))


def draw_loss_curve(runs: list[Run], title: str, exact: float, caption: str) -> Figure:
    """Plot the mean loss over the runs with its range, over that of no layer."""
    rows = []
    for k in select_iterations(max(len(run.points) for run in runs) - 1):
        found = [run.losses[run.clamp_iteration(k)] / D for run in runs]
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


def draw_distance_curves(runs: list[Run], title: str, rules: dict[str, float]) -> Figure:
    """Plot the mean over the runs of each distance, with its range."""
    names = list(runs[0].distances(0))
    rows = []
    for k in select_iterations(max(len(run.points) for run in runs) - 1):
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


def draw_matrices(run: Run, title: str, caption: str) -> Figure:
    """Plot Σ^½ A_i Σ^½, and B_i, at the end of a run."""
    names = [f"Σ^½ A{i} Σ^½" for i in range(run.layers)]
    names += [f"B{i}" for i in range(len(run.final_whitened) - run.layers)]
    rows = [
        {"matrix": name, "row": i + 1, "column": j + 1, "entry": float(matrix[i, j])}
        for name, matrix in zip(names, run.final_whitened, strict=True)
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


def check_proportional(runs: list[Run], limit: str) -> Part:
    """Check that every Σ^½A_iΣ^½ (or every A_i, if that is the `limit`) ends as a multiple of I."""
    name = "Σ^½ A_i Σ^½" if limit == "Σ" else "A_i"
    trial = Inequality(f"Dist({name}, I) ends below 0.05")
    for k, run in enumerate(runs):
        for i, value in enumerate(run.final_distances(limit)):
            trial.add(value, 0.05, size=(k, i), about=f"run {k}, A_{i}, Dist against 0.05")
    return Part(printed=trial.check(), matters="result")


def check_loss_limit(runs: list[Run], starts: list[Tensor], share: float, tolerance: float) -> Part:
    """Check that the loss ends at 0, or at the least of the theorem's points, from `starts`."""
    printed = Inequality("the loss converges to 0: at the end below 0.1 % of that of no layer")
    corrected = Equality("the loss converges to the least of the theorem's points", tolerance)
    for k, (run, start) in enumerate(zip(runs, starts, strict=True)):
        fell = run.losses[run.clamp_iteration(len(run.losses) - 21)] / run.losses[-1] - 1
        about = (
            f"run {k}, {run.final_loss:.4f} of that of no layer, {fell:.0e} less in 20 iterations"
        )
        printed.add(run.final_loss, 1e-3, size=(k,), about=about)
        ratio = run.final_loss / run.best_inside(start)[1]
        corrected.add(ratio, share, size=(k,), about=f"{about}, over the least")
    return Part(printed=printed.check(), corrected=corrected.check(), matters="print")
