"""Settings in a batch give the same predictions as alone, and correct derivatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from innerloop.algorithms.fista import FISTA
from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.algorithms.heavy_ball import HeavyBall
from innerloop.algorithms.lms import LMS
from innerloop.algorithms.ridge import Ridge
from innerloop.errors import InputError
from innerloop.identification import replicas
from innerloop.identification.fitting import FitTarget, fit_numbers
from innerloop.identification.hyper import (
    differentiate_predictions,
    pack_parameters,
    predict_at_steps,
    unpack_parameters,
)
from innerloop.identification.replicas import (
    difference_together,
    fits_in_one_run,
    predict_together,
)
from innerloop.problems.linear_regression import LinearRegression

PROBLEM = LinearRegression(d=3, n=5, noise=0.3).sample(
    4, generator=torch.Generator().manual_seed(0)
)


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


ALGORITHMS: dict[str, Any] = {
    "one number, and a solution": Ridge(number(0.4)),
    "a number for all steps": FISTA(number(0.3)),
    "two numbers of a step": HeavyBall(number(0.2)[None], number(0.5)[None]),
    "a field that is not free": LMS(number(0.05), takes_passes=False),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_settings_that_share_a_run_predict_as_they_do_alone(name: str) -> None:
    algorithm = ALGORITHMS[name]
    theta, steps = pack_parameters(algorithm), [0] if isinstance(algorithm, Ridge) else [3, 1]
    some = [unpack_parameters(algorithm, scale * theta) for scale in (1.0, 0.5, 1.3)]
    alone = torch.stack([predict_at_steps(each, PROBLEM, steps) for each in some])
    torch.testing.assert_close(predict_together(some, PROBLEM, steps), alone)
    target = FitTarget(PROBLEM, alone[0], torch.ones(len(steps), dtype=torch.float64))
    tables = target.tabulate_guesses(some, max(steps))
    for each, table in zip(some, tables, strict=True):
        torch.testing.assert_close(table, target.tabulate_costs(each, max(steps)))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_differences_of_one_run_are_the_derivatives(name: str) -> None:
    algorithm, steps = ALGORITHMS[name], [1, 3]
    values, slopes = difference_together(algorithm, PROBLEM, steps)
    expected, exact = differentiate_predictions(algorithm, PROBLEM, steps)
    torch.testing.assert_close(values, expected)
    torch.testing.assert_close(slopes, exact, rtol=1e-6, atol=1e-8)


@dataclass(frozen=True, eq=False)
class Careful(GradientDescent):
    """Refuses step sizes that are negative, and to run with those above 1."""

    def __post_init__(self) -> None:
        if float(self.step_sizes.detach().min()) < 0:
            raise InputError("negative")

    def init(self, problem: Any) -> Any:
        if float(self.step_sizes.detach().max()) > 1:
            raise InputError("too large")
        return super().init(problem)


def test_a_setting_that_is_refused_does_not_stop_the_others() -> None:
    truth = predict_at_steps(Careful(number(0.7)[None]), PROBLEM, [1])
    target = FitTarget(PROBLEM, truth, torch.ones(1, dtype=torch.float64))
    right, large = target.tabulate_guesses([Careful(number(x)[None]) for x in (0.7, 2.0)], 1)
    assert float(right[0, 1]) == pytest.approx(0, abs=1e-20)
    assert bool(large.isinf().all())
    tiny = Careful(number(1e-12)[None])  # whose neighbour for a difference is below 0
    fitted = fit_numbers(tiny, target, [0], [1])
    torch.testing.assert_close(pack_parameters(fitted), number(0.7)[None])


def test_a_run_has_limited_size(monkeypatch: pytest.MonkeyPatch) -> None:
    ridge = ALGORITHMS["one number, and a solution"]
    monkeypatch.setattr(replicas, "MAX_INSTANCES", 12)
    assert fits_in_one_run(ridge, PROBLEM, 3)
    assert not fits_in_one_run(ridge, PROBLEM, 4)
