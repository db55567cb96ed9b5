"""Degrees of the polynomials, in the entries of prompt and state, that planned blocks compute."""

from __future__ import annotations

from fractions import Fraction

from innerloop.language.forms import Entry, scale_row
from innerloop.language.plan import Plan, PlannedBlock


def find_degree(plan: Plan) -> int | None:
    """Return the degree of the polynomials that a plan computes, or None if it computes no
    polynomials.

    Both the blocks and the trace are examined. Hidden units are linear if they come in mirrored
    pairs, relu(x)·w − relu(−x)·w.
    """
    degrees: dict[Entry, int] = {}
    for node in plan.nodes:
        if node.kind != "linear":
            return None

    def get(entry: Entry) -> int:
        return 0 if entry[0] == "one" else degrees.get(entry, 1)

    for block in plan.blocks:
        if (block.heads and block.kind != "linear") or not _is_linear(block):
            return None
        new: dict[Entry, int] = {}
        for head in block.heads:
            score = max((get(q) + get(k) for q, k in head.score), default=0)
            for key, target in head.value:
                new[target] = max(new.get(target, get(target)), score + get(key))
        degrees |= new
        new = {}
        for unit in block.units:
            read = max(map(get, unit.reads), default=0)
            for target in unit.writes:
                new[target] = max(new.get(target, get(target)), read)
        degrees |= new
    return max([*degrees.values(), _find_traced_degree(plan)])


def _find_traced_degree(plan: Plan) -> int:
    """Return the degree of the program's results as polynomials, from the trace."""
    degrees = {"one": 0}
    for node in plan.nodes:
        degrees[node.name] = max(
            (
                degrees.get(q[0], 1) + degrees.get(k[0], 1) + degrees.get(entry[0], 1)
                for term in node.terms
                for q, k in term.score
                for _, entry in term.value
            ),
            default=0,
        )
    return max([1, *degrees.values()])


def _is_linear(block: PlannedBlock) -> bool:
    """Return whether the MLP of a block is an affine map because of its mirrored pairs."""
    units = {
        (frozenset(unit.reads.items()), unit.bias): unit.writes
        for unit in block.units
        if unit.reads
    }
    for (reads, bias), writes in units.items():
        mirrored = frozenset(scale_row(dict(reads), Fraction(-1)).items())
        if bias or units.get((mirrored, bias)) != scale_row(writes, Fraction(-1)):
            return False
    return not block.hinges
