"""The loss on Gram matrices and its gradient in C, compiled at the first use.

The compiler of the machine compiles the source, `gram_loss.c`, for one shape in a second or two.
The library is written to a folder that no other user can write to, and that is removed when the
code is loaded. It is used only with the setting `kernel=c`, because it adds prompts in another
order than `kernel.py`, which changes the rounding.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import signal
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
SECONDS = 300.0
"""Time limit of the compiler, in seconds."""
MAX_MESSAGES = 2**16
"""Largest number of bytes that are read of a compiler's messages."""
REAL = {torch.float32: "float", torch.float64: "double"}


class CompilerError(Exception):
    """The compiler failed or was stopped."""


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
        raise InputError(f"kernel=c computes only on the CPU, got {device}: leave it out")
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
    compiler = find_compiler()
    with tempfile.TemporaryDirectory(prefix="innerloop-") as folder:
        library = str(Path(folder) / "gram_loss.so")
        try:
            _compile([*compiler, "-x", "c", "-", *FLAGS, *defined, "-o", library], source)
            code = ctypes.CDLL(library)
            code.count_totals.restype = ctypes.c_long
        except (CompilerError, OSError, AttributeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise MissingLibraryError(
                f"kernel=c: {shlex.join(compiler)} made no library that can be loaded ({reason}); "
                "set CC to a C compiler, or leave kernel=c out"
            ) from None
    return code


def find_compiler() -> list[str]:
    """Return the command in the variable CC, such as `gcc -O2`, or the compiler of the machine."""
    text = os.environ.get("CC") or "cc"
    if os.sep in text and (path := shutil.which(text)):  # a path with spaces, without options
        return [path]
    try:
        name, *options = shlex.split(text)
    except ValueError:  # CC is empty, or a quotation mark is not closed
        name, options = "", []
    compiler = shutil.which(name) if name else None
    if compiler is None:
        raise MissingLibraryError(
            f"kernel=c needs a C compiler, got CC={text!r:.100}: install gcc or clang and set CC "
            "to its name, or leave kernel=c out"
        )
    return [compiler, *options]


def _compile(command: list[str], source: bytes) -> None:
    """Compile a source text; raise `CompilerError` if the compiler fails or does not end."""
    with tempfile.TemporaryFile() as messages:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=messages,
            start_new_session=True,  # so that it can be killed with the processes that it starts
        )
        try:
            process.communicate(source, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            raise CompilerError(f"it ran for more than {SECONDS:g} seconds") from None
        finally:
            if process.returncode is None:
                _kill_session(process)
        if process.returncode:
            messages.seek(0)
            lines = messages.read(MAX_MESSAGES).decode(errors="replace").splitlines()
            status = f"it exited with status {process.returncode}"
            raise CompilerError(next((line for line in lines if "error" in line), status))


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a session, and all other processes of that session."""
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
