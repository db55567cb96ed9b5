"""Errors of programs: what was written where, why no block computes it, what to write instead."""

from __future__ import annotations

import linecache
import re
import sys
import sysconfig
import traceback
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from innerloop.errors import InputError

FOLDER = str(Path(__file__).parent)
PACKAGE = str(Path(__file__).parents[1])
PROGRAMS = tuple(str(Path(PACKAGE) / folder) for folder in ("programs", "constructions"))
STDLIB = sysconfig.get_path("stdlib")
NAMES = {
    **dict.fromkeys(("Form", "Score", "Summand", "Value"), "a value of a token"),
    "Token": "a token",
    "Matrix": "a matrix of numbers",
}
"""What the classes of this folder are called in messages."""
METHODS = {"T": "transposed(x)", "transpose": "transposed(x)", "sum": "entry_sum(x)"}
METHODS |= {"mean": "mean(lambda j: …) over tokens", "dot": "dot(a, b)", "clip": "clip(x, bound)"}
METHODS |= {"shape": "def step(me, d) and use d", "norm": "dot(x, x), its square"}
"""What the language has for attributes that arrays have elsewhere."""
MAX_DECORATORS = 40
"""Lines of decorators that may stand before a function."""


class Line(NamedTuple):
    """A line of a program: its file, its number and its text."""

    file: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.number}"


NOWHERE = Line("", 0, "")


class CannotCompile(InputError):
    """A program that no transformer runs as it is written; the message begins with its line.

    That is the line that runs now, unless another one is given.
    """

    def __init__(self, reason: str, line: Line | None = None) -> None:
        line = find_line() if line is None else line
        place = f"{line}: `{line.text}`: " if line.file else ""
        super().__init__(f"{place}{reason}")


def find_line() -> Line:
    """Find the line of the program that runs now: the innermost one outside of this folder.

    What the package supplies itself, such as a prompt's own answer, has no line.
    """
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not _is_machinery(file):
            if _is_caller(file, "self" in frame.f_locals):
                return NOWHERE
            text = " ".join(linecache.getline(file, frame.f_lineno).split())
            return Line(_shorten(file), frame.f_lineno, text)
        frame = frame.f_back
    return NOWHERE


def is_program(frame: FrameType) -> bool:
    """Whether a frame runs a program, neither the language nor who asks for a compilation."""
    file = frame.f_code.co_filename
    return not _is_machinery(file) and not _is_caller(file, "self" in frame.f_locals)


def _is_machinery(file: str) -> bool:
    return file.startswith((FOLDER, "<")) or "jaxtyping" in file or "/strict.py" in file


def find_definition(function: Any) -> Line:
    """Find the line that a function of a program begins with."""
    code = function.__code__
    for number in range(code.co_firstlineno, code.co_firstlineno + MAX_DECORATORS):
        text = " ".join(linecache.getline(code.co_filename, number).split())
        if text.startswith("def ") or "lambda" in text:
            return Line(_shorten(code.co_filename), number, text)
    return NOWHERE


def explain_failure(error: Exception, function: Any) -> CannotCompile:
    """Say in the language's words where and why a function of a program failed in Python."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_written(f.filename)]
    line = find_definition(function)
    if frames and frames[-1].lineno is not None:
        last = frames[-1]
        text = " ".join((last.line or "").split())
        line = Line(_shorten(last.filename), last.lineno or 0, text)
    if isinstance(error, ZeroDivisionError):
        return CannotCompile("a division by a number that is 0 with these parameters", line)
    said = str(error).partition("\n")[0]
    for name, words in NAMES.items():
        said = re.sub(rf"'?\b{name}\b'?( object)?", words, said)
    if isinstance(error, AttributeError) and (instead := METHODS.get(getattr(error, "name", ""))):
        said += f": write {instead}"
    if said.endswith("has no len()"):  # list(x) may ask for it, so a value itself cannot refuse
        said += ": ask for the size by its letter, as in def step(me, d)"
    return CannotCompile(f"{type(error).__name__}: {said}", line)


def _is_written(file: str) -> bool:
    """Whether a file may hold a program: it is not Python's, a library's or the compiler's."""
    others = (FOLDER, STDLIB, "<")
    return not file.startswith(others) and "site-packages" not in file and "/strict.py" not in file


def _is_caller(file: str, method: bool) -> bool:
    """Whether code of this file asks for a compilation: it is no program that is compiled."""
    if file.startswith(STDLIB) and "site-packages" not in file:
        return True
    return file.startswith(PACKAGE) and (method or not file.startswith(PROGRAMS))


def _shorten(file: str) -> str:
    """Shorten a path to how it is seen from the current folder, where it lies below it."""
    try:
        return str(Path(file).resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return Path(file).name
