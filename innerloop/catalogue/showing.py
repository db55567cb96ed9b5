"""Describe a member of any kind, for `show`."""

from __future__ import annotations

import inspect
from dataclasses import fields, is_dataclass
from typing import Any, cast

import torch

from innerloop.algorithms.base import Algorithm
from innerloop.catalogue.blocks import describe_construction
from innerloop.catalogue.kinds import BASES, find_kind
from innerloop.catalogue.listing import describe_parameters
from innerloop.claims.base import Claim
from innerloop.claims.loading import find_claim, load_claims
from innerloop.claims.sources import load_statements
from innerloop.constructions.base import Construction
from innerloop.errors import InputError, unknown_name_error
from innerloop.language.construction import ProgramConstruction
from innerloop.language.diagram import draw_program
from innerloop.language.explaining import explain_program
from innerloop.locations import load_object
from innerloop.parameters import Parameters
from innerloop.policies.base import Policy
from innerloop.problems.base import Distribution
from innerloop.recipes.base import Recipe
from innerloop.registry import KINDS, find_member, get_name, load_entries, make_member


def show(member: Any, /, **settings: Any) -> dict[str, Any]:
    """Describe a member: its documentation, its parameters and its parts.

    Args:
        member: A name (`kind/name` if several kinds share the name), a class, an object,
            `module:attribute` or `file.py:attribute`. The last two import the module or the file,
            which runs its code.
        **settings: Values of the member's parameters, as for `build` or `train`.

    Returns:
        The description as plain data, as `innerloop show --json` prints it.

    Raises:
        InputError: The member does not exist, several kinds have a member with this name, or the
            member does not have a parameter that is set.

    Example:
        >>> import innerloop
        >>> innerloop.show("construction/newton", d=3)["width"]
        8
    """
    kind, value = find_any(member)
    if isinstance(value, Claim):
        if settings:
            names = ", ".join(settings)
            raise InputError(f"a claim has presets and no parameters: leave out {names}")
        return {"kind": "claim", **_describe_claim(value)}
    if kind == "algorithms":
        if settings:
            raise InputError(
                "the parameters of an algorithm are tensors; to set them, create "
                "the algorithm in Python"
            )
        return {"kind": "algorithm", **_describe_algorithm(value)}
    made = make_member(kind, BASES[kind], value, settings)
    about = {
        "kind": KINDS[kind],
        "name": get_name(type(made)),
        "source": made.source,
        "header": _get_header(type(made)),
        "settings": describe_parameters(type(made), made),
    }
    return {**about, **_describe_contents(made)}


def draw(member: Any, /, **settings: Any) -> str:
    """Draw the registers and blocks of a program as SVG; members of other kinds have no diagram."""
    kind, value = find_any(member)
    program = inspect.isclass(value) and issubclass(value, ProgramConstruction)
    if not program and not isinstance(value, ProgramConstruction):
        raise InputError(
            f"{member} has no diagram: only programs and constructions that are programs have one"
        )
    return draw_program(make_member(kind, BASES[kind], value, settings))


def find_any(member: Any) -> tuple[str, Any]:
    """Find a member of any kind; return its kind, and its class, object or claim."""
    if isinstance(member, str) and ":" in member:
        member = load_object(member)
    if isinstance(member, Claim):
        return "claims", member
    if not isinstance(member, str):
        kind_of_member = member if inspect.isclass(member) else type(member)
        for kind, base in BASES.items():
            if issubclass(kind_of_member, base):
                return kind, member
        expected = ", ".join(KINDS.values())
        raise InputError(f"expected one of {expected}; got {kind_of_member.__name__}")
    single, slash, name = member.partition("/")
    if slash:
        kind = find_kind(single)
        return kind, find_claim(name) if kind == "claims" else find_member(kind, BASES[kind], name)
    return _find_by_name(member)


def _find_by_name(name: str) -> tuple[str, Any]:
    """Find the kind and the member called `name`; raise `InputError` if several kinds have one."""
    known = {kind: load_entries(kind, base) for kind, base in BASES.items()}
    kinds = [kind for kind, entries in known.items() if name in entries]
    if len(kinds) > 1:
        ways = " or ".join(f"{KINDS[kind]}/{name}" for kind in kinds)
        raise InputError(f"{name!r} names {len(kinds)} things: ask for {ways}")
    if kinds:
        return kinds[0], find_member(kinds[0], BASES[kinds[0]], name)
    if name in load_claims() or name in load_statements():
        return "claims", find_claim(name)
    names = {each for entries in known.values() for each in entries}
    raise unknown_name_error("member", name, [*names, *load_claims()])


def _get_header(member: type) -> str:
    """Return the docstring of a member's file, or of a user's own class."""
    module = inspect.getmodule(member)
    own = member.__module__.startswith("innerloop.")
    return inspect.getdoc(module if own else member) or inspect.getdoc(module) or ""


def _describe_contents(made: Any) -> dict[str, Any]:
    """Describe the properties that only members of one kind have."""
    if isinstance(made, ProgramConstruction):
        return {**describe_construction(made), **explain_program(made)}
    if isinstance(made, Construction):
        return describe_construction(made)
    if isinstance(made, Recipe):
        model = made.build_model(torch.Generator().manual_seed(0))
        weights = sum(w.numel() for w in model.parameters() if w.requires_grad)
        return {"parameters": weights, "problems": get_name(type(made.build_distribution()))}
    if isinstance(made, Distribution):
        problem_type = made.problem_type
        doc = inspect.getdoc(problem_type) or ""
        summary = doc.partition("\n")[0]
        return {"problem": problem_type.__name__, "problem_description": summary}
    assert isinstance(made, Policy)
    return {"environment": made.environment_type.__name__}


def _describe_algorithm(value: Algorithm[Any, Any] | type[Algorithm[Any, Any]]) -> dict[str, Any]:
    algorithm = value if inspect.isclass(value) else type(value)
    numbers = [field.name for field in fields(algorithm)] if is_dataclass(algorithm) else []
    return {
        "name": get_name(algorithm),
        "source": algorithm.source,
        "header": _get_header(algorithm),
        "problem": algorithm.problem_type.__name__,
        "hyperparameters": numbers,
        "iterates": algorithm.has_steps,
        "special_case_of": list(algorithm.special_case_of),
    }


def _describe_claim(claim: Claim) -> dict[str, Any]:
    module = inspect.getmodule(claim.measure)
    return {
        "name": claim.id,
        "source": claim.citation,
        "where": claim.where,
        "claim_kind": claim.kind,
        "statement": claim.statement,
        "header": inspect.getdoc(module) or "",
        "presets": {name: [dict(cell) for cell in cells] for name, cells in claim.presets.items()},
        "falsified": list(claim.falsified),
        "hypotheses": dict(claim.hypotheses),
        "restates": dict(claim.restates),
    }


def find_parameters(member: Any) -> type[Parameters] | None:
    """Return the class with a member's parameters; None for an algorithm or a claim."""
    kind, value = find_any(member)
    if kind in ("claims", "algorithms"):
        return None
    return cast(type[Parameters], value if inspect.isclass(value) else type(value))
