"""Choose the device of computations: the CPU, an NVIDIA or AMD GPU (cuda), an Apple GPU (mps).

Random numbers are always drawn on the CPU and then moved to the device, so that a seed gives the
same batches on every device. `mps` does not support float64, so building and certifying always use
the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from innerloop.errors import InputError, unknown_name_error

CPU = torch.device("cpu")
NAMES = ("auto", "cpu", "cuda", "mps")
_default: ContextVar[str] = ContextVar("device", default="cpu")
"""The device of computations that have no device argument, such as trainings inside a claim."""


def choose_device(name: str | torch.device | None = None) -> torch.device:
    """Return the device with a name, or raise an error if it is missing; `auto` prefers a GPU."""
    text = str(_default.get() if name is None else name)
    kind, _, number = text.partition(":")
    if kind not in NAMES or (number and not (kind == "cuda" and number.isdecimal())):
        raise unknown_name_error("device", text, NAMES)
    if kind == "auto":
        kind = next((each for each in ("cuda", "mps") if _count_devices(each)), "cpu")
    count = _count_devices(kind)
    if int(number or 0) >= count:
        reason = f"it has {count}" if count else "PyTorch finds none here"
        raise InputError(f"there is no device {text}: {reason}; use --device cpu, or auto")
    return torch.device(kind, int(number)) if number else torch.device(kind)


def _count_devices(kind: str) -> int:
    if kind == "cuda":
        return torch.cuda.device_count() if torch.cuda.is_available() else 0
    return int(torch.backends.mps.is_available()) if kind == "mps" else 1


@contextmanager
def use_device(name: str) -> Iterator[None]:
    """Make a device PyTorch's default device inside the block."""
    token = _default.set(name)
    try:
        yield
    finally:
        _default.reset(token)


def default_to_cpu() -> AbstractContextManager[Any]:
    """Make the CPU PyTorch's default device inside the block, whatever the caller's default."""
    return nullcontext() if torch.get_default_device() == CPU else CPU


def move(value: Any, device: torch.device) -> Any:
    """Move the tensors of a batch: a problem, a tuple, a mapping, or a tensor alone."""
    if isinstance(value, Tensor):
        return value if value.device == device else value.to(device)
    if isinstance(value, tuple):
        parts = [move(part, device) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [move(part, device) for part in value]
    if isinstance(value, Mapping):
        return {name: move(part, device) for name, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        old = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        new = {name: move(part, device) for name, part in old.items()}
        return value if all(new[name] is old[name] for name in old) else replace(value, **new)
    return value


def iterate_tensors(value: Any) -> Iterator[Tensor]:
    """Iterate over the tensors of a batch."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from iterate_tensors(part)
    elif isinstance(value, Mapping):
        yield from iterate_tensors(list(value.values()))
    elif is_dataclass(value) and not isinstance(value, type):
        yield from iterate_tensors([getattr(value, field.name) for field in fields(value)])


def require_precision(device: torch.device, *values: Any) -> None:
    """Raise `InputError` if float64 computations are requested on a device without float64."""
    double = any(t.dtype == torch.float64 for value in values for t in iterate_tensors(value))
    if device.type == "mps" and double:
        raise InputError("this is computed in float64, which mps does not have: use --device cpu")
