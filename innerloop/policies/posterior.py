"""What is known about the weights of a linear bandit: ridge regression, one example at a time.

    G = λI + Σ a aᵀ,   ŵ = G⁻¹ Σ r a,   kept as ŵ and a square root C with CᵀC = G⁻¹

An example (a, r) turns G into G + a aᵀ. With p = C a and s = 1 + ‖p‖², Potter's update
C − p (Cᵀp)ᵀ / (s + √s) = (I + p pᵀ)^(−1/2) C is a root of the new inverse, because
(G + a aᵀ)⁻¹ = Cᵀ (I + p pᵀ)⁻¹ C; and ŵ moves by Cᵀp (r − ⟨a, ŵ⟩) / s. That is O(d²), with no
difference of large numbers: aᵀG⁻¹a = ‖C a‖² is a sum of squares.

Tensors here have the batch as their last dimensions: the matrices are small, the batch is large,
and an operation is fast along what is contiguous.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

FEW = 2**20
"""Up to so many products, which fit into a cache, multiplying element by element was several times
faster than one small matrix after another; beyond, it was slower and took memory."""


class Posterior(NamedTuple):
    """The ridge estimate and a root of G⁻¹."""

    mean: Float[Tensor, "d ..."]
    root: Float[Tensor, "d d ..."]

    @classmethod
    def start(cls, features: Float[Tensor, "*batch sets actions d"], ridge: float) -> Posterior:
        """Before the first example: ŵ = 0 and G = λI."""
        batch, d = features.shape[:-3], features.shape[-1]
        scale = torch.eye(d).to(features).reshape(d, d, *(1 for _ in batch)) / ridge**0.5
        return cls(features.new_zeros(d, *batch), scale.expand(d, d, *batch).contiguous())

    def updated(self, action: Float[Tensor, "d ..."], reward: Float[Tensor, "*batch"]) -> Posterior:
        """After one more example."""
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
        """⟨a, ŵ⟩ of each action."""
        return (features * self.mean).sum(dim=1)

    def widths(self, features: Float[Tensor, "actions d ..."]) -> Float[Tensor, "actions ..."]:
        """√(aᵀ G⁻¹ a) of each action."""
        if self.root.numel() * len(features) <= FEW:
            turned = (self.root * features.unsqueeze(1)).sum(dim=2)
        else:
            turned = torch.einsum("ij...,aj...->ai...", self.root, features)
        return (turned * turned).sum(dim=1).sqrt()

    def deviation(self, noise: Float[Tensor, "d ..."]) -> Float[Tensor, "d ..."]:
        """G^(−1/2) z with the symmetric root."""
        root = self.root.movedim((0, 1), (-2, -1))
        spectrum, vectors = torch.linalg.eigh(root.mT @ root)
        turned = vectors.mT @ noise.movedim(0, -1).unsqueeze(-1)
        scaled = spectrum.clamp_min(0.0).sqrt().unsqueeze(-1) * turned
        return (vectors @ scaled).squeeze(-1).movedim(-1, 0)


def batch_first(scores: Float[Tensor, "actions ..."]) -> Float[Tensor, "*batch actions"]:
    """Scores with the batch as the first dimensions, in memory too: choosing is faster there."""
    return scores.movedim(0, -1).contiguous()


def batch_last(features: Float[Tensor, "*batch actions d"]) -> Float[Tensor, "actions d ..."]:
    """The same numbers with the batch as the last dimensions."""
    return features.movedim((-2, -1), (0, 1))
