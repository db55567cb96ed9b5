"""Mutants of compiled weights: each differs from its program, or cannot be told from it by anyone.

One weight of a plan is changed by a thousandth. A mutant may survive where the weight is of a unit
that no input in range makes active, or only closes a gate more tightly.
"""

from __future__ import annotations

import copy
import os
import random
from fractions import Fraction
from typing import Any

import pytest

from innerloop.constructions.base import Construction
from innerloop.language.compiler import Compiled
from innerloop.language.construction import ProgramConstruction
from innerloop.language.exactness import check_exactly
from innerloop.language.points import PointChecker, list_parts
from innerloop.registry import find_class

MEMBERS = ["heavy-ball", "nesterov", "ista", "huber-descent", "logistic-descent", "kernel-descent"]
MEMBERS += ["oja", "newton", "relu-newton", "lista-vm"]
SIZES = {"d": 2, "n": 3, "steps": 1, "knots": 40}
EVERY = 1 if "INNERLOOP_FUZZ" in os.environ else 9
"""Which mutants are tried: all of them in the long tests."""
EXPLAINED = {("oja", 2, "unit", 5): "⟨v, mean ⟨v, x⟩ x⟩ is a mean of squares, never below 0"}
"""What is known about units beyond what intervals prove."""
MORE = Fraction(1001, 1000)


def make(name: str) -> ProgramConstruction:
    kind = find_class("constructions", Construction, name)
    assert issubclass(kind, ProgramConstruction)
    known = kind.declared_types()
    return kind.from_values({name: size for name, size in SIZES.items() if name in known})


def list_weights(compiled: Compiled) -> list[Any]:
    """List all weights: part, block, kind, its index, which side of it, and the entry."""
    found: list[Any] = []
    for part, plan in compiled.plans.items():
        for number, block in enumerate(plan.blocks):
            found += [
                (part, number, "head", i, side, pair)
                for i, head in enumerate(block.heads)
                for side in (0, 1)
                for pair in head[side]
            ]
            found += [
                (part, number, "unit", i, side, entry)
                for i, unit in enumerate(block.units)
                for side in (0, 2)
                for entry in unit[side]  # pyright: ignore[reportGeneralTypeIssues]
            ]
            found += [(part, number, "unit", i, 1, None) for i in range(len(block.units))]
    return found


def mutate(compiled: Compiled, weight: Any) -> Compiled:
    part, number, kind, index, side, entry = weight
    changed = copy.deepcopy(compiled)
    block = changed.plans[part].blocks[number]
    if entry is None:
        unit = block.units[index]
        block.units[index] = unit._replace(bias=unit.bias + Fraction(1, 1000))
    else:
        (block.heads if kind == "head" else block.units)[index][side][entry] *= MORE
    return changed


def explain(made: ProgramConstruction, weight: Any) -> str:
    """Say why nothing can tell a mutant from the program; empty if nothing does."""
    part, number, kind, index, _, entry = weight
    block = made.compiled.plans[part].blocks[number]
    if kind == "head" and any(entry in node.gate for node in block.nodes):
        return "a gate that closes more tightly"
    checker = PointChecker(made, made.compiled, random.Random(0))
    parts = list_parts(made.compiled)
    signed = {key for each in parts for _, key in checker.prove_signs(each) if each.name in part}
    if (number, kind, index) in signed:
        return "a unit that is never active"
    return EXPLAINED.get((made.name, number, kind, index), "")


@pytest.mark.parametrize("name", MEMBERS)
def test_a_mutant_differs_or_cannot_be_told_apart(name: str) -> None:
    made = make(name)
    weights = list_weights(made.compiled)
    assert check_exactly(made, points=2).equal
    survived = [
        weight
        for weight in weights[:: EVERY if len(weights) > EVERY else 1]
        if check_exactly(made, points=4, compiled=mutate(made.compiled, weight)).equal
    ]
    assert not [weight for weight in survived if not explain(made, weight)]
