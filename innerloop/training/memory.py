"""A limit on the memory for building a model whose sizes come from a file.

Anybody can write a file whose settings ask for 10⁹ hidden units. The limit raises an error before
such a model is allocated, because the file does not contain as many weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from innerloop.errors import InputError

_ENTRY_BYTES = 8
"""Bytes that are counted for an entry that is not allocated yet, as for float64."""


@contextmanager
def limit_allocations(most: int) -> Iterator[None]:
    """Raise `InputError` if tensors made in a `with` block have more than `most` bytes in all.

    Every result of an operation counts, even if it is freed again; views of other tensors do not.
    If an operation is called with the size of its result, the error is raised before it is
    allocated.
    """
    with _AllocationLimit(most):
        yield


class _AllocationLimit(TorchDispatchMode):
    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = self.left = most

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._require(_ENTRY_BYTES * _count_requested(func.overloadpacket.__name__, args))
        result = func(*args, **(kwargs or {}))
        known = {tensor.untyped_storage().data_ptr() for tensor in _iterate_tensors([args, kwargs])}
        for tensor in _iterate_tensors(result):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in known:
                self._require(storage.nbytes())
                self.left -= storage.nbytes()
        return result

    def _require(self, count: int) -> None:
        if count > self.left:
            raise InputError(
                f"its settings ask for a model of more than {self.most / 2**20:,.0f} MB, far more "
                "than the weights it contains"
            )


def _count_requested(name: str, args: Any) -> int:
    """Count the entries of the result that numbers in the arguments request; 0 if tensors do."""
    whole = [n for n in args[:2] if isinstance(n, int)]
    if name == "eye":
        return whole[0] * whole[-1]
    if name in ("arange", "randperm"):
        return max(whole, default=0)
    sizes = args[1:2] if name.startswith("new_") else args[:1]
    for size in sizes:
        if isinstance(size, list | tuple) and all(isinstance(n, int) for n in size):
            return math.prod(size)
    return 0


def _iterate_tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _iterate_tensors(part)
    elif isinstance(value, dict):
        yield from _iterate_tensors(list(value.values()))
