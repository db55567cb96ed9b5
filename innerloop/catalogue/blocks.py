"""Describe a construction's registers and blocks, with the effect of each head and MLP piece."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, cast

from torch import nn

from innerloop.constructions.base import Construction
from innerloop.transformer import Block


def describe_construction(construction: Construction[Any, Any]) -> dict[str, Any]:
    """Describe a construction's cost, registers and blocks."""
    transformer = construction.transformer
    body = cast(Iterable[nn.ModuleList], transformer.body)
    sections = [
        ("prologue", _describe_blocks(transformer.prologue)),
        *_merge_steps([(f"step {k}", _describe_blocks(step)) for k, step in enumerate(body, 1)]),
        ("epilogue", _describe_blocks(transformer.epilogue)),
    ]
    return {
        "precisions": construction.precision_names(),
        "cost": construction.cost._asdict(),
        "error": construction.error,
        "registers": [
            {"name": name, "shape": list(shape), "places": _format_places(construction, name)}
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


def _format_places(construction: Construction[Any, Any], register: str) -> str:
    places = construction.layout[register].places
    return f"{places[0]}" if len(places) == 1 else f"{places[0]}–{places[-1]}"


def _describe_blocks(blocks: Iterable[nn.Module]) -> list[list[str]]:
    """Describe each block, with one line for each head and MLP piece."""
    return [block.describe() for block in cast(Iterable[Block], blocks)]


def _merge_steps(steps: Sequence[tuple[str, list[list[str]]]]) -> list[tuple[str, list[list[str]]]]:
    """Merge steps that differ only in their weights into one section: `step 1 … 8`."""
    merged = []
    for lines, group in groupby(steps, key=lambda step: step[1]):
        labels = [label for label, _ in group]
        first, last = labels[0], labels[-1].removeprefix("step ")
        merged.append((first if len(labels) == 1 else f"{first} … {last}", lines))
    return merged
