"""Clusters in the plane: k-means or EM by attention, from initial means that the user places."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from innerloop.lab.builds import INSTANCES, describe_certificate, describe_difference, get_build
from innerloop.lab.controls import Choice, Control, Slider, Values, read_points
from innerloop.lab.python import format_call, format_rows, round_points
from innerloop.lab.recording import describe_run, name_tokens, predict_steps, record
from innerloop.lab.scene import Scene
from innerloop.problems.gaussian_mixture import ClusteringProblem
from innerloop.progress import Progress

REACH = 3.0
MAX_POINTS, MAX_CLUSTERS = 36, 4
STEPS = 8
KNOTS = 1000
NAMES = {"lloyd": "k-means", "em": "EM (soft)"}
ALGORITHM = Choice("algorithm", "algorithm", NAMES)
SIGMA = Slider("sigma", "width σ of a cluster in EM", 0.3, 1.0, 0.1, 0.6)


class ClustersScene(Scene):
    """Display how means move to their clusters, step by step."""

    place: ClassVar[int] = 2
    tab: ClassVar[str] = "Clusters"
    title: ClassVar[str] = "Attention finds the clusters"
    hint: ClassVar[str] = (
        "Drag points, and the crosses where the means start. One softmax head gives every point to "
        "the means near it, another moves every mean to the middle of its points."
    )
    controls: ClassVar[tuple[Control, ...]] = (ALGORITHM, SIGMA)

    def run(self, values: Values, progress: Progress) -> dict[str, Any]:
        name, sigma = ALGORITHM.read(values), SIGMA.read(values)
        points = round_points(read_points(values, "points", 2, MAX_POINTS, REACH))
        starts = round_points(read_points(values, "starts", 2, MAX_CLUSTERS, REACH))
        problem = ClusteringProblem.from_arrays(points, starts)
        parameters = choose(name, sigma, len(starts))
        built = get_build(name, progress, **parameters)
        recording = record(built, problem)
        shares = predict_steps(built, problem, recording)
        streams = torch.stack([recording.after_step(k) for k in range(STEPS + 1)])
        means = recording.layout.read(streams, "mu")[:, len(points) :]
        reference = torch.stack(list(built.construction.algorithm.states(problem, STEPS)))
        measure = measure_cost if name == "lloyd" else measure_surprise
        costs, expected = (
            [measure(problem.x, each, sigma) for each in path] for path in (means, reference)
        )
        label = "mean squared distance to the nearest mean"
        if name == "em":
            label = "surprise: −log likelihood per point"
        tokens = name_tokens(len(points), "point", name_tokens(len(starts), "mean"))
        return {
            **describe_run(recording, [describe_means(each) for each in means], tokens),
            "picture": {"means": means.tolist(), "shares": shares.tolist()},
            "error": {
                "label": label,
                "linear": True,
                "series": [
                    {"name": "transformer", "kind": "transformer", "values": costs},
                    {"name": NAMES[name], "kind": "reference", "values": expected},
                ],
            },
            "certificate": describe_certificate(
                built.certificate, describe_difference(means, reference)
            ),
            "python": write_program(name, parameters, points, starts),
        }


def choose(name: str, sigma: float, clusters: int) -> dict[str, Any]:
    """Return the parameters with which this scene builds the named construction."""
    sizes = {"d": 2, "n": MAX_POINTS, "clusters": clusters, "steps": STEPS, "bound": 9.0}
    return sizes if name == "lloyd" else {**sizes, "noise": round(sigma, 3), "knots": KNOTS}


def measure_cost(x: Tensor, means: Tensor, sigma: float) -> float:
    """Return the objective of k-means: the mean squared distance to the nearest mean."""
    return float(torch.cdist(x, means).square().amin(dim=-1).mean())


def measure_surprise(x: Tensor, means: Tensor, sigma: float) -> float:
    """Return the objective of EM: the mean negative log-likelihood of a point."""
    scores = -torch.cdist(x, means).square() / (2 * sigma**2)
    normal = torch.tensor(len(means) * 2 * torch.pi * sigma**2, dtype=x.dtype).log()
    return float((normal - scores.logsumexp(dim=-1)).mean())


def describe_means(means: Tensor) -> str:
    """Describe the positions of the means."""
    places = ", ".join(f"({x:.2f}, {y:.2f})" for x, y in means.tolist())
    return f"means at {places}"


def write_program(
    name: str,
    parameters: dict[str, Any],
    points: list[list[float]],
    starts: list[list[float]],
) -> str:
    """Write the program that prints the means after every step."""
    call = format_call(name, {**parameters, "instances": INSTANCES})
    return f"""import innerloop

{format_rows("points", points)}
{format_rows("starts", starts)}
problem = innerloop.ClusteringProblem.from_arrays(points, starts)
built = {call}
assert built.certificate.holds
trace = built.trace(problem)
for step in range({STEPS + 1}):
    print(step, trace.after_step(step)["mu"][len(points):].tolist())
"""
