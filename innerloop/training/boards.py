"""Scalars for TensorBoard: one event file per run, with every number of its history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from innerloop.errors import MissingLibraryError

BOARD = "tensorboard"


class Board:
    """Writes rows of a history as TensorBoard's scalars into a folder of the run's."""

    def __init__(self, folder: Path) -> None:
        check_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        place = folder / BOARD
        self._count: int | None = None if place.exists() else 0
        self._writer = SummaryWriter(str(place))

    def update(self, history: list[dict[str, Any]]) -> None:
        """Write the rows that are new since the last call, or since the run was stopped."""
        self._count = len(history) if self._count is None else self._count
        for row in history[self._count :]:
            for name, value in row.items():
                if name != "step":
                    self._writer.add_scalar(name, value, int(row["step"]))
        self._count = len(history)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def check_tensorboard() -> None:
    """Refuse to go on where the library is missing."""
    try:
        import tensorboard
    except ImportError:
        raise MissingLibraryError(
            "--tensorboard needs the extra `tensorboard`: pip install 'innerloop[tensorboard]'"
        ) from None
    assert tensorboard
