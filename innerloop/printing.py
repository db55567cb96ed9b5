"""Print lists and descriptions of members for people."""

from __future__ import annotations

import shutil
import sys
from itertools import groupby
from typing import Any

from innerloop.mathtext import strip_dollars
from innerloop.output import print_text
from innerloop.terminal import format_value, print_table

WIDEST = 160
"""Width used when the output is not a terminal."""


def print_members(members: dict[str, list[dict[str, Any]]]) -> None:
    """Print a table for each kind with one line per member; count many claims by source."""
    for kind, rows in strip_dollars(members).items():
        if kind == "claims" and len(members) > 1:
            _print_sources(rows)
            continue
        columns = ["name", "description"]
        columns += ["layers"] if kind == "constructions" else []
        columns += ["from"] if any(row["from"] != "innerloop" for row in rows) else []
        room = _measure_room(rows, columns)
        cells = [
            [format_value(row[c], room if c == "description" else 60) for c in columns]
            for row in rows
        ]
        print_table(kind, columns, cells)


def _measure_room(rows: list[dict[str, Any]], columns: list[str]) -> int:
    """Return the largest length of a description with which each member fits on one line."""
    others = [column for column in columns if column != "description"]
    taken = sum(max((len(str(row[c])) for row in rows), default=0) + 3 for c in others)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDEST
    return max(20, width - taken - 4)


def _print_sources(rows: list[dict[str, Any]]) -> None:
    sources: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        sources.setdefault(row["name"].partition(".")[0], []).append(row)
    cells = [
        [name, str(len(claims)), str(sum(claim["checked"] for claim in claims))]
        for name, claims in sources.items()
    ]
    print_table("claims (innerloop list claims)", ["source", "statements", "with a check"], cells)


def print_description(description: dict[str, Any]) -> None:
    """Print the description that `show` returns."""
    print_text(f"{description['header']}\n")
    if "settings" in description:
        settings = description["settings"].items()
        rows = [
            [key, format_value(part["value"]), _format_range(part), part["help"]]
            for key, part in settings
        ]
        print_table("parameters (-s name=value)", ["name", "value", "range", "meaning"], rows)
    (_print_program if "saved" in description else _PRINTERS[description["kind"]])(description)


def _format_range(part: dict[str, Any]) -> str:
    """Format the range of a parameter: `0 … 1`, `≥ 0`, `≤ 1`, or nothing."""
    limits = [part["least"], part["most"]]
    least, most = (
        f"{limit:,}" if type(limit) is int else f"{limit:g}" if limit is not None else ""
        for limit in limits
    )
    if not least:
        return f"≤ {most}" if most else ""
    return f"{least} … {most}" if most else f"≥ {least}"


def _print_construction(description: dict[str, Any]) -> None:
    print_text(f"precision: {description['precisions']}")
    registers = [[r["name"], str(tuple(r["shape"])), r["places"]] for r in description["registers"]]
    print_table(f"registers (width {description['width']})", ["name", "shape", "places"], registers)
    cost = description["cost"]
    where = f" ({cost['where']})" if cost["where"] else ""
    print_text(
        f"cost of k steps: {cost['layers']} layers, {cost['heads']} heads, "
        f"width {cost['width']}{where}"
    )
    print_text(f"cost in the source: {cost['printed']}")
    print_text(f"error of a step: {description['error']}\n")
    loops = f", looped {description['loops']} times" if description["loops"] > 1 else ""
    print_text(f"blocks ({description['layers']} layers{loops})")
    for part in description["blocks"]:
        print_text(f"  {part['section']}, block {part['block']}")
        for line in part["does"]:
            print_text(f"    {line}")


def _print_program(description: dict[str, Any]) -> None:
    """Print a program's construction, its parts, and the savings of the compiler."""
    _print_construction(description)
    costs = [
        (part["part"].partition(" ")[0], part["blocks"], part["critical_path"])
        for part in description["parts"]
    ]
    for (_, blocks, path), group in groupby(
        zip(costs, description["parts"], strict=True), lambda pair: pair[0]
    ):
        names = [part["part"] for _, part in group]
        name = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
        count = "1 block" if blocks == 1 else f"{blocks} blocks"
        print_text(f"{name}: {count}, {path} on the critical path")
    rows = [[name, *map(str, saved.values())] for name, saved in description["saved"].items()]
    names = list(next(iter(description["saved"].values())))
    print_table("savings per step of each peephole optimisation", ["peephole", *names], rows)
    print_text(
        f"program (digest {description['program']['digest']})\n{description['program']['text']}"
    )


def _print_recipe(description: dict[str, Any]) -> None:
    print_text(
        f"{description['parameters']} weights are trained on problems of {description['problems']}"
    )
    print_text(f"source: {description['source']}")


def _print_problem(description: dict[str, Any]) -> None:
    print_text(f"a sample is a {description['problem']}: {description['problem_description']}")
    print_text(f"source: {description['source']}")


def _print_policy(description: dict[str, Any]) -> None:
    print_text(f"plays in: {description['environment']}")
    print_text(f"source: {description['source']}")


def _print_algorithm(description: dict[str, Any]) -> None:
    print_text(f"solves: {description['problem']}")
    print_text(f"steps: {'yes' if description['iterates'] else 'none, a solution in closed form'}")
    print_text(f"hyper-parameters: {', '.join(description['hyperparameters']) or 'none'}")
    if description["special_case_of"]:
        print_text(f"special case of: {', '.join(description['special_case_of'])}")
    print_text(f"source: {description['source']}")


def _print_claim(description: dict[str, Any]) -> None:
    description = strip_dollars(description)
    place = f"{description['name']}, {description['where']} ({description['claim_kind']})"
    print_text(f"{place}: {description['statement']}")
    print_text(f"source: {description['source']}")
    for hypothesis, at in description["hypotheses"].items():
        print_text(f"hypothesis: {hypothesis} ({at})")
    for id, at in description["restates"].items():
        print_text(f"also printed: {id}, {at}")
    rows = [
        [name, str(len(cells)), format_value(cells[0], 90)]
        for name, cells in description["presets"].items()
    ]
    print_table("presets", ["name", "cells", "settings of the first cell"], rows)
    falsified = ", ".join(description["falsified"]) or "none"
    print_text(f"falsified data that it must reject: {falsified}")


_PRINTERS = {
    "construction": _print_construction,
    "program": _print_program,
    "recipe": _print_recipe,
    "problem": _print_problem,
    "policy": _print_policy,
    "algorithm": _print_algorithm,
    "claim": _print_claim,
}
