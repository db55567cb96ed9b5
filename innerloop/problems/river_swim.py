"""River swim: a chain of states with a small reward at one end and a large one at the other.

Action 0 (left, with the current) always moves left. Action 1 (right) moves right with probability
0.35, stays with 0.6 and moves left with 0.05. In the leftmost state it moves right with 0.6 and
stays with 0.4; in the rightmost state it stays with 0.6 and moves left with 0.4. Left in the
leftmost state earns 0.005, right in the rightmost state 1. Episodes begin in the leftmost state.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from innerloop.parameters import parameter
from innerloop.problems.base import Distribution, check_batch
from innerloop.problems.mdp import TabularMDP


class RiverSwim(Distribution):
    """The river swim as a `TabularMDP`; all environments of a batch are equal."""

    source: ClassVar[str] = "Osband et al. 2013, figure 1 (after Strehl and Littman 2008)"
    problem_type: ClassVar[type[Any]] = TabularMDP
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"states": 3, "horizon": 4},
        {"states": 2, "horizon": 2},
        {"states": 6, "horizon": 10},
    )

    states: int = parameter(6, "states along the river", least=2, most=1000)
    horizon: int = parameter(20, "steps of an episode H", least=1, most=10_000)

    def sample(
        self,
        *batch: int,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> TabularMDP:
        """Return a batch of equal environments; nothing is random."""
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
