"""The law of a construction, measured: how far its three parts are from holding, step by step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.constructions.base import Construction
from innerloop.constructions.growth import Growth
from innerloop.errors import InputError
from innerloop.problems.base import Distribution
from innerloop.transformer import Transformer

LOOSEST = 1e-2
"""However unstable an algorithm is, weights that are off by more do not run it."""
MOST_ENTRIES = 500
"""The derivative of a state with more entries than this is not taken: the tolerance has to do."""


@dataclass(frozen=True)
class Deviations:
    """Largest deviations relative to max(1, |reference|), one entry for each step.

    step   from the exact state: the step, and the prediction read after it. The first entry also
           covers the prologue and the prediction before any step. Held against the tolerance.
    free   running from the prompt: the stream after the step, and the prediction read from it.
    limit  what `free` is held against: the tolerance; where a construction with a bound goes beyond
           it, that bound as the algorithm itself makes errors grow (twice the first order), if that
           can be computed, and 1e-2 at most.
    usage  the share of the construction's declared range that the data used; above 1 is outside.
    moved  how far any step took the reference, measured alike. Where it does not move, any weights
           would do.
    broken where one of the two was first exceeded, in words; empty where none ever was.
    """

    step: tuple[float, ...]
    free: tuple[float, ...]
    limit: tuple[float, ...]
    usage: float
    moved: float
    broken: str

    @property
    def largest(self) -> float:
        return max(*self.step, *self.free)

    def __or__(self, other: Deviations) -> Deviations:
        """The larger of each, for the same transformer on other problems."""
        return Deviations(
            step=tuple(map(max, self.step, other.step)),
            free=tuple(map(max, self.free, other.free)),
            limit=tuple(map(max, self.limit, other.limit)),
            usage=max(self.usage, other.usage),
            moved=max(self.moved, other.moved),
            broken=self.broken or other.broken,
        )


def deviations(
    construction: Construction,
    transformer: Transformer,
    problem: Any,
    generator: torch.Generator | None = None,
    progress: Callable[[], object] | None = None,
) -> Deviations:
    """Hold a transformer against its construction's law on a batch of instances in float64.

    The transformer runs in its own precision, the reference in float64. What the construction
    ignores is filled with random numbers before every part of the law. `progress` is called after
    every step.
    """
    construction.check(problem)
    law = _Law(construction, transformer, problem, generator)
    exact, answer = law.reference(state := construction.algorithm.init(problem))
    free = law.enter()
    start = max(
        law.off(free, exact, "in the prologue"),
        law.off_answer(law.noised(exact), answer, "in the read-out before any step"),
    )
    usage, moved = construction.usage(exact), 0.0
    step, running, limits = [], [], []
    for k in range(transformer.steps):
        before, previous = exact, answer
        state = construction.algorithm.step(problem, state, k)
        exact, answer = law.reference(state)
        stepped = law.off(law.step(law.noised(before), k), exact, f"in step {k + 1}")
        read = law.off_answer(law.noised(exact), answer, f"in the read-out after step {k + 1}")
        step.append(max(start, stepped, read))
        free, start = law.step(free, k), 0.0
        drifted = law.off(free, exact, f"running free, by step {k + 1}", free=True)
        told = law.off_answer(free, answer, f"running free, step {k + 1}", free=True)
        running.append(max(drifted, told))
        limits.append(law.limit)
        usage = max(usage, construction.usage(exact))
        moved = max(moved, _deviation(before, exact), _deviation(previous, answer))
        if progress is not None:
            progress()
    return Deviations(tuple(step), tuple(running), tuple(limits), usage, moved, law.broken)


def cases(kind: type[Construction], steps: int = 4) -> Iterator[Case]:
    """Where the law of a construction is tested: its problem's general cases, then its own."""
    declared = kind.types()
    for settings in kind().distributions()[0].cases:
        shared = {key: value for key, value in settings.items() if key in declared}
        yield Case(kind, {**shared, "steps": kind.capped("steps", steps)}, settings)
    for parameters in kind.cases:
        yield Case(kind, parameters, {})


@dataclass(frozen=True)
class Case:
    """Parameters of a construction, and settings of the problem it is tested on.

    A case that the construction refuses with `OutOfRange`, when made or when run, is a limit that
    it documents.
    """

    kind: type[Construction]
    parameters: dict[str, Any]
    settings: dict[str, Any]

    def make(self) -> tuple[Construction, Distribution]:
        construction = self.kind.made(self.parameters)
        return construction, replace(construction.distributions()[0], **self.settings)


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
        self.tolerance = construction.tolerance(self.dtype)
        self.limit = self.tolerance
        self.states: list[Any] = []
        self.growth: Growth | None = None
        self.broken = ""

    def reference(self, state: Any) -> tuple[Tensor, Tensor]:
        """The stream and the prediction that a state of the algorithm stands for."""
        tensors = [state] if isinstance(state, Tensor) else list(state)
        if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors):
            name = self.construction.name
            raise InputError(f"{name}: the reference itself diverges; build it with smaller steps")
        self.states.append(state)
        self.limit = self.tolerance
        answer = self.construction.algorithm.predict(self.problem, state)
        return self.construction.encode(self.problem, state), answer

    def enter(self) -> Tensor:
        prompt = self.construction.prompt(self.problem).to(self.dtype)
        return self.transformer.enter(prompt, self.context)

    def step(self, stream: Tensor, k: int) -> Tensor:
        return self.transformer.step(stream, k, self.context)

    def noised(self, exact: Tensor) -> Tensor:
        """An exact stream as the transformer may meet it: anything where the content is ignored."""
        ignored = self.construction.ignored(exact).to(exact.device)
        if ignored.all(dim=0).equal(ignored.any(dim=0)):  # the same registers of every token
            places = ignored[0].nonzero().squeeze(-1)
            shape = (*exact.shape[:-1], len(places))
        else:
            places, shape = ignored, (*exact.shape[:-2], int(ignored.sum()))
        noised = exact.clone()
        noise = torch.randn(shape, generator=self.generator, dtype=exact.dtype)
        noised[..., places] = noise.to(exact.device)
        return noised.to(self.dtype)

    def off(self, stream: Tensor, exact: Tensor, part: str, free: bool = False) -> float:
        """The deviation of a stream from the exact one, where the content matters."""
        matters = ~self.construction.ignored(exact).to(exact.device)
        found = _deviation(stream, exact, matters)
        if self._is_first_break(found, free):
            layout = self.construction.layout
            registers = {
                name: _deviation(stream, exact, matters & layout.mask(name).to(exact.device))
                for name in layout.registers
            }
            self.broken = f"{part}, register {max(registers, key=lambda name: registers[name])}"
        return found

    def off_answer(self, stream: Tensor, answer: Tensor, part: str, free: bool = False) -> float:
        """The deviation of the prediction read from a stream."""
        out = self.transformer.leave(stream, self.context)
        found = _deviation(self.construction.decode(self.problem, out), answer)
        if self._is_first_break(found, free):
            self.broken = f"{part}, prediction"
        return found

    def _is_first_break(self, found: float, free: bool) -> bool:
        """Whether this is the first deviation beyond what is allowed."""
        if self.broken or found <= self.tolerance:
            return False
        if free and not self.construction.exact:
            self.limit = self._grown()
        return not found <= self.limit

    def _grown(self) -> float:
        """How far the free run may be off by now: twice the first order, for those after it."""
        algorithm, problem = self.construction.algorithm, self.problem
        if self.growth is None:
            batch = self.construction.prompt(problem).shape[:-2]
            self.growth = Growth(self.states[0], batch)
        if self.growth.entries > MOST_ENTRIES:
            return self.tolerance
        while self.growth.steps < len(self.states) - 1:
            k = self.growth.steps
            step = functools.partial(_stepped, algorithm, problem, k)
            self.growth.advance(step, self.states[k], self.states[k + 1])
        state = self.states[-1]
        told = self.growth.read(lambda s: algorithm.predict(problem, s), state)
        return min(LOOSEST, 2 * self.tolerance * max(self.growth.grown, told))


def _stepped(algorithm: Algorithm[Any, Any], problem: Any, k: int, state: Any) -> Any:
    return algorithm.step(problem, state, k)


def _deviation(value: Tensor, reference: Tensor, where: Tensor | None = None) -> float:
    """max |value − reference| / max(1, |reference|); infinite if a shape or a number is wrong."""
    if value.shape != reference.shape:
        return torch.inf
    off = (value.to(reference) - reference).abs() / reference.abs().clamp_min(1.0)
    if where is not None:
        off = off[where.expand_as(off)]
    return float(off.nan_to_num(nan=torch.inf, posinf=torch.inf).max()) if off.numel() else 0.0
