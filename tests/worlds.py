"""Small environments of every kind, shared by the tests of policies and of games."""

from __future__ import annotations

from typing import Any

import torch

from innerloop.problems.bernoulli_bandits import BernoulliBandits
from innerloop.problems.linear_bandits import LinearBandits
from innerloop.problems.river_swim import RiverSwim
from innerloop.problems.tabular_mdps import TabularMDPs

WORLDS: dict[str, Any] = {
    "fixed": LinearBandits(d=3, arms=4, noise=0.5),
    "changing": LinearBandits(d=3, arms=4, sets=24, noise=0.5),
    "bernoulli": BernoulliBandits(arms=4),
    "tabular": TabularMDPs(states=3, arms=2, horizon=4),
    "river": RiverSwim(states=4, horizon=6),
}
STEPS = 24


def make_generator(seed: int = 0) -> torch.Generator:
    """Make a generator with a fixed seed."""
    return torch.Generator().manual_seed(seed)
