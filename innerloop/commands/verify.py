"""`innerloop verify`: the certificate of a file, computed again."""

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
    instances: Annotated[int, typer.Option(help="Random instances to verify on.")] = 64,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Recompute a file's certificate from its weights; exit 1 where the law is broken.

    How hard it is tested is decided here, never by the file.
    """
    from innerloop.certification.building import verify as check

    with progress_bar("verifying") as progress:
        built = check(
            file, construction=definition, instances=instances, seed=seed, progress=progress
        )
    finish_certificate(built.certificate, as_json, None)
