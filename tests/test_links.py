"""No link inside the folder of a run, sweep, cell or figure is followed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_sweeps import InlineEngine

from innerloop import links
from innerloop.errors import FileError
from innerloop.files import write_atomically
from innerloop.identification.loading import load_model
from innerloop.ledger import sweeping
from innerloop.ledger.store import Cell, Store, finish_cell
from innerloop.ledger.sweeping import sweep, train_run
from innerloop.links import make_folder, open_file, read_file, remove_file, resolve_links
from innerloop.playing.loading import load_player
from innerloop.recipes.base import train, train_seeds
from innerloop.recipes.finding import read_recipe_name
from innerloop.recipes.linear_regression import LinearRegressionRecipe
from innerloop.recipes.listing import describe_folder, load_curves
from innerloop.recipes.runs import load_finished_runs, note_run
from innerloop.recipes.sweep_survey import survey_sweep
from innerloop.recipes.sweeps import read_sweep
from innerloop.report.drawing import Drawings
from innerloop.report.export import write_figures
from innerloop.report.page import Chart
from innerloop.training.boards import Board
from innerloop.training.history import GrowingHistory

SMALL: dict[str, Any] = {"d": 2, "n": 4, "blocks": 1, "batch": 8, "steps": 6, "evaluate_every": 2}
PRECIOUS = b"somebody else's file"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    train(LinearRegressionRecipe, folder=folder, **SMALL)
    return folder


@pytest.fixture
def run_folder(trained: Path, tmp_path: Path) -> Path:
    """A copy of the folder of a finished run."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder outside of the run that links point to; the test fails if a file in it changes."""
    path = tmp_path / "outside"
    path.mkdir()
    (path / "file").write_bytes(PRECIOUS)
    yield path
    assert {each.name for each in path.iterdir()} == {"file"}
    assert (path / "file").read_bytes() == PRECIOUS


@pytest.fixture(params=["found", "made afterwards"])
def checks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether checks before opening see a link, or it is made between the check and the opening."""
    if request.param == "made afterwards":
        monkeypatch.setattr(Path, "is_symlink", lambda path: False)


def read_files(place: Path) -> dict[Path, bytes]:
    """Read a file, or all files below a folder."""
    return {path: path.read_bytes() for path in (place, *place.rglob("*")) if path.is_file()}


def replace_by_link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


NAMES = [".lock", "history.csv", "run.json", "model.safetensors", "checkpoint.safetensors"]


@pytest.mark.parametrize("name", [*NAMES, "extra"])
def test_resume_refuses_a_link_and_leaves_its_target(
    name: str, run_folder: Path, outside: Path
) -> None:
    replace_by_link(run_folder / name, outside / "file")
    with pytest.raises(FileError, match=f"{name} is a link"):
        train(LinearRegressionRecipe, folder=run_folder, resume=True, **{**SMALL, "steps": 8})
    assert describe_folder(run_folder)["state"] == "damaged"
    assert list(load_finished_runs(run_folder.parent)) == []


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "train FOLDER --resume": ("checkpoint.safetensors", read_recipe_name),
    "train --resume": (
        "checkpoint.safetensors",
        lambda run: train(LinearRegressionRecipe, folder=run, resume=True),
    ),
    "plot": ("history.csv", lambda run: load_curves([run])),
    "identify": ("model.safetensors", lambda run: load_model(str(run))),
    "play": ("model.safetensors", lambda run: load_player(str(run))),
}


@pytest.mark.parametrize("command", READERS)
def test_a_sound_file_elsewhere_is_not_read_through_a_link(
    command: str, run_folder: Path, tmp_path: Path, checks: None
) -> None:
    name, read = READERS[command]
    (run_folder / name).rename(tmp_path / name)
    replace_by_link(run_folder / name, tmp_path / name)
    with pytest.raises(FileError, match=f"{name} is a link"):
        read(run_folder)


def test_a_run_is_described_without_following_links(run_folder: Path, tmp_path: Path) -> None:
    for name in NAMES:
        (run_folder / name).rename(tmp_path / name)
        replace_by_link(run_folder / name, tmp_path / name)
        known = describe_folder(run_folder)
        assert known["state"] == "damaged"
        assert "is a link" in known["remark"]


def test_links_that_the_user_names_are_followed(run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "named").symlink_to(tmp_path)
    named = tmp_path / "named" / "run"
    assert resolve_links(named) == run_folder
    assert resolve_links(Path("a")) == Path("a")
    assert load_model(str(named)).layers
    assert load_curves([named])[0]["history"]
    assert read_recipe_name(resolve_links(named)) == "linear-regression"
    notes: list[str] = []
    options: dict[str, Any] = {"resume": True, "notice": notes.append, **SMALL, "steps": 8}
    assert train(LinearRegressionRecipe, folder=named, **options).step == 8
    assert [each["final"]["step"] for each in load_finished_runs(tmp_path / "named")] == [8]
    assert not run_folder.is_symlink()


def test_a_hard_link_is_not_written_in_place(run_folder: Path, outside: Path) -> None:
    (run_folder / ".lock").unlink()
    os.link(outside / "file", run_folder / ".lock")
    with pytest.raises(FileError, match="is a hard link to a file that has another name"):
        train(LinearRegressionRecipe, folder=run_folder, resume=True, **SMALL)


def test_a_hard_link_to_the_history_is_replaced(run_folder: Path, outside: Path) -> None:
    (run_folder / "history.csv").unlink()
    os.link(outside / "file", run_folder / "history.csv")
    options: dict[str, Any] = {"resume": True, "notice": lambda text: None, **SMALL, "steps": 8}
    train(LinearRegressionRecipe, folder=run_folder, **options)


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_history_that_becomes_a_link_during_a_training_is_not_appended_to(
    link: Callable[[Path, Path], None], outside: Path, tmp_path: Path, checks: None
) -> None:
    rows, notes = [{"step": step, "loss": 1.0} for step in range(2)], list[str]()
    history = GrowingHistory(tmp_path / "history.csv", notes.append)
    history.update(rows[:1])
    (tmp_path / "history.csv").unlink()
    link(outside / "file", tmp_path / "history.csv")
    history.update(rows)
    (note,) = notes
    assert "link" in note


@pytest.mark.parametrize("when", ["before", "during"])
def test_nothing_is_written_through_the_folder_of_a_seed(
    when: str, tmp_path: Path, checks: None
) -> None:
    """The folder of a seed is a link from the beginning, or becomes one after the first step."""
    elsewhere, place = tmp_path / "elsewhere", tmp_path / "run" / "seed-0"
    elsewhere.mkdir()
    (elsewhere / "model.safetensors").write_bytes(PRECIOUS)
    place.parent.mkdir()

    def swap(share: float = 0.0, doing: str = "") -> None:
        if not place.is_symlink() and not os.path.islink(place):
            if place.exists():
                place.rename(tmp_path / "moved")
            place.symlink_to(elsewhere)

    if when == "before":
        swap()
    with pytest.raises(FileError, match="seed-0 is a link"):
        train_seeds(
            LinearRegressionRecipe(**SMALL),
            [0],
            tmp_path / "run",
            progress=swap if when == "during" else lambda share, doing="": None,
            notice=lambda text: None,
        )
    assert [path.read_bytes() for path in elsewhere.iterdir()] == [PRECIOUS]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", ["tensorboard", "tensorboard/file"])
def test_tensorboard_events_are_not_written_through_a_link(
    place: str, outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is a link, or all names that the file of events may get are taken by links."""
    if place == "tensorboard":
        (tmp_path / place).symlink_to(outside)
    else:
        monkeypatch.setattr("time.time_ns", lambda: 10**18)
        monkeypatch.setattr("platform.node", lambda: "host")
        (tmp_path / "tensorboard").mkdir()
        name = f"events.out.tfevents.1000000000.000000000.host.{os.getpid()}"
        (tmp_path / "tensorboard" / name).symlink_to(outside / "file")
    notes: list[str] = []
    board = Board(tmp_path, notes.append)
    board.update([{"step": 0, "loss": 1.0}])
    board.close()
    assert len(notes) == 1
    assert "training continues without it" in notes[0]


@pytest.fixture
def swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a finished sweep of two runs; others train in this process too."""
    monkeypatch.setattr(sweeping, "parse_engine", lambda *_, **__: InlineEngine)
    settings = {name: value for name, value in SMALL.items() if name != "blocks"}
    assert len(sweep("linear-regression", {"blocks": [1, 2]}, tmp_path / "s", **settings).rows) == 2
    return tmp_path / "s"


@pytest.mark.parametrize("place", ["sweep.json", "sweep.csv", "blocks=2", "blocks=2/seed-0"])
def test_a_sweep_follows_no_link(place: str, swept: Path, tmp_path: Path, checks: None) -> None:
    link, target = swept / place, tmp_path / "target"
    link.rename(target)
    link.symlink_to(target)
    before = read_files(target)
    settings = {name: value for name, value in SMALL.items() if name != "blocks"}
    if place == "sweep.csv" and not link.is_symlink():
        sweep("linear-regression", {"blocks": [1, 2]}, swept, **settings)
        assert not os.path.islink(link), "a link that was not seen is replaced"
    elif place.endswith(("json", "csv")):
        with pytest.raises(FileError, match="is a link"):
            sweep("linear-regression", {"blocks": [1, 2]}, swept, **settings)
    else:
        runs = survey_sweep(read_sweep(swept))["runs"]
        (run,) = [run for run in runs if run["state"] == "damaged"]
        assert run["point"] == {"blocks": 2}
        assert "is a link" in run["remark"]
        result = sweep("linear-regression", {"blocks": [1, 2]}, swept, **settings)
        assert [row["blocks"] for row in result.rows] == [1]
        assert ["is a link" in reason for reason in result.failures.values()] == [True]
    assert read_files(target) == before


def test_a_folder_that_is_swapped_during_a_sweep_is_not_followed(
    swept: Path, tmp_path: Path
) -> None:
    """A worker is sent a folder that becomes a link before the worker opens it."""
    folder, target = swept / "blocks=3", tmp_path / "target"
    target.mkdir()
    folder.symlink_to(target)
    answer = train_run("linear-regression", SMALL, 0, str(folder / "seed-0"))
    assert "blocks=3 is a link" in answer
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_cell_is_neither_read_nor_written_through_a_link(
    depth: int, tmp_path: Path, checks: None
) -> None:
    """A link in place of the file, of the folder of its claim, or of the folder of its preset."""
    notices: list[str] = []
    store = Store(tmp_path / "cells", notices.append)
    cell, finished = Cell("toy.claim", "quick", 0, {}), finish_cell({"a": 1}, 0.1, {})
    store.write(cell, finished)
    path = [store.path(cell), *store.path(cell).parents][depth]
    path.rename(tmp_path / "elsewhere")
    before = (tmp_path / "elsewhere").stat().st_mtime_ns
    path.symlink_to(tmp_path / "elsewhere")
    assert store.read(cell) is None
    assert "is a link" in notices[0]
    if os.path.islink(path) and depth == 0 and not path.is_symlink():
        store.write(cell, finish_cell({"a": 2}, 0.1, {}))  # replaces a link that it has not seen
        assert not os.path.islink(path)
    else:
        with pytest.raises(FileError, match="is a link"):
            store.write(cell, finish_cell({"a": 2}, 0.1, {}))
    assert (tmp_path / "elsewhere").stat().st_mtime_ns == before


def test_files_of_killed_writes_are_not_removed_through_a_link(tmp_path: Path) -> None:
    store, elsewhere = Store(tmp_path / "cells", pytest.fail), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".innerloop-1").write_bytes(b"")
    os.utime(elsewhere / ".innerloop-1", (0, 0))
    (tmp_path / "cells" / "quick").mkdir(parents=True)
    (tmp_path / "cells" / "quick" / "toy.claim").symlink_to(elsewhere)
    store.tidy()
    assert (elsewhere / ".innerloop-1").exists()


def test_a_figure_is_not_written_through_a_link(outside: Path, tmp_path: Path) -> None:
    chart = Chart({"mark": "point", "data": {"values": []}, "encoding": {}}, [])
    (tmp_path / "losses.svg").symlink_to(outside / "file")
    with pytest.raises(FileError, match="is a link"):
        write_figures(tmp_path, {"losses": chart})


def test_a_drawing_is_not_read_through_a_link(tmp_path: Path) -> None:
    spec = {"mark": "point", "data": {"values": []}, "encoding": {}}
    svg = Drawings(tmp_path).draw(spec)
    (path,) = tmp_path.glob("*.svg.z")
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    drawings = Drawings(tmp_path)
    assert drawings._read(path.name) is None
    assert drawings.draw(spec) == svg, "it is drawn again"


def test_notes_of_runs_elsewhere_are_not_read_through_a_link(tmp_path: Path, trained: Path) -> None:
    note_run(tmp_path / "runs", trained)
    assert len(list(load_finished_runs(tmp_path / "runs"))) == 1
    (note,) = tmp_path.glob("runs/elsewhere/*.json")
    note.rename(tmp_path / "note")
    note.symlink_to(tmp_path / "note")
    notices: list[str] = []
    assert not list(load_finished_runs(tmp_path / "runs", lambda *words: notices.append(words[1])))
    assert "is a link" in notices[0]


# Opening


def test_no_name_of_a_path_is_followed(outside: Path, tmp_path: Path, checks: None) -> None:
    (tmp_path / "folder").symlink_to(outside)
    (tmp_path / "link").symlink_to(outside / "file")
    (tmp_path / "nowhere").symlink_to(outside / "nothing")
    for path in ("folder/file", "link"):
        with pytest.raises(FileError, match=f"{path.partition('/')[0]} is a link"):
            read_file(tmp_path / path)
    for path in ("folder/file", "link", "nowhere"):
        with pytest.raises(FileError, match="is a link"):
            open_file(tmp_path / path, os.O_WRONLY | os.O_CREAT)
    for act in (make_folder, remove_file, lambda path: write_atomically(path, b"new")):
        with pytest.raises(FileError, match="folder is a link"):
            act(tmp_path / "folder" / "file")
    remove_file(tmp_path / "link")  # the link itself
    assert not os.path.lexists(tmp_path / "link")


def test_a_link_that_is_made_before_the_rename_is_replaced(
    outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_symlink", lambda path: False)
    os.symlink(outside / "file", tmp_path / "link")
    write_atomically(tmp_path / "link", b"new")
    assert not os.path.islink(tmp_path / "link")
    assert (tmp_path / "link").read_bytes() == b"new"


def test_what_is_not_a_file_is_refused_at_once(run_folder: Path) -> None:
    (run_folder / "history.csv").unlink()
    os.mkfifo(run_folder / "history.csv")
    (run_folder / "run.json").unlink()
    (run_folder / "run.json").mkdir()
    assert describe_folder(run_folder)["state"] == "damaged"
    with pytest.raises(FileError, match=r"history\.csv: it is not a file"):
        load_curves([run_folder])


def test_without_handles_links_are_looked_for(
    outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows, where a name cannot be relative to an open folder."""
    monkeypatch.setattr(links, "HAS_HANDLES", False)
    make_folder(tmp_path / "a" / "b")
    write_atomically(tmp_path / "a" / "b" / "c", b"data")
    assert read_file(tmp_path / "a" / "b" / "c") == b"data"
    remove_file(tmp_path / "a" / "b" / "c")
    assert not list((tmp_path / "a" / "b").iterdir())
    (tmp_path / "folder").symlink_to(outside)
    for act in (read_file, make_folder, remove_file, lambda path: write_atomically(path, b"new")):
        with pytest.raises(FileError, match="folder is a link"):
            act(tmp_path / "folder" / "file")


@pytest.mark.skipif(os.name != "posix", reason="names of files are Unicode on Windows")
def test_a_run_whose_folder_is_not_utf8_is_resumed_and_listed(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"run\xff")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    train(LinearRegressionRecipe, folder=folder, **SMALL)
    run = train(LinearRegressionRecipe, folder=folder, resume=True, **SMALL)
    assert run.final["step"] == 6
    assert describe_folder(folder)["state"] == "finished"
    assert [each["final"]["step"] for each in load_finished_runs(tmp_path)] == [6]


@pytest.mark.skipif(os.name != "posix", reason="names of files are Unicode on Windows")
def test_commands_take_a_run_whose_folder_is_not_utf8(run, tmp_path: Path) -> None:
    folder, results = (tmp_path / os.fsdecode(name) for name in (b"run\xff", b"results\xfe"))
    try:
        results.mkdir()
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    train(LinearRegressionRecipe, folder=folder / "seed-0", **SMALL)
    for words in (
        ("train", str(folder), "--resume", "-s", "steps=8", "--results", str(results)),
        ("identify", str(folder), "--candidate", "ridge", "--prompts", "8"),
        ("runs", "--results", str(results)),
    ):
        outcome = run(*words)
        assert outcome.code == 0, (words, outcome.err)
    assert "8 of 8" in outcome.out
