"""Runs that `train` left on disk: what they were and how the loss went, for the report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from innerloop import sealed
from innerloop.recipes.base import FORMAT, VERSION, command
from innerloop.training.history import read_history


def finished(root: Path) -> Iterator[dict[str, Any]]:
    """Every finished run under `root`: what its model says of it, and its history."""
    for path in sorted(root.glob("**/model.safetensors")):
        told, _ = sealed.read(path, format=FORMAT, version=VERSION)
        about = json.loads(told["about"])
        history = read_history(path.parent / "history.csv")
        folder = str(path.parent.relative_to(root))
        yield {**about, "folder": folder, "history": history, "command": command(about)}
