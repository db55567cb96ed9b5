"""Instances at the ends of the range that a construction declares.

Random instances are rarely near a bound, but gates and outer knots matter only there. Therefore
data are also scaled up and down to the last factor at which the construction and its reference stay
in the declared range. Bisection finds this factor, for all tensors together and for each tensor
alone. If no factor leaves the range, no instances are added.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from innerloop.certification.law import bound_states, check_divergence
from innerloop.constructions.base import Construction
from innerloop.errors import InputError, OutOfRangeError

OCTAVES = 12
"""Factors up to 2 to this power, and down to its inverse, are tried."""
HALVINGS = 6
"""Number of bisections of the logarithm of a factor, which determine it to 14 %."""


def scale_to_ends(construction: Construction[Any, Any], problem: Any) -> list[Any]:
    """Return a batch of instances in range as batches scaled to the ends of the range."""
    count = sum(tensor.is_floating_point() for tensor in list_tensors(problem))
    together = range(count)
    scaled = [_scale_to_end(construction, problem, together, sign) for sign in (1, -1)]
    if count > 1:
        scaled += [_scale_to_end(construction, problem, [k], 1) for k in together]
    return [each for each in scaled if each is not None]


def _scale_to_end(
    construction: Construction[Any, Any], problem: Any, which: Sequence[int], sign: int
) -> Any | None:
    """Scale some tensors to the end of the range; return None if the range has no end."""

    def allows(octaves: float) -> bool:
        try:
            scaled = _scale(problem, which, 2.0 ** (sign * octaves))
        except InputError:  # the scaled tensors are not a valid problem, as with rewards above 1
            return False
        return is_in_range(construction, scaled)

    inside, outside = 0.0, float(OCTAVES)
    try:
        if allows(outside):
            return None
        for _ in range(HALVINGS):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if allows(middle) else (inside, middle)
    except InputError:  # the reference diverges within the range, so the range has no end
        return None
    return _scale(problem, which, 2.0 ** (sign * inside)) if inside else None


def _scale(problem: Any, which: Sequence[int], factor: float) -> Any:
    """Multiply some of the floating-point tensors of a problem by a factor."""
    numbers = itertools.count()

    def change(tensor: Tensor) -> Tensor:
        scales = tensor.is_floating_point() and next(numbers) in which
        return tensor * factor if scales else tensor

    return problem.map_tensors(change)


@torch.no_grad()
def is_in_range(construction: Construction[Any, Any], problem: Any) -> bool:
    """Return whether the construction promises exact results for every instance of a batch.

    This holds if the instances, and all states that the algorithm reaches, are in the declared
    range. If the algorithm diverges, `InputError` is raised.
    """
    algorithm = construction.algorithm
    try:
        construction.check(problem)
    except OutOfRangeError:
        return False
    largest = bound_states(construction.prompt(problem))
    state = algorithm.init(problem)
    for k in range(construction.steps + 1):
        if k:
            state = algorithm.step(problem, state, k - 1)
        check_divergence(construction, state, largest)
        # Usage is the largest share of the range that an entry of the stream needs.
        if not construction.usage(construction.encode(problem, state)) <= 1:
            return False
    return True


def find_in_range(construction: Construction[Any, Any], problem: Any) -> list[bool]:
    """Return a mask of the instances in the declared range, found by halving the batch."""
    try:
        inside = is_in_range(construction, problem)
    except InputError:
        inside = False
    if inside or len(problem) == 1:
        return [inside] * len(problem)
    middle = len(problem) // 2
    return find_in_range(construction, problem[:middle]) + find_in_range(
        construction, problem[middle:]
    )


def select(problem: Any, rows: list[int]) -> Any:
    """Return the instances of a batch with these numbers."""
    return problem.map_tensors(lambda tensor: tensor[rows])


def join_batches(problems: list[Any]) -> Any:
    """Make one batch of several with instances of the same sizes."""
    columns = zip(*map(list_tensors, problems), strict=True)
    joined = iter([torch.cat(parts) for parts in columns])
    return problems[0].map_tensors(lambda _: next(joined))


def list_tensors(problem: Any) -> list[Tensor]:
    """List the tensors of a problem, in the order of `map_tensors`."""
    tensors: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor

    problem.map_tensors(note)
    return tensors
