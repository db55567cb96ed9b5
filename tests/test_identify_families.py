"""Ties, signs and spectra: what names are given where answers alone do not decide."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import permutations
from math import cos, sin
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from impostors import build_descent
from test_identify_truth import Steps
from torch import Tensor

from innerloop.algorithms.lloyd import Lloyd
from innerloop.algorithms.subspace_iteration import SubspaceIteration
from innerloop.constructions.em import EMConstruction
from innerloop.errors import InputError
from innerloop.identification.drawing import collect_figure_rows
from innerloop.identification.families.games import History
from innerloop.identification.identification import identify
from innerloop.identification.models import ConstructionModel
from innerloop.policies.ucb_vi import UCBVIPolicy
from innerloop.problems.binary_mixture import BinaryMixture
from innerloop.problems.gaussian_mixture import GaussianMixture
from innerloop.problems.principal_components import PCAProblem, PrincipalComponents
from innerloop.problems.tabular_mdps import TabularMDPs

QUICK: dict[str, Any] = {"prompts": 24, "steps": 4}


def test_a_tie_goes_to_what_the_file_declares() -> None:
    """EM with equal weights is soft k-means: nothing that is measured tells them apart."""
    construction = EMConstruction(d=2, n=8, clusters=2, steps=2)
    model = ConstructionModel(construction, construction.transformer)
    found = identify(model, algorithms=["em", "lloyd", "soft-k-means"], **QUICK)
    assert found.verdict == "em", str(found)
    assert all(layer.also_fits == ["soft-k-means"] for layer in found.layers)
    # Without a word of its own, or with one that its answers belie, the fewest numbers decide.
    for declared in (None, "lloyd"):
        other = replace(found, declared=declared).without()
        assert other.verdict == "soft-k-means"
        assert all(layer.also_fits == ["em"] for layer in other.layers)


def test_a_special_case_goes_before_what_the_file_declares() -> None:
    construction = build_descent(2, 8, 2)
    model = ConstructionModel(construction, construction.transformer)
    assert model.get_declared_algorithm() == "preconditioned-gradient-descent"
    names = ["gradient-descent", "preconditioned-gradient-descent"]
    found = identify(model, algorithms=names, **QUICK)
    assert found.verdict == "gradient-descent"


CLOUDS = BinaryMixture(d=2, n=10, separation=3.0)


def split_cloud(x: Tensor) -> Tensor:
    """Label points by the side of their mean on which they lie; the sign is LAPACK's choice."""
    centred = x - x.mean(dim=1, keepdim=True)
    direction = torch.linalg.svd(centred, full_matrices=False).Vh[:, :1]
    return (centred @ direction.mT).squeeze(-1).sign()


def test_labels_of_two_clouds_are_compared_up_to_sign() -> None:
    found = identify(split_cloud, CLOUDS, **QUICK)
    (layer,) = found.layers
    assert (layer.algorithm, layer.fit) == ("spectral-clustering", "match"), str(found)

    def flip_some(x: Tensor) -> Tensor:
        return split_cloud(x) * x[:, :1, 0].sign()

    flipped = identify(flip_some, CLOUDS, **QUICK)
    torch.testing.assert_close(flipped.score_table.scores, found.score_table.scores)
    said, truth = split_cloud(found.problem.x).numpy(), found.problem.labels.numpy()
    shares = [min(np.mean(a != b), np.mean(a == b)) for a, b in zip(said, truth, strict=True)]
    assert found.errors == pytest.approx([np.mean(shares)])
    with pytest.raises(InputError, match=r"labels of two clouds, \(24, 10\); got \(24, 3\)"):
        identify(lambda x: x[:, :3, 0], CLOUDS, **QUICK)


def test_a_model_that_sees_the_start_has_its_own_sign() -> None:
    def against_the_start(x: Tensor, start: Tensor) -> Tensor:
        centred = x - x.mean(dim=1, keepdim=True)
        side = (centred @ start.mT).squeeze(-1)
        towards = (split_cloud(x) * side).sum(dim=-1, keepdim=True).sign()
        return -towards * split_cloud(x)

    found = identify(against_the_start, CLOUDS, **QUICK)
    assert found.algorithm is None


def test_the_figure_has_the_errors_of_candidates_that_cluster() -> None:
    model, problems = Steps(Lloyd(), 2), GaussianMixture(d=2, n=9, clusters=3, separation=2.0)
    found = identify(model, problems, algorithms=["lloyd", "em"], **QUICK)
    rows = collect_figure_rows(found, model, 3)["errors"]
    drawn = {row["at"]: row["error"] for row in rows if row["series"] == "lloyd"}
    problem = found.problem
    for k, state in enumerate(Lloyd().states(problem, 3)):
        labels = Lloyd().predict(problem, state).argmax(dim=-1).numpy()
        wrong = [
            min(np.mean(np.array(order)[said] != true) for order in permutations(range(3)))
            for said, true in zip(labels, problem.labels.numpy().astype(int), strict=True)
        ]
        assert drawn[k] == pytest.approx(np.mean(wrong))
    assert {row["series"] for row in rows} == {"the model", "lloyd", "em"}


@dataclass(frozen=True, kw_only=True, eq=False)
class EqualPairs(PrincipalComponents):
    """Data whose two largest eigenvalues are the same, in every data set."""

    def sample(self, *batch: int, **rest: Any) -> PCAProblem:
        problem = super().sample(*batch, **rest)
        basis = torch.linalg.qr(problem.x.mT).Q
        return PCAProblem((basis * torch.tensor([2.0, 2.0, 1.0]).to(basis)).mT, problem.start)


class Turned(Steps):
    """Subspace iteration that gives another basis of the same plane."""

    def predict(self, problem: Any) -> Tensor:
        turn = torch.tensor([[cos(0.7), -sin(0.7)], [sin(0.7), cos(0.7)]], dtype=torch.float64)
        return turn @ super().predict(problem)


def test_directions_inside_an_eigenspace_are_said_to_be_indistinguishable() -> None:
    plain, turned = (kind(SubspaceIteration(), 2) for kind in (Steps, Turned))
    names = ["oja", "subspace-iteration"]

    def ask(model: Steps, problems: PrincipalComponents) -> Any:
        return identify(model, problems, algorithms=names, **QUICK)

    equal = EqualPairs(d=3, n=3, components=2)
    first, second = ask(plain, equal), ask(turned, equal)
    for found in (first, second):
        assert found.algorithm == "subspace-iteration", str(found)
        assert any("cannot be told apart" in note for note in found.notes)
        assert "cannot be told apart" in " ".join(str(found).split())
        assert found.errors == [None, None]
    torch.testing.assert_close(first.score_table.scores, second.score_table.scores)
    apart = ask(turned, PrincipalComponents(d=3, n=8, components=2))
    assert apart.algorithm is None
    assert not any("cannot be told apart" in note for note in apart.notes)


PROCESSES = TabularMDPs(states=2, arms=2, horizon=2)


def test_a_policy_for_decision_processes_is_found_with_its_numbers() -> None:
    policy = UCBVIPolicy(bonus=0.07, temperature=0.3)
    found = identify(policy, PROCESSES, algorithms=["ucb-vi", "uniform"], **QUICK)
    (layer,) = found.layers
    assert (layer.algorithm, layer.fit) == ("ucb-vi", "match"), str(found)
    assert found.hyperparameters["bonus"] == pytest.approx([0.07], rel=1e-3)
    assert found.hyperparameters["temperature"] == pytest.approx([0.3], rel=1e-3)


def test_a_function_of_states_is_a_policy_for_decision_processes() -> None:
    def repeat_state(history: History) -> Tensor:
        """Play the action that has the state's number, mostly."""
        assert history.states is not None
        assert history.horizon == 2
        return 0.1 + torch.nn.functional.one_hot(history.states[:, -1], 2).double()

    found = identify(repeat_state, PROCESSES, algorithms=["ucb-vi", "uniform"], **QUICK)
    assert found.algorithm is None
    assert found.layers[0].fit == "none"


POLICY = '''
from dataclasses import dataclass
from innerloop.policies.empirical_average import EmpiricalAveragePolicy


@dataclass(frozen=True, kw_only=True, eq=False)
class Mine(EmpiricalAveragePolicy):
    """ε-greedy with an ε of its own."""

    epsilon: float = 0.23


@dataclass(frozen=True, kw_only=True, eq=False)
class Unset(EmpiricalAveragePolicy):
    size: int
'''


def test_a_policy_in_a_file_is_a_model_and_a_candidate(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(POLICY)
    words = ["--problem", "bernoulli-bandits", "-s", "arms=3", "--prompts", "16"]
    rivals = ["--candidate", "empirical-average", "--candidate", "uniform"]
    for name, given in (("empirical-average", rivals), ("Mine", ["--candidate", f"{path}:Mine"])):
        seen = run("identify", f"{path}:Mine", *words, *given, "--json")
        assert seen.code == 0, seen.err
        told = json.loads(seen.out)
        assert told["algorithm"].rpartition(":")[2] == name
        assert told["hyperparameters"]["epsilon"] == pytest.approx([0.23])
    unset = run("identify", f"{path}:Unset", *words)
    assert unset.code == 2
    assert "no value for size: give a default, or name an object" in " ".join(unset.err.split())
