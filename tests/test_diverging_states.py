"""An infinite state of the reference algorithm counts as diverged, also for large data."""

from __future__ import annotations

import pytest
import torch

from innerloop.certification.law import bound_states, check_divergence
from innerloop.constructions.newton import NewtonConstruction
from innerloop.errors import InputError


@pytest.mark.parametrize(
    ("largest", "bound"),
    [(0.0, 1e16), (1.0, 1e16), (50.0, 5e17), (1e300, torch.finfo(torch.float64).max)],
)
def test_the_bound_grows_with_the_data_and_stays_finite(largest: float, bound: float) -> None:
    prompt = torch.tensor([[-largest, 0.0]], dtype=torch.float64)
    assert bound_states(prompt) == bound


@pytest.mark.parametrize("entry", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("largest", [1.0, 1e300])
def test_an_infinite_state_has_diverged(largest: float, entry: float) -> None:
    state = torch.tensor([0.0, entry], dtype=torch.float64)
    bound = bound_states(torch.tensor([[largest]], dtype=torch.float64))
    with pytest.raises(InputError, match="the reference itself diverges"):
        check_divergence(NewtonConstruction(), state, bound)
    check_divergence(NewtonConstruction(), torch.tensor([largest, 0.0], dtype=torch.float64), bound)
