"""Files and folders without permission: one line that names them, for a user who is not root."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import CommandResult
from unprivileged import act_as_nobody, give_to_nobody, make_open_folder

import innerloop
from innerloop.errors import FileError
from innerloop.files import write_atomically
from innerloop.ledger.store import Cell, Store, finish_cell
from innerloop.recipes.base import train
from innerloop.recipes.definition import Recipe
from innerloop.recipes.linear_regression import LinearRegressionRecipe
from innerloop.recipes.listing import describe_folder
from innerloop.recipes.runs import load_finished_runs
from innerloop.registry import load_members
from innerloop.report.drawing import Drawings
from innerloop.training.history import GrowingHistory

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions of files are POSIX's")
SMALL: dict[str, Any] = {"d": 2, "n": 4, "blocks": 1, "batch": 8, "steps": 6, "evaluate_every": 2}
SETTINGS = [word for name, value in SMALL.items() for word in ("-s", f"{name}={value}")]
RESUME = ("train", "linear-regression", *SETTINGS, "-o", "run", "--resume")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, weights, and data.

    Modules are imported beforehand: `nobody` may not be able to read the folder of Python.
    """
    for name in ("identification.identification", "playing.loading", "report.curves"):
        importlib.import_module(f"innerloop.{name}")
    load_members("recipes", Recipe)
    folder = tmp_path_factory.mktemp("made")
    train(LinearRegressionRecipe, folder=folder / "run" / "seed-0", **SMALL)
    innerloop.build("newton", d=2, instances=2).save(folder / "weights.safetensors")
    (folder / "data.csv").write_text("a,b\n1,2\n2,3\n3,4\n4,5\n")
    (folder / "own.py").write_text("number = 3\n")
    (folder / "out").mkdir()
    return folder


@pytest.fixture
def place(made: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the files, which belongs to nobody and is the current folder."""
    with make_open_folder() as folder:
        shutil.copytree(made, folder, dirs_exist_ok=True)
        give_to_nobody(folder)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("INNERLOOP_RESULTS", str(folder / "results"))
        yield folder
        for path in (folder, *(folder / name for name in ("run", "run/seed-0", "out"))):
            path.chmod(0o700)


def read_files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_permissions_matter_to_nobody(place: Path) -> None:
    """The tests below would test nothing if this process could still read everything."""
    (place / "data.csv").chmod(0)
    with act_as_nobody():
        assert not os.access("data.csv", os.R_OK)
        with pytest.raises(PermissionError):
            (place / "data.csv").read_bytes()
    (place / "data.csv").chmod(0o600)
    assert (place / "data.csv").read_bytes()


@pytest.mark.parametrize(
    ("locked", "mode", "words", "message"),
    [
        ("weights.safetensors", 0, "verify weights.safetensors", "is not readable"),
        ("weights.safetensors", 0, "identify weights.safetensors", "cannot read weights.s"),
        ("weights.safetensors", 0, "play weights.safetensors", "cannot read weights.safetensors"),
        ("data.csv", 0, "fit data.csv --target b", "data.csv"),
        ("own.py", 0, "show own.py:number", "own.py"),
        ("run/seed-0/history.csv", 0, "plot run", "cannot read run/seed-0/history.csv"),
        ("run", 0, "plot run", "'run' is not readable"),
        ("out", 0o555, "build newton -o out/w.safetensors", "no permission to write into out"),
        ("out", 0, "build newton -o out/w.safetensors", "cannot write out/w.safetensors"),
    ],
)
def test_a_command_names_what_it_may_not_open(
    locked: str,
    mode: int,
    words: str,
    message: str,
    place: Path,
    run: Callable[..., CommandResult],
) -> None:
    (place / locked).chmod(mode)
    with act_as_nobody():
        result = run(*words.split())
    assert result.code == 2
    assert message in result.err
    assert len(result.err.splitlines()) == 1, result.err


@pytest.mark.parametrize(
    ("locked", "mode", "message"),
    [
        ("run", 0o444, "run"),
        ("run/seed-0", 0, "run/seed-0"),
        ("run/seed-0", 0o555, "cannot train into run/seed-0: no permission to write into it"),
        ("run/seed-0/checkpoint.safetensors", 0, "cannot read run/seed-0/checkpoint.safetensors"),
        ("run/seed-0/.lock", 0o444, "cannot open run/seed-0/.lock: Permission denied"),
    ],
)
def test_a_run_that_may_not_be_changed_stays_as_it_is(
    locked: str, mode: int, message: str, place: Path, run: Callable[..., CommandResult]
) -> None:
    before = read_files(place / "run")
    (place / locked).chmod(mode)
    with act_as_nobody():
        result = run(*RESUME)
    assert result.code == 2
    assert message in result.err
    assert len(result.err.splitlines()) == 1, result.err
    (place / locked).chmod(0o700)
    assert read_files(place / "run") == before


def test_a_new_run_in_a_folder_that_may_not_be_written(place: Path) -> None:
    (place / "out").chmod(0o555)
    steps: list[float] = []
    with act_as_nobody():
        for folder, message in (("out/new", "cannot make out/new"), ("out", "no permission to")):
            with pytest.raises(FileError, match=message):
                train(
                    LinearRegressionRecipe,
                    folder=Path(folder),
                    progress=lambda share, doing="": steps.append(share),
                    **SMALL,
                )
    assert not steps
    assert not list((place / "out").iterdir())


def test_runs_that_may_not_be_read_are_listed_as_damaged(place: Path) -> None:
    (place / "run/seed-0/run.json").chmod(0)
    (place / "run/seed-0/model.safetensors").chmod(0)
    notices: list[str] = []
    with act_as_nobody():
        state = describe_folder(Path("run/seed-0"))
        assert not list(load_finished_runs(place, lambda *words: notices.append(words[1])))
    assert (state["state"], "Permission denied" in state["remark"]) == ("damaged", True)
    (notice,) = notices
    assert "model.safetensors: Permission denied" in notice


def test_a_history_that_may_not_be_written_is_noted_once(place: Path) -> None:
    rows, notes = [{"step": step, "loss": 1.0} for step in range(3)], list[str]()
    with act_as_nobody():
        history = GrowingHistory(place / "out" / "history.csv", notes.append)
        history.update(rows[:1])
        (place / "out" / "history.csv").chmod(0o444)
        history.update(rows[:2])
        history.update(rows)
    (note,) = notes
    assert "Permission denied" in note


@pytest.mark.parametrize("mode", [0, 0o444, 0o555])
def test_cells_that_may_not_be_read_or_written_are_computed_again(mode: int, place: Path) -> None:
    notices: list[str] = []
    store = Store(place / "out", notices.append, recorded=place / "none")
    cell, finished = Cell("toy.claim", "quick", 0, {}), finish_cell({"a": 1}, 0.1, {})
    store.write(cell, finished)
    give_to_nobody(place)
    store.path(cell).chmod(0)
    (place / "out").chmod(mode)
    with act_as_nobody():
        assert store.read(cell) is None
        with pytest.raises(FileError, match=r"cannot write|no permission"):
            Store(place / "out" / "new", notices.append).write(cell, finished)
        store.tidy()
    assert "Permission denied" in notices[0]


def test_drawings_that_may_not_be_read_or_written_are_drawn_again(place: Path) -> None:
    spec = {"mark": "point", "data": {"values": []}, "encoding": {}}
    svg = Drawings(place / "out").draw(spec)
    (drawing,) = (place / "out").iterdir()
    drawing.chmod(0)
    give_to_nobody(place)
    (place / "out").chmod(0o555)
    with act_as_nobody():
        drawings = Drawings(place / "out")
        assert drawings.draw(spec) == svg
        assert drawings.folder is None


def test_a_file_of_somebody_else_is_replaced_where_the_folder_allows_it(place: Path) -> None:
    """A rename needs the permission of the folder alone; what was not written whole is removed."""
    (place / "out" / "file").write_bytes(b"old")
    (place / "out" / "file").chmod(0o444)
    with act_as_nobody():
        write_atomically(place / "out" / "file", b"new")
        (place / "out").chmod(0o555)
        with pytest.raises(FileError, match="no permission to write into"):
            write_atomically(place / "out" / "file", b"newer")
    assert [path.read_bytes() for path in (place / "out").iterdir()] == [b"new"]
