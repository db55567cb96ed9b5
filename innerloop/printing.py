"""How lists and descriptions of members are printed for people."""

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
    """Print a table for each kind, one line for each member; many claims as a count by source."""
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
    """Measure how long a description may be, so that each member stays on one line."""
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


def print_description(shown: dict[str, Any]) -> None:
    """Print what `show` found out about a member."""
    print_text(f"{shown['header']}\n")
    if "settings" in shown:
        settings = shown["settings"].items()
        rows = [
            [key, format_value(part["value"]), _format_range(part), part["help"]]
            for key, part in settings
        ]
        print_table("parameters (-s name=value)", ["name", "value", "range", "meaning"], rows)
    (_print_program if "saved" in shown else _PRINTERS[shown["kind"]])(shown)


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


def _print_construction(shown: dict[str, Any]) -> None:
    print_text(f"precision: {shown['precisions']}")
    registers = [[r["name"], str(tuple(r["shape"])), r["places"]] for r in shown["registers"]]
    print_table(f"registers (width {shown['width']})", ["name", "shape", "places"], registers)
    cost = shown["cost"]
    where = f" ({cost['where']})" if cost["where"] else ""
    print_text(
        f"cost of k steps: {cost['layers']} layers, {cost['heads']} heads, "
        f"width {cost['width']}{where}"
    )
    print_text(f"the source prints: {cost['printed']}")
    print_text(f"error of a step: {shown['error']}\n")
    loops = f", looped {shown['loops']} times" if shown["loops"] > 1 else ""
    print_text(f"blocks ({shown['layers']} layers{loops})")
    for part in shown["blocks"]:
        print_text(f"  {part['section']}, block {part['block']}")
        for line in part["does"]:
            print_text(f"    {line}")


def _print_program(shown: dict[str, Any]) -> None:
    """Print a construction, and what the compiler needed and saved."""
    _print_construction(shown)
    costs = [
        (part["part"].partition(" ")[0], part["blocks"], part["critical_path"])
        for part in shown["parts"]
    ]
    for (_, blocks, path), group in groupby(
        zip(costs, shown["parts"], strict=True), lambda pair: pair[0]
    ):
        names = [part["part"] for _, part in group]
        name = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
        count = "1 block" if blocks == 1 else f"{blocks} blocks"
        print_text(f"{name}: {count}, {path} on the critical path")
    rows = [[name, *map(str, saved.values())] for name, saved in shown["saved"].items()]
    names = list(next(iter(shown["saved"].values())))
    print_table("saved in a step, by peephole", ["peephole", *names], rows)
    print_text(f"program (digest {shown['program']['digest']})\n{shown['program']['text']}")


def _print_recipe(shown: dict[str, Any]) -> None:
    print_text(f"{shown['parameters']} weights are trained on problems of {shown['problems']}")
    print_text(f"source: {shown['source']}")


def _print_problem(shown: dict[str, Any]) -> None:
    print_text(f"a sample is a {shown['problem']}: {shown['problem_description']}")
    print_text(f"source: {shown['source']}")


def _print_policy(shown: dict[str, Any]) -> None:
    print_text(f"plays in: {shown['environment']}")
    print_text(f"source: {shown['source']}")


def _print_algorithm(shown: dict[str, Any]) -> None:
    print_text(f"solves: {shown['problem']}")
    print_text(f"steps: {'yes' if shown['iterates'] else 'none, a solution in closed form'}")
    print_text(f"hyper-parameters: {', '.join(shown['hyperparameters']) or 'none'}")
    if shown["special_case_of"]:
        print_text(f"special case of: {', '.join(shown['special_case_of'])}")
    print_text(f"source: {shown['source']}")


def _print_claim(shown: dict[str, Any]) -> None:
    shown = strip_dollars(shown)
    print_text(f"{shown['name']}, {shown['where']} ({shown['claim_kind']}): {shown['statement']}")
    print_text(f"source: {shown['source']}")
    for hypothesis, at in shown["hypotheses"].items():
        print_text(f"presupposed: {hypothesis} ({at})")
    for id, at in shown["restates"].items():
        print_text(f"printed again: {id}, {at}")
    rows = [
        [name, str(len(cells)), format_value(cells[0], 90)]
        for name, cells in shown["presets"].items()
    ]
    print_table("presets", ["name", "cells", "settings of the first"], rows)
    print_text(
        f"falsified data or forms that it must reject: {', '.join(shown['falsified']) or 'none'}"
    )


_PRINTERS = {
    "construction": _print_construction,
    "program": _print_program,
    "recipe": _print_recipe,
    "problem": _print_problem,
    "policy": _print_policy,
    "algorithm": _print_algorithm,
    "claim": _print_claim,
}
