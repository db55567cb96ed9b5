"""Pass 8, emission: turn planned blocks into modules; only here do rationals become floats."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from innerloop.language.forms import Entry, Pairs
from innerloop.language.plan import Hinges, Plan, PlannedBlock, PlannedHead, Unit
from innerloop.transformer import MLP, Attention, Block, Elementwise, Head, Layout, Units
from innerloop.transformer.head import compile_heads
from innerloop.transformer.layout import Address


def emit_blocks(plan: Plan, layout: Layout) -> list[Block]:
    """Return the modules of the blocks of a plan."""
    return [Block(_emit_attention(b, layout), _emit_mlp(b, layout)) for b in plan.blocks]


def _emit_attention(block: PlannedBlock, layout: Layout) -> Attention | None:
    """Return the attention module of a block, or None if the block has no heads."""
    if not block.heads:
        return None
    heads = [
        Head(
            _to_matrices(head.score, layout),
            {pair: w.mT for pair, w in _to_matrices(head.value, layout).items()},
        )
        for head in block.heads
    ]
    lines = ", ".join(f"line {line.number}" for line in block.lines)
    place = f"  ({lines})" if lines else ""
    return Attention(
        compile_heads(layout, heads),
        kind=block.kind,  # pyright: ignore[reportArgumentType]
        mask=block.mask,  # pyright: ignore[reportArgumentType]
        normalisation=block.normalisation,  # pyright: ignore[reportArgumentType]
        notes=[describe_head(head, block.labels) + place for head in block.heads],
    )


def _to_matrices(pairs: Pairs, layout: Layout) -> dict[tuple[str, str], Tensor]:
    """Return the coefficients as one matrix per pair of registers."""
    grouped: dict[tuple[str, str], np.ndarray] = {}
    for (a, b), c in pairs.items():
        names = a[0], b[0]
        if names not in grouped:  # NumPy: torch takes long for single entries
            grouped[names] = np.zeros((layout[a[0]].size, layout[b[0]].size))
        grouped[names][a[1], b[1]] = float(c)
    return {names: torch.from_numpy(matrix) for names, matrix in grouped.items()}


def _emit_mlp(block: PlannedBlock, layout: Layout) -> MLP | None:
    """Return the MLP module of a block, or None if the block has no hidden units.

    Units that repeat on several entries of a register are stored once, as an elementwise piece. All
    other units become the rows of one matrix.
    """
    pieces: list[Units | Elementwise] = []
    units, repeated = _find_alike(block.units)
    if units:  # one row of each matrix per unit
        reads, writes = (
            _to_rows([getattr(unit, part) for unit in units], layout)
            for part in ("reads", "writes")
        )
        bias = torch.tensor([float(unit.bias) for unit in units], dtype=torch.float64)
        writes = {name: weight.mT for name, weight in writes.items()}
        pieces.append(Units(reads, bias, writes, describe_units(block)))
    for hinges in [*repeated, *block.hinges]:
        source, target = (
            Address(
                "+".join(sorted({register for register, _ in entries})),
                _find_places(entries, layout),
                (len(entries),),
            )
            for entries in (hinges.sources, hinges.targets)
        )
        slopes, biases, weights = (
            torch.tensor([float(c) for c in part], dtype=torch.float64) for part in hinges.net
        )
        names = [
            ", ".join(dict.fromkeys(block.labels.get(entry, entry[0]) for entry in entries))
            for entries in (hinges.targets, hinges.sources)
        ]
        note = f"{names[0]} ← {len(hinges.net[0])} hinges on each entry of {names[1]}"
        pieces.append(Elementwise(source, target, slopes, biases, weights, note=note))
    return MLP.from_pieces(layout, pieces) if pieces else None


def _find_alike(units: list[Unit]) -> tuple[list[Unit], list[Hinges]]:
    """Split units into those that repeat on several entries and all others.

    A group repeats if the same units, some with a bias, act on several entries. Each group is
    returned as one `Hinges`, which stores the units once.
    """
    lone = filter(_has_one_entry_each, units)
    nets: dict[tuple[Entry, Entry], list[Any]] = defaultdict(list)
    for unit in sorted(lone, key=lambda unit: unit.bias != 0):
        ((source, slope),), ((target, weight),) = unit.reads.items(), unit.writes.items()
        nets[source, target].append((slope, unit.bias, weight))
    same: dict[Any, list[tuple[Entry, Entry]]] = defaultdict(list)
    for (source, target), net in nets.items():
        if any(bias for _, bias, _ in net):
            same[source[0], target[0], tuple(net)].append((source, target))
    pairs = {pair for group in same.values() for pair in group}
    rest = [
        unit
        for unit in units
        if not _has_one_entry_each(unit)
        or (next(iter(unit.reads)), next(iter(unit.writes))) not in pairs
    ]
    hinges = []
    for (_, _, net), group in same.items():
        sources, targets = (list(side) for side in zip(*group, strict=True))
        hinges.append(Hinges(sources, targets, tuple(map(list, zip(*net, strict=True)))))
    return rest, hinges


def _has_one_entry_each(unit: Unit) -> bool:
    """Return whether a unit reads a single entry and writes a single entry."""
    return len(unit.reads) == len(unit.writes) == 1


def _find_places(entries: list[Entry], layout: Layout) -> tuple[int, ...]:
    return tuple(layout[name].places[i] for name, i in entries)


def _to_rows(rows: list[Mapping[Entry, Fraction]], layout: Layout) -> dict[str, Tensor]:
    """Return one matrix per register: the weights of all units on the register's entries."""
    weights: dict[str, np.ndarray] = {}
    for index, row in enumerate(rows):
        for (name, i), c in row.items():
            if name not in weights:
                weights[name] = np.zeros((len(rows), layout[name].size))
            weights[name][index, i] = float(c)
    return {name: torch.from_numpy(matrix) for name, matrix in weights.items()}


def describe_head(head: PlannedHead, labels: Mapping[Entry, str]) -> str:
    """Describe a head in the author's names: `score ⟨w, x⟩ − y; adds −0.1 x → v`."""
    score = _describe_pairs(head.score, labels, lambda a, b: f"⟨{a}, {b}⟩")
    value = _describe_pairs(head.value, labels, lambda a, b: f"{a} → {b}")
    return f"score {' + '.join(score) or '0'}; adds {', '.join(value)}"


def _describe_pairs(pairs: Pairs, labels: Mapping[Entry, str], join: Any) -> list[str]:
    grouped: dict[tuple[str, str], list[Fraction]] = defaultdict(list)
    for (a, b), c in pairs.items():
        grouped[_name(a, labels), _name(b, labels)].append(c)
    return [f"{_describe_weight(weights)}{join(a, b)}" for (a, b), weights in grouped.items()]


def _name(entry: Entry, labels: Mapping[Entry, str]) -> str:
    if entry[0] == "one":
        return "1"
    return labels.get(entry, entry[0])


def _describe_weight(weights: list[Fraction]) -> str:
    if len(set(weights)) > 1:
        return "matrix · "
    return "" if weights[0] == 1 else f"{float(weights[0]):.4g} "


def describe_units(block: PlannedBlock) -> str:
    """Describe the hidden units of a block: what they compute, clear and assign."""
    made = [node.author_name for node in block.nodes if not node.attends]
    parts = [f"computes {', '.join(dict.fromkeys(made))}"] if made else []
    parts += [f"assigns {', '.join(block.states)}"] if block.states else []
    parts += [f"clears {', '.join(dict.fromkeys(block.cleared))}"] if block.cleared else []
    return f"{len(block.units)} units: {'; '.join(parts)}"
