"""The exact part of a certificate: compare a program with its weights in rational arithmetic.

A certificate measures the requested sizes in floating point. Whether the compiler translated the
program correctly does not depend on the sizes. It is therefore tested exactly at d = 3 and n = 4,
with the construction's other parameters, which takes hundredths of a second. `innerloop exact`
compares at other sizes and points.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from innerloop.constructions.base import Construction
from innerloop.errors import InputError
from innerloop.language.construction import ProgramConstruction
from innerloop.language.exactness import check_exactly, check_kinds
from innerloop.language.points import estimate_work
from innerloop.language.recording import ProgramChanged

POINTS = 4
"""Number of points of the comparison in a certificate, one for each size of random numbers."""
MAX_WORK = 20_000
"""A point that takes more multiplications than this is left to `innerloop exact`."""


def compare_for_certificate(
    construction: Construction[Any, Any], own_weights: bool, broken: str, seed: int
) -> dict[str, Any]:
    """Compare a construction with its program, as fields of a certificate.

    `status` is `proof`, `points`, `differs`, or `none` with the reason in `text`. Nothing is
    compared if the law is `broken`, or if the weights are not the construction's own.
    """
    if not isinstance(construction, ProgramConstruction):
        return _explain("written by hand: it has no program to compare with")
    if broken or not own_weights:
        return _explain(
            "not compared: the law is broken"
            if broken
            else "other weights: these are not what the program compiles to"
        )
    try:
        check_kinds(construction.compiled)
        small = _find_small(construction)
        if small is None:
            return _explain(
                "too large: its numbers are for these sizes alone; `innerloop exact` compares them"
            )
        return check_exactly(small, POINTS, seed).as_dict()
    except ProgramChanged:
        raise
    except InputError as error:
        return _explain(str(error))


def _explain(reason: str) -> dict[str, Any]:
    return {"status": "none", "brief": reason.partition(":")[0], "text": reason}


def _find_small(construction: ProgramConstruction) -> ProgramConstruction | None:
    """Return the construction at small sizes, or unchanged if its parameters allow no others."""
    values, exact_sizes = construction.values(), construction.exact_sizes
    sizes = {name: min(values[name], size) for name, size in exact_sizes.items() if name in values}
    kept_sizes = ((), ("steps",), ("d",), ("d", "steps"), tuple(sizes))
    for names in kept_sizes:
        smaller = {name: size for name, size in sizes.items() if name not in names}
        try:
            smaller_construction = replace(construction, **smaller)
            work = estimate_work(smaller_construction)
        except ProgramChanged:
            raise
        except InputError:
            continue
        if work <= MAX_WORK:
            return smaller_construction
    return None
