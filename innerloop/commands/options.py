"""Options that several commands share, and the parsing of `-s key=value`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from innerloop.limits import check_seed
from innerloop.results import VARIABLE

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "-s",
        "--set",
        metavar="KEY=VALUE",
        help="Set a parameter, such as d=5; repeat the option for more.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Seed = Annotated[int, typer.Option(help="Seed of the random instances.", callback=check_seed)]
PresetName = Annotated[str, typer.Option(help="Size of the checks: quick, full or paper.")]
Workers = Annotated[int | None, typer.Option(help="Number of processes; one per core by default.")]
EngineName = Annotated[
    str, typer.Option("--engine", help="local, or dask:ADDRESS to use a Dask cluster.")
]
Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda or mps.")]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Ignore stored results and run everything again.")
]
Results = Annotated[
    Path | None,
    typer.Option(
        envvar=VARIABLE,
        help="Folder of results, with the subfolders cells and runs. By default, `results` of the "
        "checkout, or without a checkout, the user's data folder.",
    ),
]
Definition = Annotated[
    str | None,
    typer.Option(
        metavar="FILE:ATTRIBUTE",
        help="Your own construction or recipe from which the file was made. It is imported, which "
        "runs its code.",
    ),
]


def parse_parameters(
    kind: str, base: type, name: str, settings: list[str] | None
) -> dict[str, Any]:
    """Parse `-s key=value` words to the parameters that a member declares."""
    from innerloop.parameters import parse_settings
    from innerloop.registry import find_class

    return parse_settings(find_class(kind, base, name), settings or [])
