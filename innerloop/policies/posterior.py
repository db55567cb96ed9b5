"""Posterior of the weights of a linear bandit: ridge regression, one example at a time.

    G = λI + Σ a aᵀ,   ŵ = G⁻¹ Σ r a,   stored as ŵ and a square root C with CᵀC = G⁻¹

An example (a, r) turns G into G + a aᵀ. With p = C a and s = 1 + ‖p‖², Potter's update

    C ← C − p (Cᵀp)ᵀ / (s + √s) = (I + p pᵀ)^(−1/2) C,   ŵ ← ŵ + Cᵀp (r − ⟨a, ŵ⟩) / s

returns a root of the new inverse, because (G + a aᵀ)⁻¹ = Cᵀ (I + p pᵀ)⁻¹ C. The cost is O(d²), and
no large numbers are subtracted: aᵀG⁻¹a = ‖C a‖² is a sum of squares.

Tensors here have the batch as their last dimensions: the matrices are small, the batch is large,
and operations are fast along contiguous dimensions.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

MAX_BROADCAST_PRODUCTS = 2**20
"""The largest number of products that are computed by element-wise multiplication.

Up to this number, the products fit into a cache, and this was several times faster than many small
matrix products. For more products, it was slower and used more memory.
"""


class Posterior(NamedTuple):
    """The ridge estimate ŵ and a square root of G⁻¹."""

    mean: Float[Tensor, "d ..."]
    root: Float[Tensor, "d d ..."]

    @classmethod
    def prior(cls, features: Float[Tensor, "*batch sets actions d"], ridge: float) -> Posterior:
        """Return the posterior before the first example: ŵ = 0 and G = λI."""
        batch, d = features.shape[:-3], features.shape[-1]
        scale = torch.eye(d).to(features).reshape(d, d, *(1 for _ in batch)) / ridge**0.5
        return cls(features.new_zeros(d, *batch), scale.expand(d, d, *batch).contiguous())

    def update(self, action: Float[Tensor, "d ..."], reward: Float[Tensor, "*batch"]) -> Posterior:
        """Return the posterior after one more example."""
        mean, root = self
        p = (root * action).sum(dim=1)
        gain = (root * p.unsqueeze(1)).sum(dim=0)
        s = (p * p).sum(dim=0) + 1
        surprise = (reward - (action * mean).sum(dim=0)) / s
        return Posterior(
            torch.addcmul(mean, gain, surprise),
            torch.addcmul(root, (p / (s + s.sqrt())).unsqueeze(1), gain, value=-1),
        )

    def values(self, features: Float[Tensor, "actions d ..."]) -> Float[Tensor, "actions ..."]:
        """Return ⟨a, ŵ⟩ of each action."""
        return (features * self.mean).sum(dim=1)

    def confidence_widths(
        self, features: Float[Tensor, "actions d ..."]
    ) -> Float[Tensor, "actions ..."]:
        """Return √(aᵀ G⁻¹ a) of each action."""
        if self.root.numel() * len(features) <= MAX_BROADCAST_PRODUCTS:
            rotated = (self.root * features.unsqueeze(1)).sum(dim=2)
        else:
            rotated = torch.einsum("ij...,aj...->ai...", self.root, features)
        return (rotated * rotated).sum(dim=1).sqrt()

    def deviation(self, noise: Float[Tensor, "d ..."]) -> Float[Tensor, "d ..."]:
        """Return G^(−1/2) z with the symmetric root."""
        root = self.root.movedim((0, 1), (-2, -1))
        spectrum, vectors = torch.linalg.eigh(root.mT @ root)
        rotated = vectors.mT @ noise.movedim(0, -1).unsqueeze(-1)
        scaled = spectrum.clamp_min(0.0).sqrt().unsqueeze(-1) * rotated
        return (vectors @ scaled).squeeze(-1).movedim(-1, 0)


def move_batch_first(scores: Float[Tensor, "actions ..."]) -> Float[Tensor, "*batch actions"]:
    """Move the batch to the first dimensions, in memory too: sampling actions is faster there."""
    return scores.movedim(0, -1).contiguous()


def move_batch_last(features: Float[Tensor, "*batch actions d"]) -> Float[Tensor, "actions d ..."]:
    """Move the batch to the last dimensions, as a view."""
    return features.movedim((-2, -1), (0, 1))
