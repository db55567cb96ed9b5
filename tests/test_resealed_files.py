"""Files of transformers that were changed and sealed again: refused in one line, or read."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import innerloop
from innerloop.errors import FileError, InputError
from innerloop.sealed import _compute_digest
from innerloop.transformer.file import load

NUMBERS: list[Any] = [-1, 0, 1, 2, 10**9, 10**18, 10**400, 2.0, 0.5, float("nan"), float("inf")]
VALUES: list[Any] = [*NUMBERS, None, True, False, "", "x", "1", [], {}, [1], [[1]], {"a": 1}]


class Resealer:
    """Makes changed copies of a saved transformer, each with a correct digest."""

    def __init__(self, source: Path, seed: int) -> None:
        self.random = random.Random(seed)
        with safe_open(source, framework="pt") as file:
            self.header = dict(file.metadata())
            self.tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}

    def write(self, path: Path) -> str:
        """Write a copy with one change; return what was changed."""
        header, tensors = dict(self.header), dict(self.tensors)
        kind = self.random.choice(["structure", "about", "structure", "tensor", "header"])
        if kind == "tensor":
            label = self._change_tensor(tensors)
        elif kind == "header":
            label = self._change_header(header)
        else:
            document = json.loads(header[kind])
            label = f"{kind}: {self._change_document(document)}"
            header[kind] = json.dumps(document)
        header["sha256"] = _compute_digest(header, tensors)
        save_file(tensors, path, header)
        return label

    def _change_header(self, header: dict[str, str]) -> str:
        name = self.random.choice([name for name in header if name != "sha256"])
        deep = "[" * 100_000 + "]" * 100_000
        value = self.random.choice(["", "0", "9" * 5000, "²", "{", "null", "[]", "5", deep, None])
        if value is None:
            del header[name]
        else:
            header[name] = value
        return f"header {name} = {str(value)[:20]}"

    def _change_document(self, document: Any) -> str:
        """Replace, remove or repeat one entry at a random place of a JSON document."""
        places = list(list_places(document))
        owner, key = self.random.choice(places)
        action = self.random.choice(["set", "set", "set", "drop", "repeat", "grow"])
        if action == "drop":
            del owner[key]
        elif action == "repeat" and isinstance(owner, list):
            owner.insert(key, copy.deepcopy(owner[key]))
        elif action == "grow" and type(owner[key]) is int:
            owner[key] += self.random.choice([1, -1, 10**9])
        else:
            owner[key] = copy.deepcopy(self.random.choice(VALUES))
        return f"{action} {key}"

    def _change_tensor(self, tensors: dict[str, torch.Tensor]) -> str:
        name = self.random.choice(sorted(tensors))
        value = tensors[name].clone()
        changes = {
            "transpose": value.mT if value.ndim > 1 else value[:-1],
            "flatten": value.flatten(),
            "scalar": torch.tensor(1.0, dtype=torch.float64),
            "empty": value[:0],
            "narrow": value[..., :-1],
            "half": value.to(torch.float16),
            "whole": value.to(torch.int64),
            "complex": value.to(torch.complex64),
            "bool": value.to(torch.bool),
            "nan": value * torch.nan,
            "huge": value.double() * 1e300,
            "negative": -value.double() - 1,
            "wide": torch.cat([value, value], dim=-1),
        }
        label = self.random.choice([*sorted(changes), "drop", "rename"])
        if label in ("drop", "rename"):
            moved = tensors.pop(name)
            if label == "rename":
                tensors[f"{name}x"] = moved
        else:
            tensors[name] = changes[label].contiguous().clone()
        return f"{label} {name}"


def list_places(document: Any) -> Iterator[tuple[Any, Any]]:
    """List every entry of a JSON document as its owner and its key."""
    entries = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in entries:
        yield document, key
        if isinstance(value, dict | list):
            yield from list_places(value)


@pytest.fixture(scope="module")
def saved_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "em.safetensors"
    # Softmax and ReLU heads, dense and element-wise units, in a body and an epilogue.
    innerloop.build("em", d=1, n=2, clusters=1, steps=1, knots=40, instances=1).save(path)
    return path


def attempt(path: Path) -> str:
    """Verify a file: what the certificate says, or the error."""
    try:
        certificate = innerloop.verify(path, instances=1).certificate
    except InputError as error:
        return str(error)
    assert (certificate.instances, certificate.seed) == (1, 0), "not for the file to say"
    return "holds" if certificate.holds else "broken"


@pytest.mark.parametrize("seed", range(2))
def test_a_resealed_file_is_refused_in_one_line_or_read(
    seed: int, saved_file: Path, tmp_path: Path
) -> None:
    resealer = Resealer(saved_file, seed)
    for _ in range(40):
        label = resealer.write(tmp_path / "changed")
        try:
            said = attempt(tmp_path / "changed")
        except Exception as error:
            pytest.fail(f"{label}: {type(error).__name__}: {error}")
        assert len(said) < 1000, label
        assert "\n" not in said, label


def reseal(source: Path, target: Path, part: str, **changes: Any) -> Path:
    with safe_open(source, framework="pt") as file:
        header = dict(file.metadata())
        tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
    document = json.loads(header[part])
    document.update(changes)
    header[part] = json.dumps(document)
    header["sha256"] = _compute_digest(header, tensors)
    save_file(tensors, target, header)
    return target


@pytest.mark.parametrize(
    "changes",
    [
        {"layout": [["x", [10**9]]]},
        {"layout": [["x", [10**6, 10**6]]]},
        {"layout": [["x", [True]]]},
        {"loops": 10**9},
        {"loops": 2.0},
        {"loops": True},
        {"trainable": "yes"},
    ],
)
def test_a_file_may_not_ask_for_more_than_it_holds(
    changes: dict, saved_file: Path, tmp_path: Path
) -> None:
    with pytest.raises(FileError, match="does not contain the weights it describes"):
        load(reseal(saved_file, tmp_path / "changed", "structure", **changes))


def test_how_hard_it_is_tested_is_not_taken_from_the_file(saved_file: Path, tmp_path: Path) -> None:
    easy = reseal(saved_file, tmp_path / "easy", "about", instances=10**7, seed=3)
    certificate = innerloop.verify(easy).certificate
    assert (certificate.instances, certificate.seed) == (64, 0)
    assert innerloop.verify(easy, instances=5, seed=1).certificate.instances == 5
