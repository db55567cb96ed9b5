"""Fit a line to points of the plane: gradient descent or Newton's iteration in a forward pass.

A point (x, y) becomes the example (1, x) with label y. The predictions for the two queries (1, 0)
and (0, 1) are the intercept and the slope of the line.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from innerloop.certification.building import BuiltTransformer
from innerloop.lab.builds import INSTANCES, describe_certificate, describe_difference, get_build
from innerloop.lab.controls import Choice, Control, Slider, Values, read_points
from innerloop.lab.python import format_call, format_rows, round_points
from innerloop.lab.recording import describe_run, name_tokens, predict_steps, record
from innerloop.lab.scene import Scene
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.progress import Progress

REACH = 3.0
"""The largest absolute value of a coordinate."""
MAX_POINTS = 30
STEPS = 16
ALPHA = 1.0 / (MAX_POINTS * (1.0 + REACH**2)) ** 2
"""α of Newton's iteration; it is at most 1/λmax(XᵀX)² for all points that the scene allows."""
NAMES = {"newton": "Newton’s iteration", "looped-gradient-descent": "gradient descent"}
FLOOR = 1e-16
"""The least error in the figure; smaller errors are raised to it."""
ALGORITHM = Choice("algorithm", "algorithm", NAMES)
RATE = Slider("rate", "step size η of gradient descent", 0.05, 0.6, 0.05, 0.3)


class LineFitScene(Scene):
    """Display the line after every step."""

    place: ClassVar[int] = 1
    tab: ClassVar[str] = "A line"
    title: ClassVar[str] = "A transformer fits a line"
    hint: ClassVar[str] = (
        "Drag a point, click to add one, double-click to remove it. Nobody trained these weights: "
        "they are written down so that every step of the forward pass is a step of the algorithm."
    )
    controls: ClassVar[tuple[Control, ...]] = (ALGORITHM, RATE)

    def run(self, values: Values, progress: Progress) -> dict[str, Any]:
        name, rate = ALGORITHM.read(values), RATE.read(values)
        points = round_points(read_points(values, "points", 2, MAX_POINTS, REACH))
        problem = make_problem(points)
        others = [other for other in NAMES if other != name]
        runs = {key: get_build(key, progress, **choose(key, rate)) for key in [name, *others]}
        built = runs[name]
        # The default driver may lose the rank of a column that is 0.
        solution = torch.linalg.lstsq(problem.x, problem.y.unsqueeze(-1), driver="gelsd")
        best = solution.solution[:, 0]
        recording = record(built, problem)
        lines, reference = predict_steps(built, problem, recording), follow(built, problem)
        tokens = name_tokens(len(points), "point", ("query: intercept", "query: slope"))
        off = measure(lines, best)
        notes = [describe_line(*each) for each in zip(lines, off, strict=True)]
        return {
            **describe_run(recording, notes, tokens),
            "picture": {
                "lines": lines.tolist(),
                "best": best.tolist(),
                "kappa": measure_condition(problem),
            },
            "error": {
                "label": "distance from least squares",
                "series": [
                    {"name": "transformer", "kind": "transformer", "values": off},
                    {"name": NAMES[name], "kind": "reference", "values": measure(reference, best)},
                    *(
                        {
                            "name": f"transformer running {NAMES[key]}",
                            "kind": "other",
                            "values": measure(predict_lines(runs[key], problem), best),
                        }
                        for key in others
                    ),
                ],
            },
            "certificate": describe_certificate(
                built.certificate, describe_difference(lines, reference)
            ),
            "python": write_program(name, rate, points),
        }


def choose(name: str, rate: float) -> dict[str, Any]:
    """Return the parameters with which this scene builds the named construction."""
    if name == "newton":
        return {"d": 2, "n": MAX_POINTS, "steps": STEPS, "alpha": ALPHA}
    return {"d": 2, "steps": STEPS, "preconditioners": [[rate, 0.0], [0.0, rate]]}


def make_problem(points: list[list[float]]) -> RegressionProblem:
    """Return the regression problem of the points; its queries give the intercept and the slope."""
    rows = [[1.0, x] for x, _ in points]
    return RegressionProblem.from_arrays(rows, [y for _, y in points], [[1.0, 0.0], [0.0, 1.0]])


def measure_condition(problem: RegressionProblem) -> float | None:
    """Return the condition number of XᵀX, or None if all points have the same x."""
    kappa = float(torch.linalg.cond(problem.x.mT @ problem.x))
    return kappa if kappa < 1 / torch.finfo(problem.x.dtype).eps else None


def predict_lines(built: BuiltTransformer, problem: RegressionProblem) -> Tensor:
    """Return (intercept, slope) after 0, 1, … steps of a transformer."""
    return predict_steps(built, problem, record(built, problem))


def follow(built: BuiltTransformer, problem: RegressionProblem) -> Tensor:
    """Return (intercept, slope) after 0, 1, … steps of the algorithm."""
    algorithm = built.construction.algorithm
    states = algorithm.states(problem, STEPS)
    return torch.stack([algorithm.predict(problem, state) for state in states])


def measure(lines: Tensor, best: Tensor) -> list[float]:
    """Return the distance of each line's coefficients from those of least squares."""
    return (lines - best).norm(dim=-1).clamp_min(FLOOR).tolist()


def describe_line(line: Tensor, off: float) -> str:
    """Return a line of text that describes the fitted line."""
    intercept, slope = line.tolist()
    sign = "−" if slope < 0 else "+"
    return f"ŷ = {intercept:.3f} {sign} {abs(slope):.3f} x, off least squares by {off:.1e}"


def write_program(name: str, rate: float, points: list[list[float]]) -> str:
    """Write the program that prints the line after every step."""
    parameters = {**choose(name, rate), "instances": INSTANCES}
    return f"""import innerloop

{format_rows("points", points)}
problem = innerloop.RegressionProblem.from_arrays(
    [[1.0, x] for x, y in points], [y for x, y in points], [[1.0, 0.0], [0.0, 1.0]]
)
built = {format_call(name, parameters)}
assert built.certificate.holds
for step, line in enumerate(built.predictions(problem)):
    print(step, line.tolist())
"""
