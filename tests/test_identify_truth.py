"""Models of known truth, drawn at random with their settings: none is confidently mistaken.

Every candidate's own iteration is a model: one of its guesses with every number moved at random.
Others do what no candidate does. A verdict is confident where it matches or is close.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.algorithms.lloyd import Lloyd
from innerloop.identification.conclusion import Identification
from innerloop.identification.families.games import History, PlayedPolicy
from innerloop.identification.hyper import pack_parameters, unpack_parameters
from innerloop.identification.identification import identify
from innerloop.identification.models import Model
from innerloop.policies.empirical_average import EmpiricalAveragePolicy
from innerloop.policies.lin_ucb import LinUCBPolicy
from innerloop.policies.linear_thompson import LinearThompsonPolicy
from innerloop.policies.ucb import UCBPolicy
from innerloop.problems.base import Distribution
from innerloop.problems.bernoulli_bandits import BernoulliBandits
from innerloop.problems.binary_mixture import BinaryMixture
from innerloop.problems.gaussian_mixture import GaussianMixture
from innerloop.problems.linear_bandits import LinearBandits
from innerloop.problems.linear_regression import LinearRegression
from innerloop.problems.principal_components import PrincipalComponents
from innerloop.problems.sparse_recovery import SparseRecovery
from innerloop.problems.tabular_games import TabularGames
from innerloop.registry import find_member

QUICK: dict[str, Any] = {"prompts": 32, "steps": 4}
REGRESSION = LinearRegression(d=2, n=7, noise=0.2, kappa=3.0)
SPARSE = SparseRecovery(d=3, n=6, sparsity=1)
CLOUDS = GaussianMixture(d=2, n=9, clusters=2, separation=1.5)
RIVALS = ("averaging", "gradient-descent", "least-squares", "newton", "ridge")
OWN: dict[str, Distribution] = {
    **dict.fromkeys(
        [
            *("averaging", "gd-plus-plus", "gradient-descent", "least-squares"),
            *("nearest-neighbours", "newton", "preconditioned-gradient-descent", "ridge"),
        ],
        REGRESSION,
    ),
    **dict.fromkeys(("fista", "ista", "lasso", "lista-vm"), SPARSE),
    **dict.fromkeys(("em", "lloyd"), CLOUDS),
    "power-method": PrincipalComponents(d=3, n=8, components=2),
    "spectral-clustering": BinaryMixture(d=2, n=8),
    "optimistic-planning": TabularGames(states=2, arms=2, horizon=3, episodes=4),
}
"""Candidates, and problems to tell them on."""


@dataclass(frozen=True, eq=False)
class Steps(Model):
    """An algorithm as a model: its answers after some of its steps."""

    algorithm: Algorithm[Any, Any]
    count: int

    @property
    def layers(self) -> list[str]:
        return [f"layer {k}" for k in range(1, self.count + 1)]

    def predict(self, problem: Any) -> Tensor:
        states = list(self.algorithm.states(problem, self.count))[1:]
        return torch.stack([self.algorithm.predict(problem, state) for state in states])


@cache
def identify_own(name: str, draw: int) -> Identification:
    """Identify a candidate's own iteration, with settings drawn at random."""
    generator = torch.Generator().manual_seed(1000 * draw + sum(map(ord, name)))
    kind, distribution = find_member("algorithms", Algorithm, name), OWN[name]
    guesses = kind.guesses(distribution.sample(8, generator=generator))
    guess = guesses[int(torch.randint(len(guesses), (), generator=generator))]
    numbers = pack_parameters(guess)
    moved = numbers * (0.8 + 0.4 * torch.rand(len(numbers), generator=generator).double())
    algorithm = unpack_parameters(guess, moved) if len(numbers) else guess
    most = algorithm.count_steps(distribution.sample(1, generator=generator))
    count = 1 if not kind.has_steps else min(3, most or 3)
    at_query = hasattr(distribution.sample(1), "x_query")
    rivals = sorted({name, *RIVALS}) if at_query else None
    return identify(Steps(algorithm, count), distribution, algorithms=rivals, seed=draw, **QUICK)


@pytest.mark.parametrize("draw", [0, 1])
@pytest.mark.parametrize("name", OWN)
def test_an_iteration_is_its_own(name: str, draw: int) -> None:
    found = identify_own(name, draw)
    for layer in found.layers:
        same = {layer.nearest.removesuffix(" (per step)"), *layer.also_fits}
        assert layer.fit == "match", str(found)
        assert layer.score >= 0.999
        assert name in {label.removesuffix(" (per step)") for label in same}, str(found)


BANDITS = LinearBandits(d=2, arms=3, sets=6)
ARMS = BernoulliBandits(arms=3)
POLICIES = {
    "lin-ucb, soft": (LinUCBPolicy(ridge=0.7, alpha=1.3, temperature=0.4), BANDITS),
    "lin-ucb, greedy": (LinUCBPolicy(ridge=2.0, alpha=0.0, temperature=0.25), BANDITS),
    "linear-thompson": (LinearThompsonPolicy(ridge=0.8, scale=0.6, temperature=0.3), BANDITS),
    "empirical-average": (EmpiricalAveragePolicy(epsilon=0.17), ARMS),
    "ucb": (UCBPolicy(width=0.6), ARMS),
}


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_is_its_own(name: str) -> None:
    policy, distribution = POLICIES[name]
    own = name.partition(",")[0]
    found = identify(policy, distribution, algorithms=[own, "uniform"], **QUICK)
    (layer,) = found.layers
    assert (layer.algorithm, layer.fit) == (own, "match"), str(found)
    free = {key: value for key, value in policy.values().items() if key in found.hyperparameters}
    if name != "ucb":  # greedy choices are the same for a range of widths
        assert found.hyperparameters.keys() >= free.keys() > set()
        for key, value in free.items():
            assert found.hyperparameters[key] == pytest.approx([value], rel=1e-3, abs=1e-6)


def play_evenly(history: History) -> Tensor:
    """Play every action with the same odds."""
    return torch.ones(len(history.actions), 3)


def test_a_function_of_the_game_so_far_is_a_policy() -> None:
    """ε-greedy as anybody would write it."""

    def policy(history: History) -> Tensor:
        assert history.features is not None
        batch, arms = history.features.shape[0], history.features.shape[-2]
        done = torch.nn.functional.one_hot(history.actions, arms).double()
        counts = done.sum(dim=1)
        sums = (done * history.rewards.unsqueeze(-1)).sum(dim=1)
        means = torch.where(counts == 0, torch.inf, sums / counts.clamp_min(1))
        best = (means == means.amax(dim=-1, keepdim=True)).double()
        assert best.shape == (batch, arms)
        return 0.8 * best / best.sum(dim=-1, keepdim=True) + 0.2 / arms

    found = identify(policy, ARMS, algorithms=["empirical-average", "ucb"], **QUICK)
    assert found.verdict == "empirical-average"
    assert found.hyperparameters["epsilon"] == pytest.approx([0.2])
    equal = identify(play_evenly, ARMS, algorithms=["ucb"], **QUICK)
    assert equal.verdict == "plays all actions with equal odds"


def play_in_turn(history: History) -> Tensor:
    """Play the actions in turn, whatever they earned."""
    assert history.features is not None
    batch, arms = history.features.shape[0], history.features.shape[-2]
    odds = torch.full((batch, arms), 0.1, dtype=torch.float64)
    odds[:, history.step % arms] = 1.0
    return odds / odds.sum(dim=-1, keepdim=True)


def cut_in_half(x: Tensor) -> Tensor:
    """Cluster by the sign of the first feature."""
    first = (x[..., 0] > 0).to(x)
    return torch.stack([first, 1 - first], dim=-1)


STRANGERS: dict[str, tuple[Callable[..., Any], Distribution]] = {
    "the largest label": (lambda X, y, q: y.amax(dim=-1), REGRESSION),
    "a squashed query": (lambda X, y, q: q.sum(dim=-1).tanh(), REGRESSION),
    "the farthest label": (
        lambda X, y, q: y.gather(
            1, (X - q[:, None]).square().sum(dim=-1).argmax(dim=1, keepdim=True)
        ).squeeze(1),
        REGRESSION,
    ),
    "signs of the answer": (
        lambda X, y, q: (torch.linalg.lstsq(X, y[..., None]).solution[..., 0] * q).sum(-1).sign(),
        REGRESSION,
    ),
    "the first weight alone": (
        lambda X, y, q: torch.linalg.lstsq(X, y[..., None]).solution[:, 0, 0] * q[:, 0],
        REGRESSION,
    ),
    "half of the cloud": (cut_in_half, CLOUDS),
    "axes": (
        lambda x: torch.eye(3, dtype=x.dtype)[:2].expand(len(x), 2, 3),
        PrincipalComponents(d=3, n=8, components=2),
    ),
    "actions in turn": (play_in_turn, ARMS),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_a_stranger_is_no_candidate(name: str) -> None:
    model, distribution = STRANGERS[name]
    rivals = RIVALS if distribution is REGRESSION else None
    found = identify(model, distribution, algorithms=rivals, **QUICK)
    (layer,) = found.layers
    assert layer.fit in ("none", "constant"), str(found)
    assert found.algorithm is None


def test_clusters_under_other_names_are_the_same() -> None:
    """A model that does not see the centres names clusters in an order of its own."""
    lloyd = Lloyd()
    easy = GaussianMixture(d=2, n=12, clusters=3, separation=5.0)

    class Renamed(Steps):
        def predict(self, problem: Any) -> Tensor:
            from innerloop.identification.families.clustering import match_clusters

            shares = super().predict(problem)[..., torch.tensor([2, 0, 1])]
            return match_clusters(problem, shares)

    found = identify(Renamed(lloyd, 3), easy, **QUICK)
    assert all(layer.algorithm == "lloyd" for layer in found.layers), str(found)


def test_enough_models_were_tried() -> None:
    assert 2 * len(OWN) + len(POLICIES) + len(STRANGERS) >= 40
    assert isinstance(PlayedPolicy(UCBPolicy()).policy, UCBPolicy)
