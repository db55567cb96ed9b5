"""The author's name of a result: the variable that it is assigned to, and its statement.

A program may store a result in a Python variable, as in `fit = total(…)`. Records do not contain
variables. They contain the frames of the program at each instruction instead, and the text of the
program at these lines contains the names.
"""

from __future__ import annotations

import ast
import itertools
import linecache
from collections.abc import Sequence
from functools import lru_cache
from types import FrameType
from typing import Any, NamedTuple

from innerloop.language.errors import NOWHERE, Place, is_program, list_frames, read_line

MAX_NAME = 22
"""The largest number of characters of an expression that is used as a name."""


class Call(NamedTuple):
    """The position of a program's frame: its file, and the lines and columns of the expression."""

    path: str
    first: int
    last: int
    start: int
    end: int


class Statement(NamedTuple):
    """A statement of a program on one line, with its number; `node` is None if its text is
    unknown.
    """

    number: int
    text: str
    node: ast.stmt | None = None


class PlaceFinder:
    """Finds the position of a program while it is recorded; each position is looked up once."""

    def __init__(self) -> None:
        self._known: dict[Any, Place] = {}

    def find(self) -> Place:
        """Return the innermost line of the program, and the calls from there outwards."""
        frames = [frame for frame in list_frames()[0] if is_program(frame)]
        key = tuple((frame.f_code, frame.f_lasti) for frame in frames)
        if key not in self._known:
            line = read_line(frames[0]) if frames else NOWHERE
            self._known[key] = Place(line, tuple(map(_read_call, frames)))
        return self._known[key]


def _read_call(frame: FrameType) -> Call:
    positions = frame.f_code.co_positions()
    first, last, start, end = next(itertools.islice(positions, frame.f_lasti // 2, None))
    first = frame.f_lineno if first is None else first
    return Call(frame.f_code.co_filename, first, last or first, start or 0, end or 0)


def find_statement(path: str, number: int) -> Statement:
    """Find the statement that contains a line; for a loop or a branch, only its first line."""
    raw = " ".join(linecache.getline(path, number).split())
    holding = [
        node
        for node in _list_statements(path)
        if node.lineno <= number <= (node.end_lineno or node.lineno)
    ]
    node = min(holding, key=lambda each: (each.end_lineno or 0) - each.lineno, default=None)
    if node is None or hasattr(node, "body") or node.lineno == node.end_lineno:
        return Statement(number, raw, node)
    return Statement(node.lineno, ast.unparse(node), node)


def list_statements(calls: Sequence[Call]) -> list[Statement]:
    """List the statements that lead to a result, from the outermost function inwards."""
    statements = [find_statement(call.path, call.first) for call in reversed(calls)]
    return list(dict.fromkeys(statements))


def find_name(calls: Sequence[Call]) -> str:
    """Return the author's name of a result, in the innermost frame that has one.

    That is the variable to which the whole result is assigned. If the result is part of an
    expression, the name contains both: `theta: mean(…)`. The name is empty if nothing is assigned
    or returned.
    """
    inner: Statement | None = None
    for number, call in enumerate(calls, 1):
        statement = find_statement(call.path, call.first)
        if inner is not None and call.path == calls[number - 2].path and statement == inner:
            continue  # around a lambda of the same statement
        inner, node = statement, statement.node
        returned = isinstance(node, ast.Return) and number == len(calls)
        target = "answer" if returned else _find_target(node)
        if not target:
            continue
        value: ast.expr | None = getattr(node, "value", None)
        if isinstance(value, ast.ListComp):
            value = value.elt
        whole = value is not None and _find_span(value) == call[1:]
        added = isinstance(node, ast.AugAssign)
        if whole and not (returned or added):
            return target
        return f"{target}: {_describe_part(value, call)}"
    return ""


def _find_target(statement: ast.stmt | None) -> str:
    """Return the target of an assignment as the author writes it, without `me.`."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    elif isinstance(statement, ast.AugAssign | ast.AnnAssign):
        target = statement.target
    else:
        return ""
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    return ", ".join(ast.unparse(part).removeprefix("me.") for part in parts)


def _describe_part(value: ast.expr | None, call: Call) -> str:
    """Describe the expression of a call: a function by its name, anything else by its text."""
    for node in ast.walk(value) if value is not None else ():
        if isinstance(node, ast.expr) and _find_span(node) == call[1:]:
            text = ast.unparse(node)
            if isinstance(node, ast.Call):
                text = f"{ast.unparse(node.func)}(…)"
            return text if len(text) <= MAX_NAME else f"{text[: MAX_NAME - 1]}…"
    return f"line {call.first}"


def _find_span(node: ast.expr) -> tuple[int, ...]:
    return node.lineno, node.end_lineno or 0, node.col_offset, node.end_col_offset or 0


@lru_cache(maxsize=64)
def _parse(text: str) -> list[ast.stmt]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]


def _list_statements(path: str) -> list[ast.stmt]:
    return _parse("".join(linecache.getlines(path)))


def find_returns(function: Any) -> list[Statement]:
    """List the return statements of a function of a program."""
    code = function.__code__
    holding = [
        node
        for node in _list_statements(code.co_filename)
        if isinstance(node, ast.FunctionDef)
        and min([node.lineno, *(d.lineno for d in node.decorator_list)]) == code.co_firstlineno
    ]
    returns = [each for node in holding for each in ast.walk(node) if isinstance(each, ast.Return)]
    return [find_statement(code.co_filename, each.lineno) for each in returns]
