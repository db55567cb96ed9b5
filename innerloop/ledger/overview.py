"""All that there is, from problems to claims: the data behind `list`."""

from __future__ import annotations

from typing import Any

from innerloop.claims.base import described
from innerloop.constructions.overview import members_listed


def listing() -> dict[str, list[dict[str, Any]]]:
    """Problems, algorithms, policies, constructions and claims, each with name and source."""
    return {**members_listed(), "claims": described()}
