"""Output on the terminal: tables, progress bars with the time left, and JSON."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from innerloop.mathtext import strip_dollars
from innerloop.output import escape_text, print_error, print_text

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

NAME_COLUMNS = ("name", "construction", "claim", "what it does")
"""Columns that are not wrapped: names that users copy, and verdicts."""

_MEASURE_TITLES = {
    **{name: name for name in ("layers", "heads", "width", "parameters")},
    "operator_norm": "operator norm",
    "step_deviation": "step deviation",
    "tolerance": "tolerance",
    "deviation": "free deviation",
    "free_tolerance": "free tolerance",
}


def print_certificates(certificates: list[dict[str, Any]]) -> None:
    """Print one certificate as a list or several as a table, with the largest deviations."""
    titles = ["law", *_MEASURE_TITLES.values()]
    rows = [
        ["holds" if c["holds"] else "BROKEN", *(format_value(c[name]) for name in _MEASURE_TITLES)]
        for c in certificates
    ]
    if len(certificates) == 1:
        name = certificates[0]["name"]
        lines = [list(pair) for pair in zip(titles, rows[0], strict=True)]
        lines += [["instances", _describe_instances(certificates[0])]]
        lines += [["not reached", _describe_unreached(certificates[0])]]
        if exactness := certificates[0].get("exactness"):
            lines += [["exact arithmetic", exactness["brief"]]]
        if knots := certificates[0].get("approximation"):
            error = f"{knots['measured']:.2g} measured, at most {knots['bound']:.2g}"
            lines += [["piecewise linear approximation", f"error of a step: {error}"]]
        return print_table(f"certificate of {name}", ["", "measured"], lines)
    lines = [[c["name"], *row] for c, row in zip(certificates, rows, strict=True)]
    return print_table("certificates", ["construction", *titles], lines)


def _describe_instances(certificate: dict[str, Any]) -> str:
    """Describe the instances: in `64 + 32, seed 0`, 32 were added to reach more weights."""
    further, redrawn = certificate["further_instances"], certificate["redrawn_instances"]
    more = f" + {further}" if further else ""
    again = f", {redrawn} replaced because they were out of range" if redrawn else ""
    return f"{certificate['instances']}{more}, seed {certificate['seed']}{again}"


def _describe_unreached(certificate: dict[str, Any]) -> str:
    """Count the weights in which a small error would not be detected; the JSON lists them."""
    names = ("unreached_weights", "faint_weights", "unreached_zeros")
    count, faint, zeros = (certificate[name] for name in names)
    if count is None:
        return "not measured"
    return (
        f"{count} weights"
        + (f" (in {faint} of them, a large error would be)" if faint else "")
        + (f", {zeros} zeros" if zeros else "")
    )


def print_outcomes(outcomes: list[dict[str, Any]]) -> None:
    """Print one line per claim and the counts of verdicts; for up to three claims, print
    details."""
    rows = [
        [o["id"], o["label"], o["preset"] or "", f"{o['seconds']:.1f}" if o["preset"] else ""]
        for o in outcomes
    ]
    print_table("claims", ["claim", "verdict", "preset", "seconds"], rows)
    if len(outcomes) <= 3:
        for outcome in outcomes:
            _print_evidence(outcome)
    for outcome in outcomes:
        if stale := outcome["stale"]:
            changed = ", ".join(stale["changed"][:3]) + (", …" if len(stale["changed"]) > 3 else "")
            print_text(
                f"stale: {outcome['id']} at {stale['preset']}, {stale['verdict']} on "
                f"{stale['made']}; changed since: {changed}"
            )
    counts = Counter(outcome["verdict"] for outcome in outcomes)
    with_errata = sum(bool(o["evidence"] and o["evidence"]["errata"]) for o in outcomes)
    print_text(
        ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
        + (f"; {with_errata} with errata" if with_errata else "")
    )


def _print_evidence(outcome: dict[str, Any]) -> None:
    outcome = strip_dollars(outcome)
    where = f" ({outcome['where']})" if outcome["where"] else ""
    print_text(f"{outcome['id']}{where}: {outcome['statement']}")
    if outcome["restates"]:
        print_text(f"  restates {outcome['restates']}, and has the same check")
    for hypothesis, at in outcome["hypotheses"].items():
        print_text(f"  hypothesis: {hypothesis} ({at})")
    evidence = outcome["evidence"]
    if evidence is None:
        print_text(f"  {outcome['error']}\n" if outcome["error"] else "")
        return
    for part in evidence["parts"]:
        _print_part(part)
    for erratum in evidence["errata"]:
        _print_erratum(erratum)
    for check in evidence["beyond"]:
        _print_check("beyond", check)
    if evidence["out_of_reach"]:
        print_text(f"  out of reach: {evidence['out_of_reach']}")
    if evidence["missing"]:
        print_text(f"  {evidence['missing']}")
    if outcome["decided_by"]:
        subject = "the claim" if outcome["verdict"] == "undecided" else "the correction"
        print_text(f"  {subject} would be decided by: {outcome['decided_by']}")
    for name, value in evidence["numbers"].items():
        # Numbers are shortened; a text is a result and is printed in full.
        print_text(f"  {name}: {value if isinstance(value, str) else format_value(value)}")
    print_text()


def _print_part(part: dict[str, Any]) -> None:
    _print_check("as printed", part["printed"])
    if part["corrected"]:
        _print_check("corrected", part["corrected"])
    if part["weaker"]:
        _print_check("weaker", part["weaker"])
    if part["reading"]:
        print_text(f"    reading: {part['reading']}")
    for name, check in part["other_readings"].items():
        _print_check(f"another reading, {name}", check)
    if part["vacuous"]:
        print_text(f"    vacuous: {part['vacuous']}")


def _print_erratum(erratum: dict[str, Any]) -> None:
    _print_check(f"erratum ({erratum['grade']}), {erratum['where']}", erratum["printed"])
    if erratum["corrected"]:
        _print_check("corrected", erratum["corrected"])
    if erratum["meant"]:
        print_text(f"    meant: {erratum['meant']}")


def _print_check(form: str, check: dict[str, Any]) -> None:
    outcome = {True: "holds", False: "FAILS", None: "undecided"}[check["passed"]]
    print_text(f"  {form}, {outcome}: {check['statement']}")
    for line in check["summary"].split("\n"):
        print_text(f"    {line}")
    if check["ours"]:
        print_text(f"    threshold of ours: {check['ours']}")
    for line in check["counterexample"].splitlines():
        print_text(f"    counterexample: {line}")


def print_runs(name: str, runs: list[dict[str, Any]]) -> None:
    """Print a line per run of a recipe, and all final measurements if there is only one run."""
    rows = [
        [
            str(run["seed"]),
            str(run["steps"]),
            run["ended"],
            f"{run['seconds']:.1f}",
            f"{run['final']['loss']:.4g}",
        ]
        for run in runs
    ]
    print_table(f"{name}, trained", ["seed", "steps", "ended by", "seconds", "loss"], rows)
    if len(runs) == 1:
        final = runs[0]["final"].items()
        others = [[k, f"{v:.4g}"] for k, v in final if k not in ("step", "seconds", "loss")]
        print_table("at the end", ["", ""], others)
    for run in runs:
        if run["remark"]:
            print_text(f"seed {run['seed']}: {run['remark']}")


def print_verdict(identification: dict[str, Any]) -> None:
    """Print a line per layer of a model, then the verdict on the whole model."""
    from innerloop.identification.tables import COLUMNS, build_lines, build_rows

    title = f"algorithms of the layers of {identification['model']}"
    print_table(title, COLUMNS, build_rows(identification))
    for line in build_lines(identification):
        print_text(line)


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a title and a table, as wide as the terminal, or 160 columns into a pipe."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in NAME_COLUMNS)
    for row in rows:
        table.add_row(*map(escape_text, row))
    # A pipe has no width to wrap at: use a large width, so that each row is one line.
    width = None if sys.stdout.isatty() else 160
    console = Console(width=width, highlight=False, markup=False)
    # Printed separately, because rich would break the title of a table within words.
    console.print(escape_text(title), style="table.title", soft_wrap=True)
    console.print(table)


SECONDS_BETWEEN_LINES = 30.0
"""Seconds between two lines of progress if the output is not a terminal."""


@dataclass
class ProgressReporter:
    """A progress callback (`innerloop.progress.Progress`) that updates a bar, or prints lines."""

    bar: Progress
    task: TaskID
    title: str = ""
    began: float = 0.0
    _lines: int = 0

    def __call__(self, share: float, doing: str = "") -> None:
        if self.bar.console.is_terminal:
            self.bar.update(self.task, completed=share, doing=escape_text(format_value(doing, 60)))
            return
        seconds = time.monotonic() - self.began
        if seconds >= SECONDS_BETWEEN_LINES * (self._lines + 1):
            self._lines = int(seconds / SECONDS_BETWEEN_LINES)
            left = f", {format_duration(seconds / share - seconds)} left" if share > 0 else ""
            what = f", {format_value(doing, 60)}" if doing else ""
            print_error(f"{self.title} {share:.0%}{what}{left}")

    def notice(self, text: str) -> None:
        """Print one line on standard error, above the bar."""
        if not self.bar.console.is_terminal:
            return print_error(text)
        line = f"innerloop: {escape_text(text)}"
        return self.bar.console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress_bar(title: str) -> Iterator[ProgressReporter]:
    """Show a progress bar with the time left on standard error, or lines without a terminal.

    The callback accepts the finished share and, optionally, a description of the current work.
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
        TextColumn(title),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[doing]}", style="dim"),
    ]
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(title, total=1.0, doing="")
        yield ProgressReporter(bar, task, title, time.monotonic())


def format_duration(seconds: float) -> str:
    """Format a time for reading: `40 s`, `12 min`, `3.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def format_value(value: Any, max_length: int = 40) -> str:
    """Format a value: four digits of a number, the largest of a tuple, shortened text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        value = max(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"
