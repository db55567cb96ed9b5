"""`innerloop lab`: the page to play with."""

from __future__ import annotations

import importlib.util
from typing import Annotated

import typer

from innerloop.errors import MissingLibraryError


def lab(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on this machine; 0 for any free one.")
    ] = 8324,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
) -> None:
    """Watch a transformer think: a page on this machine, for you to play with."""
    missing = [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        raise MissingLibraryError(f"the lab needs {names}: pip install 'innerloop[lab]'")
    from innerloop.lab.serving import serve

    serve(port, open_browser=browser)
