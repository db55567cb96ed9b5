"""Random programs: a compiled program computes the value of its expression tree, or it is refused.

The compiler and its interpreter have the same front end, so an exact comparison does not detect a
mistake there. Here a tree is written as a file and compiled. The transformer's answers are compared
with those of `program_values`, which is independent of the compiler.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch

import innerloop
from innerloop.problems.gaussian_mixture import ClusteringProblem
from innerloop.problems.linear_regression import RegressionProblem
from tools.torture.attack import Attack, Defect, Verdict, refuse_or
from tools.torture.drawing import draw
from tools.torture.program_values import Evaluator, make_prompt
from tools.torture.programs import Program, programs

STEPS = 2
PROMPTS = 2
"""The number of prompts on which answers are compared."""
PRECISION = 1e-11
"""The largest error of an answer, relative to the sum of the magnitudes of its terms."""
ROUNDING = 1e-6
"""A step that deviates by less is off by rounding, which the bounds of 10⁴ in the programs magnify.
Its certificate does not hold, so the program is refused."""
CLUSTERS = 2


def attempt(prepared: None, chance: random.Random, folder: Path) -> Verdict:
    """Compile a program, and compare its answers."""
    return refuse_or(lambda: try_program(draw(programs(), chance), chance, folder))


def try_program(program: Program, chance: random.Random, folder: Path) -> Verdict:
    """Compile a program and compare the answers of a transformer that is certified."""
    path = folder / "program.py"
    path.write_text(program.text, "utf-8")
    sizes: dict[str, Any] = {"d": program.d, "n": program.n}
    if program.prompt == "points":
        sizes["clusters"] = CLUSTERS
    eta = program.eta if len(program.eta) == 1 else program.eta * (STEPS // len(program.eta))
    built = innerloop.compile(
        f"{path}:drawn",
        **sizes,
        steps=STEPS,
        instances=2,
        attention=program.attention,
        eta=eta[0] if len(eta) == 1 else torch.tensor(eta, dtype=torch.float64),
        A=torch.tensor(program.matrix, dtype=torch.float64),
    )
    certificate = built.certificate
    if not certificate.holds:
        if certificate.range_used > 1 or max(certificate.step_deviation) < ROUNDING:
            return "refused"  # data beyond the declared bounds, or their rounding
        raise Defect(f"a compiled program breaks its law: {certificate.broken}")
    for _ in range(PROMPTS):
        data = draw_data(program, chance)
        answers = built.predict(make_problem(program, data)).flatten().tolist()
        exact = Evaluator(program, make_prompt(program.prompt, data)).run(STEPS)
        for answer, expected in zip(answers, exact, strict=True):
            if abs(answer - expected.value) > PRECISION * max(expected.size, 1):
                raise Defect(
                    f"a certified program answers {answer}, its text means "
                    f"{float(expected.value)}: {' '.join(program.text.split())}"
                )
    return "survived"


def draw_data(program: Program, chance: random.Random) -> dict[str, list[Any]]:
    """Draw the arrays of a problem."""

    def rows(count: int) -> list[list[float]]:
        return [[chance.gauss(0, 1) for _ in range(program.d)] for _ in range(count)]

    if program.prompt == "points":
        return {"x": rows(program.n), "start": rows(CLUSTERS)}
    labels = [chance.gauss(0, 1) for _ in range(program.n)]
    return {"x": rows(program.n), "y": labels, "x_query": rows(1)}


def make_problem(program: Program, data: dict[str, list[Any]]) -> Any:
    """Return the package's problem with these arrays."""
    kind = ClusteringProblem if program.prompt == "points" else RegressionProblem
    return kind.from_arrays(**data)


ATTACKS = (Attack("random-programs", 2_000, lambda folder: None, attempt, cost=0.4, sample=6),)
