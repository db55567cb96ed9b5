"""What people see in a terminal: tables, progress with the time left, and JSON for machines."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

COPIED = ("name", "construction", "claim")
"""Columns of names that are to be copied: each stays on one line."""

_MEASURED = {
    **{name: name for name in ("layers", "heads", "width", "parameters")},
    "operator_norm": "operator norm",
    "step_deviation": "step deviation",
    "tolerance": "tolerance",
    "deviation": "free deviation",
    "free_tolerance": "free tolerance",
}


def print_certificates(certificates: list[dict[str, Any]]) -> None:
    """One certificate as a list, several as a table; of a number for each step, the largest."""
    titles = ["law", *_MEASURED.values()]
    rows = [
        ["holds" if c["holds"] else "BROKEN", *(short(c[name]) for name in _MEASURED)]
        for c in certificates
    ]
    if len(certificates) == 1:
        name = certificates[0]["name"]
        lines = [list(pair) for pair in zip(titles, rows[0], strict=True)]
        return print_table(f"certificate of {name}", ["", "measured"], lines)
    named = [[c["name"], *row] for c, row in zip(certificates, rows, strict=True)]
    return print_table("certificates", ["construction", *titles], named)


def print_outcomes(outcomes: list[dict[str, Any]]) -> None:
    """A line for each claim and how many there are of each verdict; of a few, everything."""
    rows = [
        [o["id"], o["verdict"], o["preset"] or "", f"{o['seconds']:.1f}" if o["preset"] else ""]
        for o in outcomes
    ]
    print_table("claims", ["claim", "verdict", "preset", "seconds"], rows)
    if len(outcomes) <= 3:
        for outcome in outcomes:
            _print_evidence(outcome)
    counts = Counter(outcome["verdict"] for outcome in outcomes)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))


def _print_evidence(outcome: dict[str, Any]) -> None:
    where = f" ({outcome['where']})" if outcome["where"] else ""
    print(f"{outcome['id']}{where}: {outcome['statement']}")
    evidence = outcome["evidence"]
    if evidence is None:
        print(f"  {outcome['error']}\n" if outcome["error"] else "")
        return
    for part in evidence["parts"]:
        _print_check("as printed", part["printed"])
        if part["corrected"]:
            _print_check("corrected", part["corrected"])
    if evidence["out_of_reach"]:
        print(f"  {evidence['out_of_reach']}")
    for name, value in evidence["numbers"].items():
        print(f"  {name}: {short(value)}")
    print()


def _print_check(form: str, check: dict[str, Any]) -> None:
    outcome = {True: "holds", False: "FAILS", None: "cannot be told"}[check["passed"]]
    print(f"  {form}, {outcome}: {check['statement']}\n    {check['summary']}")
    for line in check["counterexample"].splitlines():
        print(f"    counterexample: {line}")


def print_verdict(found: dict[str, Any]) -> None:
    """A line for each layer of a model, then what it amounts to."""
    columns = ["layer", "algorithm", "step", "score", "95 %", "runner-up", "also fits"]
    rows = [
        [
            str(layer["layer"]),
            {"match": "", "close": "close to "}.get(layer["fit"], "none fits; nearest ")
            + layer["nearest"],
            "" if layer["step"] is None else str(layer["step"]),
            _score(layer["score"]),
            f"{_score(layer['low'])} … {_score(layer['high'])}",
            ""
            if layer["runner_up"] is None
            else f"{layer['runner_up']} {_score(layer['runner_up_score'])}",
            ", ".join(layer["also_fits"]),
        ]
        for layer in found["layers"]
    ]
    print_table(f"what the layers of {found['model']} do", columns, rows)
    print(f"verdict: {found['verdict']}")
    for name, value in found["hyperparameters"].items():
        print(f"  {name}: {_numbers(value)}")
    if relation := found["relation"]:
        fit = relation[relation["better"]]
        print(
            f"  steps grow {relation['better']}ly with layers "
            f"(slope {fit['slope']:.3g}, R² {fit['r2']:.3f})"
        )
    if order := found["order_of_convergence"]:
        print(f"  order of convergence {order['order']:.2f} (R² {order['r2']:.3f})")


def _score(value: float) -> str:
    """Four digits after the point, or how little is missing to 1."""
    if value < 0.9999:
        return f"{value:.4f}"
    return "1" if value >= 1 - 1e-12 else f"1 − {1 - value:.0e}"


def _numbers(value: Any) -> str:
    """Numbers to four digits, and of many the first."""
    if isinstance(value, list):
        shown = ", ".join(_numbers(part) for part in value[:3])
        return f"[{shown}{', …' if len(value) > 3 else ''}]"
    return short(value)


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        # A name is to be copied: it stays on one line.
        table.add_column(
            column, overflow="fold", no_wrap=column in ("name", "construction", "claim")
        )
    for row in rows:
        table.add_row(*row)
    # Piped output keeps every word of a row on its line: nothing there to wrap for.
    width = None if sys.stdout.isatty() else 160
    Console(width=width, highlight=False, markup=False).print(table)


@dataclass(frozen=True)
class Told:
    """A progress bar that is called with the share that is done and what is being done."""

    bar: Progress
    task: TaskID

    def __call__(self, share: float, doing: str = "") -> None:
        self.bar.update(self.task, completed=share, doing=short(doing, 60))

    def notice(self, text: str) -> None:
        """One line on standard error, above the bar."""
        self.bar.console.print(f"innerloop: {text}", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress_bar(what: str) -> Iterator[Told]:
    """A progress bar with the time left, on standard error and only where somebody watches.

    It is told the share that is done and, where that says more, what is being done.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = [
        TextColumn(what),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[doing]}", style="dim"),
    ]
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        yield Told(bar, bar.add_task(what, total=1.0, doing=""))


def print_json(value: Any) -> None:
    print(json.dumps(_strict(value), indent=2, ensure_ascii=False, allow_nan=False))


def _strict(value: Any) -> Any:
    """JSON has no infinity: a number that is not finite becomes null."""
    if isinstance(value, dict):
        return {key: _strict(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def short(value: Any, most: int = 40) -> str:
    """A value as people read it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        value = max(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"
