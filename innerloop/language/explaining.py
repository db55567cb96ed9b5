"""Explain what the compiler did: blocks used and needed, the lines they run, what was saved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from innerloop.language.construction import ProgramConstruction
from innerloop.language.plan import Plan

PEEPHOLES = {
    "in place": "in_place",
    "early clear": "early_clear",
    "early write": "early_write",
    "rank": "reduce",
    "merged units": "merge",
}
"""The savings of the compiler that can be measured by doing without."""


def explain_program(construction: ProgramConstruction) -> dict[str, Any]:
    """Describe a program's compilation: its text, its parts, and what each peephole saved.

    `critical_path` is the number of blocks that no schedule of these nodes can do without.
    """
    definition = construction.definition
    return {
        "program": {"text": definition.text, "digest": definition.digest},
        "parts": [
            {
                "part": name,
                **plan.count(),
                "critical_path": plan.depth,
                "knots": [
                    {"line": each.line.number, "error": each.error}
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


def measure_savings(construction: ProgramConstruction) -> dict[str, dict[str, int]]:
    """Measure what each peephole saves per step, by compiling the first and last without it."""
    target = construction.target
    whole = construction.compile_for(target, ends=True).count()
    saved: dict[str, dict[str, int]] = {}
    for name, field in PEEPHOLES.items():
        fewer = target.peepholes._replace(**{field: False})
        without = construction.compile_for(replace(target, peepholes=fewer), ends=True).count()
        saved[name] = {key: without[key] - whole[key] for key in whole if key != "scratch"}
    return saved


def describe_blocks(construction: Any) -> list[str]:
    """Say in a line per part how many blocks it has, how many it needs, and what they run."""
    lines = []
    for part in explain_program(construction)["parts"]:
        runs = "; ".join(
            f"line {', '.join(map(str, numbers))}" if numbers else "no line of the program"
            for numbers in part["lines"]
        )
        blocks, heads = (_count(part[name], name[:-1]) for name in ("blocks", "heads"))
        off = "".join(
            f"; knots of line {knots['line']} are within {knots['error']:.1e} of their function"
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
