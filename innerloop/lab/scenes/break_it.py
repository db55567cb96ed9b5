"""Break it: change one weight, and display the step at which the certificate fails."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from innerloop.certification.building import BuiltTransformer
from innerloop.certification.certificate import Certificate, certify
from innerloop.constructions.base import iterate_streams, read_prediction
from innerloop.errors import InputError
from innerloop.lab.builds import INSTANCES, describe_certificate, get_build
from innerloop.lab.controls import Choice, Control, Slider, Values
from innerloop.lab.python import format_call
from innerloop.lab.recording import describe_run, name_tokens, record
from innerloop.lab.scene import Scene
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.progress import Progress
from innerloop.transformer import Block, Transformer

STEPS = 8
POINTS = [
    [-1.7, -1.2], [-1.2, -0.2], [-0.8, -0.6], [-0.2, 0.5], [0.3, 0.4], [0.7, 1.4], [1.2, 1.0],
    [1.7, 2.1],
]  # fmt: skip
QUERIES = [[1.0, 0.0], [0.0, 1.0]]
NAMES = {"newton": "Newton’s iteration", "preconditioned-gradient-descent": "gradient descent"}
FLOOR, CEILING = 1e-17, 1e6
"""The range of deviations in the figure."""
ALGORITHM = Choice("algorithm", "algorithm", NAMES)
FACTOR = Slider("factor", "the weight is multiplied by", -1.0, 3.0, 0.05, 1.0)


class BreakItScene(Scene):
    """Display how the change of one weight affects the certificate of a construction."""

    place: ClassVar[int] = 7
    tab: ClassVar[str] = "Break it"
    title: ClassVar[str] = "Change one weight, and the certificate says so"
    hint: ClassVar[str] = (
        "Each square is a weight. Choose one and move the slider: on random instances every step "
        "is held against the algorithm, and the certificate names the first step, the register and "
        "the token where they part."
    )
    controls: ClassVar[tuple[Control, ...]] = (ALGORITHM, FACTOR)

    def run(self, values: Values, progress: Progress) -> dict[str, Any]:
        name, factor = ALGORITHM.read(values), FACTOR.read(values)
        built = get_build(name, progress, **choose(name))
        weights = list_weights(built.transformer)
        chosen = read_chosen(values, weights)
        broken = change_weight(built, weights[chosen], factor)
        problem = RegressionProblem.from_arrays(
            [[1.0, x] for x, _ in POINTS], [y for _, y in POINTS], QUERIES
        )
        lines, intact = (list_lines(each, problem) for each in (broken, built))
        recording = record(broken, problem)
        tokens = name_tokens(len(POINTS), "point", ("query: intercept", "query: slope"))
        certificate, weight = broken.certificate, weights[chosen]
        here = f"Changed: {weight['label']}, from {weight['value']:.3g} to "
        here += f"{factor * weight['value']:.3g}."
        if factor == 1:
            here = "Nothing is changed yet: choose a square, and move the slider."
        return {
            **describe_run(recording, describe_steps(certificate), tokens),
            "jump": not certificate.holds,
            "opening": find_first_break(certificate),
            "picture": {
                "weights": [{k: w[k] for k in ("layer", "label", "value")} for w in weights],
                "layers": describe_layers(built.transformer),
                "chosen": chosen,
                "points": POINTS,
                "lines": lines,
                "intact": intact,
                "broken": [each > certificate.tolerance for each in certificate.step_deviation],
            },
            "error": {
                "label": "how far each step is from the algorithm’s",
                "series": [
                    {
                        "name": "a step of these weights",
                        "kind": "transformer",
                        "values": [None, *clip(certificate.step_deviation)],
                    },
                    {
                        "name": "allowed",
                        "kind": "reference",
                        "values": [certificate.tolerance] * (STEPS + 1),
                    },
                    {
                        "name": "running free from the prompt",
                        "kind": "other",
                        "values": [None, *clip(certificate.deviation)],
                    },
                ],
            },
            "certificate": describe_certificate(certificate, here),
            "python": write_program(name, weight, factor),
        }


def choose(name: str) -> dict[str, Any]:
    """Return the parameters with which this scene builds the named construction."""
    if name == "newton":
        return {"d": 2, "n": 20, "steps": STEPS, "alpha": 1e-3}
    return {"d": 2, "steps": STEPS, "preconditioners": "identity", "step_size": 0.4}


def list_weights(transformer: Transformer) -> list[dict[str, Any]]:
    """List every nonzero weight with its layer and its index in its tensor."""
    weights, blocks = [], list_blocks(transformer)
    for layer, (prefix, block) in enumerate(blocks, 1):
        for name, tensor in block.named_parameters():
            for place in tensor.detach().nonzero().tolist():
                index = ", ".join(map(str, place))
                weights.append(
                    {
                        "layer": layer,
                        "label": f"layer {layer}, {name}[{index}]",
                        "value": float(tensor[tuple(place)]),
                        "parameter": f"{prefix}.{name}",
                        "place": place,
                    }
                )
    return weights


def list_blocks(transformer: Transformer) -> list[tuple[str, Block]]:
    """List the blocks in the order of layers, with the common prefix of their weights' names."""
    return [(name, m) for name, m in transformer.named_modules() if isinstance(m, Block)]


def describe_layers(transformer: Transformer) -> list[str]:
    """Return for each layer a description of its step."""
    before, after = len(transformer.prologue), len(transformer.epilogue)
    middle = [f"step {k}" for k in range(1, STEPS + 1)]
    return ["before the steps"] * before + middle + ["read-out"] * after


def read_chosen(values: Values, weights: list[dict[str, Any]]) -> int:
    """Read the index of the weight to change from a request."""
    most = len(weights) - 1
    return Slider("weight", "weight", 0, most, 1, most // 2).read_whole(
        {**values, "weight": min(values["weight"], most)}
        if isinstance(values.get("weight"), int)
        else values
    )


def change_weight(
    built: BuiltTransformer, weight: dict[str, Any], factor: float
) -> BuiltTransformer:
    """Return the transformer with one weight multiplied by `factor`, and its new certificate."""
    if factor == 1:
        return built
    changed = copy.deepcopy(built.transformer)
    with torch.no_grad():
        changed.get_parameter(weight["parameter"])[tuple(weight["place"])] *= factor
    certificate = certify(built.construction, changed, instances=INSTANCES)
    return BuiltTransformer(built.construction, changed, certificate)


def list_lines(built: BuiltTransformer, problem: RegressionProblem) -> list[list[float] | None]:
    """Return the fitted line after every step, or None for steps at which it has diverged."""
    construction, transformer = built.construction, built.transformer
    lines: list[list[float] | None] = []
    for stream in iterate_streams(construction, transformer, problem):
        try:
            line = read_prediction(construction, transformer, problem, stream)
            lines.append(line.clamp(-CEILING, CEILING).tolist())
        except InputError:
            lines.append(None)
    return lines


def clip(deviations: Sequence[float]) -> list[float]:
    """Clip deviations to the range of the figure."""
    return [
        min(max(each, FLOOR), CEILING) if math.isfinite(each) else CEILING for each in deviations
    ]


def find_first_break(certificate: Certificate) -> int:
    """Return the first step that deviates by more than allowed, or the last step if none does."""
    broken = [each > certificate.tolerance for each in certificate.step_deviation]
    return broken.index(True) + 1 if any(broken) else STEPS


def describe_steps(certificate: Certificate) -> list[str]:
    """Return for each step a note on whether it equals the algorithm's step."""
    notes = ["each step is run from the exact state of the algorithm, on random instances"]
    for k, deviation in enumerate(certificate.step_deviation, 1):
        name = f"step {k}" if k > 1 else "step 1, with what comes before it,"
        fine = deviation <= certificate.tolerance
        off = f"deviates by {deviation:.1g}"
        notes.append(f"{name} is the algorithm’s" if fine else f"{name} {off}: the law is broken")
    return notes


def write_program(name: str, weight: dict[str, Any], factor: float) -> str:
    """Write the program that prints the deviation of every step."""
    place = ", ".join(map(str, weight["place"]))
    return f"""import torch

import innerloop

built = {format_call(name, {**choose(name), "instances": INSTANCES})}
with torch.no_grad():
    built.transformer.get_parameter("{weight["parameter"]}")[{place}] *= {factor!r}
certificate = innerloop.certify(built.construction, built.transformer, instances={INSTANCES})
for step, deviation in enumerate(certificate.step_deviation, 1):
    print(step, deviation)
"""
