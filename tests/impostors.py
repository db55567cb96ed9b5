"""Networks whose layers run one algorithm and whose read-outs run another, to test `--inside`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from innerloop.algorithms.gradient_descent import GradientDescent
from innerloop.algorithms.newton import Newton
from innerloop.constructions.newton import NewtonConstruction
from innerloop.constructions.preconditioned_gradient_descent import (
    PreconditionedGradientDescentConstruction,
)
from innerloop.identification.inside.streams import BuiltStreams, Stream
from innerloop.identification.models import Predictions
from innerloop.transformer import MLP, Attention, Block, Head, Layout, affine

ALPHA, STEP_SIZE = 2e-4, 0.3


@dataclass(frozen=True, kw_only=True, eq=False)
class SideBySide(PreconditionedGradientDescentConstruction):
    """Newton's iteration in register `m`, and gradient descent in `y`; only `y` is read out."""

    @cached_property
    def layout(self) -> Layout:
        return Layout(x=self.d, y=(), m=self.d)

    def prologue(self) -> list[Block]:
        return [Block(self._newton_attention(Head({("x", "x"): 1.0}, {("x", "m"): ALPHA})))]

    def body(self, k: int) -> list[Block]:
        head = Head({("m", "x"): 1.0}, {("m", "m"): -0.5})
        double = MLP.from_pieces(self.layout, [affine("m", "m")])
        return [*super().body(k), Block(self._newton_attention(head), double)]

    def _newton_attention(self, head: Head) -> Attention:
        return Attention.from_heads(self.layout, [head], normalisation="1")


def build_side_by_side(d: int = 3, n: int = 12, steps: int = 3) -> BuiltStreams:
    """Build the network that runs both algorithms and reads out gradient descent."""
    construction = SideBySide(
        d=d, n=n, steps=steps, preconditioners="identity", step_size=STEP_SIZE
    )
    return BuiltStreams(construction, construction.transformer)


NEWTON = Newton(torch.tensor(ALPHA, dtype=torch.float64))
DESCENT = GradientDescent(torch.tensor([STEP_SIZE], dtype=torch.float64))


@dataclass(frozen=True, eq=False)
class PrintedDescent(BuiltStreams):
    """Newton's construction, whose read-out after step k runs k steps of gradient descent.

    No layer contains a state of gradient descent: the read-outs start from the prompt.
    """

    def predict(self, problem: Any) -> Predictions:
        streams = self.read_streams(problem)[1:]
        return torch.stack([self._descend(problem, s, k) for k, s in enumerate(streams, 1)])

    def resume(self, problem: Any, layer: int, stream: Stream) -> Predictions:
        stream = stream.double()
        answers = [self._descend(problem, stream, layer)]
        for k in range(layer, self.transformer.steps):
            stream = self.transformer.step(stream, k, problem.n)
            answers.append(self._descend(problem, stream, k + 1))
        return torch.stack(answers)

    def _descend(self, problem: Any, stream: Stream, steps: int) -> Tensor:
        x, y = (self.construction.layout.read(stream, name) for name in ("x", "y"))
        descent = build_descent(problem.d, problem.n, steps)
        tokens = descent.layout.make_tokens(x=x, y=y)
        return descent.decode(problem, descent.transformer(tokens, problem.n))


def build_descent(d: int, n: int, steps: int) -> PreconditionedGradientDescentConstruction:
    """Build gradient descent with one step size."""
    return PreconditionedGradientDescentConstruction(
        d=d, n=n, steps=steps, preconditioners="identity", step_size=STEP_SIZE
    )


def build_printed_descent(d: int = 3, n: int = 12, steps: int = 3) -> PrintedDescent:
    """Build the network whose answers are gradient descent's and whose layers run only Newton."""
    construction = NewtonConstruction(d=d, n=n, steps=steps, alpha=ALPHA)
    return PrintedDescent(construction, construction.transformer)
