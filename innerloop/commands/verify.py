"""`innerloop verify`: compute the certificate of a file again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from innerloop.commands.build import finish_certificate
from innerloop.commands.options import AsJson, Definition, Seed
from innerloop.terminal import progress_bar


def verify(
    file: Annotated[Path, typer.Argument(help="A file that `build -o` wrote.")],
    definition: Definition = None,
    instances: Annotated[int, typer.Option(help="Number of random instances.")] = 64,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Measure the certificate of a file again from its weights.

    The certificate that is stored in the file is not used. The exit code is 1
    if the certificate does not hold.
    """
    from innerloop.certification.building import verify as check

    with progress_bar("verifying") as progress:
        built = check(
            file, construction=definition, instances=instances, seed=seed, progress=progress
        )
    finish_certificate(built.certificate, as_json, None)
