"""The compiler: it turns a program with its sizes and numbers into planned blocks.

    recording → trace → schedule → placement → emission

Each pass is a file of that name. If a step does not depend on its number k, it is planned once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from innerloop.language.definition import Definition
from innerloop.language.errors import CannotCompile, find_definition
from innerloop.language.forms import Entry, Form
from innerloop.language.placement import plan_blocks
from innerloop.language.plan import SCRATCH, Plan
from innerloop.language.record import Record
from innerloop.language.recording import Recordings
from innerloop.language.soundness import check_shared
from innerloop.language.target import Target
from innerloop.language.trace import Trace, trace_answer, trace_step
from innerloop.language.weights import check_numbers, check_weights
from innerloop.transformer import Layout

MAX_ENTRIES = 1 << 14
"""The largest number of entries that the registers of a token may have together."""


@dataclass(frozen=True, eq=False)
class Compiled:
    """The plans of a program, and the layout of its registers in the residual stream."""

    layout: Layout
    prologue: Plan | None
    steps: list[Plan]
    epilogue: Plan | None
    answer: Form | None
    answer_places: list[int]
    """Places of the answer in the stream after the read-out; empty if the read-out has no
    blocks.
    """
    records: dict[str, Record]
    """The records that were compiled, by the name of the part (prologue, step, read-out)."""

    @property
    def plans(self) -> dict[str, Plan]:
        """All plans, by the name of the part that they compute."""
        parts = {"prologue": self.prologue}
        parts |= {f"step {k}": plan for k, plan in enumerate(self.steps, 1)}
        parts |= {"read-out": self.epilogue}
        return {name: plan for name, plan in parts.items() if plan is not None}

    def count(self) -> dict[str, int]:
        """Return the number of blocks, heads of the largest block, hidden units and places of
        one step.
        """
        counts = [plan.count() for plan in self.steps]
        most = {name: max(count[name] for count in counts) for name in counts[0]}
        return {**most, "width": self.layout.width}


def compile_program(
    definition: Definition,
    sizes: Mapping[str, int],
    numbers: Callable[[int], Mapping[str, Any]],
    steps: Iterable[int],
    target: Target,
    recordings: Recordings,
) -> Compiled:
    """Compile these steps; `numbers(k)` returns the rationals, integers and matrices of step k."""
    shapes = definition.find_shapes(sizes)
    check_size(definition, shapes)
    check_shared(definition, sizes)
    records: dict[str, Record] = {}
    repeated: set[Any] = set()

    def trace(run: Callable[..., Trace], function: Any, k: int, part: str) -> Trace:
        bound = numbers(k)
        is_first = function not in repeated
        repeated.add(function)
        records[part] = recordings.find(definition, function, k, sizes, bound, repeat=is_first)
        return run(records[part], bound, definition.registers, shapes)

    prologue = epilogue = answer = None
    if definition.first_part is not None:
        empty = [name for name in definition.states if name not in definition.prompt.offers]
        traced = trace(trace_step, definition.first_part, 0, "prologue")
        prologue = plan_blocks(traced, empty, target)
    plans = [
        plan_blocks(trace(trace_step, definition.step, k, f"step {index}"), (), target)
        for index, k in enumerate(steps, 1)
    ]
    if not any(plan.blocks for plan in plans):
        raise CannotCompile(
            f"{definition.name} changes no state: assign one, as in me.{definition.states[0]} = …, "
            "or use larger steps than 0",
            find_definition(definition.step),
        )
    parts = [plan for plan in (prologue, *plans) if plan is not None]
    if definition.answer_part is not None:
        traced = trace(trace_answer, definition.answer_part, 0, "read-out")
        answer = traced.results["answer"]
        if _needs_blocks(traced):
            name = _find_register(answer, shapes)
            traced = traced._replace(results={name or "answer": answer})
            used = max(plan.scratch for plan in parts)
            epilogue = _plan_answer(traced, name is None, used, target)
            parts.append(epilogue)
    elif definition.readout_part is None:
        raise CannotCompile(
            f"{definition.name} has no answer: write @{definition.name}.answer before a function "
            "of me that returns it",
            find_definition(definition.step),
        )
    registers: dict[str, Any] = dict(shapes)
    if any(plan.needs_one for plan in parts):
        registers["one"] = ()
    entries = [] if epilogue is None else _place_answer(definition, epilogue, parts, registers)
    scratch = 1 + max((i for plan in parts for i in plan.list_scratch()), default=-1)
    if scratch:
        registers[SCRATCH] = (scratch,)
    for plan in parts:
        check_weights(plan)
    if answer is not None and epilogue is None:
        numbers_of_answer = [c for row in answer.rows for c in row.values()]
        check_numbers(numbers_of_answer, find_definition(definition.answer_part))
    layout = Layout(**registers)
    _name_temporaries(layout, parts)
    where = [layout[name].places[i] for name, i in entries]
    return Compiled(layout, prologue, plans, epilogue, answer, where, records)


def check_size(definition: Definition, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise an error if the registers of a token have more entries than the compiler accepts."""
    entries = {name: math.prod(shape) for name, shape in shapes.items()}
    if (total := sum(entries.values())) > MAX_ENTRIES:
        largest = max(entries, key=lambda name: entries[name])
        raise CannotCompile(
            f"a token would hold {total:,} numbers, {entries[largest]:,} of them in {largest}; up "
            f"to {MAX_ENTRIES:,} are compiled: choose smaller registers",
            find_definition(definition.step),
        )


def _place_answer(
    definition: Definition, epilogue: Plan, parts: list[Plan], registers: dict[str, Any]
) -> list[Entry]:
    """Give the answer a register in the last scratch places, which the read-out leaves free."""
    ((name, form),) = epilogue.results.items()
    size = len(form.rows)
    if name in registers:
        return [(name, i) for i in range(size)]
    scratch = max(*(plan.scratch for plan in parts), epilogue.scratch + size) - size
    entries = [(definition.answer_name, i) for i in range(size)]
    registers[definition.answer_name] = form.shape
    epilogue.rename({(name, i): entry for i, entry in enumerate(entries)})
    for plan in parts:
        plan.rename({(SCRATCH, scratch + i): entry for i, entry in enumerate(entries)})
    return entries


def _name_temporaries(layout: Layout, parts: list[Plan]) -> None:
    """Add the places of temporaries to the layout, under the author's names."""
    for plan in parts:
        for node in plan.nodes:
            if node.label and (node.name, 0) in plan.places:
                held = [plan.places[node.name, i] for i in range(node.size)]
                places = [layout[register].places[i] for register, i in held]
                layout.name_places(node.label, places, node.shape)


def _plan_answer(trace: Trace, empty: bool, used: int, target: Target) -> Plan:
    """Plan the read-out, leaving scratch places unchanged where that does not make the stream
    wider.

    `used` is the number of scratch places that the other parts use. An answer without a register of
    its own needs some too.
    """
    ((name, form),) = trace.results.items()
    names, size = ([name], len(form.rows)) if empty else ([], 0)
    left, cleared = (plan_blocks(trace, names, target, tidy=tidy) for tidy in (False, True))
    fits = max(used, left.scratch + size) <= max(used, cleared.scratch + size)
    return left if fits else cleared


def _find_register(answer: Form, shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """Return the register that an answer adds to, as in `me.y + …`.

    Such an answer needs no own place.
    """
    for name, shape in shapes.items():
        added = all(row.get((name, i)) == 1 for i, row in enumerate(answer.rows))
        others = {e[0] for row in answer.rows for e in row} & set(shapes)
        if shape == answer.shape and added and others == {name}:
            return name
    return None


def _needs_blocks(trace: Trace) -> bool:
    """Return whether an answer needs blocks, because it is not linear in the registers of one
    token.
    """
    names = {node.name for node in trace.nodes}
    return any(e[0] in names for form in trace.results.values() for row in form.rows for e in row)
