"""`innerloop lab`: an interactive page in the browser."""

from __future__ import annotations

import importlib.util
from typing import Annotated

import typer

from innerloop.errors import MissingLibraryError


def lab(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on this machine; 0 selects a free port.")
    ] = 8324,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
) -> None:
    """Open an interactive page on this machine: drag data, and watch every layer respond."""
    missing = [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        raise MissingLibraryError(f"the lab needs {names}: pip install 'innerloop[lab]'")
    from innerloop.lab.serving import serve

    serve(port, open_browser=browser)
