"""`innerloop compile`: compile one step of an algorithm to a transformer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from innerloop.commands.build import finish_certificate
from innerloop.commands.options import AsJson, Seed, Settings
from innerloop.output import print_text
from innerloop.terminal import progress_bar


def compile_(
    name: Annotated[
        str,
        typer.Argument(
            help="A program (see `innerloop list programs`), or file.py:name, which is imported "
            "and runs its code."
        ),
    ],
    settings: Settings = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the weights to this file.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw registers and blocks to this file: png or svg.")
    ] = None,
    instances: Annotated[
        int, typer.Option(help="Number of random instances for the certificate.")
    ] = 64,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Compile a program to a transformer, and measure its certificate.

    The exit code is 1 if the certificate does not hold.
    """
    from innerloop.certification.compiling import compile as make
    from innerloop.certification.compiling import find_program
    from innerloop.files import check_writable
    from innerloop.language.construction import ProgramConstruction
    from innerloop.language.diagram import draw_program
    from innerloop.language.explaining import describe_blocks
    from innerloop.parameters import parse_settings
    from innerloop.report.export import check_drawing_format, write_drawing

    values = parse_settings(find_program(name), settings or [])
    if figure is not None:
        check_drawing_format(figure)
    for path in (output, figure):
        if path is not None:
            check_writable(path)
    with progress_bar("certifying") as progress:
        built = make(name, instances=instances, seed=seed, progress=progress, **values)
    notes = []
    if output is not None:
        built.save(output)
        notes.append(f"written to {output}")
    if figure is not None:
        assert isinstance(built.construction, ProgramConstruction)
        write_drawing(figure, draw_program(built.construction))
        notes.append(f"diagram written to {figure}")
    if not as_json:
        for line in describe_blocks(built.construction):
            print_text(line)
    finish_certificate(built.certificate, as_json, "\n".join(notes) or None)
