"""Drawing Gram matrices: every bit of the plain product, and the Wishart law from numpy too."""

from __future__ import annotations

import pytest
import scipy.stats
import torch

from innerloop.training import kernel
from innerloop.training.bartlett import draw_with_numpy, draw_with_torch, multiply_triangles
from innerloop.training.linear_attention import SampledLoss


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d", [1, 2, 5, 7])
def test_half_of_the_product_has_every_bit_of_the_whole(d: int, dtype: torch.dtype) -> None:
    """The whole one, with T filled by its indices, is what recorded runs were trained on."""
    generator = torch.Generator().manual_seed(d)
    below, squares = draw_with_torch(d, 9, 50, dtype, generator)
    T = torch.zeros(d, d, 50, dtype=dtype)
    low = torch.tril_indices(d, d, -1)
    T[low[0], low[1]] = below
    T.diagonal(dim1=0, dim2=1).copy_(squares.sqrt().mT)
    whole = kernel.multiply(T, T.transpose(0, 1)).clone()
    assert torch.equal(multiply_triangles(below, squares.sqrt()), whole)


def test_numpy_draws_the_same_law_and_follows_the_generator() -> None:
    def draw(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return draw_with_numpy(3, 6, 4000, torch.float64, generator)

    below, squares = draw(1)
    assert scipy.stats.kstest(below.flatten(), "norm").pvalue > 1e-3
    for i in range(3):
        assert scipy.stats.kstest(squares[i], "chi2", (6 - i,)).pvalue > 1e-3
    assert torch.equal(draw(1)[1], squares)
    assert not torch.equal(draw(2)[1], squares)
    law = SampledLoss(d=3, n=6, batch=20_000, draws="numpy")
    gram = law.draw(torch.Generator().manual_seed(0)).gram
    mean, spread = gram.mean(dim=-1), gram.std(dim=-1) / 20_000**0.5
    assert bool(((mean - torch.eye(3)).abs() < 4.5 * spread).all())
