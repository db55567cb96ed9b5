"""Draw instances in the declared range of a construction, and measure a transformer on them.

An instance can be out of range at the start, or because a state of the reference leaves the range,
for example at a point between two means. Such instances are replaced by new ones, and the
certificate states their number. If that takes too many attempts, the certificate reports that the
data are out of range.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from innerloop.certification.approximation import measure_approximation
from innerloop.certification.coverage import Unreached, find_unreached
from innerloop.certification.extremes import (
    find_in_range,
    join_batches,
    scale_to_ends,
    select,
)
from innerloop.certification.law import Deviations, measure_deviations
from innerloop.constructions.base import Construction
from innerloop.errors import InputError, OutOfRangeError
from innerloop.problems.base import Distribution
from innerloop.problems.problem import Problem
from innerloop.transformer import Transformer

MAX_ATTEMPTS = 10
"""Largest number of replacements, as a multiple of the number of instances."""
OBSERVED = 4
"""Number of random instances on which the effects of weights are computed, besides extreme ones."""
EXTREME = 2
"""Number of instances that are scaled to each end of the declared range."""
FURTHER = 16
"""Number of rare instances, for constructions that define `draw_further`."""
MAX_ENTRIES = 1 << 28
"""Largest number of entries of all streams: 2 GB in float64."""


class Measurement(NamedTuple):
    """Deviations over all instances, and the numbers of instances.

    redrawn    number of instances that were replaced, because they were out of range
    further    number of instances at the ends of the range, and of rare instances
    unreached  the weights that no instance reached; None if it was not measured, because the law
               does not hold or a single instance is too large
    approximation  the error of piecewise linear functions in a step; None without knots
    """

    deviations: Deviations
    redrawn: int = 0
    further: int = 0
    unreached: Unreached | None = None
    approximation: dict[str, float] | None = None


def measure_all(
    construction: Construction[Any, Any],
    transformer: Transformer,
    instances: int,
    seed: int,
    progress: Callable[[], object] | None = None,
) -> Measurement:
    """Measure on random and on extreme instances, and find the weights that they do not reach."""
    deviations, problems, redrawn = measure_instances(
        construction, transformer, instances, seed, progress
    )
    if deviations.broken or deviations.usage > 1:
        return Measurement(deviations, redrawn)
    generator = torch.Generator().manual_seed(seed)
    extreme = _draw_extreme(
        construction, problems[0], generator, next(transformer.parameters()).dtype
    )
    if extreme is not None:
        with torch.no_grad():
            deviations |= measure_deviations(
                construction, transformer, extreme, generator, run_free=False
            )
    further = 0 if extreme is None else len(extreme)
    if deviations.broken:
        return Measurement(deviations, redrawn, further)
    observed = problems[0][:OBSERVED]
    unreached = find_unreached(
        construction,
        transformer,
        observed if extreme is None else join_batches([observed, extreme]),
        generator,
    )
    with torch.no_grad():
        approximation = measure_approximation(construction, observed)
    return Measurement(deviations, redrawn, further, unreached, approximation)


def measure_instances(
    construction: Construction[Any, Any],
    transformer: Transformer,
    instances: int,
    seed: int,
    progress: Callable[[], object] | None = None,
) -> tuple[Deviations, list[Any], int]:
    """Measure on instances of all the construction's distributions, in equal numbers.

    Returns the deviations, the problems, and the number of instances that were replaced.
    """
    dtype = next(transformer.parameters()).dtype
    generator = torch.Generator().manual_seed(seed)
    distributions = construction.distributions()
    measured, problems, redrawn = [], [], 0
    for k, distribution in enumerate(distributions):
        share = len(range(k, instances, len(distributions)))
        if not share:
            continue
        _check_size(construction, distribution, share)
        # Drawn in the transformer's precision, so that both sides see the very same data.
        draw = functools.partial(distribution.sample, generator=generator, dtype=dtype)
        problem = draw(share).to(torch.float64)
        measure = functools.partial(measure_deviations, construction, transformer)
        with torch.no_grad():
            try:
                deviations, error = measure(problem, generator, progress), None
            except OutOfRangeError as refused:
                deviations, error = None, refused
            if deviations is None or deviations.usage > 1:
                problem, count = _redraw(construction, draw, problem)
                redrawn += count
                if count:
                    deviations = measure(problem, generator)
        if deviations is None:
            raise error or OutOfRangeError(f"{construction.name}: no instance is in range")
        measured.append(deviations)
        problems.append(problem)
    return functools.reduce(operator.or_, measured), problems, redrawn


def _check_size(
    construction: Construction[Any, Any], distribution: Distribution, instances: int
) -> None:
    """Raise an error if the streams of all instances do not fit into memory."""
    one = distribution.sample(1, generator=torch.Generator().manual_seed(0)).to(torch.float64)
    try:
        construction.check(one)
    except OutOfRangeError:
        return  # refused where it is measured
    entries = construction.prompt(one).numel()
    if instances * entries > MAX_ENTRIES:
        raise InputError(
            f"{construction.name}: {instances:,} instances of {entries:,} numbers each do not fit, "
            f"{MAX_ENTRIES // entries:,} would: use fewer instances or smaller parameters"
        )


def _redraw(
    construction: Construction[Any, Any], draw: Callable[[int], Any], problem: Any
) -> tuple[Any, int]:
    """Replace instances that are out of range; return the problem and the number of replacements.

    If not enough instances in range can be drawn, the problem is returned unchanged, with 0.
    """
    if not isinstance(problem, Problem):
        return problem, 0
    total, attempts = len(problem), 0
    inside = find_in_range(construction, problem)
    outside = total - sum(inside)
    batches, count = [select(problem, _places(inside))] if any(inside) else [], sum(inside)
    while count < total:
        size = max(total - count, 8)
        if attempts + size > max(8, MAX_ATTEMPTS * total) or (attempts >= total and not count):
            return problem, 0
        fresh = draw(size).to(torch.float64)
        good = _places(find_in_range(construction, fresh))
        if places := good[: total - count]:
            batches.append(select(fresh, places))
        attempts += size
        outside += size - len(good)
        count += len(places)
    return join_batches(batches), outside


def _places(mask: list[bool]) -> list[int]:
    return [k for k, good in enumerate(mask) if good]


@torch.no_grad()
def _draw_extreme(
    construction: Construction[Any, Any],
    problem: Any,
    generator: torch.Generator,
    dtype: torch.dtype,
) -> Any | None:
    """Return instances at the ends of the range, and the construction's rare instances."""
    if not isinstance(problem, Problem):
        return None
    scaled = scale_to_ends(construction, problem[:EXTREME])
    drawn = [*scaled, *construction.draw_further(FURTHER, generator, dtype)]
    if not drawn:
        return None
    batch = join_batches(drawn).to(dtype).to(torch.float64)
    places = _places(find_in_range(construction, batch))
    return select(batch, places) if places else None
