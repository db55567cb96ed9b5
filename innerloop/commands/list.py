"""`innerloop list`: list the members of the package."""

from __future__ import annotations

from typing import Annotated

import typer

from innerloop.commands.options import AsJson
from innerloop.output import print_json


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="problems, algorithms, policies, constructions, programs, recipes or claims; all "
            "kinds by default."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List problems, algorithms, policies, constructions, programs, recipes and claims."""
    from innerloop.catalogue.listing import list_members
    from innerloop.printing import print_members

    members = list_members(kind)
    print_json(members) if as_json else print_members(members)
