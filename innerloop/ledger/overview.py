"""All that there is, from problems to claims: the data behind `list`."""

from __future__ import annotations

from typing import Any

from innerloop.claims.base import described as claims_described
from innerloop.constructions.overview import described, members_listed
from innerloop.recipes.base import Recipe
from innerloop.registry import members


def listing() -> dict[str, list[dict[str, Any]]]:
    """Problems, algorithms, policies, constructions, recipes and claims, with name and source."""
    recipes = described(members("recipes", Recipe))
    return {**members_listed(), "recipes": recipes, "claims": claims_described()}
