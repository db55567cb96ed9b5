"""`innerloop build`: a transformer that runs an algorithm, with its certificate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from innerloop.commands.options import AsJson, Device, Seed, Settings, parse_parameters
from innerloop.output import print_error, print_json, print_text
from innerloop.terminal import print_certificates, progress_bar

if TYPE_CHECKING:
    from innerloop.certification.certificate import Certificate


def build(
    name: Annotated[
        str, typer.Argument(help="A construction; `innerloop list constructions` lists them.")
    ],
    settings: Settings = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the weights to this file.")
    ] = None,
    instances: Annotated[
        int, typer.Option(help="Number of random instances for the certificate.")
    ] = 64,
    seed: Seed = 0,
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Build a transformer that runs an algorithm, and measure its certificate.

    The exit code is 1 if the certificate does not hold.
    """
    from innerloop.certification.building import build as make
    from innerloop.certification.building import resolve_dtype
    from innerloop.constructions.base import Construction
    from innerloop.devices import choose_device
    from innerloop.files import check_writable

    values = parse_parameters("constructions", Construction, name, settings)
    if choose_device(device).type != "cpu":
        print_error(f"building and certifying use the CPU and float64; {device} is ignored")
    if output is not None:
        check_writable(output)
    options = {"instances": instances, "seed": seed, "dtype": resolve_dtype(dtype)}
    with progress_bar("certifying") as progress:
        built = make(name, progress=progress, **options, **values)
    if output is not None:
        built.save(output)
    finish_certificate(built.certificate, as_json, f"written to {output}" if output else None)


def finish_certificate(certificate: Certificate, as_json: bool, note: str | None) -> None:
    """Print a certificate; exit 1 if it does not hold."""
    if as_json:
        print_json(certificate.as_dict())
    else:
        print_certificates([certificate.as_dict()])
        if note:
            print_text(note)
    if not certificate.holds:
        print_error(f"{certificate.name} breaks the law: {certificate.explain()}")
        raise typer.Exit(1)
