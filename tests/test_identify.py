"""Identification, blind: what is in the weights is found, and what is not there is not."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from disguise import Disguised
from torch import Tensor

from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.algorithms.newton import Newton
from innerloop.constructions.base import Construction
from innerloop.constructions.preconditioned_gradient_descent import (
    PreconditionedGradientDescentConstruction,
)
from innerloop.errors import InputError, OutOfRangeError
from innerloop.identification.candidates import find_generalisations
from innerloop.identification.conclusion import NONE_FITS, Identification
from innerloop.identification.identification import identify
from innerloop.identification.models import ConstructionModel, FunctionModel, Model
from innerloop.problems.gaussian_mixture import GaussianMixture
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.registry import get_name, load_members
from innerloop.transformer import Transformer

CONSTRUCTIONS = load_members("constructions", Construction)
ELSEWHERE = {"format-conversion", "mixture-of-two-regressions"}
"""Not at the query: they give back the prompt, and the weights."""
QUICK: dict[str, Any] = {"prompts": 64, "steps": 6}
OTHERS = [
    *("averaging", "gd-plus-plus", "gradient-descent", "ista", "least-squares", "lista-vm"),
    *("newton", "preconditioned-gradient-descent", "ridge"),
]
"""Some of each kind; tests/test_identify_constructions.py has all candidates."""
WITHOUT_OTHERS = {"network-gradient-descent"}


def has_query(kind: type[Construction]) -> bool:
    problem = typing.get_type_hints(type(kind().distributions()[0]).sample)["return"]
    return "x_query" in problem.__dataclass_fields__


AT_A_QUERY = sorted(
    n for n, kind in CONSTRUCTIONS.items() if has_query(kind) and n not in ELSEWHERE
)

SMALL: dict[str, Any] = {"d": 3, "n": 10}
SPARSE: dict[str, Any] = {"d": 4, "n": 8, "steps": 3, "bound": 30.0}
PARAMETERS: dict[str, Callable[[Callable[..., float]], dict[str, Any]]] = {
    "preconditioned-gradient-descent": lambda at: {**SMALL, "steps": 3, "step_size": at(0.2, 0.4)},
    "looped-gradient-descent": lambda at: {**SMALL, "steps": 3, "step_size": at(0.2, 0.4)},
    "gd-plus-plus": lambda at: {
        **{**SMALL, "steps": 3, "step_size": at(0.3, 0.4)},
        "transform_size": at(0.5, 0.7),
    },
    "relu-gradient-descent": lambda at: {
        **{**SMALL, "steps": 3, "step_size": at(0.1, 0.4)},
        "bound": 40.0,
    },
    "decoder-gradient-descent": lambda at: {
        **{**SMALL, "steps": 3, "step_size": at(0.1, 0.4)},
        "bound": 40.0,
    },
    "newton": lambda at: {**SMALL, "steps": 3, "alpha": at(3e-4, 9e-4)},
    "relu-newton": lambda at: {**SMALL, "steps": 3, "alpha": at(3e-4, 9e-4)},
    "lista-vm": lambda at: {**SPARSE, "threshold": at(0.05, 0.2), "step_size": at(0.3, 0.5)},
    "lista-vm-linear": lambda at: {
        **{**SPARSE, "threshold": at(0.05, 0.2), "step_size": at(0.3, 0.5)},
        "heard_above": at(-12.0, -8.0),
    },
    "mixture-of-regressions": lambda at: {
        **{"d": 3, "n": 15, "components": 2, "steps": 3, "inner": round(at(1, 4))},
        "step_size": at(0.2, 0.4),
    },
    # The gates of a network are steep, and noise on a weight counts as often as they are.
    "network-gradient-descent": lambda at: {
        **{"d": 2, "n": 8, "width": 3, "layers": 2, "steps": 3, "slope": 100.0, "bound": 10.0},
        **{"step_size": at(0.05, 0.1), "box": at(0.8, 1.2)},
    },
}


@functools.cache
def identify_disguised(name: str) -> tuple[Construction, Identification]:
    """Disguise a construction with random parameters, and identify it."""
    generator = torch.Generator().manual_seed(AT_A_QUERY.index(name))

    def draw_between(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=generator))

    construction = CONSTRUCTIONS[name].from_values(
        PARAMETERS.get(name, lambda at: {})(draw_between)
    )
    model = Disguised.of(construction, generator)
    own = get_name(type(construction.algorithm))
    rivals = sorted({own, *OTHERS}) if own not in WITHOUT_OTHERS else None
    return construction, identify(
        model, construction.distributions()[0], algorithms=rivals, **QUICK
    )


@pytest.mark.parametrize("name", AT_A_QUERY)
def test_a_disguised_construction_is_identified(name: str) -> None:
    construction, found = identify_disguised(name)
    algorithm = get_name(type(construction.algorithm))
    assert found.algorithm == algorithm, found.verdict
    assert [layer.algorithm for layer in found.layers] == [algorithm] * construction.steps
    assert [layer.step for layer in found.layers] == list(range(1, construction.steps + 1))
    assert all(layer.fit == "match" for layer in found.layers)
    assert all(layer.low <= layer.score <= layer.high for layer in found.layers)
    assert found.verdict.split()[0] == algorithm


@pytest.mark.parametrize("name", AT_A_QUERY)
def test_what_is_not_a_candidate_is_not_taken_for_another(name: str) -> None:
    """Without the algorithm, only what contains it may match, or what did so beside it."""
    construction, found = identify_disguised(name)
    algorithm = get_name(type(construction.algorithm))
    if {match.candidate.name for match in found.matches} == {algorithm}:
        with pytest.raises(InputError, match="no candidate is left"):
            found.without(algorithm)
        return
    left = found.without(algorithm)
    for layer, full in zip(left.layers, found.layers, strict=True):
        if layer.fit == "match":
            assert (
                layer.algorithm in find_generalisations(type(construction.algorithm))
                or layer.nearest in full.also_fits
            )
        assert layer.score <= full.score + 1e-3
        assert layer.algorithm != algorithm


def test_every_construction_at_a_query_is_tried() -> None:
    assert len(AT_A_QUERY) >= 11
    assert set(PARAMETERS) <= set(AT_A_QUERY)


@pytest.mark.parametrize(
    ("kind", "names"),
    [("linear", None), ("softmax", ["averaging", "nearest-neighbours", "newton", "ridge"])],
)
def test_random_weights_fit_nothing(kind: Any, names: list[str] | None) -> None:
    construction = PreconditionedGradientDescentConstruction(d=3, n=10, steps=2)
    generator = torch.Generator().manual_seed(5)
    free = Transformer.with_random_weights(
        construction.layout, layers=2, heads=2, hidden=8, kind=kind, generator=generator
    )
    model = ConstructionModel(construction, free.requires_grad_(False))
    found = identify(model, algorithms=names, **QUICK)
    assert found.verdict == NONE_FITS
    assert all(layer.algorithm is None and layer.step is None for layer in found.layers)
    assert all(layer.nearest and layer.score < 0.9 for layer in found.layers)


@dataclass(frozen=True, eq=False)
class Layered(Model):
    """A model that does what a function says, layer by layer."""

    function: Callable[[RegressionProblem], Tensor]
    count: int

    @property
    def layers(self) -> list[str]:
        return [f"layer {k}" for k in range(1, self.count + 1)]

    def predict(self, problem: RegressionProblem) -> Tensor:
        return self.function(problem)


def make_layered(algorithm: Any, steps: list[int]) -> Layered:
    def predict_layers(problem: RegressionProblem) -> Tensor:
        states = list(algorithm.states(problem, max(steps)))
        return torch.stack([algorithm.predict(problem, states[k]) for k in steps])

    return Layered(predict_layers, len(steps))


NEWTON = Newton(torch.tensor(5e-4, dtype=torch.float64))
PROBLEMS = LinearRegression(d=3, n=12, noise=0.1)


def test_several_steps_in_a_layer() -> None:
    """As the trained transformers of Fu et al., which do about three of Newton's in each."""
    names = ["newton", "gradient-descent", "ridge"]
    found = identify(make_layered(NEWTON, [2, 4, 6, 8]), PROBLEMS, algorithms=names, prompts=128)
    assert found.algorithm == "newton"
    assert [layer.step for layer in found.layers] == [2, 4, 6, 8]
    assert found.relation is not None
    assert found.relation["better"] == "linear"
    assert found.relation["linear"]["slope"] == pytest.approx(2.0)
    assert found.hyperparameters["alpha"] == pytest.approx(5e-4, rel=1e-4)


def test_algorithms_that_agree_are_not_ranked() -> None:
    """Newton's iteration at convergence is least squares; there, neither is called the better."""
    names = ["newton", "least-squares"]
    found = identify(make_layered(NEWTON, [3, 6, 14]), PROBLEMS, algorithms=names, prompts=128)
    early, _, late = found.layers
    assert early.also_fits == []
    assert early.runner_up == "least-squares"
    assert late.algorithm == "newton"
    assert late.also_fits == late.indistinguishable == ["least-squares"]
    assert late.runner_up is None


def test_the_smallest_family_is_named_and_larger_ones_also_fit() -> None:
    descent = GradientDescent(torch.tensor([0.3], dtype=torch.float64))
    names = ["gradient-descent", "preconditioned-gradient-descent"]
    found = identify(make_layered(descent, [1, 2, 3]), PROBLEMS, algorithms=names, prompts=128)
    assert (found.algorithm, found.schedule) == ("gradient-descent", "one for all")
    larger_ones = {
        "gradient-descent (per step)",
        "preconditioned-gradient-descent",
        "preconditioned-gradient-descent (per step)",
    }
    for layer in found.layers:
        assert set(layer.also_fits) == larger_ones
        assert layer.indistinguishable == []


@dataclass(frozen=True, kw_only=True, eq=False)
class Scaled(LinearRegression):
    """The same problems with labels and truth a thousand times as large."""

    def sample(self, *batch: int, **rest: Any) -> RegressionProblem:
        p = super().sample(*batch, **rest)
        assert p.weights is not None
        return RegressionProblem(p.x, 1000 * p.y, p.x_query, 1000 * p.weights)


def predict_with_kink(X: Tensor, y: Tensor, query: Tensor) -> Tensor:
    """Ridge regression with a kink of its own: close to ridge, and no match. Scales with y."""
    gram = X.mT @ X + 2 * torch.eye(X.shape[-1], dtype=X.dtype)
    weights = torch.linalg.solve(gram, (X.mT @ y.unsqueeze(-1)).squeeze(-1))
    plain = (weights * query).sum(dim=-1)
    return plain + 0.05 * plain.abs()


RIVALS = ["gradient-descent", "least-squares", "ridge"]


def test_scores_do_not_change_with_the_scale() -> None:
    one = identify(predict_with_kink, PROBLEMS, algorithms=RIVALS, prompts=64, steps=6)
    scaled = Scaled(d=3, n=12, noise=0.1)
    other = identify(predict_with_kink, scaled, algorithms=RIVALS, prompts=64, steps=6)
    torch.testing.assert_close(
        one.score_table.scores, other.score_table.scores, rtol=1e-5, atol=1e-7
    )
    assert one.verdict == other.verdict


def test_scores_do_not_change_with_the_number_of_prompts() -> None:
    few, many = (
        identify(predict_with_kink, PROBLEMS, algorithms=["ridge"], prompts=prompts).layers[0]
        for prompts in (64, 1024)
    )
    assert few.low <= many.score <= few.high
    assert few.high - few.low > many.high - many.low
    assert (many.nearest, many.fit) == ("ridge", "answers")


def test_fitting_and_scoring_see_different_prompts() -> None:
    seen: list[Tensor] = []

    def spy(X: Tensor, y: Tensor, query: Tensor) -> Tensor:
        seen.append(X)
        return y.mean(dim=-1)

    identify(spy, PROBLEMS, algorithms=["ridge"], prompts=64)
    fitting, scoring = seen[:2]  # similarities are measured on prompts that score
    assert not torch.isin(fitting, scoring).any()


def test_bad_models_and_problems_get_clear_errors() -> None:
    def assert_refused(model: Any, message: str, distribution: Any = PROBLEMS, **rest: Any) -> None:
        with pytest.raises(InputError, match=message):
            identify(model, distribution, **{"prompts": 16, **rest})

    assert_refused(
        lambda X, y, q: torch.full((len(X),), torch.nan), "NaN or infinite at 54 of 54 prompts"
    )
    assert_refused(lambda X, y, q: X, r"shape \(54,\) or \(54, outputs\); got \(54, 12, 3\)")
    assert_refused(3, "expected a Model")
    assert_refused(predict_with_kink, "pass a distribution", None)
    assert_refused(predict_with_kink, "expected a function of X;", GaussianMixture(d=2, n=9))
    assert_refused(predict_with_kink, "did you mean 'newton'", algorithms=["newtn"])
    assert_refused(
        predict_with_kink, "no candidate among em solves a RegressionProblem", algorithms=["em"]
    )
    assert_refused(predict_with_kink, "prompts must be at least 2", prompts=1)
    assert_refused(Layered(lambda p: torch.zeros(2, len(p.x), 1), 3), r"= \(3, 54, …\)")
    built = CONSTRUCTIONS["relu-gradient-descent"].from_values({"d": 3, "n": 10, "steps": 1})
    with pytest.raises(OutOfRangeError, match="built for n=10, got n=12"):
        identify(ConstructionModel(built, built.transformer), PROBLEMS)


def test_a_function_may_speak_numpy() -> None:
    def average(X: Tensor, y: Tensor, query: Tensor) -> Any:
        return ((X * y[..., None]).mean(dim=1) * query).sum(dim=-1).numpy()

    found = identify(FunctionModel(average), PROBLEMS, algorithms=["averaging", "ridge"])
    assert found.verdict == "averaging"
    assert found.layers[0].step is None
