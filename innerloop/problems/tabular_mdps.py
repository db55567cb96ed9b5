"""Random tabular decision processes: Dirichlet(1) transitions, uniform rewards and initial states.

Transitions and rewards differ between the steps of an episode, and between environments.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from innerloop.parameters import parameter
from innerloop.problems.base import Distribution, check_batch
from innerloop.problems.mdp import TabularMDP


class TabularMDPs(Distribution):
    """A distribution over `TabularMDP`s."""

    source: ClassVar[str] = "Yang 2025, third paper (Lin et al. 2023)"
    problem_type: ClassVar[type[Any]] = TabularMDP
    cases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"states": 3, "arms": 2, "horizon": 4},
        {"states": 2, "arms": 5, "horizon": 3},
        {"states": 1, "arms": 3, "horizon": 2},
        {"states": 4, "arms": 1, "horizon": 3},
        {"states": 3, "arms": 3, "horizon": 1},
    )

    states: int = parameter(5, "states S", least=1, most=1000)
    arms: int = parameter(3, "actions A", least=1, most=1000)
    horizon: int = parameter(4, "steps of an episode H", least=1, most=10_000)

    def sample(
        self,
        *batch: int,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> TabularMDP:
        """Draw a batch of environments, in float64 so that every precision sees the same ones."""
        check_batch(batch)
        shape = (*batch, self.horizon, self.states, self.arms)
        weights = torch.empty(*shape, self.states, dtype=torch.float64)
        # Independent exponentials divided by their sum are Dirichlet(1): uniform on the simplex.
        weights.exponential_(generator=generator)
        transitions = weights / weights.sum(dim=-1, keepdim=True)
        rewards = torch.rand(*shape, generator=generator, dtype=torch.float64)
        initial = torch.full((*batch, self.states), 1 / self.states, dtype=torch.float64)
        return TabularMDP(transitions, rewards, initial).to(dtype)
