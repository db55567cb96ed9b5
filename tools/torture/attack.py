"""The interface of an attack, and the definition of a defect."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from innerloop.errors import InputError

Verdict = Literal["survived", "refused"]
"""Survived: the package continued with a correct result.

Refused: it explained the error in one line.
"""


class Defect(Exception):
    """A failure: a wrong result, lost work, a hang, a traceback, or a string that ran as code."""


class Unavailable(Exception):
    """An attack needs a program that this machine lacks; the table reports that it was left out."""


@dataclass(frozen=True)
class Attack:
    """One way of attacking the package.

    `prepare` runs once and makes the files or models to attack, in a folder of its own. `attempt`
    attacks them once, in an empty folder, with its own random numbers. It runs in a process of its
    own, which may die, hang (`seconds` is the limit of a try) or use too much memory.
    """

    name: str
    tries: int
    """The number of tries in a whole run."""
    prepare: Callable[[Path], Any]
    attempt: Callable[[Any, random.Random, Path], Verdict]
    seconds: float = 60.0
    sample: int = 20
    """The number of tries in the tests; 0 if the tests try the same elsewhere."""
    cost: float = 0.02
    """The approximate number of seconds that a try takes, for the estimate of the remaining
    time.
    """
    limited: bool = True
    """Whether memory is limited; a browser reserves more memory than it uses."""


def make_chance(seed: int, name: str, number: int) -> random.Random:
    """Return the random number generator of one try."""
    return random.Random(f"{seed} {name} {number}")


def refuse_or(call: Callable[[], Verdict]) -> Verdict:
    """Call a function; return "refused" if it raises an error of the user that is reported in
    one line.
    """
    try:
        return call()
    except InputError as error:
        check_message(str(error))
        return "refused"


def check_message(message: str) -> None:
    """Check that an error of the user is one informative line, and not about memory."""
    if not message.strip():
        raise Defect("an error without a message")
    if "\n" in message.strip():
        raise Defect(f"an error of several lines: {message.splitlines()[0][:120]} …")
    if "alloc" in message and "memory" in message:
        raise Defect(f"refused only when memory ran out: {message[:120]}")


def describe_error(error: BaseException) -> str:
    """Describe an unexpected exception by its type, place and first line."""
    if isinstance(error, Defect):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/innerloop/" in frame.filename] or list(frames)
    place = ""
    if own:
        file = own[-1].filename
        place = (
            f" in innerloop/{file.rpartition('/innerloop/')[2]}" if "/innerloop/" in file else ""
        )
        place += f" {own[-1].name}"
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}{place}: {lines[0][:160] if lines else ''}"
