"""Convert arrays of real numbers from any library to tensors, and reject everything else.

Accepted are tensors, NumPy arrays, objects with `__array__` (pandas, JAX, …), numbers, and lists
of these. An error is raised for data that torch cannot compute with, and for data of which the
conversion would lose a part, such as an imaginary part or a mask.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from innerloop.errors import InputError

MAX_DEPTH = 32
"""Largest depth of nested lists; it exceeds the number of dimensions of every problem."""
WIDE = (torch.float64, torch.float32)
"""Precisions that are not converted."""
NARROW = (torch.float16, torch.bfloat16)
"""Precisions that are converted to float32, which represents them exactly."""
WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
WHOLE += (torch.uint16, torch.uint32, torch.uint64)
_NUMBERS = {int, float, bool}


def as_tensor(value: Any, name: str = "an array") -> Tensor:
    """Convert a tensor, an array or nested lists to a tensor of float32 or float64.

    Tensors of these precisions are returned unchanged, float16 and bfloat16 become float32, and all
    other values become float64. Arrays are copied.

    Args:
        value: The values to convert.
        name: How error messages refer to the value.
    """
    if isinstance(value, Tensor):
        check_tensor(value, name)
        if value.dtype in WIDE:
            return value
        return value.to(torch.float32 if value.dtype in NARROW else torch.float64)
    if isinstance(value, list | tuple) and not _is_plain(value, name, 1):
        parts = [as_tensor(part, name) for part in value]
        if len({part.shape for part in parts}) > 1:
            raise _make_error(name, "numbers in rows of one length", "rows of different lengths")
        return torch.stack(parts)
    return torch.from_numpy(_as_array(value, name))


def check_tensor(tensor: Tensor, name: str) -> None:
    """Raise `InputError` unless a tensor holds real numbers in dense, unquantised memory."""
    kind = tensor.dtype
    if tensor.is_nested:
        description = "a nested tensor: pad it"
    elif tensor.is_quantized:
        description = "a quantised tensor: convert it with .dequantize()"
    elif tensor.layout is not torch.strided:
        description = "a sparse tensor: convert it with .to_dense()"
    elif tensor.is_meta:
        description = "a tensor without data, on the device 'meta'"
    elif tensor.is_complex():
        description = "complex numbers: pass their real part or their modulus"
    elif kind not in WIDE and kind not in NARROW and kind not in WHOLE:
        description = f"{kind}: convert it with .to(torch.float32)"
    else:
        return
    raise _make_error(name, "real numbers", description)


def _is_plain(values: list[Any] | tuple[Any, ...], name: str, depth: int) -> bool:
    """Return whether nested lists contain only Python numbers, which NumPy converts directly."""
    if depth > MAX_DEPTH:
        raise _make_error(name, "numbers in rows", f"lists nested more than {MAX_DEPTH} deep")
    kinds = set(map(type, values))
    if kinds <= _NUMBERS:
        return True
    return kinds <= {list, tuple} and all(_is_plain(part, name, depth + 1) for part in values)


def _as_array(value: Any, name: str) -> Any:
    """Convert to a new array of float64."""
    try:
        array = np.asanyarray(value)
    except Exception as error:  # `__array__` can raise any error
        if isinstance(value, list | tuple):
            raise _make_error(
                name, "numbers in rows of one length", "rows of different lengths"
            ) from None
        reason = str(error).partition("\n")[0]
        failure = f"a {type(value).__name__} that fails: {type(error).__name__}: {reason}"
        raise _make_error(name, "real numbers", failure) from None
    if array.dtype.kind not in "buif":
        raise _make_error(name, "real numbers", _describe_kind(value, array.dtype))
    if masked := int(np.ma.count_masked(array)):
        raise _make_error(name, "real numbers", f"{masked} masked entries: fill them or drop them")
    with np.errstate(
        over="ignore"
    ):  # a long double beyond float64 becomes infinite, which raises an error
        return np.array(array, dtype=np.float64, order="C", subok=False)


def _describe_kind(value: Any, dtype: Any) -> str:
    """Describe a value that cannot be converted to real numbers."""
    if dtype.kind == "c":
        return "complex numbers: pass their real part or their modulus"
    if dtype.kind in "US":
        return "text"
    if dtype.kind == "O" and not isinstance(value, np.ndarray | list | tuple):
        return f"a {type(value).__name__}"
    return "objects that are not numbers" if dtype.kind == "O" else f"{dtype.name}"


def _make_error(name: str, expected: str, actual: str) -> InputError:
    return InputError(f"{name} must hold {expected}, got {actual}")
