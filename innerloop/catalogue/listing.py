"""List the members of all kinds, from this package and from others."""

from __future__ import annotations

from typing import Any

from innerloop.catalogue.kinds import BASES, find_kind
from innerloop.claims.loading import describe_claims
from innerloop.constructions.base import Construction
from innerloop.parameters import Parameters
from innerloop.registry import KINDS, Entry, get_summary, load_entries


def list_members(kind: str | None = None) -> dict[str, list[dict[str, Any]]]:
    """List the members of one kind or of all kinds, with their descriptions and sources.

    Args:
        kind: problems, algorithms, policies, programs, constructions, recipes or claims, in the
            plural or the singular. If None, the members of all kinds are listed.

    Returns:
        A dictionary with a list for each kind. An entry of a list describes a member by its name,
        description, source, owner and settings.

    Raises:
        InputError: The kind does not exist. The message suggests the nearest name.

    Example:
        >>> import innerloop
        >>> rows = innerloop.list_members("constructions")["constructions"]
        >>> [row["layers"] for row in rows if row["name"] == "newton"]
        ['k + 2']
    """
    kinds = KINDS if kind is None else [find_kind(kind)]
    return {
        each: describe_claims()
        if each == "claims"
        else [_describe_entry(entry) for entry in load_entries(each, BASES[each]).values()]
        for each in kinds
    }


def describe_parameters(kind: type[Parameters], made: Parameters | None = None) -> dict[str, Any]:
    """Describe each parameter of a class: its value, its meaning and its range.

    The values are those of the object `made`, or the defaults if it is None. The limits `least` and
    `most` are None for a parameter without limits.
    """
    values = (made or kind()).values()
    about = kind.describe_parameters()
    return {
        name: {"value": value, **{key: about[name].get(key) for key in ("help", "least", "most")}}
        for name, value in values.items()
    }


def _describe_entry(entry: Entry) -> dict[str, Any]:
    member = entry.value
    described = {
        "name": entry.name,
        "description": get_summary(member),
        "source": member.source,
        "from": entry.owner,
    }
    if issubclass(member, Construction):
        described |= {**member.cost._asdict(), "exact": member.exact, "error": member.error}
    if issubclass(member, Parameters):
        described |= {"parameters": describe_parameters(member)}
    return described
