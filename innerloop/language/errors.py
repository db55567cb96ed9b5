"""Errors of programs: the line, the reason why it cannot be compiled, and what to write instead."""

from __future__ import annotations

import functools
import linecache
import re
import sys
import sysconfig
import traceback
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from innerloop.errors import InputError

FOLDER = str(Path(__file__).parent)
PACKAGE = str(Path(__file__).parents[1])
PROGRAMS = tuple(str(Path(PACKAGE) / folder) for folder in ("programs", "constructions"))
STDLIB = sysconfig.get_path("stdlib")
NAMES = {
    "RecordedNumber": "a number of the program",
    "RecordedMatrix": "a matrix of numbers",
    "Recorded": "a value of a token",
    "Token": "a token",
    "Matrix": "a matrix of numbers",
}
"""The names of this folder's classes in messages."""
METHODS = {"T": "transposed(x)", "transpose": "transposed(x)", "sum": "entry_sum(x)"}
METHODS |= {"mean": "mean(lambda j: …) over tokens", "dot": "dot(a, b)", "clip": "clip(x, bound)"}
METHODS |= {"shape": "def step(me, d) and use d", "norm": "dot(x, x), its square"}
"""What to write in the language instead of attributes that arrays have in other libraries."""
MAX_DECORATORS = 40
"""The largest number of lines of decorators before a function."""


class Line(NamedTuple):
    """A line of a program: its file, its number and its text."""

    file: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.number}"


NOWHERE = Line("", 0, "")


class Place(NamedTuple):
    """The position of an operation in a program: its line, and the calls that led there
    (naming.py).
    """

    line: Line
    calls: tuple[Any, ...] = ()


REPLAYED: ContextVar[Place | None] = ContextVar("replayed", default=None)
"""The place of the instruction that is being replayed."""


class CannotCompile(InputError):
    """A program cannot be compiled; the message begins with a line of the program.

    By default, that is the line that is being recorded or replayed.
    """

    def __init__(self, reason: str, line: Line | None = None) -> None:
        line = find_line() if line is None else line
        place = f"{line}: `{line.text}`: " if line.file else ""
        super().__init__(f"{place}{reason}")


def find_line() -> Line:
    """Return the line of the program that is being run or replayed.

    That is the innermost line outside of this folder. Functions that the package supplies itself,
    such as a prompt's default answer, have no line.
    """
    if (replayed := REPLAYED.get()) is not None:
        return replayed.line
    frames, is_recorded = list_frames()
    for frame in frames:
        if is_program(frame):
            return read_line(frame)
        if not is_recorded and not _is_machinery(frame.f_code.co_filename):
            return NOWHERE  # this code requests the compilation; it is not a program
    return NOWHERE


def list_frames() -> tuple[list[FrameType], bool]:
    """List the active frames, innermost first, and whether a function is being recorded.

    If one is being recorded, the list ends with the frame of that function.
    """
    frames: list[FrameType] = []
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "run_program":
            return frames, True
        frames.append(frame)
        frame = frame.f_back
    return frames, False


def read_line(frame: FrameType) -> Line:
    """Return the current line of a frame."""
    file, number = frame.f_code.co_filename, frame.f_lineno
    return Line(_shorten(file), number, " ".join(linecache.getline(file, number).split()))


def is_program(frame: FrameType) -> bool:
    """Return whether a frame runs a program, and not the language or a caller of the compiler."""
    return _is_program_code(frame.f_code)


@functools.lru_cache(maxsize=4096)
def _is_program_code(code: CodeType) -> bool:
    file, names = code.co_filename, (*code.co_varnames, *code.co_freevars)
    return not _is_machinery(file) and not _is_caller(file, "self" in names)


def _is_machinery(file: str) -> bool:
    return file.startswith((FOLDER, "<")) or "jaxtyping" in file or "/strict.py" in file


def find_definition(function: Any) -> Line:
    """Return the line at which a function of a program begins."""
    code = function.__code__
    for number in range(code.co_firstlineno, code.co_firstlineno + MAX_DECORATORS):
        text = " ".join(linecache.getline(code.co_filename, number).split())
        if text.startswith("def ") or "lambda" in text:
            return Line(_shorten(code.co_filename), number, text)
    return NOWHERE


def explain_failure(error: Exception, function: Any) -> CannotCompile:
    """Return an error that names the line at which a function of a program failed."""
    line = find_failing_line(error, function)
    if isinstance(error, ZeroDivisionError):
        return CannotCompile("a division by a number that is 0 with these parameters", line)
    message = str(error).partition("\n")[0]
    for name, words in NAMES.items():
        message = re.sub(rf"'?\b{name}\b'?( object)?", words, message)
    if isinstance(error, AttributeError) and (instead := METHODS.get(getattr(error, "name", ""))):
        message += f": write {instead}"
    if message.endswith("has no len()"):  # list(x) may ask for it, so a value itself cannot refuse
        message += ": ask for the size by its letter, as in def step(me, d)"
    return CannotCompile(f"{type(error).__name__}: {message}", line)


def find_failing_line(error: BaseException, function: Any) -> Line:
    """Return the line of a program that raised an error, or else the line of its definition."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_written(f.filename)]
    if not frames or frames[-1].lineno is None:
        return find_definition(function)
    text = " ".join((frames[-1].line or "").split())
    return Line(_shorten(frames[-1].filename), frames[-1].lineno, text)


def _is_written(file: str) -> bool:
    """Return whether a file may contain a program; Python, libraries and the compiler do not."""
    others = (FOLDER, STDLIB, "<")
    return not file.startswith(others) and "site-packages" not in file and "/strict.py" not in file


def _is_caller(file: str, method: bool) -> bool:
    """Return whether a file only requests a compilation, and is not part of a program."""
    if file.startswith(STDLIB) and "site-packages" not in file:
        return True
    return file.startswith(PACKAGE) and (method or not file.startswith(PROGRAMS))


def _shorten(file: str) -> str:
    """Return a path relative to the current folder if the file is below it."""
    try:
        return str(Path(file).resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return Path(file).name
