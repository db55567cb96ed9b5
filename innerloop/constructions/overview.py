"""What there is to build with, and what a construction consists of: behind `list` and `show`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, cast

from torch import nn

from innerloop.algorithms.base import Algorithm
from innerloop.constructions.base import Construction
from innerloop.parameters import Parameters
from innerloop.policies.base import Policy
from innerloop.problems.base import Distribution
from innerloop.registry import find, members, summary_of
from innerloop.transformer import Block


def members_listed() -> dict[str, list[dict[str, Any]]]:
    """Problems, algorithms, policies and constructions, each with name, description and source."""
    return {
        "problems": described(members("problems", Distribution)),
        "algorithms": described(members("algorithms", Algorithm)),
        "policies": described(members("policies", Policy)),
        "constructions": described(members("constructions", Construction)),
    }


def show(name: str, **parameters: Any) -> dict[str, Any]:
    """A construction's header, parameters and registers, and what each of its blocks does."""
    kind = find("constructions", Construction, name)
    construction = kind.made(parameters)
    transformer = construction.transformer
    body = cast(Iterable[nn.ModuleList], transformer.body)
    sections = [
        ("prologue", _notes(transformer.prologue)),
        *_merged([(f"step {k}", _notes(step)) for k, step in enumerate(body, 1)]),
        ("epilogue", _notes(transformer.epilogue)),
    ]
    return {
        "name": construction.name,
        "source": construction.source,
        "precisions": construction.precisions(),
        "cost": construction.cost._asdict(),
        "error": construction.error,
        "header": inspect.getdoc(inspect.getmodule(kind)) or "",
        "settings": parameters_of(kind, construction),
        "registers": [
            {"name": name, "shape": list(shape), "places": _places(construction, name)}
            for name, shape in construction.layout.registers.items()
        ],
        "blocks": [
            {"section": label, "block": number, "does": lines}
            for label, blocks in sections
            for number, lines in enumerate(blocks, 1)
        ],
        "loops": transformer.loops,
        **transformer.count(),
    }


def described(found: dict[str, type[Any]]) -> list[dict[str, Any]]:
    """Each member's name, description, source, and what can be set."""
    return [
        {
            "name": name,
            "description": summary_of(member),
            "source": member.source,
            **_cost(member),
            **({"parameters": parameters_of(member)} if issubclass(member, Parameters) else {}),
        }
        for name, member in found.items()
    ]


def _cost(member: type[Any]) -> dict[str, Any]:
    """What a construction takes, as formulas; nothing for anything else."""
    if not issubclass(member, Construction):
        return {}
    return {**member.cost._asdict(), "exact": member.exact, "error": member.error}


def parameters_of(kind: type[Parameters], made: Parameters | None = None) -> dict[str, Any]:
    """Each parameter's meaning and its value (the default where nothing was made)."""
    values = (made or kind()).values()
    fields = kind.__dataclass_fields__
    return {
        name: {"value": value, "help": fields[name].metadata["help"]}
        for name, value in values.items()
    }


def _places(construction: Construction, register: str) -> str:
    places = construction.layout[register].places
    return f"{places[0]}" if len(places) == 1 else f"{places[0]}–{places[-1]}"


def _notes(blocks: Iterable[nn.Module]) -> list[list[str]]:
    """What each block does, a line for each head and MLP piece."""
    return [block.notes() for block in cast(Iterable[Block], blocks)]


def _merged(steps: Sequence[tuple[str, list[list[str]]]]) -> list[tuple[str, list[list[str]]]]:
    """Steps that do the same but for their weights, as one section: `steps 1 … 8`."""
    merged = []
    for lines, group in groupby(steps, key=lambda step: step[1]):
        labels = [label for label, _ in group]
        first, last = labels[0], labels[-1].removeprefix("step ")
        merged.append((first if len(labels) == 1 else f"{first} … {last}", lines))
    return merged
