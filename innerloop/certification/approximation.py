"""The error of straight lines in a certificate: the distance to a step by the functions themselves.

A program's weights are compared with its straight lines, up to rounding. The distance between these
lines and the functions is reported separately: the propagated bound of a step (`bounds.py`), from
the states at which the certificate is measured, and the difference measured there. A class with an
algorithm of its own is compared with that algorithm. The bound that such a class declares holds in
its whole range, the propagated one at these states only.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from innerloop.constructions.base import Construction
from innerloop.language.bounds import ErrorBound, has_knots
from innerloop.language.construction import ProgramConstruction
from innerloop.language.plan import Plan
from innerloop.language.reference import Reference

ROUNDING = 1e-12
"""What float64 may add to a measured difference, relative to its numbers."""


def measure_approximation(
    construction: Construction[Any, Any], problem: Any
) -> dict[str, float] | None:
    """Bound and measure the distance of a step, or the answer, from that of the functions.

    Returns the largest `bound`, the largest difference `measured`, and `excess`, the largest part
    of a difference that is above its own bound: 0, or the bound is wrong. None without knots.
    """
    if not isinstance(construction, ProgramConstruction):
        return None
    algorithm, compiled = construction.algorithm, construction.compiled
    follows = isinstance(algorithm, Reference)
    if construction.exact and not follows:
        return None  # its functions are asked at their knots alone
    smooth = {"smooth": True} if follows else {}
    errors = {"bound": 0.0, "measured": 0.0, "excess": 0.0}
    selects = type(construction).decode is ProgramConstruction.decode
    plans = [compiled.prologue, *compiled.steps, compiled.epilogue if selects else None]
    if not any(plan is not None and has_knots(plan) for plan in plans):
        return None
    if compiled.prologue is not None:
        goal = construction.encode(problem, algorithm.init(problem, **smooth))
        _note_states(errors, construction, problem, compiled.prologue, None, goal)
    state = algorithm.init(problem)
    for k in range(construction.steps):
        goal = construction.encode(problem, algorithm.step(problem, state, k, **smooth))
        plan = compiled.steps[k % len(compiled.steps)]
        _note_states(errors, construction, problem, plan, state, goal)
        state = algorithm.step(problem, state, k)
    if compiled.epilogue is not None and selects:
        meant = algorithm.predict(problem, state, **smooth)
        _note_answers(errors, construction, problem, compiled.epilogue, state, meant)
    return errors


def _note_states(
    errors: dict[str, float],
    construction: ProgramConstruction,
    problem: Any,
    plan: Plan,
    state: Any,
    goal: Tensor,
) -> None:
    """Compare the states that a plan computes, from a state or from the prompt, with a stream."""
    begins = state is None
    stream = construction.prompt(problem) if begins else construction.encode(problem, state)
    context = construction.context_length(problem)
    values, radii = ErrorBound(plan, construction.layout).compute(stream, context)
    ignored = construction.ignored_mask(stream)
    for name, value in values.items():
        places = list(construction.layout[name].places)
        skipped = ignored[..., places].to(value.device)
        each = value, radii[name], goal[..., places]
        _note(errors, *(part.masked_fill(skipped, 0.0) for part in each))


def _note_answers(
    errors: dict[str, float],
    construction: ProgramConstruction,
    problem: Any,
    plan: Plan,
    state: Any,
    goal: Tensor,
) -> None:
    """Compare the answers of a plan with those that are meant."""
    stream, context = construction.encode(problem, state), construction.context_length(problem)
    values, radii = ErrorBound(plan, construction.layout).compute(stream, context)
    ((name, form),) = plan.results.items()
    value, radius = (
        construction.definition.prompt.select_answer(
            problem, part[name].reshape(*part[name].shape[:-1], *form.shape)
        )
        for part in (values, radii)
    )
    _note(errors, value, radius, goal)


def _note(errors: dict[str, float], value: Tensor, radius: Tensor, goal: Tensor) -> None:
    """Keep the largest bound, difference, and excess."""
    difference = (value - goal).abs()
    excess = difference - radius - ROUNDING * (1 + goal.abs())
    each = {"bound": radius, "measured": difference, "excess": excess}
    for name, numbers in each.items():
        largest = float(numbers.nan_to_num(nan=math.inf, posinf=math.inf).max())
        errors[name] = max(errors[name], largest)
