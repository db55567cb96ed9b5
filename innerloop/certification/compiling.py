"""Compile a program to a transformer with its certificate, or compare the two exactly."""

from __future__ import annotations

from typing import Any

import torch

from innerloop.certification.building import BuiltTransformer, Precision, build
from innerloop.constructions.base import Construction
from innerloop.errors import InputError, unknown_name_error
from innerloop.language.construction import ProgramConstruction
from innerloop.language.exactness import Exactness, check_exactly
from innerloop.limits import check_seed
from innerloop.progress import Progress
from innerloop.registry import find_class, load_members, make_member


def compile(
    step: Any,
    /,
    *,
    instances: int = 64,
    seed: int = 0,
    dtype: Precision | torch.dtype = "float64",
    progress: Progress | None = None,
    **parameters: Any,
) -> BuiltTransformer:
    """Compile a program to a transformer with its certificate.

    Args:
        step: A program (a function with the decorator `@program`), its name, or `file.py:name`
            (which is imported, and so runs).
        instances: Number of random instances to certify on.
        seed: Seed of the random instances.
        dtype: "float64" or "float32".
        progress: Function that is called with the completed share of the work, from 0 to 1.
        **parameters: Sizes of the prompt (`d`, `n`), `steps`, `attention` ("linear" or "relu"), and
            the parameters that the program declares.

    Returns:
        An object like that of `build`.

    Raises:
        InputError: The step cannot be written as heads and hidden units. The message names the line
            and an alternative.

    Example:
        >>> import innerloop
        >>> built = innerloop.compile("heavy-ball", d=2, n=4, steps=2, instances=2)
        >>> built.certificate.holds
        True
    """
    find_program(step)
    options: dict[str, Any] = {"instances": instances, "seed": seed, "dtype": dtype}
    return build(step, **options, progress=progress, **parameters)


def exact(step: Any, /, *, points: int = 12, seed: int = 0, **parameters: Any) -> Exactness:
    """Compare a program with its compiled weights in rational arithmetic, without rounding.

    Args:
        step: A program, its name, or `file.py:name` (which is imported, and so runs).
        points: Number of random points at which the two are compared.
        seed: Seed of the points.
        **parameters: Sizes and parameters as in `compile`; by default, sizes are small.

    Returns:
        Whether program and weights are equal, and what that proves: see
        `innerloop.language.exactness`.
    """
    kind = find_program(step)
    declared = kind.declared_types()
    sizes = {name: size for name, size in kind.exact_sizes.items() if name in declared}
    values = step.values() if isinstance(step, ProgramConstruction) else sizes
    made = make_member("constructions", Construction, kind, {**values, **parameters})
    assert isinstance(made, ProgramConstruction)
    return check_exactly(made, points, check_seed(seed))


def find_program(step: Any) -> type[ProgramConstruction]:
    """Find the class of a program; raise an error for other constructions and plain functions."""
    if callable(step) and hasattr(step, "__code__"):
        raise InputError(
            f"{step.__name__} is a plain function: write @program(…) before it, with its registers"
        )
    if isinstance(step, str) and ":" not in step:
        known = _list_programs()
        if step not in {*known, *load_members("constructions", Construction)}:
            raise unknown_name_error("program", step, known)
    kind = find_class("constructions", Construction, step)
    if not issubclass(kind, ProgramConstruction):
        raise InputError(
            f"{step if isinstance(step, str) else kind.__name__} is written by hand, it is no "
            "program: `build` certifies it; `list programs` shows what can be compiled"
        )
    return kind


def _list_programs() -> list[str]:
    """List the names that can be compiled: programs, and constructions written as a program."""
    kinds = load_members("constructions", Construction)
    written = [name for name, kind in kinds.items() if issubclass(kind, ProgramConstruction)]
    return [*load_members("programs", Construction), *written]
