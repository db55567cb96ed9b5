"""Explanations of a compilation: blocks used and needed, the lines they run, and the savings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from innerloop.language.construction import ProgramConstruction
from innerloop.language.nodes import Range
from innerloop.language.plan import Plan

PEEPHOLES = {
    "in place": "in_place",
    "early clear": "early_clear",
    "early write": "early_write",
    "rank": "reduce",
    "merged units": "merge",
}
"""The savings of the compiler that can be measured by compiling without them."""


def explain_program(construction: ProgramConstruction) -> dict[str, Any]:
    """Describe a program's compilation: its text, its parts, and the effect of each saving.

    `critical_path` is the smallest number of blocks that any schedule of these nodes needs.
    """
    definition = construction.definition
    return {
        "program": {"text": definition.text, "digest": definition.digest},
        "error": describe_error(construction),
        "parts": [
            {
                "part": name,
                **plan.count(),
                "critical_path": plan.depth,
                "knots": [
                    {
                        "line": each.line.number,
                        "error": each.error,
                        "relative": _find_relative_error(each),
                    }
                    for each in plan.ranges
                    if each.error
                ],
                "in_place": [_name_node(plan, node) for node in plan.in_place],
                "lines": [[line.number for line in block.all_lines] for block in plan.blocks],
            }
            for name, plan in construction.compiled.plans.items()
        ],
        "saved": measure_savings(construction),
    }


def describe_error(construction: ProgramConstruction) -> str:
    """Describe the error of the straight lines between the knots in one step, if there are any.

    If a class declares its own description of the error, that one is returned.
    """
    parts = construction.compiled.plans.values()
    knots = {each.line.number: each for plan in parts for each in plan.ranges if each.error}
    if construction.error != "exact" or not knots:
        return construction.error
    lines = "; ".join(
        f"line {number} is within {_format_error(each.error, _find_relative_error(each))}"
        for number, each in sorted(knots.items())
    )
    return f"that of straight lines between knots: {lines} of its function"


def _find_relative_error(each: Range) -> float | None:
    """Return the relative error of the straight lines, or None if the function can be 0.

    Return None also in another process, where the function is not known.
    """
    knots = each.knots
    if knots is None or knots.function is None:
        return None
    values = knots.levels.abs()
    least = torch.minimum(values[:-1], values[1:])
    return None if bool((least == 0).any()) else float((knots.errors / least).max())


def _format_error(error: float, relative: float | None) -> str:
    share = "" if relative is None else f" ({relative:.1e} of its value)"
    return f"{error:.1e}{share}"


def measure_savings(construction: ProgramConstruction) -> dict[str, dict[str, int]]:
    """Measure the effect of each saving per step, by compiling the first and last step without
    it.
    """
    target = construction.target
    whole = construction.compile_for(target, ends=True).count()
    saved: dict[str, dict[str, int]] = {}
    for name, field in PEEPHOLES.items():
        fewer = target.peepholes._replace(**{field: False})
        without = construction.compile_for(replace(target, peepholes=fewer), ends=True).count()
        saved[name] = {key: without[key] - whole[key] for key in whole if key != "scratch"}
    return saved


def describe_blocks(construction: Any) -> list[str]:
    """Describe each part in a line: its blocks, how many it needs, and the values that they
    compute.
    """
    lines = []
    for part in explain_program(construction)["parts"]:
        runs = "; ".join(
            f"line {', '.join(map(str, numbers))}" if numbers else "no line of the program"
            for numbers in part["lines"]
        )
        blocks, heads = (_count(part[name], name[:-1]) for name in ("blocks", "heads"))
        off = "".join(
            f"; knots of line {knots['line']} are within "
            f"{_format_error(knots['error'], knots['relative'])} of their function"
            for knots in part["knots"]
        )
        lines.append(
            f"{part['part']}: {blocks} (critical path {part['critical_path']}), "
            f"up to {heads}, {_count(part['hidden'], 'hidden unit')}; {runs}{off}"
        )
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _name_node(plan: Plan, name: str) -> str:
    node = next(node for node in plan.nodes if node.name == name)
    return node.author_name
