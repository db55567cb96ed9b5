"""The exact in-context loss of stacked linear attention that updates labels only.

Setting    layers of form (9) of ahn2023: the error on a query x is w*ᵀ R x with
           R = (I + G A_0)(I + G A_1) … (I + G A_{L−1}), G = (1/n) Σ x xᵀ over the context
Loss       E tr(Rᵀ Cov(w*) R Cov(x)), a sum of 4^L words (see `innerloop.theory.wishart`)
"""

from __future__ import annotations

from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.theory.wishart import Wishart


def expected_loss(
    matrices: Float[Tensor, "layers *batch d d"],
    covariance: Float[Tensor, "d d"],
    weights: Float[Tensor, "d d"],
    n: int,
) -> Float[Tensor, "*batch"]:
    """Compute the loss with Cov(x) = covariance and Cov(w*) = weights.

    Args:
        matrices: The matrices A_0, …, A_{L−1} of the layers, which need not be symmetric.
        covariance: The covariance of x.
        weights: The covariance of w*.
        n: The number of examples of a prompt.
    """
    law = Wishart(covariance / n, n)
    layers = range(len(matrices))
    subsets = [c for size in range(len(matrices) + 1) for c in combinations(layers, size)]
    total = torch.zeros(matrices.shape[1:-2], dtype=matrices.dtype)
    for left in subsets:
        for right in subsets:
            chain = [*(matrices[i].mT for i in reversed(left)), weights]
            chain = [*chain, *(matrices[i] for i in right)]
            chain[-1] = chain[-1] @ covariance
            # The first factor of tr(A_lᵀ G … A_kᵀ G Cov(w) G A_i … G A_j Cov(x)) moves to the end.
            first, *rest = chain
            if not rest:
                total = total + first.trace()
            else:
                total = total + law.trace([*rest[:-1], rest[-1] @ first])
    return total
