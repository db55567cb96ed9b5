"""`innerloop exact`: compare a program with its weights in rational arithmetic."""

from __future__ import annotations

from typing import Annotated

import typer

from innerloop.commands.options import AsJson, Seed, Settings
from innerloop.output import print_error, print_json, print_text


def exact(
    name: Annotated[
        str,
        typer.Argument(
            help="A program (see `innerloop list programs`), or file.py:name, which is imported "
            "and runs its code."
        ),
    ],
    settings: Settings = None,
    points: Annotated[int, typer.Option(help="Number of random points to compare at.")] = 12,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Compare a program with its weights in exact arithmetic; exit 1 if they differ.

    With linear attention, equality at random points proves equality for these
    sizes, except with a stated small probability. With ReLU units, equality is
    established only at the points that were tried.
    """
    from innerloop.certification.compiling import exact as compare
    from innerloop.certification.compiling import find_program
    from innerloop.parameters import parse_settings

    values = parse_settings(find_program(name), settings or [])
    exactness = compare(name, points=points, seed=seed, **values)
    print_json(exactness.as_dict()) if as_json else print_text(exactness.text)
    if not exactness.equal:
        print_error(f"{exactness.name} differs from its weights")
        raise typer.Exit(1)
