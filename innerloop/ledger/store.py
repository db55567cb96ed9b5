"""Finished cells as files: written whole, refused when damaged, made again when code changed.

A cell is a claim at a preset with a seed and settings. Its file says what was found, by which code
and versions, when, in how many seconds, and which command makes it again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from innerloop.claims.base import Preset
from innerloop.constructions.certificate import versions
from innerloop.errors import FileError
from innerloop.files import PARTIAL, write_atomically

FORMAT = "innerloop-cell"
VERSION = 1
STALE = 60.0
"""Seconds after which a file still being written has lost its writer."""


@dataclass(frozen=True)
class Cell:
    """What is computed and stored as one."""

    claim: str
    preset: Preset
    seed: int
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Short, and other settings or another seed give another."""
        told = json.dumps([dict(self.settings), self.seed], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def __hash__(self) -> int:
        return hash((self.claim, self.preset, self.name))

    @property
    def command(self) -> str:
        """What makes it again."""
        seed = f" --seed {self.seed}" if self.seed else ""
        return f"innerloop check {self.claim} --preset {self.preset}{seed} --fresh"


@dataclass(frozen=True)
class Finished:
    """What a cell found, and how."""

    found: Any
    seconds: float
    made: str
    code: str
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Store:
    """A folder of finished cells. `notice` is told of what was refused, in one line."""

    folder: Path
    notice: Callable[[str], None]

    def path(self, cell: Cell) -> Path:
        return self.folder / cell.preset / cell.claim / f"{cell.name}.json"

    def read(self, cell: Cell) -> Finished | None:
        """The finished cell, by whatever code; none if it is missing or damaged."""
        path = self.path(cell)
        try:
            told = json.loads(path.read_bytes())
            content = told["content"]
            if told["format"] != FORMAT or told["version"] != VERSION:
                raise FileError(f"it has format {told['format']!r}, version {told['version']!r}")
            if told["sha256"] != _digest(content):
                raise FileError("its contents do not match their SHA-256")
            if content["cell"] != _told(cell):
                raise FileError("it is the file of another cell")
            kept = ("found", "seconds", "made", "code", "versions")
            return Finished(**{name: content[name] for name in kept})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = str(error) or type(error).__name__
            self.notice(f"{path} is damaged and will be made again: {reason}")
            return None

    def write(self, cell: Cell, finished: Finished) -> None:
        """Store a finished cell; a `FileError` says why that was not possible."""
        content = {
            "cell": _told(cell),
            "command": cell.command,
            **{name: getattr(finished, name) for name in ("code", "versions", "made", "seconds")},
            "found": finished.found,
        }
        whole = {"format": FORMAT, "version": VERSION, "sha256": _digest(content)}
        path = self.path(cell)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"cannot write {path}: {error.strerror or error}") from None
        text = json.dumps({**whole, "content": content}, ensure_ascii=False, allow_nan=False)
        write_atomically(path, text.encode())

    def tidy(self) -> None:
        """Remove what killed runs left half-written."""
        for path in self.folder.glob(f"*/*/{PARTIAL}*"):
            try:
                if time.time() - path.stat().st_mtime > STALE:
                    path.unlink()
            except OSError:
                continue  # somebody else's, or gone: nothing is lost by leaving it


def finished(found: Any, seconds: float, code: str) -> Finished:
    """A cell that was finished here and now."""
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return Finished(found, round(seconds, 3), made, code, versions())


def _told(cell: Cell) -> dict[str, Any]:
    told = {"claim": cell.claim, "preset": cell.preset, "seed": cell.seed}
    return {**told, "settings": dict(cell.settings)}


def _digest(content: Mapping[str, Any]) -> str:
    told = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.sha256(told.encode()).hexdigest()
