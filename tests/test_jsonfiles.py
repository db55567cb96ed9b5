"""JSON from files is read within limits, and nothing reads it past them."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

import innerloop
from innerloop import jsonfiles, sealed
from innerloop.constructions.base import Construction
from innerloop.errors import FileError, InputError
from innerloop.jsonfiles import parse_json, parse_object, read_object
from innerloop.parameters import parse_settings
from innerloop.recipes import base
from innerloop.registry import find_class
from innerloop.training import checkpoint
from innerloop.transformer import file

ROOT = Path(innerloop.__file__).parent


@pytest.mark.parametrize("pair", ["[]", ('{"a":', "}"), ('[{"a":', "}]")])
@pytest.mark.parametrize("depth", [101, 900, 100_000])
def test_deep_nesting_is_refused_at_every_depth(pair: tuple[str, str], depth: int) -> None:
    left, right = pair
    with pytest.raises(FileError, match="nested deeper than 100 levels"):
        parse_json(left * depth + "1" + right * depth)


def test_what_is_within_the_limits_is_read() -> None:
    text = "[" * 100 + "]" * 100
    assert parse_json(text) == json.loads(text)
    assert parse_json('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}
    assert parse_json(b"3") == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is not JSON"),
        ('{"a": 1', "it is not JSON"),
        (b"\xff\xfe\x00", "it is not JSON"),
        ("9" * 5000, "it is not JSON"),
        ("[1, 2]", "its JSON is a list, expected an object"),
        ("null", "expected an object"),
    ],
)
def test_what_is_no_object_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(FileError, match=message):
        parse_object(text)


def test_what_is_too_long_is_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonfiles, "MAX_BYTES", 8)
    path = tmp_path / "long.json"
    path.write_text('{"a": 12345}')
    with pytest.raises(FileError, match="9 bytes, expected at most 8"):
        read_object(path)
    path.write_text('{"a": 1}')
    assert read_object(path) == {"a": 1}


DEEP = "[" * 50_000 + "]" * 50_000


@pytest.mark.parametrize("text", [DEEP, "", "[1]", '{"a": '])
def test_metadata_of_tensor_files_are_read_within_the_limits(tmp_path: Path, text: str) -> None:
    """Somebody sealed the file again, so that its sum matches."""
    path = tmp_path / "file.safetensors"
    readers = {
        checkpoint: lambda: checkpoint.read(path),
        file: lambda: file.load(path),
        base: lambda: base.load(path),
    }
    for module, read in readers.items():
        metadata: dict[str, str] = dict.fromkeys(("about", "state", "structure"), text)
        sealed.write(path, {}, metadata, format=module.FORMAT, version=module.VERSION)
        with pytest.raises(FileError, match=r"does not contain .*JSON"):
            read()


@pytest.mark.parametrize("depth", [9, 65, 100, 101, 5000])
def test_settings_nested_too_deep(depth: int) -> None:
    value: Any = 1.0
    for _ in range(depth):
        value = [value]
    kind = find_class("constructions", Construction, "preconditioned-gradient-descent")
    with pytest.raises(InputError, match="preconditioners must"):
        kind.from_values({"preconditioners": value})
    text = "[" * depth + "1" + "]" * depth
    with pytest.raises(InputError, match="preconditioners must"):
        kind.from_values(parse_settings(kind, [f"preconditioners={text}"]))


READERS = {"claims/evidence.py", "jsonfiles.py", "testing/claims.py"}
"""The reader itself, and two that read what they wrote in the same line."""


def test_nothing_else_reads_json() -> None:
    readers = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if "json" in (text := path.read_text("utf-8"))  # few are parsed
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("json.load", "json.loads")
    }
    assert readers == READERS
