"""Finished cells as files: written whole, refused when damaged, stale when code changed.

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
from innerloop.errors import FileError
from innerloop.files import PARTIAL_PREFIX, write_atomically
from innerloop.jsonfiles import read_object
from innerloop.ledger.tables import pack_tables, unpack_tables
from innerloop.links import make_folder, remove_file
from innerloop.provenance import collect_versions

FORMAT = "innerloop-cell"
VERSION = 3
"""Version 1 had one digest for all code, so what changed is unknown: it reads as stale. Versions 1
and 2 spelled out every row of a table."""
MAX_SECONDS = 1e9
"""More seconds than any cell has taken: three decades."""
STALE_SECONDS = 60.0
"""Seconds after which a file still being written has lost its writer."""


@dataclass(frozen=True)
class Cell:
    """The unit of computation and storage: a claim, a preset, a seed and settings."""

    claim: str
    preset: Preset
    seed: int
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """A 16-digit hash of settings and seed."""
        encoded = json.dumps([dict(self.settings), self.seed], sort_keys=True)
        return hashlib.sha256(encoded.encode()).hexdigest()[:16]

    def __hash__(self) -> int:
        return hash((self.claim, self.preset, self.name))

    @property
    def command(self) -> str:
        """The command that computes it again."""
        seed = f" --seed {self.seed}" if self.seed else ""
        return f"innerloop check {self.claim} --preset {self.preset}{seed} --fresh"


@dataclass(frozen=True)
class Finished:
    """What a cell found, and how."""

    found: Any
    seconds: float
    made: str
    code: Mapping[str, str]
    """What it depends on, each with a digest: see `innerloop.ledger.code`."""
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Store:
    """A folder of finished cells. `notice` receives one line per rejected file."""

    folder: Path
    notice: Callable[[str], None]
    recorded: Path | None = None
    """Cells that came with the package: read where the folder has none, never written."""

    def path(self, cell: Cell) -> Path:
        return self.folder / cell.preset / cell.claim / f"{cell.name}.json"

    def read(self, cell: Cell) -> Finished | None:
        """Read a finished cell, by whatever code; none if it is missing or damaged."""
        path = self.path(cell)
        try:
            if self.recorded is not None and not path.exists():
                path = Store(self.recorded, self.notice).path(cell)
            file = read_object(path)
            content = file["content"]
            if file["format"] != FORMAT or file["version"] not in range(1, VERSION + 1):
                raise FileError(f"it has format {file['format']!r}, version {file['version']!r}")
            if file["sha256"] != _compute_digest(content):
                raise FileError("its contents do not match their SHA-256")
            if content["cell"] != _describe_cell(cell):
                raise FileError("it is the file of another cell")
            return _restore_finished(content)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = str(error) or type(error).__name__
            self.notice(f"{path} is damaged and will be made again: {reason}")
            return None

    def write(self, cell: Cell, finished: Finished) -> None:
        """Store a finished cell; a `FileError` says why that was not possible."""
        content = {
            "cell": _describe_cell(cell),
            "command": cell.command,
            **{name: getattr(finished, name) for name in ("code", "versions", "made", "seconds")},
            "found": pack_tables(finished.found),
        }
        whole = {"format": FORMAT, "version": VERSION, "sha256": _compute_digest(content)}
        path = self.path(cell)
        try:
            make_folder(path.parent)
        except OSError as error:
            raise FileError(f"cannot write {path}: {error.strerror or error}") from None
        text = json.dumps(
            {**whole, "content": content},
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
        )
        write_atomically(path, text.encode())

    def tidy(self) -> None:
        """Remove what killed runs left half-written."""
        for path in self.folder.glob(f"*/*/{PARTIAL_PREFIX}*"):
            try:
                if time.time() - path.stat().st_mtime > STALE_SECONDS:
                    remove_file(path)
            except (OSError, FileError):
                continue  # somebody else's, or gone: nothing is lost by leaving it


def finish_cell(found: Any, seconds: float, code: Mapping[str, str]) -> Finished:
    """Make the record of a cell that was finished here and now."""
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return Finished(found, round(seconds, 3), made, code, collect_versions())


def _restore_finished(content: Mapping[str, Any]) -> Finished:
    """Restore what a file holds; its sum matches, but whoever wrote it may have written anything.

    What was found is checked where the claim builds its evidence from it.
    """
    seconds, made, versions = content["seconds"], content["made"], content["versions"]
    code = content["code"]
    code = {"all code": code} if isinstance(code, str) else code
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise FileError(f"its seconds must be a number, got {seconds!r:.60}")
    if not 0 <= seconds < MAX_SECONDS:
        raise FileError(f"its seconds must be from 0 to {MAX_SECONDS:g}, got {seconds!r:.60}")
    if not isinstance(made, str):
        raise FileError(f"its time of making must be a text, got {made!r:.60}")
    for name, table in (("versions", versions), ("code", code)):
        if not isinstance(table, dict) or not all(isinstance(v, str) for v in table.values()):
            raise FileError(f"its {name} must be texts by name, got {table!r:.60}")
    return Finished(unpack_tables(content["found"]), float(seconds), made, code, versions)


def _describe_cell(cell: Cell) -> dict[str, Any]:
    fields = {"claim": cell.claim, "preset": cell.preset, "seed": cell.seed}
    return {**fields, "settings": dict(cell.settings)}


def _compute_digest(content: Mapping[str, Any]) -> str:
    encoded = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.sha256(encoded.encode()).hexdigest()
