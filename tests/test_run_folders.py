"""The folder of a run: one training at a time, always resumable, nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from innerloop import files
from innerloop.errors import FileError
from innerloop.recipes.base import load, train
from innerloop.recipes.linear_regression import LinearRegressionRecipe
from innerloop.training import checkpoint

SMALL: dict[str, Any] = {"d": 2, "n": 4, "blocks": 1, "batch": 8, "steps": 6, "evaluate_every": 2}


class Stop(Exception):
    """Raised by a progress callback to leave a training in the middle."""


def stop_at(step: int) -> Callable[..., None]:
    def stop(share: float, doing: str = "") -> None:
        if round(share * SMALL["steps"]) >= step:
            raise Stop

    return stop


def train_small(folder: Path, **options: Any) -> Any:
    return train(LinearRegressionRecipe, folder=folder, **{**SMALL, **options})


def hold_folder(folder: Path, channel: Any) -> None:
    """Train until the parent says otherwise, or for ever."""

    def wait(share: float, doing: str = "") -> None:
        channel.send(os.getpid())
        channel.recv()

    train_small(folder, progress=wait)


@pytest.fixture
def training_process(tmp_path: Path) -> Any:
    """A process that is training into the folder `run`, and that folder."""
    train_small(tmp_path / "first")  # loads what both processes then have
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=hold_folder, args=(tmp_path / "run", theirs))
    process.start()
    ours.recv()
    yield process, tmp_path / "run"
    process.kill()
    process.join()


def test_a_second_training_of_a_folder_is_refused_until_the_first_is_gone(
    training_process: Any,
) -> None:
    process, folder = training_process
    for resume in (False, True):
        with pytest.raises(FileError, match=f"in progress in .*process {process.pid}"):
            train_small(folder, resume=resume)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert train_small(folder, resume=True).step == 6


def test_a_second_training_in_another_thread_is_refused_too(tmp_path: Path) -> None:
    errors: list[Exception] = []

    def try_again() -> None:
        try:
            train_small(tmp_path, resume=True)
        except FileError as error:
            errors.append(error)

    def progress(share: float, doing: str = "") -> None:
        if not errors:
            thread = threading.Thread(target=try_again)
            thread.start()
            thread.join()

    train_small(tmp_path, progress=progress)
    assert f"process {os.getpid()}" in str(errors[0])
    names = {"run.json", "checkpoint.safetensors", "history.csv", "model.safetensors", ".lock"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_a_fork_of_a_training_does_not_keep_its_lock(tmp_path: Path) -> None:
    """A child that outlives a killed training would otherwise lock the folder for ever."""
    children: list[Any] = []
    context = multiprocessing.get_context("fork")
    ready, theirs = context.Pipe()

    def linger(channel: Any) -> None:
        channel.send("up")
        channel.recv()

    def progress(share: float, doing: str = "") -> None:
        children.append(context.Process(target=linger, args=(theirs,), daemon=True))
        children[0].start()
        ready.recv()
        handle = next(iter(folder._handles))
        os.close(handle)  # as the system does with what a killed process had open
        folder._handles.remove(handle)
        raise Stop

    from innerloop.training import folder

    try:
        with pytest.raises(Stop):
            train_small(tmp_path, progress=progress)
        assert children[0].is_alive()
        assert train_small(tmp_path, resume=True).step == 6
    finally:
        ready.send("done")
        children[0].join()


def test_without_locks_a_notice_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from innerloop.training import folder

    monkeypatch.setattr(folder, "_find_lock_module", lambda: None)
    notes: list[str] = []
    train_small(tmp_path, notice=notes.append)
    (note,) = notes
    assert "cannot be locked (this platform has no file locks)" in note


def test_windows_locks_a_byte_that_nobody_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from innerloop.training import folder

    calls: list[tuple[int, int, int]] = []

    def locking(handle: int, mode: int, count: int) -> None:
        calls.append((os.lseek(handle, 0, os.SEEK_CUR), mode, count))

    module = types.SimpleNamespace(__name__="msvcrt", locking=locking, LK_NBLCK=2, LK_UNLCK=0)
    monkeypatch.setattr(folder, "_find_lock_module", lambda: module)
    train_small(tmp_path)
    assert calls == [(1 << 30, 2, 1), (1 << 30, 0, 1)]
    assert (tmp_path / ".lock").read_text() == str(os.getpid())


def test_resume_starts_a_run_where_there_is_none(run: Any, tmp_path: Path) -> None:
    words = [word for key, value in SMALL.items() for word in ("-s", f"{key}={value}")]
    command = ("train", "linear-regression", *words, "-o", str(tmp_path / "new"), "--resume")
    first, second = run(*command), run(*command)
    assert first.code == second.code == 0, first.err + second.err
    assert "there is no run to resume" in first.err
    assert first.err.count("\n") == 1
    assert second.err == ""


def test_a_run_killed_in_its_first_step_is_resumed(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        train_small(tmp_path / "run", progress=stop_at(1))
    _, state = checkpoint.read(tmp_path / "run" / "checkpoint.safetensors")
    assert state["step"] == 0
    notes: list[str] = []
    again = train_small(tmp_path / "run", resume=True, notice=notes.append)
    whole = train_small(tmp_path / "whole")
    assert not notes
    for name, weight in whole.model.state_dict().items():
        assert weight.equal(again.model.state_dict()[name]), name


def test_a_finished_model_is_not_trained_over(tmp_path: Path) -> None:
    train_small(tmp_path)
    (tmp_path / "checkpoint.safetensors").unlink()
    before = (tmp_path / "model.safetensors").read_bytes()
    for resume in (False, True):
        with pytest.raises(FileError, match="contains a"):
            train_small(tmp_path, resume=resume)
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_what_killed_writes_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".innerloop-abc").write_bytes(b"half")
    (tmp_path / "mine.txt").write_text("kept")
    train_small(tmp_path)
    assert not list(tmp_path.glob(".innerloop-*"))
    assert (tmp_path / "mine.txt").exists()


def test_an_interrupted_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        files.write_atomically(tmp_path / "a", b"1")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot open a folder")
def test_a_folder_is_flushed_after_a_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    fsync, replace = os.fsync, os.replace

    def flush(handle: int) -> None:
        order.append("folder" if os.path.isdir(f"/proc/self/fd/{handle}") else "file")
        fsync(handle)

    def rename(*names: Any, **folders: Any) -> None:
        order.append("rename")
        replace(*names, **folders)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "replace", rename)
    files.write_atomically(tmp_path / "a", b"1")
    assert order == ["file", "rename", "folder"]

    def refuse(handle: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    files.write_atomically(tmp_path / "a", b"2")
    assert (tmp_path / "a").read_bytes() == b"2"


def test_a_disk_that_is_full_at_the_start_is_noticed_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fill)
    steps: list[float] = []
    with pytest.raises(FileError, match="No space left on device"):
        train_small(tmp_path / "run", progress=lambda share, doing="": steps.append(share))
    assert not steps
    monkeypatch.undo()
    assert {path.name for path in (tmp_path / "run").iterdir()} == {".lock"}
    assert train_small(tmp_path / "run", resume=False).step == 6


@pytest.mark.parametrize("name", ["n" * 256, "é" * 200, "a\0b"])
def test_names_that_no_file_system_takes_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileError, match="cannot make"):
        train_small(tmp_path / name)


def test_a_long_name_of_a_recipe_still_names_a_folder() -> None:
    class Long(LinearRegressionRecipe):
        name = "é" * 300  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]

    assert len(Long(d=3).name_folder(Path()).name.encode()) < 255
    plain = LinearRegressionRecipe(d=3).name_folder(Path()).name
    assert plain.startswith("linear-regression-")


def test_a_model_file_is_written_after_its_checkpoint(tmp_path: Path) -> None:
    train_small(tmp_path)
    assert load(tmp_path / "model.safetensors")[2]["final"]["step"] == 6
