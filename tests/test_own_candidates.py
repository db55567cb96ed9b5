"""A candidate of one's own: fitted without further methods, or named with what it lacks."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from jaxtyping import Float
from test_identify import make_layered
from torch import Tensor

from innerloop.algorithms.base import Algorithm, hyperparameter
from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.algorithms.heavy_ball import HeavyBall
from innerloop.algorithms.regression import LinearModel, Weights, gradient, linear_prediction
from innerloop.errors import InputError
from innerloop.identification.candidates import list_candidates
from innerloop.identification.hyper import differentiate_predictions, free_numbers
from innerloop.identification.identification import identify
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.registry import SkippedMember

PROBLEMS = LinearRegression(d=3, n=9, noise=0.1)
TRUTH = HeavyBall(*torch.tensor([[0.23], [0.41]], dtype=torch.float64))
QUICK: dict[str, Any] = {"prompts": 48, "steps": 8}


@dataclass(frozen=True, eq=False)
class Plain(Algorithm[Any, Any]):
    """A heavy ball as one would write it: numbers with defaults, and no other method."""

    source: ClassVar[str] = "none"
    problem_type: ClassVar = RegressionProblem
    eta: float = field(default=0.1, metadata=hyperparameter())
    beta: float = field(default=0.2, metadata=hyperparameter())

    def init(self, problem: Any) -> Any:
        w = torch.zeros(len(problem.x), problem.d, dtype=problem.x.dtype)
        return w, w

    def step(self, problem: Any, state: Any, k: int) -> Any:
        w, before = state
        return w - self.eta * gradient(problem, w) + self.beta * (w - before), w

    def predict(self, problem: Any, state: Any) -> Tensor:
        return linear_prediction(problem, state[0])


@dataclass(frozen=True, eq=False)
class Unfinished(LinearModel):
    """Has a field without a default, and no guesses."""

    source: ClassVar[str] = "none"
    size: Float[Tensor, "*batch"] = field(metadata=hyperparameter())

    def step(self, problem: RegressionProblem, state: Weights, k: int) -> Weights:
        return state - self.size * gradient(problem, state)


@dataclass(frozen=True, eq=False)
class Wide(Plain):
    """Predicts more numbers than the model does."""

    def predict(self, problem: Any, state: Any) -> Tensor:
        return torch.zeros(len(problem.x), 7, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class Failing(Plain):
    """Raises."""

    def step(self, problem: Any, state: Any, k: int) -> Any:
        raise KeyError("no such thing")


def test_numbers_with_defaults_are_fitted_without_further_methods() -> None:
    model = make_layered(TRUTH, [1, 2, 3, 4])
    found = identify(model, PROBLEMS, algorithms=[Plain, "gradient-descent"], **QUICK)
    assert found.algorithm == "test_own_candidates:Plain"
    assert found.hyperparameters["eta"] == pytest.approx(0.23, abs=1e-6)
    assert found.hyperparameters["beta"] == pytest.approx(0.41, abs=1e-6)
    assert [layer.step for layer in found.layers] == [1, 2, 3, 4]


def test_an_object_and_a_file_are_candidates(tmp_path: Path) -> None:
    source = Path(__file__).read_text().partition("@dataclass(frozen=True, eq=False)\nclass Unf")[0]
    (tmp_path / "mine.py").write_text(
        source.replace("from test_identify import make_layered\n", "")
    )
    model = make_layered(TRUTH, [1, 2, 3])
    for given in (Plain(eta=0.3, beta=0.3), f"{tmp_path}/mine.py:Plain"):
        found = identify(model, PROBLEMS, algorithms=[given], **QUICK)
        assert found.hyperparameters["beta"] == pytest.approx(0.41, abs=1e-6)


def test_differences_are_the_derivatives() -> None:
    """Also where as many prompts as features would multiply without an error."""
    problem = PROBLEMS.sample(3, generator=torch.Generator().manual_seed(0))
    values, slopes = differentiate_predictions(free_numbers(Plain(0.23, 0.41)), problem, [2, 3])
    expected, exact = differentiate_predictions(TRUTH, problem, [2, 3])
    torch.testing.assert_close(values, expected)
    torch.testing.assert_close(slopes, exact, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("kind", "lack"),
    [
        (Unfinished, "Unfinished lacks guesses to fit from: give size a default, or write guesses"),
        (Wide, r"Wide predicts shape \(54, 7\) for 54 prompts, the model \(54, 1\)"),
        (Failing, "Failing fails: .*KeyError"),
        ("em", "em solves a ClusteringProblem"),
    ],
)
def test_a_candidate_that_lacks_something_does_not_stop_the_others(kind: Any, lack: str) -> None:
    model = make_layered(GradientDescent(torch.tensor([0.3], dtype=torch.float64)), [1, 2])
    quick = {**QUICK, "prompts": 16}
    with pytest.warns(SkippedMember, match=lack):
        found = identify(model, PROBLEMS, algorithms=[kind, "gradient-descent"], **quick)
    assert found.verdict == "gradient-descent"
    with pytest.raises(InputError, match=f"there is nothing to compare with .*{lack}"):
        identify(model, PROBLEMS, algorithms=[kind], **quick)


def test_nothing_is_said_of_registered_algorithms_for_other_problems() -> None:
    problem = PROBLEMS.sample(4, generator=torch.Generator().manual_seed(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        names = {c.name for c in list_candidates(problem, problem.targets)}
    assert "heavy-ball" in names
    assert "em" not in names
