"""The tests for members of one's own: ours pass them, and members with one defect do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.base import Algorithm, hyperparameter
from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.claims.base import claim
from innerloop.claims.evidence import Check, Evidence, Part
from innerloop.constructions.base import Construction, Cost
from innerloop.constructions.newton import NewtonConstruction
from innerloop.policies.base import Policy
from innerloop.policies.uniform import UniformPolicy
from innerloop.problems.base import Distribution
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.recipes.linear_regression import LinearRegressionRecipe
from innerloop.registry import load_members
from innerloop.testing import (
    check_algorithm,
    check_claim,
    check_construction,
    check_policy,
    check_problem,
    check_recipe,
)
from innerloop.transformer import Block

ALGORITHMS = load_members("algorithms", Algorithm)
CONSTRUCTIONS: dict[str, Any] = load_members("constructions", Construction)


@pytest.mark.parametrize("name", load_members("problems", Distribution))
def test_our_problems(name: str) -> None:
    check_problem(load_members("problems", Distribution)[name])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_our_algorithms(name: str) -> None:
    """Those without guesses have their numbers from a construction that runs them."""
    for kind in CONSTRUCTIONS.values():
        construction = kind()
        if type(construction.algorithm) is ALGORITHMS[name]:
            return check_algorithm(construction.algorithm, construction.distributions()[0])
    return check_algorithm(ALGORITHMS[name])


@pytest.mark.parametrize("name", load_members("policies", Policy))
def test_our_policies(name: str) -> None:
    check_policy(load_members("policies", Policy)[name])


def refuses(check: Callable[[Any], None], member: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check(member)


class Rounded(LinearRegression):
    """Regression drawn in the precision that is asked for."""

    def sample(self, *batch: int, generator: Any = None, dtype: Any = torch.float64) -> Any:
        seed = 0 if dtype == torch.float64 else 1
        return super().sample(*batch, generator=torch.Generator().manual_seed(seed), dtype=dtype)


class Fixed(LinearRegression):
    """Regression that is always the same."""

    def sample(self, *batch: int, generator: Any = None, dtype: Any = torch.float64) -> Any:
        return super().sample(*batch, generator=torch.Generator().manual_seed(0), dtype=dtype)


class Unbatched(LinearRegression):
    """Regression that forgets a batch dimension."""

    def sample(self, *batch: int, generator: Any = None, dtype: Any = torch.float64) -> Any:
        return super().sample(*batch[:1], generator=generator, dtype=dtype)


def test_defects_of_problems_are_found() -> None:
    refuses(check_problem, Rounded, "float32 must be the same numbers")
    refuses(check_problem, Fixed, "ignores its generator")
    refuses(check_problem, Unbatched, "has the batch dimensions")


@dataclass(frozen=True, eq=False)
class Steps(GradientDescent):
    """Gradient descent to spoil."""


class InPlace(Steps):
    """Changes its state in place."""

    def step(self, problem: RegressionProblem, state: Tensor, k: int) -> Tensor:
        return state.copy_(super().step(problem, state, k))


class Mixing(Steps):
    """Uses the mean of the batch."""

    def predict(self, problem: RegressionProblem, state: Tensor) -> Tensor:
        found = super().predict(problem, state)
        return found - found.mean() if found.ndim > 1 else found


class Double(Steps):
    """Answers in float64, whatever came."""

    def predict(self, problem: RegressionProblem, state: Tensor) -> Tensor:
        return super().predict(problem, state).double()


@dataclass(frozen=True, eq=False)
class Detached(Steps):
    """Declares a number as free that its answers do not depend on."""

    unused: Float[Tensor, "*batch"] = field(
        default_factory=lambda: torch.ones(()), metadata=hyperparameter()
    )


class Unknown(Steps):
    """Is a special case of nothing that there is."""

    special_case_of: ClassVar[tuple[str, ...]] = ("steepest-descent",)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (InPlace, "changed in place"),
        (Mixing, "mixes the instances"),
        (Double, "returns predictions for a float32 problem in torch.float64"),
        (Detached, "unused of Detached is declared as free"),
        (Unknown, "special_case_of names no algorithm"),
    ],
)
def test_defects_of_algorithms_are_found(kind: type[Steps], message: str) -> None:
    guess = GradientDescent.guesses(LinearRegression().sample(3))[0]
    made = kind(guess.step_sizes)
    check_algorithm(Steps(guess.step_sizes))
    refuses(check_algorithm, made, message)


class Careless(UniformPolicy):
    """Probabilities of the first environment for all."""

    def probabilities(self, state: Any, observation: Any, noise: Tensor) -> Tensor:
        found = super().probabilities(state, observation, noise)
        tilted = found * torch.arange(1, found.shape[-1] + 1)
        tilted = tilted / tilted.sum(dim=-1, keepdim=True)
        return tilted if found.ndim > 1 else found


def test_defects_of_policies_are_found() -> None:
    refuses(check_policy, Careless, "mixes the environments")


class WrongCost(NewtonConstruction):
    """Newton's iteration that says it needs a layer less."""

    cost: ClassVar[Cost] = NewtonConstruction.cost._replace(layers="k + 1")


class WrongStep(NewtonConstruction):
    """Newton's iteration with the blocks of a step twice."""

    def body(self, k: int) -> list[Block]:
        return [*super().body(k), *super().body(k)]


def test_defects_of_constructions_are_found() -> None:
    refuses(check_construction, WrongStep, "breaks its law")
    refuses(check_construction, WrongCost, r"declares k \+ 1 = \d+ layers, has")
    refuses(check_construction, WrongStep(d=2, steps=2), "in step 1, register")
    check_construction(NewtonConstruction(d=2, steps=2))


class Idle(LinearRegressionRecipe):
    """A recipe whose steps do nothing."""

    def adjust_gradients(self, model: Any, step: int) -> None:
        for weight in model.parameters():
            weight.grad.zero_()


class Unseeded(LinearRegressionRecipe):
    """A recipe that draws its model from nowhere."""

    def build_model(self, generator: torch.Generator) -> Any:
        return super().build_model(torch.Generator().manual_seed(torch.seed() % 1000))


def test_defects_of_recipes_are_found() -> None:
    refuses(check_recipe, Idle, "change no weight")
    refuses(check_recipe, Unseeded, "must have the same weights as an uninterrupted run")


def declare_claim(**changes: Any) -> Any:
    """A claim that passes: squares are not negative."""

    def measure(generator: torch.Generator, *, trials: int) -> Tensor:
        return torch.randn(trials, generator=generator) ** 2

    def judge(values: Tensor) -> Evidence:
        least = float(values.min())
        check = Check(
            statement="x² ≥ 0",
            passed=least >= 0,
            summary=f"{len(values)} cases, least {least:.3g}",
            counterexample="" if least >= 0 else f"{least}",
        )
        return Evidence(parts=[Part(printed=check)])

    settings = {"trials": 5}
    words = {"id": "mine.squares", "statement": "Squares are not negative.", "where": "here"}
    forms = {"squares of another sign": lambda values: -values - 1}
    options = {"kind": "inequality", "quick": settings, "full": settings, "falsified": forms}
    return claim(**{**words, **options, "judge": judge, **changes})(measure)


def test_defects_of_claims_are_found() -> None:
    check_claim(declare_claim())
    refuses(check_claim, declare_claim(falsified={}), "cannot fail")
    refuses(check_claim, declare_claim(statement="Squares"), "a sentence")
    refuses(check_claim, declare_claim(falsified={"itself": lambda x: x}), "accepts falsified data")
    whole = declare_claim()
    at_once = replace(whole, judge=None, measure=lambda g, **s: whole.judge(whole.measure(g, **s)))
    refuses(check_claim, at_once, "cannot be tested on falsified data")
    moody = replace(whole, measure=lambda g, *, trials: torch.rand(trials))
    refuses(check_claim, moody, "the same seed must give the same numbers")
