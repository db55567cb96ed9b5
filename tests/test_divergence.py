"""Divergence is an error, not a number; a model that ignores its prompt is said to do so."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.errors import InputError
from innerloop.identification.conclusion import NONE_FITS
from innerloop.identification.drawing import collect_figure_rows, measure_layers
from innerloop.identification.identification import identify
from innerloop.identification.models import FunctionModel, Model
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.problems.mixture_of_regressions import MixtureOfRegressions

PROBLEMS = LinearRegression(d=2, n=5, noise=0.1)
SOME: dict[str, Any] = {"prompts": 16, "steps": 3, "algorithms": ["gradient-descent", "fista"]}


def scale_sum(size: float) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda X, y, q: size * q.sum(dim=-1)


@pytest.mark.parametrize("size", [1e16, 1e40, 1e100, 1e153, 1e154, 1e155, 1e200, 1e257, 1e307])
def test_divergence_is_an_error_also_where_it_is_finite(size: float) -> None:
    for problems in (PROBLEMS, MixtureOfRegressions(d=2, n=5, components=2)):
        with pytest.raises(
            InputError, match=r"after output have diverged at .* of .* prompts"
        ) as no:
            identify(scale_sum(size), problems, prompts=16)
        assert "\n" not in str(no.value)


def test_one_diverged_prompt_is_enough() -> None:
    def predict(X: Tensor, y: Tensor, q: Tensor) -> Tensor:
        answer = q.sum(dim=-1)
        answer[3] = 1e18
        return answer

    with pytest.raises(InputError, match="diverged at 1 of 24 prompts, up to 1e"):
        identify(predict, PROBLEMS, **SOME)


def test_large_data_are_no_divergence() -> None:
    @dataclass(frozen=True, kw_only=True, eq=False)
    class Scaled(LinearRegression):
        def sample(self, *batch: int, **rest: Any) -> RegressionProblem:
            p = super().sample(*batch, **rest)
            assert p.weights is not None
            return RegressionProblem(p.x, 1e20 * p.y, p.x_query, 1e20 * p.weights)

    found = identify(scale_sum(1e20), Scaled(d=2, n=5), **SOME)
    assert found.verdict == NONE_FITS
    assert found.errors[0] is not None
    assert found.errors[0] < 100


def test_labels_whose_squares_overflow_are_refused() -> None:
    problems = LinearRegression.from_values({"d": 2, "n": 5, "weights": [1e154, 1e154]})
    with pytest.raises(InputError, match="scale the labels down"):
        identify(scale_sum(1e154), problems, **SOME)


def test_a_candidate_that_diverges_has_no_finite_score() -> None:
    model = FunctionModel(scale_sum(1.0))
    fast = GradientDescent(torch.tensor([1e3], dtype=torch.float64))
    found = identify(model, PROBLEMS, prompts=16, algorithms=[fast], steps=3)
    object.__setattr__(found.matches[0], "algorithms", [fast])
    table = found.compute_tables(model, 12)["gradient-descent"]
    assert table["score"][0, -1] == -torch.inf
    assert table["squared distance"][0, -1] == torch.inf
    finite = table["squared distance"][torch.isfinite(table["squared distance"])]
    assert float(finite.max()) < 1e30


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (0.0, "answers 0"),
        (-0.0, "answers 0"),
        (1e-9, "answers 0"),
        (1e-200, "answers 0"),
        (3.0, "answers 3"),
        (-0.25, "answers -0.25"),
    ],
)
@pytest.mark.parametrize(
    "problems", [PROBLEMS, MixtureOfRegressions(d=2, n=5, components=2)], ids=["truth", "none"]
)
def test_a_model_that_ignores_its_prompt_is_no_algorithm(
    answer: float, verdict: str, problems: Any
) -> None:
    found = identify(lambda X, y, q: q.new_full((len(q),), answer), problems, **SOME)
    assert found.verdict == verdict
    assert found.algorithm is None
    (layer,) = found.layers
    assert (layer.fit, layer.algorithm, layer.step) == ("constant", None, None)
    assert layer.answers == verdict
    assert layer.also_fits == layer.indistinguishable == []
    assert json.dumps(found.as_dict(), allow_nan=False)


def test_small_answers_that_vary_are_no_constant() -> None:
    found = identify(scale_sum(1e-2), PROBLEMS, **SOME)
    assert found.layers[0].answers is None
    ones = identify(lambda X, y, q: 1 + 0.1 * q.sum(dim=-1), PROBLEMS, **SOME)
    assert ones.verdict == NONE_FITS


def test_a_problem_without_noise_or_signal_has_no_nan() -> None:
    problems = LinearRegression.from_values({"d": 2, "n": 5, "weights": [0.0, 0.0]})
    found = identify(lambda X, y, q: q.new_zeros(len(q)), problems, **SOME)
    assert found.verdict == "answers 0"
    assert found.errors == [0.0]


class Late(Model):
    """Two layers that answer 0, then two steps of gradient descent."""

    @property
    def layers(self) -> list[str]:
        return ["a", "b", "c", "d"]

    def predict(self, problem: RegressionProblem) -> Tensor:
        descent = GradientDescent(torch.tensor([0.3], dtype=torch.float64))
        steps = [descent.predict(problem, state) for state in descent.states(problem, 2)]
        return torch.stack([steps[0], steps[0], *steps[1:]])


def test_layers_that_answer_0_are_told_apart_from_those_that_run() -> None:
    model = Late()
    found = identify(model, PROBLEMS, **SOME)
    assert [layer.answers for layer in found.layers] == ["answers 0", "answers 0", None, None]
    named = [layer.algorithm for layer in found.layers]
    assert named == [None, None, "gradient-descent", "gradient-descent"]
    assert found.verdict.startswith("gradient-descent")
    assert found.verdict.endswith(" at layers 3–4 of 4")
    assert len(measure_layers(found, model)) == 4
    assert collect_figure_rows(found, model, 3)["scores"]
    assert found.without("gradient-descent").layers[0].answers == "answers 0"


def test_the_command_line_says_what_is_constant(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text("def f(X, y, q):\n    return q.sum(-1) * 0\n")
    words = ["--problem", "linear-regression", "-s", "d=2", "--prompts", "16"]
    words += ["--candidate", "fista", "-s", "n=5", "--steps", "3"]
    found = run("identify", "own.py:f", *words)
    assert found.code == 0, found.err
    assert "verdict: answers 0\n" in found.out
    assert "fista" not in found.out
    shown = json.loads(run("identify", "own.py:f", *words, "--json").out)
    assert shown["verdict"] == shown["layers"][0]["answers"] == "answers 0"
