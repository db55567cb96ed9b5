"""Draw instances on which the law is stated, and measure a transformer on them.

A law is stated for a declared range: a construction refuses a problem beyond it, or finds that a
state of the reference uses more than all of it (a point between two means, say). Such instances are
drawn again until there are as many as asked for, which the certificate tells; where that takes too
many attempts, the construction was not built for them, and that is what is reported.
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
"""Instances are drawn again until in range, at most this many for each one asked for."""
OBSERVED = 4
"""Random instances on which the weights' effects are computed, besides the extreme ones."""
EXTREME = 2
"""Instances that are scaled to each end of the declared range."""
FURTHER = 16
"""Further instances of a construction's own kind, where it has one."""
MAX_ENTRIES = 1 << 28
"""Entries of the streams of all instances, 2 GB of them in float64."""


class Measurement(NamedTuple):
    """Deviations over all instances, and how the instances came about.

    redrawn    instances turned down, since they were out of the declared range
    further    instances at the ends of the range, and of a construction's own further kind
    unreached  the weights that no instance reached; None where it was not measured: the law is
               broken, or a single instance is too large
    approximation  how far straight lines take a step from their functions; None without knots
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
    """Measure on random instances and on extreme ones, and find the weights they do not reach."""
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
    few = problems[0][:OBSERVED]
    unreached = find_unreached(
        construction,
        transformer,
        few if extreme is None else join_batches([few, extreme]),
        generator,
    )
    with torch.no_grad():
        approximation = measure_approximation(construction, few)
    return Measurement(deviations, redrawn, further, unreached, approximation)


def measure_instances(
    construction: Construction[Any, Any],
    transformer: Transformer,
    instances: int,
    seed: int,
    progress: Callable[[], object] | None = None,
) -> tuple[Deviations, list[Any], int]:
    """Measure over all the construction's distributions, instances dealt out among them.

    Returns the deviations, the problems, and how many instances were drawn again.
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
    """Refuse more instances than fit into memory, by the size of one."""
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
    """Replace the instances out of range by others in range; return how many were turned down.

    Without enough of them in range the problem is returned as it is, and 0.
    """
    if not isinstance(problem, Problem):
        return problem, 0
    wanted, attempts = len(problem), 0
    inside = find_in_range(construction, problem)
    outside = wanted - sum(inside)
    kept, count = [select(problem, _places(inside))] if any(inside) else [], sum(inside)
    while count < wanted:
        size = max(wanted - count, 8)
        if attempts + size > max(8, MAX_ATTEMPTS * wanted) or (attempts >= wanted and not count):
            return problem, 0
        fresh = draw(size).to(torch.float64)
        good = _places(find_in_range(construction, fresh))
        if places := good[: wanted - count]:
            kept.append(select(fresh, places))
        attempts += size
        outside += size - len(good)
        count += len(places)
    return join_batches(kept), outside


def _places(mask: list[bool]) -> list[int]:
    return [k for k, good in enumerate(mask) if good]


@torch.no_grad()
def _draw_extreme(
    construction: Construction[Any, Any],
    problem: Any,
    generator: torch.Generator,
    dtype: torch.dtype,
) -> Any | None:
    """Return instances at the ends of the range, and the construction's own further ones."""
    if not isinstance(problem, Problem):
        return None
    scaled = scale_to_ends(construction, problem[:EXTREME])
    drawn = [*scaled, *construction.draw_further(FURTHER, generator, dtype)]
    if not drawn:
        return None
    batch = join_batches(drawn).to(dtype).to(torch.float64)
    places = _places(find_in_range(construction, batch))
    return select(batch, places) if places else None
