"""Steps to an error ε: Newton O(log κ + log log 1/ε), gradient descent O(κ log 1/ε).

Printed    on least squares, gradient descent converges at O(κ log(1/ε)) and second-order methods
           such as Newton's at O(log κ + log log(1/ε)), exponentially faster; κ = κ(S), S = XᵀX
Tested     both on exact spectra, geometric from 1/κ to 1, in the eigenbasis of S: steps until every
           component of ŵ is within ε of the solution. Newton from α = 1/λmax², κ over eleven
           decades and ε over eleven; gradient descent with step 1/λmax, κ over three decades. The
           same counts on data X with that spectrum, rotated, by the package's algorithms
Ours       no count off by more than 1 step, 1.9 ≤ b ≤ 2.1 and 0.8 ≤ c ≤ 1.2 around the constants
           2 and 1 that (1 − 1/κ²)^(2^k) = ε gives
Beyond     on the hard spectra of this source, of the same κ or less, both take no more steps. The
           constants: 2 log₂ κ + log₂ ln(1/ε) steps of Newton, κ ln(1/ε) of gradient descent. In
           terms of κ(X) = √κ(S), 4 log₂ κ(X)
Note       O(·) bounds from above; what is held against the data is the growth itself
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.algorithms.newton import Newton
from innerloop.claims.base import claim
from innerloop.claims.cases import Case
from innerloop.claims.evidence import Check, Evidence, Part
from innerloop.claims.figures import Figure, draw_lines
from innerloop.claims.intervals import Interval, check_around, check_rate
from innerloop.claims.trials import Inequality
from innerloop.claims.yang2025.hard_instances import HARD_SPECTRA
from innerloop.problems.linear_regression import RegressionProblem

D, MOST_STEPS = 6, 3_000_000
ERRORS = tuple(10.0**-k for k in range(1, 13))
Spectrum = NDArray[np.float64]
Iteration = Callable[[Spectrum], Iterator[float]]
"""Yields the largest component error before each step, from eigenvalues of S, largest 1."""


def newton_errors(spectrum: Spectrum) -> Iterator[float]:
    m = spectrum.copy()
    while True:
        yield float(np.abs(1 - m * spectrum).max())
        m = 2 * m - spectrum * m**2


def descent_errors(spectrum: Spectrum) -> Iterator[float]:
    off = np.ones_like(spectrum)
    while True:
        yield float(np.abs(off).max())
        off -= spectrum * off


Data = dict[str, Any]
"""Counts of steps by κ and ε, and the largest difference to counts on rotated data."""


def judge_counts(data: Data) -> Evidence:
    grid, kappas, fast, slow, deep = (
        data[name] for name in ("grid", "kappas", "fast", "slow", "deep")
    )
    logs = [math.log(1 / error) for error in ERRORS]
    law, slopes = _fit_law(grid)
    return Evidence(
        parts=[
            Part(printed=law),
            Part(printed=_power("gradient descent's steps grow like $κ$", kappas, slow)),
            Part(printed=_power("gradient descent's steps grow like $log(1/ε)$", logs, deep)),
            Part(printed=_exponential(fast, slow)),
        ],
        beyond=[_check_spectra(data["spectra"])],
        numbers={
            **slopes,
            "steps at the largest κ and ε = 1e-6, Newton": fast[-1],
            "steps at the largest κ and ε = 1e-6, gradient descent": slow[-1],
            "largest difference to the counts on rotated data": data["rotated"],
        },
        table=[
            {"κ": k, "Newton": a, "gradient descent": b}
            for k, a, b in zip(kappas, fast, slow, strict=True)
        ],
        figures=_figures(kappas, fast, slow, grid[100.0], deep),
    )


def _check_spectra(rows: list[dict[str, Any]]) -> Check:
    worst = Inequality(
        "no hard spectrum takes more steps than the geometric one of its $κ$ or a larger one"
    )
    for row in rows:
        worst.add(row["steps"], row["geometric"], row["case"])
    return worst.check()


def accelerate(data: Data) -> Data:
    """Let gradient descent take the square root of its steps: that is the accelerated method."""
    roots = {name: [math.ceil(count**0.5) for count in data[name]] for name in ("slow", "deep")}
    return {**data, **roots}


def slow_newton(data: Data) -> Data:
    """Let Newton's iteration take as many steps as gradient descent."""
    grid = {
        kappa: [math.ceil(kappa**0.2 * math.log(1 / error)) for error in ERRORS]
        for kappa in data["grid"]
    }
    return {**data, "grid": grid, "fast": data["slow"]}


@claim(
    "yang2025.fu.rates",
    "To an error $ε$, Newton's iteration takes $O(log κ + log log 1/ε)$ steps and gradient "
    "descent $O(κ log 1/ε)$: exponentially more.",
    where="First paper (Fu et al. 2023): background",
    kind="rate",
    hypotheses={
        "$S = XᵀX$ is invertible, $κ = κ(S)$": "the slide on Newton's iteration",
        "$M_0 = αS$": "the slide on Newton's iteration",
        "$α = 1/λmax²$, gradient descent with the step $1/λmax$": "ours: the slides give neither",
    },
    quick={"points": 7, "largest": 1e4, "decades": 12},
    full={"points": 13, "largest": 1e5, "decades": 12},
    tiny={"points": 5, "largest": 100.0, "decades": 3},
    judge=judge_counts,
    falsified={
        "a Newton's iteration that takes a power of κ": slow_newton,
        "an accelerated method for gradient descent": accelerate,
    },
)
def fu_rates(generator: torch.Generator, *, points: int, largest: float, decades: int) -> Data:
    wide = [10.0**k for k in range(1, decades + 1)]
    kappas = [float(kappa) for kappa in np.geomspace(10, largest, points)]
    level = ERRORS[5]
    return {
        "grid": {kappa: _count_steps(newton_errors, kappa, ERRORS) for kappa in wide},
        "kappas": kappas,
        "slow": [_count_steps(descent_errors, kappa, [level])[0] for kappa in kappas],
        "fast": [_count_steps(newton_errors, kappa, [level])[0] for kappa in kappas],
        "deep": _count_steps(descent_errors, 30.0, ERRORS),
        "rotated": _on_data(generator),
        "spectra": [row for kappa in (10.0, 1000.0) for row in _on_hard_spectra(kappa, level)],
    }


def _on_hard_spectra(kappa: float, level: float) -> list[dict[str, Any]]:
    """Count steps on the hard spectra and on the geometric one."""
    rows = []
    for name, build in HARD_SPECTRA.items():
        spectrum = build(D, kappa)
        scaled = (spectrum / spectrum.max()).numpy()
        for method, iteration in (("Newton", newton_errors), ("descent", descent_errors)):
            (geometric,) = _count_steps(iteration, kappa, [level])
            (steps,) = _count_steps(iteration, kappa, [level], scaled)
            case = Case(d=D, κ=kappa, note=f"{method}, {name}")
            rows.append({"case": case, "steps": steps, "geometric": geometric})
    return rows


def _count_steps(
    iteration: Iteration, kappa: float, errors: Sequence[float], spectrum: Spectrum | None = None
) -> list[int]:
    """The first step at which each error is reached, errors from large to small.

    The spectrum is geometric unless one is given, with the largest eigenvalue 1.
    """
    found: list[int] = []
    values = np.geomspace(1 / kappa, 1, D) if spectrum is None else spectrum
    for k, off in enumerate(iteration(values)):
        while len(found) < len(errors) and off <= errors[len(found)]:
            found.append(k)
        if len(found) == len(errors):
            return found
        if k > MOST_STEPS:
            raise ValueError(f"no error {errors[len(found)]} within {k} steps, κ = {kappa}")
    raise ValueError("the iteration ended before reaching every error")


def _fit_law(grid: dict[float, list[int]]) -> tuple[Check, dict[str, float]]:
    """Fit steps = a + b log₂ κ + c log₂ ln(1/ε) by least squares; the fit and its residual."""
    rows = [
        (1.0, math.log2(kappa), math.log2(math.log(1 / error)), steps)
        for kappa, each in grid.items()
        for error, steps in zip(ERRORS, each, strict=True)
    ]
    data = np.array(rows)
    fit, *_ = np.linalg.lstsq(data[:, :3], data[:, 3], rcond=None)
    off = float(np.abs(data[:, :3] @ fit - data[:, 3]).max())
    worst = max(rows, key=lambda row: abs(float(np.dot(row[:3], fit)) - row[3]))
    passed = bool(off <= 1.0 and 1.9 <= fit[1] <= 2.1 and 0.8 <= fit[2] <= 1.2)
    law = float(np.dot(worst[:3], fit))
    about = f"$κ = {2 ** worst[1]:.3g}$: {worst[3]} steps, the fitted law has {law:.3g}"
    check = Check(
        statement="Newton's steps are $a + b log κ + c log log(1/ε)$",
        passed=passed,
        summary=f"{len(rows)} counts, $κ$ from {min(grid):.0f} to {max(grid):.0e}, $ε$ from 1e-1 "
        f"to 1e-12: $b = {fit[1]:.3f}$ per doubling of $κ$, $c = {fit[2]:.3f}$ per "
        f"doubling of $ln(1/ε)$, no count off by more than {off:.2g} steps (allowed 1, "
        "they are whole)",
        counterexample="" if passed else about,
        ours="1 step, $1.9 ≤ b ≤ 2.1$, $0.8 ≤ c ≤ 1.2$",
    )
    slopes = {"Newton's steps per doubling of κ": float(fit[1])}
    return check, {**slopes, "Newton's steps per doubling of ln(1/ε)": float(fit[2])}


def _power(statement: str, x: Sequence[float], y: Sequence[int]) -> Check:
    counts = [float(count) for count in y]
    ours = "0.15 of a power: counts are whole"
    return check_rate(statement, x, counts, 1.0, within=0.15, what="$κ$ or $log(1/ε)$", ours=ours)


def _exponential(fast: list[int], slow: list[int]) -> Check:
    """Check that log₂ of the slow counts is affine in the fast: half a doubling per step."""
    (slope, _), covariance = np.polyfit(fast, np.log2(slow), 1, cov=True)
    wide = 2 * math.sqrt(float(covariance[0, 0]))
    return check_around(
        "gradient descent's steps grow exponentially in Newton's, over $κ$",
        Interval(float(slope), float(slope) - wide, float(slope) + wide),
        0.5,
        within=0.15,
        what=f"doublings for each step of Newton's, {len(fast)} values of $κ$, from {slow[0]} "
        f"to {slow[-1]} steps",
        ours="0.15 of a doubling around the half that the two rates give",
    )


def _on_data(generator: torch.Generator) -> int:
    """Compare the package's algorithms on rotated data with the counts in the eigenbasis."""
    largest = 0
    for kappa in (10.0, 60.0):
        spectrum = torch.tensor(np.geomspace(1 / kappa, 1, D))
        left, right = (
            torch.linalg.qr(torch.randn(n, D, generator=generator, dtype=torch.float64))[0]
            for n in (D + 3, D)
        )
        x = left * spectrum.sqrt() @ right.mT
        star = right.sum(dim=1)
        problem = RegressionProblem(x, x @ star, x[:1])
        one = torch.tensor(1.0, dtype=torch.float64)
        for algorithm, iteration in (
            (Newton(one), newton_errors),
            (GradientDescent(problem.n * one.reshape(1)), descent_errors),
        ):
            state, counts, errors = algorithm.init(problem), [], ERRORS[:8]
            wanted = _count_steps(iteration, kappa, errors)
            for k in range(wanted[-1] + 2):
                w = state @ problem.x.mT @ problem.y if state.ndim > 1 else state
                off = float((right.mT @ (w - star)).abs().max())
                while len(counts) < len(errors) and off <= errors[len(counts)]:
                    counts.append(k)
                state = algorithm.step(problem, state, k)
            counts += [wanted[-1] + 2] * (len(errors) - len(counts))
            largest = max(largest, *(abs(a - b) for a, b in zip(counts, wanted, strict=True)))
    return largest


def _figures(
    kappas: list[float], fast: list[int], slow: list[int], near: list[int], deep: list[int]
) -> list[Figure]:
    methods = {"Newton's iteration": fast, "gradient descent": slow}
    sizes = {"Newton's iteration, κ = 100": near, "gradient descent, κ = 30": deep}
    over_kappa = draw_lines(
        "Steps to an error of 1e-6",
        [
            {"κ": kappa, "steps": steps, "method": name}
            for name, counts in methods.items()
            for kappa, steps in zip(kappas, counts, strict=True)
        ],
        "κ: condition number κ of S",
        "steps",
        "method",
        log="xy",
        caption="A straight line of slope one for gradient descent, a logarithm for Newton's.",
    )
    rows = [
        {"1/ε": 1 / error, "steps": steps, "method": name}
        for name, counts in sizes.items()
        for error, steps in zip(ERRORS, counts, strict=False)
    ]
    over_error = draw_lines("Steps to an error of ε", rows, "1/ε", "steps", "method", log="xy")
    return [over_kappa, over_error]
