"""Store the results of finished cells in files, one file per cell.

A cell is a claim at a preset with a seed and settings. Its file contains the result, the digests of
the code, versions of libraries, the date, the duration, and the command that makes it again. A file
is written completely or not at all. A damaged file is rejected, and a result is stale if its code
has changed.
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
"""Version 1 had one digest for all code, so it is not known what changed, and its results are
stale. Versions 1 and 2 stored the column names in every row of a table."""
MAX_SECONDS = 1e9
"""Upper limit of a valid duration: 30 years."""
STALE_SECONDS = 60.0
"""Age in seconds from which a partly written file counts as left behind by a killed run."""


@dataclass(frozen=True)
class Cell:
    """The unit of computation and storage: a claim, a preset, a seed and settings."""

    claim: str
    preset: Preset
    seed: int
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """A hash of settings and seed, with 16 digits: the name of the file."""
        encoded = json.dumps([dict(self.settings), self.seed], sort_keys=True)
        return hashlib.sha256(encoded.encode()).hexdigest()[:16]

    def __hash__(self) -> int:
        return hash((self.claim, self.preset, self.name))

    @property
    def command(self) -> str:
        """The command that computes the cell again."""
        seed = f" --seed {self.seed}" if self.seed else ""
        return f"innerloop check {self.claim} --preset {self.preset}{seed} --fresh"


@dataclass(frozen=True)
class Finished:
    """The result of a finished cell, and how it was made."""

    found: Any
    seconds: float
    made: str
    code: Mapping[str, str]
    """The digest of every dependency (see `innerloop.ledger.code`)."""
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Store:
    """A folder of stored results. `notice` receives one line for each rejected file."""

    folder: Path
    notice: Callable[[str], None]
    recorded: Path | None = None
    """Results that came with the package. Used if the folder has none; never written."""

    def path(self, cell: Cell) -> Path:
        return self.folder / cell.preset / cell.claim / f"{cell.name}.json"

    def read(self, cell: Cell) -> Finished | None:
        """Read a stored result, even if it is stale; None if it is missing or damaged."""
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
        """Store the result of a cell; raise a `FileError` if that is not possible."""
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
        """Remove partly written files of killed runs."""
        for path in self.folder.glob(f"*/*/{PARTIAL_PREFIX}*"):
            try:
                if time.time() - path.stat().st_mtime > STALE_SECONDS:
                    remove_file(path)
            except (OSError, FileError):
                continue  # another user's file, or one that is gone already


def finish_cell(found: Any, seconds: float, code: Mapping[str, str]) -> Finished:
    """Make the record of a cell that has just finished on this machine."""
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return Finished(found, round(seconds, 3), made, code, collect_versions())


def _restore_finished(content: Mapping[str, Any]) -> Finished:
    """Check the types in a file's content, and restore the result from it.

    The content matches its digest, but a stranger may have written both. The result itself is
    checked when the claim builds its evidence from it.
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
