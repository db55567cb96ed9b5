"""Solve the lasso, the elastic net and NNLS by coordinate descent on a batch of Gram matrices.
    ½⟨w, G w⟩ − ⟨c, w⟩ + ½s + λ₁‖w‖₁ + ½λ₂‖w‖²     w free, or w ≥ 0 with λ₁ = λ₂ = 0

During a sweep the problem is the last dimension, so that the update of one weight takes a few
vector operations for the whole batch. After some sweeps, the weights that are not zero are computed
exactly for their current signs. This solves almost every problem as soon as the sweeps have
identified the nonzero weights and their signs. Solved problems leave the batch, and the others get
twice as many sweeps. Source: Friedman, Hastie and Tibshirani 2010 (descent); the duality gap is
that of Kim et al. 2007, An interior-point method for l1-regularized least squares.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from innerloop.solving.quadratic import Matrices, Numbers, Vectors, matvec

FIRST_SWEEPS = 8
"""Sweeps before the first exact solve: enough to find most small problems' nonzero weights."""
MAX_ROUND = 256
"""The largest number of sweeps between two exact solves."""
Columns = Float[Tensor, "d problems"]


@dataclass(frozen=True, eq=False)
class Descent:
    """A batch of problems: G + λ₂I (`gram`), c (`moment`), s (`square`) and λ₁ (`penalty`).

    With `positive`, weights must not be negative.
    """

    gram: Matrices
    moment: Vectors
    square: Numbers
    penalty: Numbers
    positive: bool = False

    def solve(
        self, start: Vectors, tolerance: float, max_sweeps: int
    ) -> tuple[Vectors, Numbers, Bool[Tensor, " problems"], Tensor]:
        """Minimise from `start` by coordinate descent and exact solves.

        Return the weights, their optimality measures, whether they converged, and the sweeps.
        """
        weights, measures = start.clone(), self.measure(start)
        sweeps = torch.zeros(len(start), dtype=torch.int64, device=start.device)
        active = (measures > self.limit(tolerance)).nonzero().squeeze(-1)
        count, total = FIRST_SWEEPS, 0
        while len(active) and total < max_sweeps:
            count = min(count, max_sweeps - total)
            part = self._select(active)
            updated = part._sweep(weights[active], count)
            gaps = part.measure(updated)
            unsolved = (gaps > part.limit(tolerance)).nonzero().squeeze(-1)
            if len(unsolved):
                polished = part._select(unsolved)._polish(updated[unsolved])
                after = part._select(unsolved).measure(polished)
                better = after < gaps[unsolved]  # false for NaN, which a singular system gives
                updated[unsolved[better]], gaps[unsolved[better]] = polished[better], after[better]
            weights[active], measures[active] = updated, gaps
            total, count = total + count, min(2 * count, MAX_ROUND)
            sweeps[active] = total
            active = active[gaps > part.limit(tolerance)]
        return weights, measures, measures <= self.limit(tolerance), sweeps

    def measure(self, weights: Vectors) -> Numbers:
        """Return the duality gap.

        With `positive`, return the largest violation of the optimality (KKT) conditions.
        """
        correlation = self.moment - matvec(self.gram, weights)
        if self.positive:
            return torch.where(weights > 0, correlation.abs(), correlation.clamp_min(0)).amax(
                dim=-1
            )
        label_product = self.square - (weights * self.moment).sum(dim=-1)
        residual_square = label_product - (weights * correlation).sum(dim=-1)
        largest = correlation.abs().amax(dim=-1).clamp_min(torch.finfo(correlation.dtype).tiny)
        scale = (self.penalty / largest).clamp_max(1.0)
        size = self.penalty * weights.abs().sum(dim=-1)
        gap = 0.5 * residual_square * (1 + scale.square()) + size - scale * label_product
        # Rounding of s may make a gap near 0 negative.
        return gap.clamp_min(0.0)

    def limit(self, tolerance: float) -> Numbers:
        """Return the largest measure that counts as converged.

        It is a share of ½s, or with `positive` of the largest entry of c.
        """
        if self.positive:
            return tolerance * self.moment.abs().amax(dim=-1)
        return tolerance * 0.5 * self.square

    def _select(self, index: Tensor) -> Descent:
        if len(index) == len(self.gram):
            return self
        gram, moment = self.gram[index], self.moment[index]
        return Descent(gram, moment, self.square[index], self.penalty[index], self.positive)

    def _sweep(self, start: Vectors, count: int) -> Vectors:
        """Return the weights after `count` sweeps; a sweep minimises over each weight in turn."""
        gram = self.gram.permute(1, 2, 0).contiguous()
        weights, penalty = start.mT.contiguous(), self.penalty
        correlation = (self.moment - matvec(self.gram, start)).mT.contiguous()
        diagonal = gram.diagonal().mT.contiguous()
        # A feature that is 0 everywhere keeps the weight 0, as in scikit-learn.
        inverse = torch.where(diagonal > 0, 1 / diagonal, 0.0)
        weights = torch.where(diagonal > 0, weights, 0.0)
        target, change, lower = torch.empty_like(penalty), torch.empty_like(penalty), -penalty
        for _ in range(count):
            for j in range(len(gram)):
                torch.addcmul(correlation[j], diagonal[j], weights[j], out=target)
                if self.positive:
                    target.clamp_min_(0.0)
                else:
                    torch.clamp(target, lower, penalty, out=change)
                    target.sub_(change)
                target.mul_(inverse[j])
                torch.sub(target, weights[j], out=change)
                weights[j].copy_(target)
                correlation.addcmul_(gram[j], change, value=-1.0)
        return weights.mT.contiguous()

    def _polish(self, weights: Vectors) -> Vectors:
        """Compute the nonzero weights exactly for their current signs; the others stay zero."""
        signs = weights.sign()
        support = signs.abs()
        system = self.gram * support.unsqueeze(-1) * support.unsqueeze(-2)
        system.diagonal(dim1=-2, dim2=-1).add_(1 - support)
        right_side = support * self.moment - self.penalty.unsqueeze(-1) * signs
        solved, _ = torch.linalg.solve_ex(system, right_side)
        # A weight whose sign changed is zero in the solution, or has the other sign.
        return torch.where(solved * signs > 0, solved, 0.0)
