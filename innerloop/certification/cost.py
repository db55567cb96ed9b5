"""Compare the cost that a construction declares with the size of its transformer.

A formula is a sum of terms such as `2d`, `− NK²` and `3`, or `max(…, …)` of such sums. The letters
k, d and n stand for steps, d and n; `Cost.where` explains the others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from innerloop.constructions.base import Construction
from innerloop.errors import InputError
from innerloop.transformer import Transformer

_DEFAULTS = {"k": "steps", "d": "d", "n": "n"}
_TERM = re.compile(r"(\d*)((?:[A-Za-z]²?)*)")


def check_cost(construction: Construction[Any, Any], transformer: Transformer) -> str:
    """Describe where the declared cost is wrong; return an empty string if it is right."""
    count, errors = transformer.count(), []
    try:
        letters = read_letters(construction)
        for name, formula in construction.cost._asdict().items():
            if name in ("printed", "where"):
                continue
            declared = evaluate_formula(formula, letters)
            if declared != count[name]:
                errors.append(f"declares {_spell(name, formula, declared)}, has {count[name]}")
    except InputError as error:
        errors.append(str(error))
    return f"cost: {'; '.join(errors)}" if errors else ""


def _spell(name: str, formula: str, declared: int) -> str:
    """Write a formula with its value, as in `k + 1 = 9 layers`, `2 heads`, `width d + 1 = 6`."""
    value = formula if formula == str(declared) else f"{formula} = {declared}"
    return f"width {value}" if name == "width" else f"{value} {name}"


def read_letters(construction: Construction[Any, Any]) -> dict[str, int]:
    """Return the value of each letter of the cost formulas."""
    names = {letter: name for letter, name in _DEFAULTS.items() if hasattr(construction, name)}
    for part in construction.cost.where.split(", ") if construction.cost.where else ():
        letter, equals, name = part.partition(" = ")
        if not equals or not hasattr(construction, name):
            raise InputError(f"`where` should name attributes as in 'K = clusters', got {part!r}")
        names[letter] = name
    return {letter: getattr(construction, name) for letter, name in names.items()}


def evaluate_formula(formula: str, letters: Mapping[str, int]) -> int:
    """Return the value of a sum of terms, or of the maximum of several sums."""
    if formula.startswith("max(") and formula.endswith(")"):
        return max(evaluate_formula(part, letters) for part in formula[4:-1].split(", "))
    signed = re.split(r" ?([+−]) ", formula if formula.startswith("− ") else f"+ {formula}")
    signs, terms = signed[1::2], signed[2::2]
    values = [_evaluate_term(term, formula, letters) for term in terms]
    return sum(-value if sign == "−" else value for sign, value in zip(signs, values, strict=True))


def _evaluate_term(term: str, formula: str, letters: Mapping[str, int]) -> int:
    parts = _TERM.fullmatch(term)
    if parts is None or not term:
        raise InputError(f"cannot read {formula!r}: write a sum of terms such as 2dK² + 3")
    number, product = parts.groups()
    factors = re.findall(r"([A-Za-z])(²?)", product)
    unknown = [letter for letter, _ in factors if letter not in letters]
    if unknown:
        raise InputError(f"{formula!r} has the letter {unknown[0]}: let `where` explain it")
    powers = [letters[letter] ** (2 if squared else 1) for letter, squared in factors]
    return int(number or 1) * math.prod(powers)
