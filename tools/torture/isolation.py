"""Tries in processes that may die: each lane is a forked process that reports every try by a pipe.

If a lane dies, its current try counts as a defect, and a new lane continues after that try. The
same happens if a lane is silent for longer than the limit of a try. The memory of lanes is limited.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tools.torture.attack import Attack, describe_error, make_chance

SPARE_MEMORY = 3 << 30
"""The number of bytes that a lane may use beyond its memory at the start."""
NOTABLE_MEMORY = 1 << 30
"""A number of bytes that no single try needs."""


@dataclass(frozen=True)
class Result:
    """The outcome of one try: a verdict, or the description of a defect."""

    number: int
    verdict: str
    defect: str = ""


@dataclass
class Lane:
    """A forked process and the number of its current try."""

    pid: int
    stream: Any
    numbers: range
    current: int | None = None
    since: float = 0.0
    rest: bytes = b""


def run_tries(
    attack: Attack, prepared: Any, numbers: range, seed: int, workers: int, root: Path
) -> Iterator[Result]:
    """Run the tries of these numbers in `workers` lanes, and yield results as they arrive."""
    parts = [numbers[k::workers] for k in range(workers)]
    lanes = [_start_lane(attack, prepared, part, seed, root) for part in parts if part]
    try:
        while lanes:
            ready, _, _ = select.select([lane.stream for lane in lanes], [], [], 0.2)
            for lane in list(lanes):
                ended = lane.stream in ready and not (yield from _read_lane(lane))
                hung = lane.current is not None and time.monotonic() - lane.since > attack.seconds
                if not (ended or hung):
                    continue
                lanes.remove(lane)
                status = _end_lane(lane)
                if lane.current is not None:
                    why = f"hangs: more than {attack.seconds:g} s" if hung else _name_death(status)
                    yield Result(lane.current, "defect", why)
                    left = lane.numbers[lane.numbers.index(lane.current) + 1 :]
                    if left:
                        lanes.append(_start_lane(attack, prepared, left, seed, root))
    finally:
        for lane in lanes:
            _end_lane(lane)


def _start_lane(attack: Attack, prepared: Any, numbers: range, seed: int, root: Path) -> Lane:
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            _run_lane(attack, prepared, numbers, seed, root, writer)
        finally:
            os._exit(0)
    os.close(writer)
    return Lane(pid, os.fdopen(reader, "rb", buffering=0), numbers, numbers[0], time.monotonic())


def _run_lane(
    attack: Attack, prepared: Any, numbers: range, seed: int, root: Path, writer: int
) -> None:
    os.setsid()  # so that a lane that hangs can be ended with all its children
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    gc.freeze()
    faulthandler.disable()  # the parent says which try a lane died of
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    if attack.limited:
        os.environ["INNERLOOP_MEMORY"] = "0.5"  # gigabytes that the package itself allows
        limit_memory(SPARE_MEMORY)
    warnings.simplefilter("error")  # a warning is not an answer
    torch.set_warn_always(True)  # else some come once in a process, and a try is not repeatable
    for kind in (DeprecationWarning, FutureWarning):  # of libraries, about themselves
        warnings.simplefilter("ignore", kind)
    folder = Path(tempfile.mkdtemp(dir=root))
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)  # is removed with all that is in it
    os.chdir(folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in numbers:
        os.write(writer, f"{number}\n".encode())
        place = folder / str(number)
        place.mkdir()
        verdict, defect = _try_once(attack, prepared, place, seed, number)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if attack.limited and (peak - before) * 1024 > NOTABLE_MEMORY and not defect:
            verdict, defect = "defect", f"takes {(peak - before) / 2**20:.1f} GB"
            before = peak
        printable = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in defect)
        text = json.dumps([number, verdict, printable])
        os.chdir(folder)
        shutil.rmtree(place, ignore_errors=True)
        os.write(writer, f"{text}\n".encode())
    os.write(writer, b"null\n")  # a child that is left over may hold the pipe open


def _try_once(
    attack: Attack, prepared: Any, place: Path, seed: int, number: int
) -> tuple[str, str]:
    try:
        chance = make_chance(seed, attack.name, number)
        return attack.attempt(prepared, chance, place), ""
    except BaseException as error:  # whatever gets here is what a user would have seen
        return "defect", describe_error(error)


def _read_lane(lane: Lane) -> Any:
    """Yield the results that a lane has written; return whether it may write more."""
    data = lane.stream.read(65536)
    if not data:
        return False
    *lines, lane.rest = (lane.rest + data).split(b"\n")
    for line in lines:
        message = json.loads(line)
        if message is None:
            return False
        if isinstance(message, int):
            lane.current, lane.since = message, time.monotonic()
        else:
            lane.current = None
            yield Result(*message)
    return True


def _end_lane(lane: Lane) -> int:
    lane.stream.close()
    for target in (lambda: os.killpg(lane.pid, signal.SIGKILL), lambda: os.kill(lane.pid, 9)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            target()
    return os.waitpid(lane.pid, 0)[1]


def _name_death(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"the process died of {signal.Signals(os.WTERMSIG(status)).name}"
    return f"the process ended with {os.waitstatus_to_exitcode(status)}"


def limit_memory(spare: int) -> None:
    """Limit the address space of this process to its present size and `spare` bytes more."""
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text("utf-8").split()[0])
        limit = pages * resource.getpagesize() + spare
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def call_in_child(work: Callable[[], object], seconds: float) -> int:
    """Call in a forked child; return its exit code, negative for a signal, or raise on a hang.

    The child ends with 0, or with 99 and its error in the file `error` of the current folder.
    """
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            work()
            code = 0
        except BaseException as error:
            Path("error").write_text(describe_error(error), "utf-8")
        finally:
            os._exit(code)
    end = time.monotonic() + seconds
    pause = 0.0005
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(0.02, 1.3 * pause)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise TimeoutError(f"hangs: more than {seconds:g} s")
