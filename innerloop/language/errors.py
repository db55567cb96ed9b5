"""Errors of programs: what was written where, why no block computes it, what to write instead."""

from __future__ import annotations

import linecache
import sys
import sysconfig
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from innerloop.errors import InputError

FOLDER = str(Path(__file__).parent)
PACKAGE = str(Path(__file__).parents[1])
PROGRAMS = tuple(str(Path(PACKAGE) / folder) for folder in ("programs", "constructions"))
STDLIB = sysconfig.get_path("stdlib")


class Line(NamedTuple):
    """A line of a program: its file, its number and its text."""

    file: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.number}"


NOWHERE = Line("", 0, "")


class CannotCompile(InputError):
    """A program that no transformer runs as it is written; the message begins with its line."""

    def __init__(self, reason: str) -> None:
        line = find_line()
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
