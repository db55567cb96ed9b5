"""Full references of the documents: where each appeared, and addresses where it can be read.

They are kept beside the claims of a source, in `reference.json`, and no claim imports them: a new
address makes no stored result stale.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from innerloop.claims.base import Claim
from innerloop.claims.sources import Source, load_sources
from innerloop.jsonfiles import parse_object


def make_reference(id: str, claim: Claim | None = None) -> dict[str, Any]:
    """Make the reference of a claim's document: short name, full citation, links by name."""
    key = id.partition(".")[0]
    source = (claim.document if claim else None) or load_sources().get(key)
    more = _load_details().get(key, {}) if source is load_sources().get(key) else {}
    if source is None:
        return {"short": key, "citation": key, "links": {}}
    venue = f" {more['venue']}." if more.get("venue") else ""
    authors = more.get("authors", source.authors)
    stop = "" if source.title.endswith("?") else "."
    return {
        "short": _shorten(source),
        "citation": f"{authors} ({source.year}): {source.title}{stop}{venue}",
        "links": more.get("links", {}),
    }


def _shorten(source: Source) -> str:
    """Name a document by its first author and year."""
    first, *others = source.authors.split(", ")
    return f"{first} et al. {source.year}" if others else f"{first} {source.year}"


@cache
def _load_details() -> dict[str, dict[str, Any]]:
    found = {}
    for key in load_sources():
        path = files("innerloop.claims").joinpath(key, "reference.json")
        if path.is_file():
            found[key] = parse_object(path.read_bytes())
    return found
