"""Check the properties that every algorithm must have."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from innerloop.algorithms.base import Algorithm
from innerloop.problems.base import Distribution
from innerloop.problems.problem import Problem
from innerloop.registry import load_members
from innerloop.testing.common import (
    check_described,
    forbid_changes,
    list_tensors,
    make_generator,
    require,
    require_close,
)

STEPS = 3
BATCH = 3


def check_algorithm(
    algorithm: Algorithm[Any, Any] | type[Algorithm[Any, Any]],
    distribution: Distribution | None = None,
) -> None:
    """Check an algorithm: its steps, batches, precisions and gradients.

    Args:
        algorithm: An object, or a class. Objects of a class are created by its method `guesses`.
        distribution: The distribution of test problems. If None, the first registered distribution
            that samples problems of the right type is used.

    Raises:
        AssertionError: A property does not hold. The message states the mistake and how to correct
            it.
    """
    check_described(algorithm)
    kind = algorithm if inspect.isclass(algorithm) else type(algorithm)
    declared = getattr(kind, "problem_type", None)
    require(
        inspect.isclass(declared) and issubclass(declared, Problem),
        f"{kind.__name__} must declare problem_type, the class of problems that it solves",
    )
    distribution = distribution or _find_distribution(kind)
    problem = distribution.sample(BATCH, generator=make_generator())
    made = [algorithm] if isinstance(algorithm, Algorithm) else algorithm.guesses(problem)
    require(made, f"{kind.__name__} has no method `guesses`: pass an object")
    _check_names(kind)
    for check in (_check_steps, _check_batches, _check_dtype, _check_gradients):
        check(made[0], problem)


def _find_distribution(kind: type[Algorithm[Any, Any]]) -> Distribution:
    """Find the first registered distribution of the problems that an algorithm solves."""
    for member in load_members("problems", Distribution).values():
        if issubclass(member.problem_type, kind.problem_type):
            return member.from_values({})
    raise AssertionError(
        f"no registered distribution draws {kind.problem_type.__name__}: pass a distribution"
    )


def _check_names(kind: type[Algorithm[Any, Any]]) -> None:
    """Check that the algorithms named in `special_case_of` exist."""
    known = load_members("algorithms", Algorithm)
    missing = [name for name in kind.special_case_of if name not in known]
    require(not missing, f"{kind.__name__}.special_case_of names no algorithm: {missing}")


def _iterate(algorithm: Algorithm[Any, Any], problem: Any) -> list[Any]:
    return list(algorithm.states(problem, STEPS))


def _check_steps(algorithm: Algorithm[Any, Any], problem: Any) -> None:
    """Check that steps are finite, change no tensor in place, and agree with `has_steps`."""
    name = type(algorithm).__name__
    with forbid_changes(problem, f"the problem given to {name}"):
        states = _iterate(algorithm, problem)
        answers = [algorithm.predict(problem, state) for state in states]
    with forbid_changes(states[0], f"the state given to {name}.step"):
        algorithm.step(problem, states[0], 0)
    for state, answer in zip(states, answers, strict=True):
        tensors = list_tensors(state)
        require(tensors, f"a state of {name} is a tensor or a NamedTuple of tensors")
        for tensor in [*tensors, answer]:
            finite = not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())
            require(finite, f"{name} diverges within {STEPS} steps: choose smaller steps")
        require(isinstance(answer, Tensor), f"{name}.predict must give a tensor")
    if not algorithm.has_steps:
        require_close(
            states[-1],
            states[0],
            f"{name} declares has_steps = False, but a step changes its prediction",
        )


def _check_batches(algorithm: Algorithm[Any, Any], problem: Any) -> None:
    """Check that a batch gives the same results as its instances one by one."""
    name = type(algorithm).__name__
    together = algorithm.predict(problem, _iterate(algorithm, problem)[-1])
    for k in range(BATCH):
        alone = problem[k]
        answer = algorithm.predict(alone, _iterate(algorithm, alone)[-1])
        message = f"{name} mixes the instances of a batch: the result of instance {k} alone differs"
        require_close(answer, together[k], message, 1e-9)


def _check_dtype(algorithm: Algorithm[Any, Any], problem: Any) -> None:
    """Check that the predictions have the precision of the problem."""
    name = type(algorithm).__name__
    single = problem.to(torch.float32)
    answer = algorithm.predict(single, _iterate(algorithm, single)[-1])
    require(
        answer.dtype == torch.float32,
        f"{name} returns predictions for a float32 problem in {answer.dtype}: convert numbers "
        "to the problem's",
    )


def _check_gradients(algorithm: Algorithm[Any, Any], problem: Any) -> None:
    """Check that the parameters that identification fits have gradients."""
    for name in type(algorithm).hyperparameters():
        value = getattr(algorithm, name)
        if not isinstance(value, Tensor):
            continue
        changed = value.detach().clone().requires_grad_(True)
        values = {**vars(algorithm), name: changed}
        variant = type(algorithm)(**values)
        answer = variant.predict(problem, _iterate(variant, problem)[-1])
        require(
            answer.requires_grad,
            f"{name} of {type(algorithm).__name__} is declared as free, but predictions have "
            "no gradient by it",
        )
