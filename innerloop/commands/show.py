"""`innerloop show`: describe a member."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from innerloop.commands.options import AsJson, Settings
from innerloop.errors import InputError
from innerloop.output import print_json, print_text


def show(
    name: Annotated[
        str,
        typer.Argument(
            help="Name of a member; kind/name if several kinds share the name; or "
            "module:attribute, which is imported and runs its code."
        ),
    ],
    settings: Settings = None,
    figure: Annotated[
        Path | None,
        typer.Option(help="Draw the registers and blocks of a program to this file: png or svg."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Describe a construction, algorithm, recipe, claim or other member.

    The description contains the documentation, the parts and the parameters.
    """
    from innerloop.catalogue.showing import draw, find_parameters
    from innerloop.catalogue.showing import show as describe
    from innerloop.parameters import parse_settings
    from innerloop.printing import print_description

    owner = find_parameters(name)
    if owner is None and settings:
        raise InputError(f"{name} has no parameters; leave -s out")
    values = parse_settings(owner, settings or []) if owner else {}
    if figure is not None:
        from innerloop.files import check_writable
        from innerloop.report.export import check_drawing_format, write_drawing

        check_drawing_format(figure)
        check_writable(figure)
        write_drawing(figure, draw(name, **values))
    description = describe(name, **values)
    print_json(description) if as_json else print_description(description)
    if figure is not None and not as_json:
        print_text(f"diagram written to {figure}")
