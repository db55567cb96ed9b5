"""Check that float64 can represent every weight of a plan; errors name the line of the program.

The numbers of the range checks are checked in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction

from innerloop.language.errors import NOWHERE, CannotCompile, Line
from innerloop.language.floats import describe_size, is_representable
from innerloop.language.nodes import Node
from innerloop.language.plan import Plan, PlannedBlock

ADVICE = "Measure registers in other units, so that weights are nearer to 1"


def check_weights(plan: Plan) -> None:
    """Raise an error if a plan has a weight that float64 cannot represent."""
    for node in plan.nodes:
        check_numbers(_list_numbers(node), node.line)
    for each in plan.ranges:
        check_numbers(
            [each.low, each.high, *(c for row in each.rows for c in row.values())], each.line
        )
    for block in plan.blocks:
        lines = [*(node.line for node in block.nodes), *block.assigned]
        check_numbers(_list_weights(block), next(iter(lines), NOWHERE))


def check_numbers(numbers: Iterable[Fraction], line: Line) -> None:
    """Raise an error that names a line if one of its numbers cannot be represented in float64."""
    for number in numbers:
        if not is_representable(number):
            raise CannotCompile(f"{describe_size(number)}. {ADVICE}", line)


def are_exact(plan: Plan) -> bool:
    """Return whether all weights of a plan are float64 numbers, without rounding."""
    weights = {weight for block in plan.blocks for weight in _list_weights(block)}
    return all(Fraction(float(weight)) == weight for weight in weights)


def _list_weights(block: PlannedBlock) -> Iterator[Fraction]:
    for head in block.heads:
        yield from head.score.values()
        yield from head.value.values()
    for unit in block.units:
        yield from unit.reads.values()
        yield unit.bias
        yield from unit.writes.values()
    for hinges in block.hinges:
        for part in hinges.net:
            yield from part


def _list_numbers(node: Node) -> Iterator[Fraction]:
    yield from node.gate.values()
    for term in node.terms:
        yield from term.score.values()
        yield from term.value.values()
    for part in node.parts:
        for row in part.rows:
            yield from row.values()
        for side in part.net:
            yield from side
