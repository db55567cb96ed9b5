"""The loss on Gram matrices and its gradient in C, compiled when it is first needed.

The source is `gram_loss.c`; the machine's own compiler translates it for one shape in a second or
two, into a folder that no other user can write and that is gone once the code is loaded. A setting
asks for it (`kernel=c`): sums over prompts have another order than in `kernel.py`.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from innerloop.errors import InputError, MissingLibraryError

if TYPE_CHECKING:
    from innerloop.training.kernel import Prompts

FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fPIC", "-shared", "-w")
SECONDS = 300
"""How long a compiler may take."""
REAL = {torch.float32: "float", torch.float64: "double"}


def compute_loss(
    prompts: Prompts,
    needs_gradient: bool,
    A: Tensor,
    first: Tensor,
    offset: Tensor,
    gamma: Sequence[Tensor],
) -> tuple[Tensor, list[Tensor]]:
    """Compute the loss and its gradient in A, Y_0 (first), O (offset) and every Γ (gamma)."""
    device, dtype = prompts.gram.device, prompts.gram.dtype
    if device.type != "cpu":
        raise InputError(f"kernel=c computes on the CPU, got {device}: leave it out")
    layers, d, read = len(A), A.shape[-1], prompts.target.shape[0]
    above = len(first) - d if gamma else len(first)
    code = _load(REAL[dtype], d, layers, above, read, len(gamma))
    shapes = [(), (layers, d, d), tuple(first.shape), (read, d), (len(gamma) + 1, d, d)]
    totals = torch.zeros(code.count_totals(), dtype=torch.float64, device=device)
    stack = torch.stack(list(gamma)) if gamma else A[:1]
    inputs = [*prompts, A, first, offset, stack]
    gram, mass, target, *weights = (t.detach().to(dtype).contiguous() for t in inputs)
    failed = code.compute(
        *(ctypes.c_long(prompts.size), _point(gram)),
        *(_point(mass), mass.shape[0], int(mass.shape[-1] == 1)),
        *(_point(target), int(target.shape[-1] == 1)),
        *map(_point, weights),
        *(int(needs_gradient), _point(totals)),
    )
    if failed:
        raise MemoryError("not enough memory for the loss of one vector of prompts")
    sizes = [torch.Size(shape).numel() for shape in shapes]
    parts = zip(totals.split(sizes), shapes, strict=True)
    value, *slopes = (part.reshape(shape).to(dtype) for part, shape in parts)
    return value, [*slopes[:3], *slopes[3][: len(gamma)]]


def _point(values: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(values.data_ptr())


@cache
def _load(real: str, d: int, layers: int, above: int, read: int, gammas: int) -> ctypes.CDLL:
    """Compile and load the code for one shape."""
    sizes = {"D": d, "LAYERS": layers, "ABOVE": above, "READ": read, "GAMMAS": gammas}
    defined = [f"-D{name}={value}" for name, value in {"REAL": real, **sizes}.items()]
    source = files("innerloop.training").joinpath("gram_loss.c").read_bytes()
    with tempfile.TemporaryDirectory(prefix="innerloop-") as folder:
        library = Path(folder) / "gram_loss.so"
        _compile(source, [*FLAGS, *defined, "-o", str(library)])
        try:
            code = ctypes.CDLL(str(library))
        except OSError as error:
            raise MissingLibraryError(
                f"kernel=c: {' '.join(find_compiler())} made no library that can be loaded "
                f"({str(error)[:200]}); set CC to a C compiler, or leave kernel=c out"
            ) from None
    code.count_totals.restype = ctypes.c_long
    return code


def find_compiler() -> list[str]:
    """Find the command that CC contains, such as `gcc -O2`, or the machine's own compiler."""
    words = os.environ.get("CC") or "cc"
    try:
        name, *options = shlex.split(words)
    except ValueError:  # no word, or a quotation mark that is not closed
        name, options = "", []
    compiler = shutil.which(name) if name else None
    if compiler is None:
        raise MissingLibraryError(
            f"kernel=c needs a C compiler, got CC={words!r:.100}: install gcc or clang and set CC "
            "to its name, or leave kernel=c out"
        )
    return [compiler, *options]


def _compile(source: bytes, options: list[str]) -> None:
    """Compile a source from memory."""
    compiler = find_compiler()
    command = [*compiler, "-x", "c", "-", *options]
    try:
        subprocess.run(command, input=source, capture_output=True, timeout=SECONDS, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        words = (getattr(error, "stderr", None) or b"").decode(errors="replace").split("\n")
        reason = next((line for line in words if "error" in line), str(error))
        raise MissingLibraryError(
            f"kernel=c: {' '.join(compiler)} cannot compile it ({reason[:200]}); leave it out"
        ) from None
