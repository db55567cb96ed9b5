"""`--tensorboard`: the numbers of a history as TensorBoard's own library reads them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from test_going_on import SMALL, begin

from innerloop.errors import MissingLibraryError
from innerloop.recipes.base import train


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


def test_without_the_library_one_line_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    options: dict[str, Any] = {"tensorboard": True, **SMALL}
    with pytest.raises(MissingLibraryError, match=r"pip install 'innerloop\[tensorboard\]'"):
        train("linear-regression", folder=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()
