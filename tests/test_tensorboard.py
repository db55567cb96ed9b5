"""`--tensorboard` writes the history so that TensorBoard's own library reads equal numbers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from test_resuming_runs import SMALL, begin

from innerloop.errors import MissingLibraryError
from innerloop.recipes.base import train
from innerloop.training.boards import Board


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_reads_the_history(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    begin(tmp_path, 0.5, tensorboard=True)
    run = train("linear-regression", folder=tmp_path, resume=True, tensorboard=True)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    found = {event.step: event.value for event in events.Scalars("loss")}
    expected = {row["step"]: pytest.approx(row["loss"], rel=1e-6) for row in run.history}
    assert found == expected


def test_a_missing_library_is_reported_with_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    options: dict[str, Any] = {"tensorboard": True, **SMALL}
    with pytest.raises(MissingLibraryError, match=r"pip install 'innerloop\[tensorboard\]'"):
        train("linear-regression", folder=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.filterwarnings("ignore")
def test_repeated_steps_after_a_kill_occur_once(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    rows = [{"step": step, "loss": float(step)} for step in range(5)]
    for history in (rows[:2], rows[:4]):
        board = Board(tmp_path, pytest.fail)
        board.update(history[:2])
        board.update(history)
        board.close()
    after = Board(tmp_path, pytest.fail)
    after.update(rows[:2])
    after.update(rows)
    after.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [0, 1, 2, 3, 4]


def test_unwritable_events_do_not_stop_a_training(tmp_path: Path) -> None:
    tmp_path.joinpath("tensorboard").write_text("in the way")
    notes: list[str] = []
    run = train(
        "linear-regression", folder=tmp_path, tensorboard=True, notice=notes.append, **SMALL
    )
    assert run.step == SMALL["steps"]
    (note,) = notes
    assert note.startswith(f"cannot write {tmp_path / 'tensorboard'}: ")
