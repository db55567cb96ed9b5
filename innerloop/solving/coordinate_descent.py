"""Lasso, elastic net and non-negative least squares: coordinate descent on Gram matrices, in step.

    ½⟨w, G w⟩ − ⟨c, w⟩ + ½s + λ₁‖w‖₁ + ½λ₂‖w‖²     w free, or w ≥ 0 with λ₁ = λ₂ = 0

Problems lie along the last dimension, so that an update of one weight is a few vector operations
over the whole batch. After some sweeps the weights that are not zero are solved for exactly, given
their signs; that ends almost every problem at once, since only the support had to be found. Solved
problems leave the batch, and the rest goes on with twice as many sweeps. Source: Friedman, Hastie
and Tibshirani 2010 (descent); the duality gap is that of Kim et al. 2007, An interior-point method
for l1-regularized least squares.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from innerloop.solving.quadratic import Matrices, Numbers, Vectors, matvec

FIRST_SWEEPS = 8
"""Sweeps before the first exact solve: enough to find most supports of small problems."""
MAX_ROUND = 256
"""Sweeps between exact solves, at most."""
Columns = Float[Tensor, "d problems"]


@dataclass(frozen=True, eq=False)
class Descent:
    """The data of a batch: G + λ₂I, c, s and λ₁, and whether weights must not be negative."""

    gram: Matrices
    moment: Vectors
    square: Numbers
    penalty: Numbers
    positive: bool = False

    def solve(
        self, start: Vectors, tolerance: float, max_sweeps: int
    ) -> tuple[Vectors, Numbers, Bool[Tensor, " problems"], Tensor]:
        """Return weights, their optimality measure, whether it is small enough, and sweeps."""
        weights, measures = start.clone(), self.measure(start)
        sweeps = torch.zeros(len(start), dtype=torch.int64, device=start.device)
        active = (measures > self.limit(tolerance)).nonzero().squeeze(-1)
        count, total = FIRST_SWEEPS, 0
        while len(active) and total < max_sweeps:
            count = min(count, max_sweeps - total)
            part = self._select(active)
            moved = part._sweep(weights[active], count)
            measured = part.measure(moved)
            left = (measured > part.limit(tolerance)).nonzero().squeeze(-1)
            if len(left):
                polished = part._select(left)._polish(moved[left])
                after = part._select(left).measure(polished)
                better = after < measured[left]  # false for NaN, of a singular system
                moved[left[better]], measured[left[better]] = polished[better], after[better]
            weights[active], measures[active] = moved, measured
            total, count = total + count, min(2 * count, MAX_ROUND)
            sweeps[active] = total
            active = active[measured > part.limit(tolerance)]
        return weights, measures, measures <= self.limit(tolerance), sweeps

    def measure(self, weights: Vectors) -> Numbers:
        """The duality gap; for non-negative weights, the largest violation of the conditions."""
        pull = self.moment - matvec(self.gram, weights)
        if self.positive:
            return torch.where(weights > 0, pull.abs(), pull.clamp_min(0)).amax(dim=-1)
        against = self.square - (weights * self.moment).sum(dim=-1)
        residual = against - (weights * pull).sum(dim=-1)
        largest = pull.abs().amax(dim=-1).clamp_min(torch.finfo(pull.dtype).tiny)
        scale = (self.penalty / largest).clamp_max(1.0)
        size = self.penalty * weights.abs().sum(dim=-1)
        gap = 0.5 * residual * (1 + scale.square()) + size - scale * against
        # Rounding of s leaves a gap of its own, which may be negative.
        return gap.clamp_min(0.0)

    def limit(self, tolerance: float) -> Numbers:
        """The measure that counts as solved: a share of ½s, or of the largest entry of c."""
        if self.positive:
            return tolerance * self.moment.abs().amax(dim=-1)
        return tolerance * 0.5 * self.square

    def _select(self, index: Tensor) -> Descent:
        if len(index) == len(self.gram):
            return self
        gram, moment = self.gram[index], self.moment[index]
        return Descent(gram, moment, self.square[index], self.penalty[index], self.positive)

    def _sweep(self, start: Vectors, count: int) -> Vectors:
        """Minimise over one weight after another, `count` times over all of them."""
        gram = self.gram.permute(1, 2, 0).contiguous()
        weights, penalty = start.mT.contiguous(), self.penalty
        pull = (self.moment - matvec(self.gram, start)).mT.contiguous()
        own = gram.diagonal().mT.contiguous()
        # A feature that is 0 everywhere keeps the weight 0, as in scikit-learn.
        inverse = torch.where(own > 0, 1 / own, 0.0)
        weights = torch.where(own > 0, weights, 0.0)
        room, excess, minus = torch.empty_like(penalty), torch.empty_like(penalty), -penalty
        for _ in range(count):
            for j in range(len(gram)):
                torch.addcmul(pull[j], own[j], weights[j], out=room)
                if self.positive:
                    room.clamp_min_(0.0)
                else:
                    torch.clamp(room, minus, penalty, out=excess)
                    room.sub_(excess)
                room.mul_(inverse[j])
                torch.sub(room, weights[j], out=excess)
                weights[j].copy_(room)
                pull.addcmul_(gram[j], excess, value=-1.0)
        return weights.mT.contiguous()

    def _polish(self, weights: Vectors) -> Vectors:
        """Solve for the weights that are not zero, given their signs; the others stay zero."""
        signs = weights.sign()
        inside = signs.abs()
        system = self.gram * inside.unsqueeze(-1) * inside.unsqueeze(-2)
        system.diagonal(dim1=-2, dim2=-1).add_(1 - inside)
        right = inside * self.moment - self.penalty.unsqueeze(-1) * signs
        solved, _ = torch.linalg.solve_ex(system, right)
        # A weight that changed its sign was not in the support of the solution.
        return torch.where(solved * signs > 0, solved, 0.0)
