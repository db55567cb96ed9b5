"""The law of a construction, measured: how far its three parts are from holding, step by step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from innerloop.constructions.base import Construction
from innerloop.errors import InputError, OutOfRange
from innerloop.problems.base import Distribution
from innerloop.transformer import Transformer


@dataclass(frozen=True)
class Deviations:
    """Largest deviations relative to max(1, |reference|), one entry for each step.

    step  from the exact state: the step, and the prediction read after it. The first entry also
          covers the prologue and the prediction before any step.
    free  running from the prompt: the stream after the step, and the prediction read from it.
    usage the share of the construction's declared range that the data used; above 1 is outside.
    """

    step: tuple[float, ...]
    free: tuple[float, ...]
    usage: float

    @property
    def largest(self) -> float:
        return max(*self.step, *self.free)


def deviations(
    construction: Construction,
    transformer: Transformer,
    problem: Any,
    generator: torch.Generator | None = None,
) -> Deviations:
    """Hold a transformer against its construction's law on a batch of instances in float64.

    The transformer runs in its own precision, the reference in float64. What the construction
    ignores is filled with random numbers before every part of the law.
    """
    construction.accept(problem)
    law = _Law(construction, transformer, problem, generator)
    algorithm = construction.algorithm
    states = list(algorithm.states(problem, transformer.steps))
    if not all(_finite(state) for state in states):
        raise InputError(f"{construction.name}: the reference itself diverges on these problems")
    encoded = [construction.encode(problem, state) for state in states]
    answers = [algorithm.predict(problem, state) for state in states]

    free = law.enter()
    first = max(law.off(free, encoded[0]), law.off_answer(law.noised(encoded[0]), answers[0]))
    step, running = [], []
    for k in range(transformer.steps):
        moved = law.step(law.noised(encoded[k]), k)
        after = law.off_answer(law.noised(encoded[k + 1]), answers[k + 1])
        step.append(max(law.off(moved, encoded[k + 1]), after))
        free = law.step(free, k)
        running.append(max(law.off(free, encoded[k + 1]), law.off_answer(free, answers[k + 1])))
    step[0] = max(first, step[0])
    usage = max(construction.usage(stream) for stream in encoded)
    return Deviations(tuple(step), tuple(running), usage)


def cases(kind: type[Construction], steps: int = 4) -> list[tuple[Construction, Distribution]]:
    """Where the law of a construction is tested: its problem's general cases, then its own.

    Settings of a case that the construction declares (d, n, …) are parameters of both. A case that
    it refuses with `OutOfRange`, when built or when run, is a limit it documents.
    """
    found = []
    declared = kind.types()
    for settings in kind().distribution().cases:
        shared = {key: value for key, value in settings.items() if key in declared}
        construction = kind(**shared, steps=steps)
        found.append((construction, replace(construction.distribution(), **settings)))
    own = [kind(**settings) for settings in kind.cases]
    return found + [(construction, construction.distribution()) for construction in own]


class _Law:
    """One transformer on one problem, in the transformer's precision."""

    def __init__(
        self,
        construction: Construction,
        transformer: Transformer,
        problem: Any,
        generator: torch.Generator | None,
    ) -> None:
        self.construction = construction
        self.transformer = transformer
        self.problem = problem
        self.generator = generator
        self.context = construction.context(problem)
        self.dtype = next(transformer.parameters()).dtype

    def enter(self) -> Tensor:
        prompt = self.construction.prompt(self.problem).to(self.dtype)
        return self.transformer.enter(prompt, self.context)

    def step(self, stream: Tensor, k: int) -> Tensor:
        return self.transformer.step(stream, k, self.context)

    def noised(self, exact: Tensor) -> Tensor:
        """An exact stream as the transformer may meet it: anything where the content is ignored."""
        noise = torch.randn(exact.shape, generator=self.generator, dtype=exact.dtype)
        ignored = self.construction.ignored(exact).to(exact.device)
        return torch.where(ignored, noise.to(exact.device), exact).to(self.dtype)

    def off(self, stream: Tensor, exact: Tensor) -> float:
        """The deviation of a stream from the exact one, where the content matters."""
        return _deviation(stream, exact, ~self.construction.ignored(exact).to(exact.device))

    def off_answer(self, stream: Tensor, answer: Tensor) -> float:
        """The deviation of the prediction read from a stream."""
        out = self.transformer.leave(stream, self.context)
        return _deviation(self.construction.decode(self.problem, out), answer)


def _deviation(value: Tensor, reference: Tensor, where: Tensor | None = None) -> float:
    """max |value − reference| / max(1, |reference|); infinite if anything is not a number."""
    if value.shape != reference.shape:
        raise OutOfRange(
            f"expected shape {tuple(reference.shape)}, the transformer gave {tuple(value.shape)}"
        )
    off = (value.to(reference) - reference).abs() / reference.abs().clamp_min(1.0)
    if where is not None:
        off = off[where.expand_as(off)]
    return float(off.nan_to_num(nan=torch.inf).max()) if off.numel() else 0.0


def _finite(state: Any) -> bool:
    tensors = [state] if isinstance(state, Tensor) else list(state)
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)
