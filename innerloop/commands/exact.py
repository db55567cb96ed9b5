"""`innerloop exact`: a program and its weights, compared in rational arithmetic."""

from __future__ import annotations

from typing import Annotated

import typer

from innerloop.commands.options import AsJson, Seed, Settings
from innerloop.output import print_error, print_json, print_text


def exact(
    name: Annotated[
        str,
        typer.Argument(
            help="A program; see `innerloop list programs`; or file.py:name, which is imported and "
            "runs its code."
        ),
    ],
    settings: Settings = None,
    points: Annotated[int, typer.Option(help="Random points to compare at.")] = 12,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Compare a program with its weights in exact arithmetic; exit 1 where they differ.

    For linear attention equality is a proof for the sizes compared, up to a probability that is
    said; with ReLU it is exact at the points tried.
    """
    from innerloop.certification.compiling import exact as compare
    from innerloop.certification.compiling import find_program
    from innerloop.parameters import parse_settings

    values = parse_settings(find_program(name), settings or [])
    found = compare(name, points=points, seed=seed, **values)
    print_json(found.as_dict()) if as_json else print_text(found.text)
    if not found.equal:
        print_error(f"{found.name} differs from its weights")
        raise typer.Exit(1)
