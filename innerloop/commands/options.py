"""Options that several commands share, and how `-s key=value` is parsed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from innerloop.limits import check_seed
from innerloop.results import VARIABLE

Settings = Annotated[
    list[str] | None,
    typer.Option("-s", "--set", metavar="KEY=VALUE", help="Set a parameter; repeat for more."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Seed = Annotated[int, typer.Option(help="Seed of the random instances.", callback=check_seed)]
PresetName = Annotated[str, typer.Option(help="How much is run: quick, full or paper.")]
Workers = Annotated[
    int | None, typer.Option(help="Processes to run in; one for each core unless given.")
]
EngineName = Annotated[
    str, typer.Option("--engine", help="local, or dask:ADDRESS for a Dask cluster.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps: where it is computed.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Run also what is stored.")]
Results = Annotated[
    Path | None,
    typer.Option(
        envvar=VARIABLE,
        help="The folder of results, with cells and runs below it; else that of the checkout, or "
        "of the user's data.",
    ),
]
Definition = Annotated[
    str | None,
    typer.Option(
        metavar="FILE:ATTRIBUTE",
        help="The construction or recipe that the file was made with, if it is your own; it is "
        "imported, which runs its code.",
    ),
]


def parse_parameters(
    kind: str, base: type, name: str, settings: list[str] | None
) -> dict[str, Any]:
    """Parse `-s key=value` words by what a member declares."""
    from innerloop.parameters import parse_settings
    from innerloop.registry import find_class

    return parse_settings(find_class(kind, base, name), settings or [])
