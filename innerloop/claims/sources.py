"""Find the documents that claims are from, and the statements that each of them makes.

A source is a package below `innerloop.claims`: its `SOURCE` says how the document is quoted, its
`statements.txt` lists what is to be checked, in the document's order. A claim that is not listed
there comes after the others; nothing needs to be listed for a claim to be found.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import NamedTuple


class Source(NamedTuple):
    """A document, as it is quoted."""

    authors: str
    title: str
    year: int

    def __str__(self) -> str:
        return f"{self.authors} ({self.year}), {self.title}"


@cache
def load_sources() -> dict[str, Source]:
    """Load the sources of this package, by key."""
    root = files("innerloop.claims")
    keys = sorted(part.name for part in root.iterdir() if part.joinpath("statements.txt").is_file())
    return {key: import_module(f"innerloop.claims.{key}").SOURCE for key in keys}


@cache
def load_statements() -> dict[str, str]:
    """Load every listed statement: its id, and what it says in brief, in the documents' order."""
    statements = {}
    for key in load_sources():
        path = files("innerloop.claims").joinpath(key, "statements.txt")
        for line in path.read_text("utf-8").splitlines():
            id, _, brief = line.partition(" ")
            statements[id] = brief
    return statements
