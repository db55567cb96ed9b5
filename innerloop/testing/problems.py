"""Check the properties that every distribution of problems must have."""

from __future__ import annotations

import inspect

import torch

from innerloop.problems.base import Distribution
from innerloop.problems.environment import Environment
from innerloop.problems.problem import Problem
from innerloop.testing.common import check_described, list_tensors, make_generator, require


def check_problem(distribution: Distribution | type[Distribution]) -> None:
    """Check a distribution: the types, batches, seeds and precisions of its samples.

    Args:
        distribution: A class, which is checked with its defaults and with each of its `cases`, or
            an object, which is checked as it is.

    Raises:
        AssertionError: A property does not hold. The message states the mistake and how to correct
            it.
    """
    check_described(distribution)
    if inspect.isclass(distribution):
        require(distribution.cases, f"{distribution.__name__}.cases must not be empty")
        made = [distribution.from_values(case) for case in ({}, *distribution.cases)]
    else:
        made = [distribution]
    for each in made:
        for batch in ((), (3,), (2, 3)):
            _check_sample(each, batch)


def _check_sample(distribution: Distribution, batch: tuple[int, ...]) -> None:
    """Check one sample of a distribution: its type, shape, seed and precision."""
    name = f"{type(distribution).__name__}.sample{batch}"
    problem = distribution.sample(*batch, generator=make_generator())
    declared = distribution.problem_type
    require(
        isinstance(problem, declared),
        f"{name} gave a {type(problem).__name__}, but problem_type says {declared.__name__}",
    )
    require(
        isinstance(problem, Problem | Environment),
        f"{name} must give a Problem or an Environment, got a {type(problem).__name__}",
    )
    require(problem.batch == batch, f"{name} has the batch dimensions {problem.batch}")
    again = distribution.sample(*batch, generator=make_generator())
    single = distribution.sample(*batch, generator=make_generator(), dtype=torch.float32)
    pairs = zip(list_tensors(problem), list_tensors(again), list_tensors(single), strict=True)
    for one, same, rounded in pairs:
        require(torch.equal(one, same), f"{name}: the same seed must give the same numbers")
        if one.is_floating_point():
            require(
                rounded.dtype == torch.float32 and torch.equal(one.to(torch.float32), rounded),
                f"{name}: float32 must be the same numbers, rounded: draw and compute all in "
                "float64, then convert",
            )
    floats = [tensor for tensor in list_tensors(problem) if tensor.is_floating_point()]
    require(floats, f"{name} holds no numbers")
    require(
        all(bool(torch.isfinite(tensor).all()) for tensor in floats), f"{name} has NaN or infinity"
    )
    other = distribution.sample(*batch, generator=make_generator(1))
    differs = [not torch.equal(a, b) for a, b in zip(floats, list_tensors(other), strict=False)]
    fixed = isinstance(problem, Environment)  # an environment may be the same every time
    require(fixed or any(differs), f"{name} ignores its generator: two seeds gave the same numbers")
    if batch and isinstance(problem, Problem):
        require(len(problem) == batch[0], f"len() of {name} must be {batch[0]}")
        require(problem[0].batch == batch[1:], f"{name}[0] must drop the first batch dimension")
