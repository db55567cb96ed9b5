"""Principal components in the plane, by the power method with deflation."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from innerloop.lab.builds import INSTANCES, describe_certificate, describe_difference, get_build
from innerloop.lab.controls import Control, Values, read_points
from innerloop.lab.python import format_call, format_rows, round_points
from innerloop.lab.recording import describe_run, name_tokens, predict_steps, record
from innerloop.lab.scene import Scene
from innerloop.problems.principal_components import PCAProblem
from innerloop.progress import Progress

REACH = 3.0
POINTS = 20
STEPS = 10
PARAMETERS = {
    "d": 2,
    "n": POINTS,
    "components": 2,
    "steps": STEPS,
    "knots": 300,
    "least": 1e-3,
    "most": 20.0,
}
FLOOR = 1e-9


class PcaScene(Scene):
    """Display how a direction turns to the first component, and another to the second."""

    place: ClassVar[int] = 3
    tab: ClassVar[str] = "PCA"
    title: ClassVar[str] = "A direction turns to the widest spread"
    hint: ClassVar[str] = (
        "Drag the points, or the two crosses from which the directions start. Each step multiplies "
        "a direction by the covariance; then the first component is taken out of the matrix "
        "(deflation), and the second direction turns."
    )
    controls: ClassVar[tuple[Control, ...]] = ()

    def run(self, values: Values, progress: Progress) -> dict[str, Any]:
        points = round_points(read_points(values, "points", POINTS, POINTS, REACH))
        starts = round_points(read_points(values, "starts", 2, 2, REACH))
        problem = PCAProblem.from_arrays(points, starts)
        built = get_build("pca", progress, **PARAMETERS)
        recording = record(built, problem)
        vectors = predict_steps(built, problem, recording)
        states = list(built.construction.algorithm.states(problem, STEPS))
        reference = torch.stack([state.vectors for state in states])
        spectrum, axes = torch.linalg.eigh(problem.covariance)
        axes = axes.mT.flip(0)
        lines = [
            ("transformer, first direction", "transformer", measure(vectors[:, 0], axes[0])),
            ("power method, first direction", "reference", measure(reference[:, 0], axes[0])),
            ("transformer, second direction", "other", measure(vectors[:, 1], axes[1])),
        ]
        return {
            **describe_run(
                recording,
                [describe_vectors(k, each, axes) for k, each in enumerate(vectors)],
                name_tokens(POINTS, "point"),
            ),
            "picture": {
                "vectors": vectors.tolist(),
                "matrices": [state.matrix.tolist() for state in states],
                "axes": axes.tolist(),
                "lengths": spectrum.flip(0).clamp_min(0).sqrt().tolist(),
            },
            "error": {
                "label": "angle to the eigenvector, in radians",
                "series": [
                    {"name": name, "kind": kind, "values": line} for name, kind, line in lines
                ],
            },
            "certificate": describe_certificate(
                built.certificate, describe_difference(vectors, reference)
            ),
            "python": write_program(points, starts),
        }


def measure(vectors: Tensor, axis: Tensor) -> list[float]:
    """Return the angle of each vector to an axis; it is accurate for small angles as well."""
    along, across = vectors @ axis, vectors @ torch.stack([-axis[1], axis[0]])
    return torch.atan2(across.abs(), along.abs()).clamp_min(FLOOR).tolist()


def describe_vectors(k: int, vectors: Tensor, axes: Tensor) -> str:
    """Return a note on which direction turns in step k, and on its angle to its eigenvector."""
    turn = min(1, max(0, k - 1) * 2 // STEPS)
    off = math.degrees(measure(vectors[turn : turn + 1], axes[turn])[0])
    which = ("first", "second")[turn]
    if k == 0:
        return f"the first direction starts {off:.1f}° from its eigenvector"
    after = "; the matrix is deflated" if 2 * k % STEPS == 0 else ""
    return f"the {which} direction is {off:.3g}° from its eigenvector{after}"


def write_program(points: list[list[float]], starts: list[list[float]]) -> str:
    """Write the program that prints both directions after every step."""
    return f"""import innerloop

{format_rows("points", points)}
{format_rows("starts", starts)}
problem = innerloop.PCAProblem.from_arrays(points, starts)
built = {format_call("pca", {**PARAMETERS, "instances": INSTANCES})}
assert built.certificate.holds
for step, vectors in enumerate(built.predictions(problem)):
    print(step, vectors.tolist())
"""
