"""Draw instances on which the law is stated, and measure a transformer on them.

A law is stated for a declared range: a construction refuses a problem beyond it, or finds that a
state of the reference uses more than all of it (a point between two means, say). Such
instances are drawn again; where they are most, the construction was not built for them, and that is
what is reported.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from innerloop.certification.coverage import Coverage
from innerloop.certification.law import Deviations, measure_deviations
from innerloop.constructions.base import Construction
from innerloop.errors import InputError, OutOfRangeError
from innerloop.problems.base import Distribution
from innerloop.problems.problem import Problem
from innerloop.transformer import Transformer

MAX_OUTSIDE = 2
"""Up to one instance in this many (and at least one) may be out of range, and is drawn again."""
MAX_REDRAWS = 8
"""An instance is drawn again at most this often."""
MAX_ROUNDS = 2
"""Rounds of further instances, the first as many as asked for, the second twice as many."""
WORTHWHILE = 0.1
"""A second round is drawn only where the first reached this share of the weights missing."""


MAX_ENTRIES = 1 << 28
"""Entries of the streams of all instances, 2 GB of them in float64."""


class Measurement(NamedTuple):
    """Deviations over all instances, and how the instances came about.

    redrawn          instances out of the declared range, which were drawn again
    further          instances drawn beyond those asked for, to reach more weights
    unreached        nonzero weights that no instance reached, counted by tensor; None where it was
                     not measured: the law is broken, or a single instance is too large
    unreached_zeros  weights that are 0 and were not reached
    """

    deviations: Deviations
    redrawn: int = 0
    further: int = 0
    unreached: dict[str, int] | None = None
    unreached_zeros: int | None = None


def measure_all(
    construction: Construction[Any, Any],
    transformer: Transformer,
    instances: int,
    seed: int,
    progress: Callable[[], object] | None = None,
) -> Measurement:
    """Measure on random instances, and on further ones while they reach weights not reached yet."""
    found, problems, redrawn = measure_instances(
        construction, transformer, instances, seed, progress
    )
    if found.broken or found.usage > 1:
        return Measurement(found, redrawn)
    generator = torch.Generator().manual_seed(seed)
    coverage = Coverage(construction, transformer)
    for problem in problems:
        coverage.observe(problem, generator)
    further, dtype = 0, next(transformer.parameters()).dtype
    for size in (instances * 2**k for k in range(MAX_ROUNDS)):
        missing = coverage.count_unreached()
        if not (coverage.measured and missing):
            break
        problems = _draw_further(construction, size, generator, dtype)
        reaching = [p for p in problems if coverage.observe_further(p, generator)]
        if not reaching:
            break
        for problem in reaching:
            with torch.no_grad():
                found |= measure_deviations(
                    construction, transformer, problem, generator, run_free=False
                )
            further += len(problem)
        if found.broken:
            return Measurement(found, redrawn, further)
        if coverage.count_unreached() > (1 - WORTHWHILE) * missing:
            break
    if not coverage.measured:
        return Measurement(found, redrawn, further)
    zeros = coverage.count_unreached_zeros()
    return Measurement(found, redrawn, further, coverage.list_unreached(), zeros)


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
        problem = distribution.sample(share, generator=generator, dtype=dtype).to(torch.float64)
        measure = functools.partial(measure_deviations, construction, transformer)
        with torch.no_grad():
            try:
                found, error = measure(problem, generator, progress), None
            except OutOfRangeError as refused:
                found, error = None, refused
            if found is None or found.usage > 1:
                problem, count = _redraw(construction, distribution, problem, generator, dtype)
                redrawn += count
                if count:
                    found = measure(problem, generator)
        if found is None:
            raise error or OutOfRangeError(f"{construction.name}: no instance is in range")
        measured.append(found)
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
    construction: Construction[Any, Any],
    distribution: Distribution,
    problem: Any,
    generator: torch.Generator,
    dtype: torch.dtype,
) -> tuple[Any, int]:
    """Replace the instances that are out of range, if they are few; return how many were."""
    if not isinstance(problem, Problem):
        return problem, 0
    inside = find_in_range(construction, problem)
    outside = [k for k, good in enumerate(inside) if not good]
    if len(outside) > max(1, len(inside) // MAX_OUTSIDE):
        return problem, 0
    kept: list[Any] = list(problem)
    for k in outside:
        for _ in range(MAX_REDRAWS):
            fresh = distribution.sample(1, generator=generator, dtype=dtype).to(torch.float64)
            if find_in_range(construction, fresh)[0]:
                kept[k] = fresh[0]
                break
        else:
            return problem, 0
    return _stack(problem, kept), len(outside)


def _draw_further(
    construction: Construction[Any, Any],
    instances: int,
    generator: torch.Generator,
    dtype: torch.dtype,
) -> list[Any]:
    """Draw further problems, without the instances that are out of range."""
    problems = []
    for drawn in construction.draw_further(instances, generator, dtype):
        if not isinstance(drawn, Problem):
            continue
        problem = drawn.to(torch.float64)
        inside = torch.tensor(find_in_range(construction, problem)).nonzero().flatten()
        if len(inside):
            problems.append(problem.map_tensors(lambda tensor, rows=inside: tensor[rows]))
    return problems


@torch.no_grad()
def find_in_range(construction: Construction[Any, Any], problem: Any) -> list[bool]:
    """Tell of each instance of a batch whether the law is stated for it, by halving the batch."""
    if _is_in_range(construction, problem):
        return [True] * len(problem)
    if len(problem) == 1:
        return [False]
    middle = len(problem) // 2
    return find_in_range(construction, problem[:middle]) + find_in_range(
        construction, problem[middle:]
    )


def _is_in_range(construction: Construction[Any, Any], problem: Any) -> bool:
    algorithm = construction.algorithm
    try:
        construction.check(problem)
    except OutOfRangeError:
        return False
    state = algorithm.init(problem)
    for k in range(construction.steps + 1):
        if k:
            state = algorithm.step(problem, state, k - 1)
        if not construction.usage(construction.encode(problem, state)) <= 1:
            return False
    return True


def _stack(like: Any, instances: list[Any]) -> Any:
    """Make one batch of single instances, shaped like another batch."""
    columns = [list(_iterate_tensors(instance)) for instance in instances]
    rows = iter([torch.stack(parts) for parts in zip(*columns, strict=True)])
    return like.map_tensors(lambda _: next(rows))


def _iterate_tensors(problem: Any) -> list[torch.Tensor]:
    """List the tensors of a problem, in the order of `map_tensors`."""
    found: list[torch.Tensor] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    problem.map_tensors(note)
    return found
