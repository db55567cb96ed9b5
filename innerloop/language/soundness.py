"""What an author promises and a compiler would have to believe, checked before it does.

A register that is declared shared is the same in every token of a prompt, and a function of a
program says the same whenever it is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch

from innerloop.language.definition import Definition
from innerloop.language.errors import CannotCompile, Line, find_definition
from innerloop.language.nodes import Node
from innerloop.language.trace import Trace

CHANGED = (
    "the program says something else when it is run again: random numbers and variables outside "
    "of it that change cannot be weights. Use numbers of the program, one per step if they differ"
)


def check_shared(definition: Definition, sizes: Mapping[str, int]) -> None:
    """Refuse a register declared shared that differs from token to token of a drawn prompt."""
    prompt = definition.prompt
    names = [n for n, r in definition.registers.items() if r.shared and n in prompt.offers]
    if not names:
        return
    generator = torch.Generator().manual_seed(0)
    larger = {name: max(size, 2) if name == "n" else size for name, size in sizes.items()}
    problem = prompt.draw_problem(
        larger, lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)
    )
    filled = prompt.fill_registers(problem)
    for name in names:
        if not torch.equal(filled[name], filled[name][:1].expand_as(filled[name])):
            raise CannotCompile(
                f"{name} is declared shared, but a {prompt.name} prompt fills it with what differs "
                "from token to token: declare it without shared=True",
                find_definition(definition.step),
            )


def check_repetition(first: Trace, second: Trace) -> None:
    """Refuse a function whose second trace differs from its first, with the line that differs."""
    for one, other in zip(first.nodes, second.nodes, strict=False):
        if _list_parts(one) != _list_parts(other):
            raise CannotCompile(CHANGED, one.line)
    for name, form in first.results.items():
        if form.rows != second.results[name].rows:
            raise CannotCompile(CHANGED, first.assigned.get(name, Line("", 0, "")))
    ranges = ([(r.rows, r.low, r.high) for r in trace.ranges] for trace in (first, second))
    if len(first.nodes) != len(second.nodes) or next(ranges) != next(ranges):
        raise CannotCompile(CHANGED, Line("", 0, ""))


def _list_parts(node: Node) -> list[Any]:
    """Return what a node computes; the functions on knots are told by their lines."""
    parts = [(part.rows, part.net, part.factor) for part in node.parts]
    others = ("line", "label", "parts", "block")
    return [parts, *(getattr(node, f.name) for f in fields(node) if f.name not in others)]
