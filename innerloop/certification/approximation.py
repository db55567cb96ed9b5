"""The error of straight lines in a certificate: how far a step is from one by the functions.

A program's weights are held against its straight lines, to rounding. What that is worth for the
functions that the lines follow is told apart: the propagated bound of a step (`bounds.py`), from
the states that the certificate is measured at, and the difference that was measured there.
"""

from __future__ import annotations

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
    """Bound and measure how far a step, or the answer, is from what the functions give.

    Returns the largest `bound`, the largest difference `measured`, and `excess`, the largest part
    of a difference that is above its own bound: 0, or the bound is wrong. None without knots.
    """
    if not isinstance(construction, ProgramConstruction) or not any(
        has_knots(plan) for plan in construction.compiled.plans.values()
    ):
        return None
    reference = construction.algorithm
    if not isinstance(reference, Reference):
        return None  # it has an algorithm of its own, and a bound
    found = {"bound": 0.0, "measured": 0.0, "excess": 0.0}
    compiled = construction.compiled
    meant = reference.init(problem, smooth=True)
    if compiled.prologue is not None:
        stream = construction.prompt(problem)
        _note(found, construction, problem, compiled.prologue, stream, meant)
    state = reference.init(problem)
    for k in range(construction.steps):
        stream = construction.encode(problem, state)
        meant = reference.step(problem, state, k, smooth=True)
        plan = compiled.steps[k % len(compiled.steps)]
        _note(found, construction, problem, plan, stream, meant)
        state = reference.step(problem, state, k)
    if compiled.epilogue is not None:
        stream = construction.encode(problem, state)
        answers = reference.predict(problem, state, smooth=True)
        _note(found, construction, problem, compiled.epilogue, stream, answers)
    return found


def _note(
    found: dict[str, float],
    construction: ProgramConstruction,
    problem: Any,
    plan: Plan,
    stream: Tensor,
    meant: Any,
) -> None:
    """Compare the results of a plan with what is meant: states by name, or answers."""
    context = construction.context_length(problem)
    values, radii = ErrorBound(plan, construction.layout).compute(stream, context)
    for name, form in plan.results.items():
        value, radius = (
            part[name].reshape(*part[name].shape[:-1], *form.shape) for part in (values, radii)
        )
        if isinstance(meant, Tensor):
            select = construction.definition.prompt.select_answer
            value, radius, goal = select(problem, value), select(problem, radius), meant
        else:
            goal = getattr(meant, name)
            if construction.definition.registers[name].shared:
                goal = goal.unsqueeze(-1 - len(form.shape))
        difference = (value - goal).abs()
        slack = ROUNDING * (1 + goal.abs())
        found["bound"] = max(found["bound"], float(radius.max()))
        found["measured"] = max(found["measured"], float(difference.max()))
        found["excess"] = max(found["excess"], float((difference - radius - slack).max()))
