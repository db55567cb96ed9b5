"""Candidates for decisions: policies with their numbers, and solvers that imitate them in steps.

A policy's free numbers are the fractions it declares as parameters. One that may be 0 (such as a
temperature) is tried at 0, where the policy is another one, and as a free number.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import torch

from innerloop.algorithms.accelerated_ridge import StepRates
from innerloop.algorithms.base import Algorithm
from innerloop.algorithms.inverse_root import inverse_root
from innerloop.algorithms.soft_lin_ucb import SoftLinUCB
from innerloop.algorithms.thompson_sampling import ThompsonSampling
from innerloop.errors import InputError
from innerloop.identification.families.games import GameProblem, PlayedPolicy
from innerloop.identification.trials import Numbers, Trial
from innerloop.policies.base import Policy
from innerloop.problems.linear_bandit_games import BanditGameProblem
from innerloop.registry import get_name, load_members

COARSE = (0.15, 1.0)
FINE = tuple(10.0 ** (k / 6) for k in range(-12, 13))
"""Values that free numbers start from: several together, or a single one, which may be a jump's."""
SETTLED = {"delta"}
"""Numbers that act only through another one: δ of UCB-VI through its bonus."""
ALL_KNOWING = {"optimal"}
"""Policies that look into the environment, and not at the game."""
MAX_TERMS = 8


def list_policies(problem: GameProblem) -> dict[str, list[Trial]]:
    """List the trials of every registered policy that can play recorded games, by name."""
    found = {}
    for name, kind in load_members("policies", Policy).items():
        if name not in ALL_KNOWING and (trials := make_policy_trials(kind, problem)):
            found[name] = trials
    return found


def make_policy_trials(policy: Any, problem: GameProblem) -> list[Trial]:
    """Return the trials of a policy, or none if it cannot play these games."""
    base = policy if isinstance(policy, Policy) else policy()
    try:
        PlayedPolicy(base).init(problem[:1])
    except InputError:
        return []
    declared, about = type(base).declared_types(), type(base).describe_parameters()
    free = [name for name, kind in declared.items() if kind is float and name not in SETTLED]
    zeroed = [name for name in free if about[name].get("least") == 0]
    trials = []
    for count in range(len(zeroed), -1, -1):
        for zeros in combinations(zeroed, count):
            trials.append(_make_trial(base, [n for n in free if n not in zeros], zeros))
    return trials


def _make_trial(base: Policy[Any, Any], free: Sequence[str], zeros: Sequence[str]) -> Trial:
    nothing = dict.fromkeys(zeros, 0.0)

    def make(numbers: Numbers) -> PlayedPolicy:
        values = dict(zip(free, numbers, strict=True))
        return PlayedPolicy(base).with_numbers(**nothing, **values)

    most = [type(base).describe_parameters()[name].get("most") for name in free]
    grid = FINE if len(free) == 1 else COARSE
    starts = [
        start
        for start in product(*(grid for _ in free))
        if all(limit is None or x <= limit for x, limit in zip(start, most, strict=True))
    ]
    general = [
        name
        for name, kind in load_members("policies", Policy).items()
        if issubclass(kind, type(base)) and kind is not type(base)
    ]
    return Trial(get_name(type(base)), make, starts, tuple(free), frozenset(general))


def list_solvers(problem: BanditGameProblem) -> dict[str, list[Trial]]:
    """List the trials of the solvers of linear bandits, by name."""
    largest = float(problem.features.norm(dim=-1).max())
    return {
        get_name(SoftLinUCB): [_make_soft_lin_ucb(problem, largest)],
        get_name(ThompsonSampling): [
            _make_thompson_sampling(problem, largest, terms) for terms in range(1, MAX_TERMS + 1)
        ],
    }


def _make_soft_lin_ucb(problem: BanditGameProblem, largest: float) -> Trial:
    def make(numbers: Numbers) -> Algorithm[Any, Any]:
        ridge, bound, alpha, temperature = map(_check_positive, numbers)
        ridges = torch.full((1 + problem.arms,), ridge, dtype=torch.float64)
        rates = StepRates.of(ridges, bound, problem.n)
        return SoftLinUCB(ridges, rates, _to_tensor(alpha), _to_tensor(temperature))

    starts = list(product((0.5,), (largest,), (0.3, 2.0), (0.1, 0.5)))
    return Trial("soft-lin-ucb", make, starts, ("ridge", "bound", "alpha", "temperature"))


def _make_thompson_sampling(problem: BanditGameProblem, largest: float, terms: int) -> Trial:
    def make(numbers: Numbers) -> Algorithm[Any, Any]:
        ridge, bound, scale, temperature = map(_check_positive, numbers)
        root = inverse_root(terms, ridge, ridge + (problem.n - 1) * bound**2)
        one = torch.ones(1, dtype=torch.float64)
        ridges = ridge + torch.cat([0 * one, root.shifts])
        mix = torch.cat([one, scale * root.weights])
        rates = StepRates.of(ridges, bound, problem.n)
        return ThompsonSampling(ridges, rates, mix, _to_tensor(temperature))

    starts = list(product((0.5,), (largest,), (0.5,), (0.1, 0.5)))
    return Trial("thompson-sampling", make, starts, ("ridge", "bound", "scale", "temperature"))


def _check_positive(value: float) -> float:
    if not value > 0:
        raise InputError(f"expected a positive number, got {value}")
    return value


def _to_tensor(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)
