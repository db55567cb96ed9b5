"""Models with inconsistent answers: gradient descent, except in some batches, calls or positions.

For an inconsistent model, `identify` may name no algorithm if the verdict describes the
inconsistency. A consistent model must be identified, also if it rounds as float32 does.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import torch
from hypothesis import strategies as st
from torch import Tensor

import innerloop
from tools.torture.attack import Attack, Defect, Verdict
from tools.torture.drawing import draw

LIES = ("none", "large batch", "first calls", "some calls", "batch mean", "random", "place", "next")
PROMPTS = 64
CANDIDATES = ["averaging", "gradient-descent", "ridge"]


@dataclass
class Descent:
    """Gradient descent with errors of size `size`, as a share of the labels; `lie` selects the
    answers.
    """

    steps: int
    step_size: float
    lie: str
    size: float
    number: int
    """The largest batch without errors, the number of first calls with errors, or the distance
    of calls with errors.
    """
    single: bool
    """Whether it computes in float32."""
    generator: torch.Generator = field(default_factory=torch.Generator)
    calls: int = 0

    def __call__(self, X: Tensor, y: Tensor, x_query: Tensor) -> Tensor:
        self.calls += 1
        if self.single:
            X, y, x_query = X.float(), y.float(), x_query.float()
        w = torch.zeros_like(x_query)
        for _ in range(self.steps):
            residual = y - torch.einsum("bnd,bd->bn", X, w)
            w = w + self.step_size * torch.einsum("bnd,bn->bd", X, residual) / X.shape[1]
        answers = (w * x_query).sum(-1)
        return answers + self.size * self.invent(answers, y)

    def invent(self, answers: Tensor, y: Tensor) -> Tensor:
        """Return the errors to add to the answers of a batch."""
        most = 1 + y.abs().amax(dim=-1)
        lies = {
            "large batch": len(y) > self.number,
            "first calls": self.calls <= self.number,
            "some calls": self.calls % (1 + self.number) == 0,
        }
        if self.lie in lies:
            return most if lies[self.lie] else 0 * most
        if self.lie == "batch mean":
            return most.mean() + 0 * most
        if self.lie == "random":
            return most * torch.randn(len(y), generator=self.generator)
        if self.lie == "place":
            places = torch.arange(len(y)) % (1 + self.number) == 0
            return torch.where(places, most, 0.0)
        return answers.roll(1) if self.lie == "next" else 0 * most


MODELS = st.builds(
    Descent,
    steps=st.integers(1, 4),
    step_size=st.floats(0.1, 0.5),
    lie=st.sampled_from(LIES),
    size=st.floats(0.01, 1.0),
    number=st.integers(1, 12),
    single=st.booleans(),
)
PROBLEMS = st.builds(
    innerloop.LinearRegression,
    d=st.integers(1, 3),
    n=st.integers(4, 8),
    noise=st.sampled_from((0.0, 0.3)),
)


def prepare(folder: Path) -> None:
    """Identify a consistent model once, so that everything is imported."""
    honest = Descent(2, 0.3, "none", 0.0, 1, single=False)
    innerloop.identify(honest, innerloop.LinearRegression(d=2, n=5), algorithms=CANDIDATES)


def attempt(prepared: None, chance: random.Random, folder: Path) -> Verdict:
    """Identify one model; "refused" means that the verdict describes its inconsistency."""
    model, problems = draw(MODELS, chance), draw(PROBLEMS, chance)
    result = innerloop.identify(
        model, problems, algorithms=CANDIDATES, prompts=PROMPTS, seed=chance.randrange(1000)
    )
    (layer,) = result.layers
    if model.lie == "none":
        if layer.fit != "match":
            raise Defect(f"an honest model is not known: {result.verdict}")
        return "survived"
    if layer.fit != "inconsistent" or result.algorithm is not None:
        raise Defect(f"a model that lies ({model.lie}) is {result.verdict}: {layer.score:.5f}")
    if layer.describe() not in str(result) or not result.verdict.startswith("the model "):
        raise Defect(f"the verdict does not say how a model lies: {result.verdict}")
    return "refused"


ATTACKS = (Attack("lying-models", 1_000, prepare, attempt, cost=0.2, sample=5),)
