"""Verdicts on functions whose algorithm and numbers are known: names, steps, and what is printed.

Every model is a few lines of torch that share no code with the candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from innerloop.algorithms.kaczmarz import Kaczmarz
from innerloop.identification.conclusion import Identification
from innerloop.identification.identification import identify
from innerloop.identification.models import Model
from innerloop.identification.tables import build_lines
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem

PROBLEMS = LinearRegression(d=4, n=16, kappa=8.0, noise=0.3)
CONVERGING = ["conjugate-gradients", "least-squares", "newton", "ridge"]
Function = Callable[[Tensor, Tensor, Tensor], Tensor]


def compute_gradient(X: Tensor, y: Tensor, w: Tensor) -> Tensor:
    residual = torch.einsum("bnd,bd->bn", X, w) - y
    return torch.einsum("bnd,bn->bd", X, residual) / X.shape[1]


def descend(sizes: Sequence[float]) -> Function:
    """Make gradient descent from 0 with these step sizes."""

    def predict(X: Tensor, y: Tensor, x_query: Tensor) -> Tensor:
        w = torch.zeros_like(x_query)
        for size in sizes:
            w = w - size * compute_gradient(X, y, w)
        return (w * x_query).sum(-1)

    return predict


def solve_least_squares(X: Tensor, y: Tensor, x_query: Tensor) -> Tensor:
    return (torch.linalg.lstsq(X, y[..., None]).solution[..., 0] * x_query).sum(-1)


def use_every_other_example(X: Tensor, y: Tensor, x_query: Tensor) -> Tensor:
    return descend([0.3] * 4)(X[:, ::2], y[:, ::2], x_query)


def run(model: Any, *names: str, problems: LinearRegression = PROBLEMS, **rest: Any) -> Any:
    return identify(model, problems, algorithms=list(names) or None, **rest)


def list_words(result: Identification) -> list[Any]:
    """Return what a verdict says in words, and the candidates in their order."""
    layers = [(layer.describe(), layer.also_fits, layer.runner_up) for layer in result.layers]
    return [result.verdict, layers, [match.candidate.label for match in result.matches]]


@pytest.mark.parametrize("model", [solve_least_squares, descend([0.3] * 3)])
def test_the_order_of_candidates_changes_nothing(model: Function) -> None:
    names = [
        *("conjugate-gradients", "gradient-descent", "heavy-ball", "least-squares", "newton"),
        *("ridge", "weighted-gradient-descent"),
    ]
    first = run(model, *names, prompts=64)
    shuffled = run(model, *names[3:], *reversed(names[:3]), prompts=64)
    assert list_words(first) == list_words(shuffled)
    # Rounding depends on where tensors lie in memory, in the last bits.
    scores = [result.score_table.scores for result in (first, shuffled)]
    torch.testing.assert_close(*scores, rtol=1e-9, atol=1e-12)


def test_least_squares_is_named_before_iterations_that_reach_it() -> None:
    names = ["conjugate-gradients", "heavy-ball", "least-squares", "newton", "ridge"]
    result = run(solve_least_squares, *names)
    assert result.verdict == "least-squares"
    assert "conjugate-gradients" in result.layers[0].also_fits


def test_an_exact_fit_beats_a_simpler_one_that_only_comes_near() -> None:
    """Two equal steps are within 2e-4 of these three, and three unequal ones are exact."""
    result = run(descend([0.5, 0.1, 0.3]), "gradient-descent", "heavy-ball")
    assert result.verdict == "gradient-descent (per step)"
    sizes = result.hyperparameters["step_sizes"]
    assert sorted(sizes) == pytest.approx([0.1, 0.3, 0.5], rel=1e-4)
    assert result.layers[0].score > 1 - 1e-10
    assert "gradient-descent" not in result.layers[0].also_fits


def accelerate(X: Tensor, y: Tensor, x_query: Tensor) -> Tensor:
    """Predict with six steps of Nesterov's method, whose momentum grows with the step."""
    w = torch.zeros_like(x_query)
    ahead = w
    for t in range(6):
        new = ahead - 0.2 * compute_gradient(X, y, ahead)
        ahead, w = new + t / (t + 3) * (new - w), new
    return (w * x_query).sum(-1)


def test_a_gain_that_comes_near_does_not_tie_with_an_exact_fit() -> None:
    """Heavy ball times a gain misses by 5e-9, with three numbers in place of six."""
    result = run(accelerate, "gradient-descent", "heavy-ball", "nesterov")
    (layer,) = result.layers
    assert (result.verdict, layer.step) == ("gradient-descent (per step)", 6)
    assert not any(label.startswith("scaled") for label in layer.also_fits)


def test_every_other_example_is_known_by_its_weights() -> None:
    result = run(use_every_other_example, "gradient-descent", "weighted-gradient-descent")
    assert (result.verdict, result.layers[0].step) == ("weighted-gradient-descent", 4)
    (weights,) = result.hyperparameters["example_weights"]
    assert weights == pytest.approx([0.6, 0.0] * 8, abs=1e-4)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("count", "size"), [(20, 0.15), (100, 0.05)])
def test_steps_and_step_size_of_gradient_descent(count: int, size: float, seed: int) -> None:
    """27 steps of 0.112 miss by 1e-5, and an exact fit exists."""
    result = run(descend([size] * count), "gradient-descent", "heavy-ball", "ridge", seed=seed)
    (layer,) = result.layers
    assert (result.verdict, layer.step, layer.fitting_steps) == ("gradient-descent", count, None)
    assert result.hyperparameters["step_sizes"] == pytest.approx([size], rel=1e-6)
    assert layer.score > 1 - 1e-10


def test_all_numbers_of_steps_that_fit_are_printed() -> None:
    def predict(X: Tensor, y: Tensor, x_query: Tensor) -> Tensor:
        wave = torch.sin(1000 * X.sum(dim=(-2, -1)))
        return descend([0.15] * 20)(X, y, x_query) + 0.003 * wave

    result = run(predict, "gradient-descent")
    (layer,) = result.layers
    assert layer.fit == "match"
    assert layer.fitting_steps is not None
    fewest, most = layer.fitting_steps
    assert fewest < 15
    assert most > 25
    assert f"({fewest} to {most} steps fit)" in str(result)


def test_layers_of_many_short_steps() -> None:
    """Three layers of ten steps each: neither one nor two steps a layer come as near."""

    def predict(X: Tensor, y: Tensor, x_query: Tensor) -> list[Tensor]:
        return [descend([0.04] * count)(X, y, x_query) for count in (10, 20, 30)]

    class Layered(Model):
        @property
        def layers(self) -> list[str]:
            return ["layer 1", "layer 2", "layer 3"]

        def predict(self, problem: Any) -> Tensor:
            x, y, query = problem.x, problem.y, problem.x_query[:, 0]
            return torch.stack(predict(x, y, query)).unsqueeze(-1)

    result = run(Layered(), "gradient-descent", "heavy-ball")
    assert [layer.step for layer in result.layers] == [10, 20, 30]
    assert result.hyperparameters["step_sizes"] == pytest.approx([0.04], rel=1e-6)


def test_a_converged_model_has_the_name_of_the_limit_for_every_seed() -> None:
    """Different seeds of the prompts must not name different iterations."""

    def predict(X: Tensor, y: Tensor, x_query: Tensor) -> Tensor:
        wave = torch.sin(1000 * X.sum(dim=(-2, -1)))
        return solve_least_squares(X, y, x_query) + 0.1 * wave

    problems = LinearRegression(d=4, n=16, kappa=8.0)
    result = [run(predict, *CONVERGING, problems=problems, seed=seed) for seed in range(3)]
    verdict = "gives the answers of least-squares, with errors of its own"
    assert {each.verdict for each in result} == {verdict}
    assert all("ridge" in each.layers[-1].also_fits for each in result)
    assert all(each.layers[0].similarity is None for each in result)


def test_a_candidate_that_is_far_is_not_printed() -> None:
    """Beside an answer of almost 0 all errors are alike, which says nothing of the model."""

    def predict(X: Tensor, y: Tensor, x_query: Tensor) -> Tensor:
        return 0.01 * torch.sin(1000 * X.sum(dim=(-2, -1)))

    result = run(predict, *CONVERGING)
    (layer,) = result.as_dict()["layers"]
    assert layer["does"] == "none fits, and none is near"
    assert not layer["alike"]
    assert "similarity" not in str(result)
    assert not any("nearest to layer" in line for line in build_lines(result.as_dict()))


def test_ridge_is_named_where_least_squares_are_far() -> None:
    def predict(X: Tensor, y: Tensor, x_query: Tensor) -> Tensor:
        gram = X.mT @ X + 1.2 * torch.eye(X.shape[-1]).to(X)
        weights = torch.linalg.solve(gram, (X.mT @ y[..., None]))[..., 0]
        wave = torch.sin(1000 * X.sum(dim=(-2, -1)))
        return (weights * x_query).sum(-1) + 0.15 * wave

    result = run(predict, *CONVERGING, problems=LinearRegression(d=4, n=8, noise=0.1))
    assert result.verdict == "gives the answers of ridge, with errors of its own"


def test_laws_that_explain_nothing_are_not_printed() -> None:
    result = run(solve_least_squares, "least-squares", "ridge", prompts=16).as_dict()

    def print_laws(r2: float, order: float) -> list[str]:
        law = {"slope": 1.0, "intercept": 0.0, "r2": r2}
        relation = {"better": "exponential", "exponential": law}
        lines = build_lines(
            {**result, "relation": relation, "order_of_convergence": {"order": order, "r2": r2}}
        )
        return [line.split()[0] for line in lines if line.startswith("  ") and "R²" in line]

    assert print_laws(0.99, 1.0) == ["steps", "order"]
    assert print_laws(0.99, 0.44) == ["steps"]
    assert print_laws(0.01, 1.0) == []


def test_a_schedule_that_restarts_has_eight_steps() -> None:
    """Two rounds of four steps: a polynomial of degree 8, which unequal steps give exactly."""
    result = run(descend([0.8, 0.4, 0.2, 0.1] * 2), "gradient-descent", "ridge")
    assert (result.verdict, result.layers[0].step) == ("gradient-descent (per step)", 8)
    assert result.layers[0].score > 1 - 1e-10


def test_an_output_gain_is_fitted() -> None:
    names = ["conjugate-gradients", "gradient-descent", "lms", "ridge"]

    def predict(X: Tensor, y: Tensor, x_query: Tensor) -> Tensor:
        return 1.3 * descend([0.3] * 8)(X, y, x_query)

    result = run(predict, *names)
    assert (result.verdict, result.layers[0].step) == ("scaled gradient-descent", 8)
    assert result.hyperparameters["gain"] == pytest.approx(1.3, rel=1e-6)
    assert result.hyperparameters["step_sizes"] == pytest.approx([0.3], rel=1e-6)
    plain = run(descend([0.3] * 8), *names)
    assert not any(match.candidate.is_scaled for match in plain.matches)


@pytest.mark.parametrize(("size", "seed"), [(0.3, 0), (0.3, 3), (0.45, 3), (0.45, 6)])
def test_gradient_descent_in_other_units_has_a_preconditioner(size: float, seed: int) -> None:
    """At 0.45 the steps are above the stable limit on few prompts, whose predictions are huge."""
    units = torch.tensor([2.0, 0.5, 1.0, 1.5], dtype=torch.float64)

    def predict(X: Tensor, y: Tensor, x_query: Tensor) -> Tensor:
        return descend([size] * 4)(X * units, y, x_query * units)

    names = ("gradient-descent", "preconditioned-gradient-descent", "ridge")
    result = run(predict, *names, seed=seed)
    assert result.verdict == "preconditioned-gradient-descent"
    assert result.layers[0].step == 4
    (matrix,) = result.hyperparameters["preconditioners"]
    expected = (size * units.square()).diag()
    torch.testing.assert_close(torch.tensor(matrix).to(expected), expected, rtol=0, atol=1e-5)


def exponentiate(X: Tensor, y: Tensor, x_query: Tensor) -> Tensor:
    """Predict with 60 steps of unnormalised exponentiated gradient, w = a − b."""
    a = torch.full_like(x_query, 0.5)
    b = a.clone()
    for _ in range(60):
        slope = compute_gradient(X, y, a - b)
        a, b = a * (-0.05 * slope).exp(), b * (0.05 * slope).exp()
    return ((a - b) * x_query).sum(-1)


def test_a_candidate_that_depends_on_the_order_of_examples_is_out() -> None:
    """Exponentiated gradient does not, and passes over the examples come near it."""
    order = ["kaczmarz", "lms"]
    result = run(exponentiate, *order, "gradient-descent", "ridge")
    names = {match.candidate.name for match in result.matches}
    assert names == {"gradient-descent", "ridge"}
    assert not any(near.candidate in order for near in result.layers[0].near)


def test_a_model_that_depends_on_the_order_of_examples_is_known() -> None:
    kaczmarz = Kaczmarz(torch.tensor(0.7, dtype=torch.float64))

    def predict(X: Tensor, y: Tensor, x_query: Tensor) -> Tensor:
        problem = RegressionProblem(X, y, x_query[:, None])
        *_, last = kaczmarz.states(problem, 2)
        return kaczmarz.predict(problem, last)[:, 0]

    result = run(predict, "gradient-descent", "kaczmarz", "lms")
    assert (result.verdict, result.layers[0].step) == ("kaczmarz", 2)
