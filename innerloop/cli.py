"""The command line: parses, calls, prints. Heavy imports wait until a command needs them."""

from __future__ import annotations

import itertools
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from innerloop import __version__
from innerloop.errors import InputError

app = typer.Typer(
    help="Finds the algorithm inside a transformer: builds, shows and verifies transformers "
    "whose forward pass runs a known algorithm.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

Settings = Annotated[
    list[str] | None,
    typer.Option("-s", "--set", metavar="KEY=VALUE", help="Set a parameter; repeat for more."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Seed = Annotated[int, typer.Option(help="Seed of the random instances.")]


def _version(asked: bool | None) -> None:
    if asked:
        print(f"innerloop {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool | None,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = None,
) -> None:
    del version  # its callback has done the work


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """What there is: problems, algorithms, policies, constructions."""
    from innerloop.constructions.overview import listing

    found = listing()
    if as_json:
        return _print_json(found)
    for kind, members in found.items():
        cost = ["layers", "heads", "width", "where", "error"] if kind == "constructions" else []
        columns = ["name", "description", *cost, "source"]
        _print_table(
            kind, columns, [[_short(member[c], 300) for c in columns] for member in members]
        )
    return None


@app.command()
def build(
    name: Annotated[str, typer.Argument(help="A construction; see `innerloop list`.")],
    settings: Settings = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the weights to this file.")
    ] = None,
    instances: Annotated[int, typer.Option(help="Random instances to certify on.")] = 64,
    seed: Seed = 0,
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    as_json: AsJson = False,
) -> None:
    """Build a transformer and certify it; exit 1 where the law is broken."""
    from innerloop.constructions.certificate import build as make
    from innerloop.constructions.certificate import precision
    from innerloop.transformer.file import check_writable

    values = _chosen(name, settings)
    if output is not None:
        check_writable(output)
    with _progress("certifying") as progress:
        built = make(
            name,
            instances=instances,
            seed=seed,
            dtype=precision(dtype),
            progress=progress,
            **values,
        )
    if output is not None:
        built.save(output)
    _finish(built.certificate, as_json, f"written to {output}" if output else None)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A construction; see `innerloop list`.")],
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """A construction's registers, and block by block what each head and MLP piece does."""
    from innerloop.constructions.overview import show as describe

    shown = describe(name, **_chosen(name, settings))
    if as_json:
        return _print_json(shown)
    print(f"{shown['header']}\nPrecision  {shown['precisions']}\n")
    settings_ = shown["settings"].items()
    rows = [[key, _short(part["value"]), part["help"]] for key, part in settings_]
    _print_table("parameters (-s name=value)", ["name", "value", "meaning"], rows)
    registers = [[r["name"], str(tuple(r["shape"])), r["places"]] for r in shown["registers"]]
    _print_table(f"registers (width {shown['width']})", ["name", "shape", "places"], registers)
    cost = shown["cost"]
    where = f" ({cost['where']})" if cost["where"] else ""
    print(
        f"cost of k steps: {cost['layers']} layers, {cost['heads']} heads, "
        f"width {cost['width']}{where}"
    )
    print(f"the source prints: {cost['printed']}")
    print(f"error of a step: {shown['error']}\n")
    loops = f", looped {shown['loops']} times" if shown["loops"] > 1 else ""
    print(f"blocks ({shown['layers']} layers{loops})")
    for part in shown["blocks"]:
        print(f"  {part['section']}, block {part['block']}")
        for line in part["does"]:
            print(f"    {line}")
    return None


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(help="A file that `build -o` wrote.")],
    as_json: AsJson = False,
) -> None:
    """Recompute a file's certificate from its weights; exit 1 where the law is broken."""
    from innerloop.constructions.certificate import verify as check

    with _progress("verifying") as progress:
        built = check(file, progress=progress)
    _finish(built.certificate, as_json, None)


@app.command()
def report(
    output: Annotated[Path, typer.Option("-o", "--output", help="The page to write.")] = Path(
        "report.html"
    ),
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Certify every construction and write one self-contained page; exit 1 where one fails."""
    import time

    from innerloop.constructions import survey
    from innerloop.constructions.base import Construction
    from innerloop.registry import members
    from innerloop.report.page import page
    from innerloop.transformer.file import check_writable, write_atomically

    check_writable(output)
    start = time.perf_counter()
    total = len(members("constructions", Construction)) + survey.contenders()
    with _progress("certifying") as progress:
        parts = itertools.chain(survey.certificates(seed), survey.convergence(seed))
        found = []
        for part in parts:
            found.append(part)
            progress(len(found) / total)
    certificates = [part.as_dict() for part in found if not isinstance(part, list)]
    curves = [row for part in found if isinstance(part, list) for row in part]
    html = page(
        certificates,
        curves,
        setting=survey.convergence_setting(),
        command=f"innerloop report -o {output} --seed {seed}",
        made=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        seconds=time.perf_counter() - start,
    )
    write_atomically(output, html.encode())
    failed = [c["name"] for c in certificates if not c["holds"]]
    if as_json:
        _print_json({"path": str(output), "certificates": certificates, "convergence": curves})
    else:
        _print_certificates(certificates)
        print(f"report written to {output}")
    if failed:
        print(f"innerloop: the law is broken by {', '.join(failed)}", file=sys.stderr)
        raise typer.Exit(1)


def _chosen(name: str, settings: list[str] | None) -> dict[str, Any]:
    """The `-s key=value` words as parameters of construction `name`."""
    from innerloop.constructions.base import Construction
    from innerloop.parameters import parse
    from innerloop.registry import find

    return parse(find("constructions", Construction, name), settings or [])


def _finish(certificate: Any, as_json: bool, note: str | None) -> None:
    """Print a certificate; exit 1 if it does not hold."""
    if as_json:
        _print_json(certificate.as_dict())
    else:
        _print_certificates([certificate.as_dict()])
        if note:
            print(note)
    if certificate.holds:
        return
    reason = (
        f"a step deviates by {max(certificate.step_deviation):.3g} "
        f"(allowed {certificate.tolerance:.3g}), running free by {max(certificate.deviation):.3g} "
        f"(allowed {max(certificate.free_tolerance):.3g}); first {certificate.broken}"
        if certificate.range_used <= 1
        else f"the data reach {certificate.range_used:.3g} times the declared range"
    )
    print(f"innerloop: {certificate.name} breaks the law: {reason}", file=sys.stderr)
    raise typer.Exit(1)


_MEASURED = {
    **{name: name for name in ("layers", "heads", "width", "parameters")},
    "operator_norm": "operator norm",
    "step_deviation": "step deviation",
    "tolerance": "tolerance",
    "deviation": "free deviation",
    "free_tolerance": "free tolerance",
}


def _print_certificates(certificates: list[dict[str, Any]]) -> None:
    """One certificate as a list, several as a table; of a number for each step, the largest."""
    titles = ["law", *_MEASURED.values()]
    rows = [
        ["holds" if c["holds"] else "BROKEN", *(_short(c[name]) for name in _MEASURED)]
        for c in certificates
    ]
    if len(certificates) == 1:
        name = certificates[0]["name"]
        lines = [list(pair) for pair in zip(titles, rows[0], strict=True)]
        return _print_table(f"certificate of {name}", ["", "measured"], lines)
    named = [[c["name"], *row] for c, row in zip(certificates, rows, strict=True)]
    return _print_table("certificates", ["construction", *titles], named)


def _print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        # A name is to be copied: it stays on one line.
        table.add_column(column, overflow="fold", no_wrap=column in ("name", "construction"))
    for row in rows:
        table.add_row(*row)
    # Piped output keeps every word of a row on its line: nothing there to wrap for.
    width = None if sys.stdout.isatty() else 160
    Console(width=width, highlight=False, markup=False).print(table)


@contextmanager
def _progress(what: str) -> Iterator[Callable[[float], None]]:
    """A progress bar with the time left, on standard error and only where somebody watches."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = [TextColumn(what), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()]
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(what, total=1.0)
        yield lambda share: bar.update(task, completed=share)


def _print_json(value: Any) -> None:
    print(json.dumps(_strict(value), indent=2, ensure_ascii=False, allow_nan=False))


def _strict(value: Any) -> Any:
    """JSON has no infinity: a number that is not finite becomes null."""
    if isinstance(value, dict):
        return {key: _strict(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _short(value: Any, most: int = 40) -> str:
    """A value as people read it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        value = max(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _stop(message: str) -> NoReturn:
    print(f"innerloop: {message}", file=sys.stderr)
    raise SystemExit(2)


def main() -> None:
    """Run the command line; a user's mistake is one line on standard error and exit code 2."""
    # One thread unless asked otherwise: the matrices are small, on a busy machine more threads wait
    # for each other, and numbers are the same whatever the machine.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        app()
    except InputError as error:
        _stop(str(error))
    except MemoryError:
        _stop("out of memory: choose smaller parameters")
    except RuntimeError as error:
        if "alloc" not in str(error):
            raise
        _stop("out of memory: choose smaller parameters")
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(1) from None
