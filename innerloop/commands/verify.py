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
    """Compute the certificate of a file from its weights; exit 1 if the law is broken.

    The options determine how the file is tested; the file itself does not.
    """
    from innerloop.certification.building import verify as check

    with progress_bar("verifying") as progress:
        built = check(
            file, construction=definition, instances=instances, seed=seed, progress=progress
        )
    finish_certificate(built.certificate, as_json, None)
