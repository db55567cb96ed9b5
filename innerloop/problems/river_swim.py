"""River swim: a chain that pays little at one end, and much at the other after a long swim.

Going left (action 0) always succeeds, with the current; going right (action 1) moves right with
probability 0.35, stays with 0.6 and is washed back with 0.05; from the left bank it is 0.6 to move
and 0.4 to stay, at the right bank 0.6 to stay and 0.4 to be washed back. Left on the left bank
earns 0.005, right on the right bank 1. Episodes begin on the left bank.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from innerloop.parameters import parameter
from innerloop.problems.base import Distribution, check_batch
from innerloop.problems.mdp import TabularMDP


class RiverSwim(Distribution):
    """A single `TabularMDP`; all environments of a batch are equal."""

    source: ClassVar[str] = "Osband et al. 2013, figure 1 (after Strehl and Littman 2008)"
    problem_type: ClassVar[type[Any]] = TabularMDP
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"states": 3, "horizon": 4},
        {"states": 2, "horizon": 2},
        {"states": 6, "horizon": 10},
    )

    states: int = parameter(6, "places along the river", least=2, most=1000)
    horizon: int = parameter(20, "steps of an episode H", least=1, most=10_000)

    def sample(
        self,
        *batch: int,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> TabularMDP:
        """Return copies of the river; nothing about it is random."""
        check_batch(batch)
        last = self.states - 1
        current = torch.tensor([0.05, 0.6, 0.35], dtype=torch.float64)
        transitions = torch.zeros(self.states, 2, self.states, dtype=torch.float64)
        for s in range(self.states):
            transitions[s, 0, max(s - 1, 0)] = 1.0
            if 0 < s < last:
                transitions[s, 1, s - 1 : s + 2] = current
        transitions[0, 1, 0], transitions[0, 1, 1] = 0.4, 0.6
        transitions[last, 1, last], transitions[last, 1, last - 1] = 0.6, 0.4
        rewards = torch.zeros(self.states, 2, dtype=torch.float64)
        rewards[0, 0], rewards[last, 1] = 0.005, 1.0
        initial = torch.zeros(self.states, dtype=torch.float64)
        initial[0] = 1.0
        lead = (*batch, self.horizon)
        return TabularMDP(
            transitions.expand(*lead, -1, -1, -1),
            rewards.expand(*lead, -1, -1),
            initial.expand(*batch, -1),
        ).to(dtype)
