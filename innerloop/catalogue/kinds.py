"""The kinds of members and the base class of each; claims are objects, the others classes."""

from __future__ import annotations

from innerloop.algorithms.base import Algorithm
from innerloop.constructions.base import Construction
from innerloop.errors import unknown_name_error
from innerloop.language.construction import ProgramConstruction
from innerloop.policies.base import Policy
from innerloop.problems.base import Distribution
from innerloop.recipes.base import Recipe
from innerloop.registry import KINDS

BASES: dict[str, type] = {
    "problems": Distribution,
    "algorithms": Algorithm,
    "policies": Policy,
    "programs": ProgramConstruction,  # before its base: a program is a construction too
    "constructions": Construction,
    "recipes": Recipe,
}


def find_kind(word: str) -> str:
    """Find a kind by its name, in the singular or the plural."""
    for kind, single in KINDS.items():
        if word in (kind, single):
            return kind
    raise unknown_name_error("kind", word, KINDS)
