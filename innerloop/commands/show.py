"""`innerloop show`: what a member is made of."""

from __future__ import annotations

from typing import Annotated

import typer

from innerloop.commands.options import AsJson, Settings
from innerloop.errors import InputError
from innerloop.output import print_json


def show(
    name: Annotated[
        str,
        typer.Argument(
            help="Any member; kind/name where several kinds share the name; or module:attribute, "
            "which is imported and runs its code."
        ),
    ],
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Show what a member is made of, of whatever kind, and what can be set."""
    from innerloop.catalogue.showing import find_parameters
    from innerloop.catalogue.showing import show as describe
    from innerloop.parameters import parse_settings
    from innerloop.printing import print_description

    owner = find_parameters(name)
    if owner is None and settings:
        raise InputError(f"{name} has no parameters that -s could set")
    shown = describe(name, **(parse_settings(owner, settings or []) if owner else {}))
    print_json(shown) if as_json else print_description(shown)
