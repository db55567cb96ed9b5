"""Links inside folders of runs, sweeps, cells and figures are refused, never followed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from innerloop.errors import FileError
from innerloop.files import write_atomically
from innerloop.ledger.store import Cell, Store, finish_cell
from innerloop.recipes.base import train
from innerloop.recipes.linear_regression import LinearRegressionRecipe
from innerloop.recipes.listing import describe_folder
from innerloop.recipes.runs import find_model, load_finished_runs
from innerloop.recipes.sweeps import Sweep, read_sweep
from innerloop.report.export import write_figures
from innerloop.report.page import Chart

SMALL: dict[str, Any] = {"d": 2, "n": 4, "blocks": 1, "batch": 8, "steps": 6, "evaluate_every": 2}
PRECIOUS = b"somebody else's file"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file outside the folder that the link points out of."""
    path = tmp_path / "outside"
    path.write_bytes(PRECIOUS)
    return path


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """The folder of a finished run."""
    train(LinearRegressionRecipe, folder=tmp_path / "run", **SMALL)
    return tmp_path / "run"


@pytest.mark.parametrize(
    "name",
    [".lock", "history.csv", "run.json", "model.safetensors", "checkpoint.safetensors", "extra"],
)
def test_resume_refuses_a_link_and_leaves_its_target(
    name: str, run_folder: Path, outside: Path
) -> None:
    (run_folder / name).unlink(missing_ok=True)
    (run_folder / name).symlink_to(outside)
    with pytest.raises(FileError, match=f"{name} is a link"):
        train(LinearRegressionRecipe, folder=run_folder, resume=True, **{**SMALL, "steps": 8})
    assert outside.read_bytes() == PRECIOUS
    assert describe_folder(run_folder)["state"] == "damaged"
    assert list(load_finished_runs(run_folder.parent)) == []


def test_a_link_that_leads_nowhere_is_refused_too(run_folder: Path, tmp_path: Path) -> None:
    (run_folder / "history.csv").unlink()
    (run_folder / "history.csv").symlink_to(tmp_path / "new")
    with pytest.raises(FileError, match=r"history\.csv is a link"):
        train(LinearRegressionRecipe, folder=run_folder, resume=True, **SMALL)
    assert not (tmp_path / "new").exists()


def test_a_lock_that_has_another_name_elsewhere_is_refused(run_folder: Path, outside: Path) -> None:
    (run_folder / ".lock").unlink()
    os.link(outside, run_folder / ".lock")
    with pytest.raises(FileError, match="not a file of this folder alone"):
        train(LinearRegressionRecipe, folder=run_folder, resume=True, **SMALL)
    assert outside.read_bytes() == PRECIOUS


def test_a_model_is_not_read_through_a_link_but_a_named_link_is_followed(
    run_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "named").symlink_to(run_folder)
    assert find_model(tmp_path / "named") == tmp_path / "named" / "model.safetensors"
    (run_folder / "model.safetensors").rename(tmp_path / "elsewhere")
    (run_folder / "model.safetensors").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileError, match="is a link"):
        find_model(run_folder)


@pytest.mark.parametrize("place", ["sweep.json", "d=2", "d=2/seed-0"])
def test_a_sweep_refuses_a_link(place: str, tmp_path: Path, outside: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", "linear-attention", {}, {"d": [2]}, [0])
    sweep.write()
    link = sweep.folder / place
    link.parent.mkdir(exist_ok=True)
    target = tmp_path / "target"
    target.mkdir()
    if place == "sweep.json":
        target = link.rename(outside)
    before = target.read_bytes() if target.is_file() else b""
    link.symlink_to(target)
    for read in (sweep.write, lambda: read_sweep(sweep.folder)):
        with pytest.raises(FileError, match="is a link"):
            read()
    assert (target.read_bytes() if target.is_file() else b"") == before


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_cell_is_neither_read_nor_written_through_a_link(depth: int, tmp_path: Path) -> None:
    """A link in place of the file, of the folder of its claim, or of the folder of its preset."""
    notices: list[str] = []
    store = Store(tmp_path / "cells", notices.append)
    cell, finished = Cell("toy.claim", "quick", 0, {}), finish_cell({"a": 1}, 0.1, {})
    store.write(cell, finished)
    path = [store.path(cell), *store.path(cell).parents][depth]
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert store.read(cell) is None
    assert "is a link" in notices[0]
    with pytest.raises(FileError, match="is a link"):
        store.write(cell, finish_cell({"a": 2}, 0.1, {}))
    path.unlink()
    (tmp_path / "elsewhere").rename(path)
    restored = store.read(cell)
    assert restored is not None
    assert restored.found == {"a": 1}


def test_a_figure_is_not_written_through_a_link(tmp_path: Path, outside: Path) -> None:
    chart = Chart({"mark": "point", "data": {"values": []}, "encoding": {}}, [])
    (tmp_path / "losses.svg").symlink_to(outside)
    with pytest.raises(FileError, match="is a link"):
        write_figures(tmp_path, {"losses": chart})
    assert outside.read_bytes() == PRECIOUS


def test_a_file_is_not_written_through_a_link(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "link").symlink_to(outside)
    with pytest.raises(FileError, match="is a link"):
        write_atomically(tmp_path / "link", b"new")
    assert outside.read_bytes() == PRECIOUS


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
