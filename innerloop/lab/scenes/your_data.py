"""Your data: columns of a CSV file, fitted by Newton's iteration in a forward pass.

Columns are centred and divided by their standard deviation; the displayed predictions are in the
original units. The queries are unit vectors, so that the transformer predicts the weights of the
features.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.linear_model import LinearRegression

from innerloop.errors import InputError, unknown_name_error
from innerloop.estimators.report import read_cells
from innerloop.lab.builds import INSTANCES, describe_certificate, describe_difference, get_build
from innerloop.lab.controls import Control, Slider, Values, describe, read_list
from innerloop.lab.python import format_call, format_rows
from innerloop.lab.recording import describe_run, name_tokens, predict_steps, record
from innerloop.lab.scene import Scene
from innerloop.lab.table import MAX_ROWS, Table, parse_table
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.progress import Progress

MAX_FEATURES = 5
DIGITS = 9
"""Digits after the decimal point of a scaled number."""
FLOOR = 1e-16
DEPTH = Slider("steps", "steps", 4, 20, 1, 14)


class YourDataScene(Scene):
    """Fit a table of the user, whose rows are the prompt."""

    place: ClassVar[int] = 8
    tab: ClassVar[str] = "Your data"
    title: ClassVar[str] = "Your data in the prompt"
    hint: ClassVar[str] = (
        "Drop a CSV file on the picture, or choose one, and say which column is to be predicted "
        "from which. It stays on this machine. The rows become the prompt; every step is a step of "
        "Newton’s iteration towards least squares."
    )
    controls: ClassVar[tuple[Control, ...]] = (DEPTH,)

    def run(self, values: Values, progress: Progress) -> dict[str, Any]:
        steps = DEPTH.read_whole(values)
        text = values.get("text")
        if not isinstance(text, str):
            raise InputError(f"text must be the text of a CSV file, got {describe(text)}")
        table = parse_table(text)
        target, features = read_columns(values, table)
        scaled = Scaled(table, target, features)
        parameters = choose(len(features), len(scaled.y), steps)
        built = get_build("newton", progress, **parameters)
        problem = RegressionProblem.from_arrays(
            scaled.rows, scaled.labels, torch.eye(len(features), dtype=torch.float64)
        )
        recording = record(built, problem)
        weights = predict_steps(built, problem, recording)
        algorithm = built.construction.algorithm
        states = algorithm.states(problem, steps)
        reference = torch.stack([algorithm.predict(problem, state) for state in states])
        predicted = scaled.predict(weights.numpy())
        best = LinearRegression().fit(scaled.x, scaled.y).predict(scaled.x)
        expected = scaled.predict(reference.numpy())
        notes = [describe_fit(scaled.y, row, best) for row in predicted]
        queries = [f"query: {name}" for name in features]
        return {
            **describe_run(recording, notes, name_tokens(len(scaled.y), "row", queries)),
            "table": {
                "names": table.names,
                "numeric": table.numeric(),
                "target": target,
                "features": features,
                "rows": len(scaled.y),
                "total": table.total,
            },
            "picture": {
                "x": scaled.x[:, 0].tolist(),
                "y": scaled.y.tolist(),
                "predicted": predicted.tolist(),
                "best": best.tolist(),
            },
            "error": {
                "label": f"distance from scikit-learn’s least squares, in units of {target}",
                "series": [
                    {"name": name, "kind": kind, "values": measure_distances(rows, best)}
                    for name, kind, rows in (
                        ("transformer", "transformer", predicted),
                        ("Newton’s iteration", "reference", expected),
                    )
                ],
            },
            "certificate": describe_certificate(
                built.certificate, describe_difference(weights, reference)
            ),
            "python": write_program(parameters, scaled),
        }


def read_columns(values: Values, table: Table) -> tuple[str, list[str]]:
    """Read the names of the target and feature columns.

    By default, they are the last and the first numeric column.
    """
    numeric = table.numeric()
    target = values.get("target")
    if target is None:
        if len(numeric) < 2:
            raise InputError(
                f"two columns of numbers are needed, got {len(numeric)}: "
                + describe_first_text(table)
            )
        target = numeric[-1]
    features = values.get("features")
    if features is None:
        features = [name for name in numeric if name != target][:1]
    chosen = [target, *read_list(features, "features", 1, MAX_FEATURES)]
    for name in chosen:
        if not isinstance(name, str) or name not in table.names:
            raise unknown_name_error("column", str(name), table.names)
    if len(set(chosen)) < len(chosen):
        raise InputError("a column is chosen twice: the target cannot be a feature")
    return target, chosen[1:]


def describe_first_text(table: Table) -> str:
    """Return the error message for the first cell that is not a number."""
    for name in table.names:
        if name in table.numeric():
            continue
        try:
            read_cells(table.column(name), name)
        except InputError as error:
            return str(error)
    return "add a column"


class Scaled:
    """The chosen columns in original units (`x`, `y`), and scaled for the prompt."""

    def __init__(self, table: Table, target: str, features: list[str]) -> None:
        self.x = np.column_stack([read_cells(table.column(name), name) for name in features])
        self.y = read_cells(table.column(target), target)
        for name, column in zip([*features, target], [*self.x.T, self.y], strict=True):
            if column.min() == column.max():  # the computed spread may be above 0 by rounding
                raise InputError(f"column {name!r} has the same number in every row: leave it out")
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # checked below
            self.mean, self.spread = self.x.mean(axis=0), self.x.std(axis=0)
            self.shift, self.unit = float(self.y.mean()), float(self.y.std())
        if not np.isfinite([*self.mean, *self.spread, self.shift, self.unit]).all():
            raise InputError("numbers this large cannot be scaled: use other units")
        if not all([*self.spread, self.unit]):
            raise InputError("numbers this close cannot be scaled: use other units")
        self.rows = np.round((self.x - self.mean) / self.spread, DIGITS)
        self.labels = np.round((self.y - self.shift) / self.unit, DIGITS)

    def predict(self, weights: np.ndarray) -> np.ndarray:
        """Return the predictions of all rows in the target's unit, for each row of weights."""
        return self.shift + self.unit * weights @ self.rows.T


def choose(d: int, n: int, steps: int) -> dict[str, Any]:
    """Return the parameters with which this scene builds its construction.

    α must be at most 1/λmax(XᵀX)². λmax is at most n d for columns of standard deviation 1, and at
    most (√n + √d + 6)² for the random instances of the certificate.
    """
    size = next(size for size in (10, 25, 50, 100, MAX_ROWS) if n <= size)
    bound = max(float(size * d), (size**0.5 + d**0.5 + 6.0) ** 2)
    return {"d": d, "n": size, "steps": steps, "alpha": bound**-2}


def measure_distances(rows: np.ndarray, best: np.ndarray) -> list[float]:
    """Return the root mean squared difference of each row of predictions from the best ones."""
    return np.maximum(np.sqrt(np.mean((rows - best) ** 2, axis=1)), FLOOR).tolist()


def describe_fit(y: np.ndarray, predicted: np.ndarray, best: np.ndarray) -> str:
    """Return a note on the explained variance of the target, and on that of least squares."""
    ours, theirs = (1 - np.mean((y - row) ** 2) / np.var(y) for row in (predicted, best))
    return f"explains {ours:.1%} of the variance; scikit-learn’s least squares {theirs:.1%}"


def write_program(parameters: dict[str, Any], scaled: Scaled) -> str:
    """Write the program that prints the weights of the scaled features after every step."""
    return f"""import torch

import innerloop

# columns with mean 0 and spread 1
{format_rows("x", scaled.rows.tolist(), digits=DIGITS)}
{format_rows("y", [scaled.labels.tolist()], digits=DIGITS)}
queries = torch.eye({parameters["d"]}, dtype=torch.float64)
problem = innerloop.RegressionProblem.from_arrays(x, y[0], queries)
built = {format_call("newton", {**parameters, "instances": INSTANCES})}
assert built.certificate.holds
for step, weights in enumerate(built.predictions(problem)):
    print(step, weights.tolist())
"""
