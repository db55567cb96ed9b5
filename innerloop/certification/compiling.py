"""`compile` and `exact`: a program's transformer with its certificate, and the exact one."""

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
        step: A program (what `@program` makes), its name, or `file.py:name` (which is imported, and
            so runs).
        instances: Random instances to certify on.
        seed: Seed of the random instances.
        dtype: "float64" or "float32".
        progress: Called with the share of the certification that is done.
        **parameters: Sizes of the prompt (`d`, `n`), `steps`, `attention` ("linear" or "relu"), and
            the program's own numbers.

    Returns:
        What `build` gives.

    Raises:
        InputError: The step cannot be written as heads and hidden units; the message has the line,
            and what to write instead.

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
    """Compare a program and its weights in rational arithmetic, which has no rounding.

    Args:
        step: A program, its name, or `file.py:name` (which is imported, and so runs).
        points: Random points to compare at.
        seed: Seed of the points.
        **parameters: Sizes and numbers as in `compile`; small ones unless set.

    Returns:
        Whether they are equal and what that proves: see `innerloop.language.exactness`.
    """
    kind = find_program(step)
    declared = kind.declared_types()
    sizes = {name: size for name, size in kind.exact_sizes.items() if name in declared}
    values = step.values() if isinstance(step, ProgramConstruction) else sizes
    made = make_member("constructions", Construction, kind, {**values, **parameters})
    assert isinstance(made, ProgramConstruction)
    return check_exactly(made, points, check_seed(seed))


def find_program(step: Any) -> type[ProgramConstruction]:
    """Find the class of a program; refuse other constructions, and plain functions."""
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
    """List all names that can be compiled: programs, and constructions written as programs."""
    kinds = load_members("constructions", Construction)
    written = [name for name, kind in kinds.items() if issubclass(kind, ProgramConstruction)]
    return [*load_members("programs", Construction), *written]
