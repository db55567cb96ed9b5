"""Equalities are tested up to rounding of float64, for every type of the two sides."""

from __future__ import annotations

import pytest
import torch

from innerloop.claims.cases import Case
from innerloop.claims.trials import Equality


@pytest.mark.parametrize("right", [1.0 + 1e-8, torch.tensor(1.0 + 1e-8, dtype=torch.float64)])
def test_a_number_is_not_rounded_to_float32(right: float | torch.Tensor) -> None:
    trial = Equality("1 = 1 + 1e-8", tolerance=1e-9)
    assert trial.add(1.0, right, Case(n=1)) == pytest.approx(1e-8, rel=1e-6)
    assert trial.check().passed is False
