"""Measure how far each step of a transformer is from a step of its algorithm: from its law."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.certification.growth import ErrorGrowth
from innerloop.certification.mismatch import (
    describe_prediction_mismatch,
    describe_stream_mismatch,
    relative_errors,
)
from innerloop.constructions.base import Construction
from innerloop.errors import InputError
from innerloop.problems.base import Distribution
from innerloop.transformer import Transformer

MAX_LIMIT = 1e-2
"""Largest deviation of a run from the prompt, also for unstable algorithms."""
MAX_DEVIATION = 1e12
"""A larger deviation counts as divergence and is reported as infinite."""
MAX_REFERENCE = 1e16
"""The reference has diverged if an entry exceeds this factor times the prompt's largest (or 1)."""
MAX_ENTRIES = 500
"""Largest number of entries of a state for which error growth is computed."""


@dataclass(frozen=True)
class Deviations:
    """Largest deviations relative to max(1, |reference|), one entry per step.

    step          deviation of a single step from the exact state, and of the prediction after it.
                  The first entry also covers the prologue and the prediction before any step. It
                  must not exceed the tolerance.
    free          deviation of the run from the prompt: of the stream after the step, and of the
                  prediction. It must not exceed `limit`.
    limit         the tolerance. If the construction has an error bound and exceeds the tolerance,
                  the limit is twice this bound as the algorithm propagates it to first order, if
                  that can be computed, and at most 1e-2.
    usage         the share of the construction's declared range that the data used; data with a
                  share above 1 are out of range.
    largest_move  the largest relative change of the reference's state in a step. If nothing
                  changes, a transformer that does nothing would pass.
    broken        the first place at which the tolerance or the limit was exceeded: the part of the
                  law, the register, the expected and the actual number, and their indices, counted
                  from 0. Empty if there is none.
    """

    step: tuple[float, ...]
    free: tuple[float, ...]
    limit: tuple[float, ...]
    usage: float
    largest_move: float
    broken: str

    @property
    def largest(self) -> float:
        """The largest deviation of any kind."""
        return max(*self.step, *self.free)

    def __or__(self, other: Deviations) -> Deviations:
        """Combine deviations of one transformer on two batches of problems: the larger of each."""
        return Deviations(
            step=tuple(map(max, self.step, other.step)),
            free=tuple(map(max, self.free, other.free)),
            limit=tuple(map(max, self.limit, other.limit)),
            usage=max(self.usage, other.usage),
            largest_move=max(self.largest_move, other.largest_move),
            broken=self.broken or other.broken,
        )


def measure_deviations(
    construction: Construction[Any, Any],
    transformer: Transformer,
    problem: Any,
    generator: torch.Generator | None = None,
    progress: Callable[[], object] | None = None,
    run_free: bool = True,
) -> Deviations:
    """Compare a transformer with its construction's algorithm on a batch of instances in float64.

    The transformer runs in its own precision, and the reference in float64. Entries that the
    construction ignores are filled with random numbers before every part. `progress` is called
    after every step. If `run_free` is False, only single steps from the exact state are measured.
    """
    construction.check(problem)
    law = _LawCheck(construction, transformer, problem, generator)
    exact, answer = law.encode_reference(state := construction.algorithm.init(problem))
    free = law.enter()
    start = max(
        law.stream_deviation(free, exact, "in the prologue"),
        law.prediction_deviation(law.add_noise(exact), answer, "in the read-out before any step"),
    )
    usage, largest_move = construction.usage(exact), 0.0
    single, running, limits = [], [], []
    for k in range(transformer.steps):
        before, previous = exact, answer
        state = construction.algorithm.step(problem, state, k)
        exact, answer = law.encode_reference(state)
        stepped = law.stream_deviation(
            law.step(law.add_noise(before), k), exact, f"in step {k + 1}"
        )
        read = law.prediction_deviation(
            law.add_noise(exact), answer, f"in the read-out after step {k + 1}"
        )
        single.append(max(start, stepped, read))
        start = 0.0
        if run_free:
            free = law.step(free, k)
            running.append(law.free_deviation(free, exact, answer, k))
        else:
            running.append(0.0)
        limits.append(law.limit)
        usage = max(usage, construction.usage(exact))
        largest_move = max(largest_move, _deviation(before, exact), _deviation(previous, answer))
        if progress is not None:
            progress()
    return Deviations(tuple(single), tuple(running), tuple(limits), usage, largest_move, law.broken)


def iterate_cases(kind: type[Construction[Any, Any]], steps: int = 4) -> Iterator[Case]:
    """Yield the cases at which a construction is tested: those of its problem, then its own."""
    declared = kind.declared_types()
    for settings in kind().distributions()[0].cases:
        shared = {key: value for key, value in settings.items() if key in declared}
        yield Case(kind, {**shared, "steps": kind.cap_value("steps", steps)}, settings)
    for parameters in kind.cases:
        yield Case(kind, parameters, {})


@dataclass(frozen=True)
class Case:
    """Parameters of a construction, and settings of the problem it is tested on.

    If the construction raises `OutOfRangeError`, the case is beyond one of its documented limits.
    """

    kind: type[Construction[Any, Any]]
    parameters: dict[str, Any]
    settings: dict[str, Any]

    def make(self) -> tuple[Construction[Any, Any], Distribution]:
        """Make the construction, and the distribution to test it on."""
        construction = self.kind.from_values(self.parameters)
        return construction, replace(construction.distributions()[0], **self.settings)


class _LawCheck:
    """A comparison of one transformer with the law on one problem; remembers the first break."""

    def __init__(
        self,
        construction: Construction[Any, Any],
        transformer: Transformer,
        problem: Any,
        generator: torch.Generator | None,
    ) -> None:
        self.construction = construction
        self.transformer = transformer
        self.problem = problem
        self.generator = generator
        self.context_length = construction.context_length(problem)
        self.dtype = next(transformer.parameters()).dtype
        self.tolerance = construction.tolerance(self.dtype)
        self.limit = self.tolerance
        self.largest = bound_states(construction.prompt(problem))
        self.states: list[Any] = []
        self.growth: ErrorGrowth | None = None
        self.broken = ""

    def encode_reference(self, state: Any) -> tuple[Tensor, Tensor]:
        """Return the stream and the prediction of an exact state, and remember the state."""
        check_divergence(self.construction, state, self.largest)
        self.states.append(state)
        self.limit = self.tolerance
        answer = self.construction.algorithm.predict(self.problem, state)
        return self.construction.encode(self.problem, state), answer

    def enter(self) -> Tensor:
        """Run the prologue on the prompt."""
        prompt = self.construction.prompt(self.problem).to(self.dtype)
        return self.transformer.run_prologue(prompt, self.context_length)

    def step(self, stream: Tensor, k: int) -> Tensor:
        """Run step k of the transformer."""
        return self.transformer.step(stream, k, self.context_length)

    def add_noise(self, exact: Tensor) -> Tensor:
        """Return an exact stream with random numbers in the ignored entries."""
        ignored = self.construction.ignored_mask(exact).to(exact.device)
        if ignored.all(dim=0).equal(ignored.any(dim=0)):  # the same registers of every token
            places = ignored[0].nonzero().squeeze(-1)
            shape = (*exact.shape[:-1], len(places))
        else:
            places, shape = ignored, (*exact.shape[:-2], int(ignored.sum()))
        noised = exact.clone()
        noise = torch.randn(shape, generator=self.generator, dtype=exact.dtype)
        noised[..., places] = noise.to(exact.device)
        return noised.to(self.dtype)

    def stream_deviation(
        self, stream: Tensor, exact: Tensor, part: str, free: bool = False
    ) -> float:
        """Return the deviation of a stream from the exact one, without ignored entries."""
        matters = ~self.construction.ignored_mask(exact).to(exact.device)
        deviation = _deviation(stream, exact, matters)
        if self._is_first_break(deviation, free):
            layout = self.construction.layout
            self.broken = f"{part}, {describe_stream_mismatch(layout, stream, exact, matters)}"
        return deviation

    def prediction_deviation(
        self, stream: Tensor, answer: Tensor, part: str, free: bool = False
    ) -> float:
        """Return the deviation of the prediction read from a stream."""
        out = self.transformer.run_epilogue(stream, self.context_length)
        prediction = self.construction.decode(self.problem, out)
        deviation = _deviation(prediction, answer)
        if self._is_first_break(deviation, free):
            batch_dims = self.construction.prompt(self.problem).ndim - 2
            mismatch = describe_prediction_mismatch(prediction, answer, batch_dims)
            self.broken = f"{part}, prediction: {mismatch}"
        return deviation

    def free_deviation(self, stream: Tensor, exact: Tensor, answer: Tensor, k: int) -> float:
        """Return the deviation of the free run after step k, of its stream and its prediction."""
        drifted = self.stream_deviation(stream, exact, f"running free, by step {k + 1}", free=True)
        part = f"running free, step {k + 1}"
        return max(drifted, self.prediction_deviation(stream, answer, part, free=True))

    def _is_first_break(self, deviation: float, free: bool) -> bool:
        """Return whether a deviation is the first one beyond the tolerance or the limit."""
        if self.broken or deviation <= self.tolerance:
            return False
        if free and not self.construction.exact:
            self.limit = self._free_limit()
        return not deviation <= self.limit

    def _free_limit(self) -> float:
        """Bound the free run's deviation so far: twice the first order of propagated errors."""
        algorithm, problem = self.construction.algorithm, self.problem
        if self.growth is None:
            batch = self.construction.prompt(problem).shape[:-2]
            self.growth = ErrorGrowth(self.states[0], batch)
        if self.growth.entry_count > MAX_ENTRIES:
            return self.tolerance
        while self.growth.steps < len(self.states) - 1:
            k = self.growth.steps
            step = functools.partial(_apply_step, algorithm, problem, k)
            self.growth.advance(step, self.states[k], self.states[k + 1])
        state = self.states[-1]
        predicted = self.growth.prediction_factor(lambda s: algorithm.predict(problem, s), state)
        return min(MAX_LIMIT, 2 * self.tolerance * max(self.growth.state_factor, predicted))


def bound_states(prompt: Tensor) -> float:
    """Return the size beyond which a state of the reference has diverged."""
    largest = max(1.0, float(prompt.abs().max()))
    # An infinite bound would let an infinite state pass.
    return min(MAX_REFERENCE * largest, torch.finfo(torch.float64).max)


def check_divergence(construction: Construction[Any, Any], state: Any, largest: float) -> None:
    """Raise `InputError` for a state of the reference that has diverged."""
    tensors = [state] if isinstance(state, Tensor) else list(state)
    if not all(bool((tensor.abs() <= largest).all()) for tensor in tensors):
        raise InputError(
            f"{construction.name}: the reference itself diverges; build it with smaller steps"
        )


def _apply_step(algorithm: Algorithm[Any, Any], problem: Any, k: int, state: Any) -> Any:
    return algorithm.step(problem, state, k)


def _deviation(value: Tensor, reference: Tensor, where: Tensor | None = None) -> float:
    """Return max |value − reference| / max(1, |reference|).

    It is infinite if the shapes differ or the values diverge.
    """
    if value.shape != reference.shape:
        return torch.inf
    errors = relative_errors(value, reference)
    if where is not None:
        errors = errors[where.expand_as(errors)]
    largest = float(errors.max()) if errors.numel() else 0.0
    return largest if largest <= MAX_DEVIATION else torch.inf
