"""The measurements of a report: error against layers, and regret over time."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
import vl_convert

from innerloop.constructions.base import Construction
from innerloop.language.construction import ProgramConstruction
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.registry import load_members
from innerloop.report.figures import plot_error_against_layers, plot_regret
from innerloop.surveys import survey


def test_every_construction_and_program_is_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Building is watched: tests of the certificates themselves build."""
    seen: list[str] = []

    def watch(kind: type[Construction[Any, Any]], seed: int) -> SimpleNamespace:
        seen.append(kind.from_values({}).name)
        return SimpleNamespace(certificate=seed)

    monkeypatch.setattr(survey, "build", watch)
    assert set(survey.build_certificates(seed=3)) == {3}
    programs = load_members("programs", ProgramConstruction)
    assert sorted(seen) == sorted([*load_members("constructions", Construction), *programs])
    assert "heavy-ball" in seen


class MeasuredConvergence(NamedTuple):
    """Rows of error against layers, and what was sampled for them: whence, and how many."""

    rows: list[dict]
    samples: list[tuple[LinearRegression, tuple[int, ...]]]


@pytest.fixture(scope="module")
def measured_convergence() -> MeasuredConvergence:
    """Measure error against layers, once, and watch what is sampled."""
    found = MeasuredConvergence([], [])

    class Spy(LinearRegression):
        def sample(self, *batch: int, **rest: Any) -> RegressionProblem:
            found.samples.append((self, batch))
            return super().sample(*batch, **rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(survey, "LinearRegression", Spy)
        found.rows.extend(row for part in survey.measure_convergence() for row in part)
    return found


@pytest.fixture(scope="module")
def convergence(measured_convergence: MeasuredConvergence) -> list[dict]:
    """The rows of error against layers."""
    return measured_convergence.rows


@pytest.fixture
def short_games(monkeypatch: pytest.MonkeyPatch) -> None:
    """Play short games in few environments."""
    shorter = {name: {**settings, "n": 6} for name, settings in survey.GAME_PARAMETERS.items()}
    monkeypatch.setattr(survey, "ENVIRONMENTS", 4)
    monkeypatch.setattr(survey, "GAME_PARAMETERS", shorter)


def test_the_curves_are_what_the_page_says_they_are(
    measured_convergence: MeasuredConvergence,
) -> None:
    convergence, samples = measured_convergence
    again = [row for part in itertools.islice(survey.measure_convergence(), 4) for row in part]
    assert {row["kappa"] for row in again} == {1.0}, "at κ = 100 one takes thousands of steps"
    assert again == convergence[: len(again)]
    assert len(samples) == 2
    for (distribution, batch), kappa in zip(samples, (1.0, 100.0), strict=True):
        assert (distribution.d, distribution.n, distribution.queries, batch) == (5, 40, 4, (64,))
        assert distribution.weights == "inverse"
        assert distribution.noise == 0
        spectrum = torch.linalg.eigvalsh(distribution.covariance)
        assert float(spectrum[-1] / spectrum[0]) == pytest.approx(kappa)
        assert float(spectrum[-1]) == pytest.approx(1.0)
    last = [row for row in convergence if row["algorithm"] == "Newton"][-1]
    assert last["layers"] == 32, "30 steps, the prologue and the epilogue"
    other = next(survey.measure_convergence(seed=1))
    assert other != convergence[: len(other)]


def test_newton_is_exponentially_faster_than_gradient_descent(convergence: list[dict]) -> None:
    """What the figure shows at κ = 100: tens of layers against thousands."""

    def layers_until(algorithm: str, error: float) -> float:
        reached = [
            row["layers"]
            for row in convergence
            if row["kappa"] == 100 and row["algorithm"] == algorithm and row["error"] <= error
        ]
        return min(reached, default=float("inf"))

    assert layers_until("Newton", 1e-10) <= 30
    assert 1000 <= layers_until("gradient descent", 1e-3) <= 4000
    assert layers_until("gradient descent", 1e-10) == float("inf")


def test_every_curve_starts_near_the_trivial_error(convergence: list[dict]) -> None:
    for kappa in (1.0, 100.0):
        curves = {row["algorithm"] for row in convergence if row["kappa"] == kappa}
        assert len(curves) == 4
        for algorithm in curves:
            first = next(
                r for r in convergence if r["kappa"] == kappa and r["algorithm"] == algorithm
            )
            assert 0.3 < first["error"] < 1.2


def test_curves_are_drawn_with_titles_and_one_legend(convergence: list[dict]) -> None:
    svg = vl_convert.vegalite_to_svg(plot_error_against_layers(convergence).to_dict())
    algorithms = {row["algorithm"] for row in convergence}
    for words in (*algorithms, "relative prediction error", ">layers<", "κ = 100"):
        assert words in svg
        assert words == ">layers<" or svg.count(f">{words}<") <= 1, "one legend is enough"


@pytest.mark.usefixtures("short_games")
def test_regret_is_drawn_for_every_construction_that_acts() -> None:
    parts = list(survey.measure_regret(seed=3))
    assert [part[0]["construction"] for part in parts] == list(survey.make_acting_constructions())
    chart = plot_regret([row for part in parts for row in part]).to_dict()
    svg = vl_convert.vegalite_to_svg(chart)
    words = ("uniform", "policy", "transformer", "mean cumulative regret (reward)", "step t")
    for word in (*words, "episode t", *survey.make_acting_constructions()):
        assert f">{word}<" in svg
    assert svg.count(">transformer<") == 1, "one legend is enough"
    assert "n 6" in survey.describe_regret()
    assert "same 4 environments" in survey.describe_regret()
