"""Measurements of the report: certificates, error against layers, and regret over time.

Each survey yields its parts one by one as they are finished, so that `measure_report`, which runs
all of them, can show progress.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from innerloop.certification.building import build
from innerloop.certification.certificate import Certificate
from innerloop.constructions.acting import ActingConstruction
from innerloop.constructions.base import Construction, iterate_streams, read_prediction
from innerloop.constructions.gd_plus_plus import GDPlusPlusConstruction
from innerloop.constructions.looped_gradient_descent import LoopedGradientDescentConstruction
from innerloop.constructions.newton import NewtonConstruction
from innerloop.constructions.preconditioned_gradient_descent import (
    PreconditionedGradientDescentConstruction,
)
from innerloop.language.construction import ProgramConstruction
from innerloop.language.diagram import draw_program
from innerloop.playing.contest import play_contest
from innerloop.problems.linear_regression import LinearRegression
from innerloop.problems.mdp import TabularMDP
from innerloop.progress import Progress, ignore_progress
from innerloop.registry import load_members
from innerloop.surveys.data import ReportData, Rows

D, N, INSTANCES = 5, 40, 64
ENVIRONMENTS = 200
"""Environments in which `measure_regret` plays."""
GAME_PARAMETERS: dict[str, dict[str, Any]] = {
    "soft-lin-ucb": {"n": 25, "steps": 110, "alpha": 0.5, "temperature": 0.1, "reward": 5.0},
    "thompson-sampling": {
        **{"n": 25, "steps": 110, "terms": 5, "temperature": 0.1},
        **{"reward": 5.0, "normal": 6.0},
    },
    "ucb-vi": {"n": 20, "temperature": 0.02},
}
"""Parameters that make games long enough for learning; other constructions use defaults."""


def measure_report(
    outcomes: list[dict[str, Any]],
    runs: list[dict[str, Any]],
    *,
    damaged: Sequence[dict[str, str]] = (),
    seed: int = 0,
    command: str = "innerloop report",
    progress: Progress = ignore_progress,
    start: float | None = None,
) -> ReportData:
    """Measure the certificates and curves of a report, and collect all of its data.

    `damaged` lists the runs that could not be read, each with its folder and the reason. `start` is
    the value of `time.perf_counter()` from which the duration of the report is counted, for example
    before the claims were checked. It is the current time by default.
    """
    start = time.perf_counter() if start is None else start
    total = len(list_constructions()) + count_convergence_curves()
    total += len(make_acting_constructions())
    done = 0

    def collect(parts: Iterator[Any]) -> Iterator[Any]:
        nonlocal done
        for part in parts:
            done += 1
            progress(done / total)
            yield part

    certificates = [part.as_dict() for part in collect(build_certificates(seed))]
    convergence = [row for part in collect(measure_convergence(seed)) for row in part]
    regret = [row for part in collect(measure_regret(seed)) for row in part]
    return ReportData(
        outcomes=outcomes,
        certificates=certificates,
        convergence=convergence,
        convergence_setting=describe_convergence(),
        regret=regret,
        regret_setting=describe_regret(),
        runs=runs,
        damaged=list(damaged),
        command=command,
        made=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        seconds=time.perf_counter() - start,
        diagrams=draw_diagrams(),
    )


def list_constructions() -> dict[str, type[Construction[Any, Any]]]:
    """List constructions by their names, then programs, which are constructions too."""
    kinds = ("constructions", "programs")
    return {
        name: member for kind in kinds for name, member in load_members(kind, Construction).items()
    }


def draw_diagrams() -> dict[str, str]:
    """Draw every construction that is a program, at its default parameters."""
    return {
        name: draw_program(kind.from_values({}))
        for name, kind in sorted(list_constructions().items())
        if issubclass(kind, ProgramConstruction)
    }


def build_certificates(seed: int = 0) -> Iterator[Certificate]:
    """Build and certify every construction and every program at its default parameters."""
    for kind in list_constructions().values():
        yield build(kind, seed=seed).certificate


def measure_convergence(seed: int = 0) -> Iterator[Rows]:
    """Measure the prediction error after each layer for each algorithm, at κ = 1 and κ = 100.

    The rows of X are N(0, Σ) with a fixed Σ, the weights are N(0, Σ⁻¹), and the labels contain no
    noise.
    Every
    number comes from a forward pass of a built transformer. The error is √(mean (ŷ − y)² / mean y²)
    over queries and instances.
    """
    for kappa in (1.0, 100.0):
        generator = torch.Generator().manual_seed(seed)
        covariance = _make_covariance(kappa, generator)
        problem = LinearRegression(
            d=D, n=N, queries=4, covariance=covariance, weights="inverse"
        ).sample(INSTANCES, generator=generator)
        power = problem.targets.square().mean()
        for algorithm, construction in _make_contenders(kappa, covariance).items():
            transformer = construction.transformer
            outside = len(transformer.prologue) + len(transformer.epilogue)
            each = (transformer.count()["layers"] - outside) // transformer.steps
            rows: Rows = []
            for k, stream in enumerate(iterate_streams(construction, transformer, problem)):
                if k and _is_worth_drawing(k):
                    prediction = read_prediction(construction, transformer, problem, stream)
                    error = ((prediction - problem.targets).square().mean() / power).sqrt()
                    row = {"kappa": kappa, "algorithm": algorithm, "layers": outside + k * each}
                    rows.append({**row, "error": float(error)})
            yield rows


def describe_convergence() -> str:
    """Describe the setting of `measure_convergence` in words."""
    return (
        f"d = {D}, n = {N}, {INSTANCES} instances of 4 queries, rows N(0, Σ), weights N(0, Σ⁻¹), "
        "no noise, spectrum of Σ geometric from 1 to 1/κ. Error is √(mean (ŷ − y)² / mean y²). "
        "All weights follow from Σ and n alone. At κ = 1 gradient descent and its preconditioned "
        "form coincide. GD++ with B = I/3 and A growing by 9/4 at every layer squares its error as "
        "Newton's iteration does, and needs fewer layers here."
    )


def measure_regret(seed: int = 0) -> Iterator[Rows]:
    """Measure mean cumulative regret of transformer, policy and uniform play, per construction.

    All three play in the same environments with the same random numbers. Every row also contains
    the number of actions on which transformer and policy agree.
    """
    for name, construction in make_acting_constructions().items():
        generator = torch.Generator().manual_seed(seed)
        environment = construction.environments().sample(ENVIRONMENTS, generator=generator)
        steps = construction.max_game_steps
        assert steps is not None, f"{name} must declare max_game_steps"
        contest = play_contest(construction, environment, steps, seed)
        about = {
            "construction": name,
            "unit": "episode" if isinstance(environment, TabularMDP) else "step",
            "same": contest.agreement_count,
            "choices": contest.action_count,
        }
        yield [{**about, **row} for row in contest.regret_rows()]


def describe_regret() -> str:
    """Describe the games of `measure_regret` in words."""
    settings = "; ".join(
        f"{name}: "
        + ", ".join(f"{key} {value:g}" for key, value in GAME_PARAMETERS.get(name, {}).items())
        for name in make_acting_constructions()
    )
    return (
        f"Each transformer, its reference policy and uniform play, in the same {ENVIRONMENTS} "
        "environments with the same luck, drawn beforehand. Regret is what the best action, or "
        "plan, would have earned more on average; bands are means ± 1.96 standard errors over "
        "environments. Linear bandits show a fresh action set at every step, with rewards' noise "
        f"σ = 0.5; decision processes are random. Parameters: {settings}."
    )


def make_acting_constructions() -> dict[str, ActingConstruction]:
    """Make the constructions that run a policy, with the parameters that `measure_regret` uses."""
    kinds = load_members("constructions", ActingConstruction)
    return {name: kind.from_values(GAME_PARAMETERS.get(name, {})) for name, kind in kinds.items()}


def count_convergence_curves() -> int:
    """Count the curves that `measure_convergence` yields."""
    return 2 * len(_make_contenders(1.0, torch.eye(D, dtype=torch.float64)))


def _make_contenders(kappa: float, covariance: torch.Tensor) -> dict[str, Construction]:
    """Make the constructions to compare, each with weights chosen from Σ and n alone."""
    # A typical λmax(XᵀX/n) for Σ ≤ I, with a margin; gradient steps tolerate up to twice this.
    top = (N**0.5 + D**0.5 + 1.0) ** 2 / N
    identity = torch.eye(D, dtype=torch.float64)
    inverse = torch.linalg.inv(covariance)
    growing = torch.stack([identity / top * 2.25**k for k in range(24)])
    return {
        "gradient descent": LoopedGradientDescentConstruction(
            d=D, n=N, steps=4000 if kappa > 1 else 100, preconditioners=identity / top
        ),
        "preconditioned by Σ⁻¹": PreconditionedGradientDescentConstruction(
            d=D, n=N, steps=100, preconditioners=inverse / top
        ),
        "GD++ (A grows by 9/4, B = I/3)": GDPlusPlusConstruction(
            d=D, n=N, steps=24, preconditioners=growing, transforms=identity / 3
        ),
        "Newton": NewtonConstruction(d=D, n=N, steps=30),
    }


def _make_covariance(kappa: float, generator: torch.Generator) -> torch.Tensor:
    rotation, _ = torch.linalg.qr(torch.randn(D, D, generator=generator, dtype=torch.float64))
    covariance = (rotation * kappa ** -torch.linspace(0, 1, D, dtype=torch.float64)) @ rotation.mT
    return (covariance + covariance.mT) / 2


def _is_worth_drawing(k: int) -> bool:
    """Return whether step k is drawn: every step up to 40, then about 40 per decade."""
    return k <= 40 or int(40 * math.log10(k)) != int(40 * math.log10(k - 1))
