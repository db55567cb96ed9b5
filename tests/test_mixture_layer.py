"""The exact loss of a linear attention layer on mixtures, against drawn prompts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from innerloop.errors import InputError
from innerloop.problems.mixture_of_regressions import MixtureOfRegressions
from innerloop.theory.mixture_layer import MixtureLayerLoss

CASES = [
    {"d": 2, "n": 3, "components": 2, "signal": 1.3, "noise": 0.4},
    {"d": 3, "n": 5, "components": 3, "signal": 1.0, "noise": 0.0},
    {"d": 1, "n": 1, "components": 1, "signal": 2.0, "noise": 0.5},
    {
        "d": 2,
        "n": 4,
        "components": 3,
        "signal": 1.0,
        "noise": 1.0,
        "proportions": torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64),
    },
]


def run_layer(case: dict, b: Tensor, A: Tensor, count: int) -> tuple[float, float]:
    """Mean and standard error of the squared error over drawn prompts, labels of the query too."""
    generator = torch.Generator().manual_seed(3)
    drawn = MixtureOfRegressions(**{**case, "n": case["n"] + 1}).sample(count, generator=generator)
    tokens = torch.cat([drawn.x, drawn.y.unsqueeze(-1)], dim=-1)
    context, query = tokens[:, :-1], tokens[:, -1]
    gram = context.mT @ context / case["n"]
    said = torch.einsum("i,bij,jk,bk->b", b, gram, A, query[:, :-1])
    errors = (said - query[:, -1]).square()
    return float(errors.mean()), float(errors.std()) / count**0.5


@pytest.mark.parametrize("case", CASES)
def test_the_loss_is_that_of_drawn_prompts(case: dict) -> None:
    generator = torch.Generator().manual_seed(0)
    d = case["d"]
    b = torch.randn(d + 1, generator=generator, dtype=torch.float64)
    A = torch.randn(d + 1, d, generator=generator, dtype=torch.float64) / 2
    exact = float(MixtureLayerLoss(**case).loss(b, A))
    mean, error = run_layer(case, b, A, 200_000)
    assert abs(mean - exact) < 5 * error
    # The interval is narrow enough to notice a wrong moment.
    assert 5 * error < 0.12 * exact


@pytest.mark.parametrize("case", CASES)
def test_the_optimum_is_one(case: dict) -> None:
    layer, d = MixtureLayerLoss(**case), case["d"]
    b = torch.zeros(d + 1, dtype=torch.float64)
    b[-1] = 1.0
    A = torch.cat([layer.optimum, torch.zeros(1, d, dtype=torch.float64)])
    assert float(layer.loss(b, A)) == pytest.approx(layer.minimum, rel=1e-12)
    generator = torch.Generator().manual_seed(1)
    for scale in (1e-2, 1.0):
        near = b + scale * torch.randn(50, d + 1, generator=generator, dtype=torch.float64)
        others = A + scale * torch.randn(50, d + 1, d, generator=generator, dtype=torch.float64)
        assert bool((layer.loss(near, others) >= layer.minimum - 1e-12).all())


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(InputError, match="at least 1"):
        MixtureLayerLoss(d=0, n=3, components=2)
