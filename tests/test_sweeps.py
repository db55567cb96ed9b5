"""Sweeps: the same table on every engine, however often they are stopped."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import pytest

from innerloop.errors import FileError, InputError
from innerloop.ledger import sweeping
from innerloop.ledger.processes import EngineLostError, WorkerDeathError
from innerloop.ledger.sweeping import sweep, train_run
from innerloop.recipes.base import train
from innerloop.recipes.sweeps import Sweep, SweepResult, name_point, read_sweep
from innerloop.training.folder import open_folder

SMALL: dict[str, Any] = {"d": 2, "n": 4, "batch": 8, "steps": 4, "evaluate_every": 2}
GRID: dict[str, list[Any]] = {"learning_rate": [0.01, 0.001], "blocks": [1, 2]}


class InlineEngine:
    """Runs in this process, one after another; `deaths` of the first runs kill their worker."""

    slots, max_deaths = 1, 3

    def __init__(self, deaths: int = 0, lost: bool = False) -> None:
        self.deaths, self.lost = deaths, lost
        self.folders: list[str] = []

    def submit(self, *work: Any) -> Future[str]:
        future: Future[str] = Future()
        self.folders.append(work[3])
        if self.deaths:
            self.deaths -= 1
            future.set_exception(WorkerDeathError("gone"))
        else:
            future.set_result(train_run(*work))
        return future

    def is_worker_death(self, error: BaseException) -> bool:
        return isinstance(error, WorkerDeathError)

    def check_health(self, error: BaseException | None = None) -> str:
        if self.lost and self.folders[1:]:
            raise EngineLostError("the cluster is gone")
        return ""

    def close(self) -> None: ...


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> Callable[..., InlineEngine]:
    def use(*options: Any, **named: Any) -> InlineEngine:
        engine = InlineEngine(*options, **named)
        monkeypatch.setattr(sweeping, "parse_engine", lambda *_, **__: lambda: engine)
        return engine

    return use


def run_small(folder: Path, **options: Any) -> SweepResult:
    return sweep("linear-regression", GRID, folder, **{**SMALL, **options})


def test_a_sweep_trains_every_combination_and_names_the_best(inline: Any, tmp_path: Path) -> None:
    inline()
    result = run_small(tmp_path, seeds=2, seed=5)
    points = [(r["learning_rate"], r["blocks"], r["seed"]) for r in result.rows]
    assert points == [(a, b, s) for a in (0.01, 0.001) for b in (1, 2) for s in (5, 6)]
    single = train("linear-regression", seed=6, learning_rate=0.001, blocks=2, **SMALL)
    assert result.rows[-1]["loss"] == single.final["loss"]
    best = min(result.rows, key=lambda row: row["loss"])
    assert result.best is not None
    assert result.best["folder"].startswith(str(tmp_path / name_point({k: best[k] for k in GRID})))
    table = list(csv.DictReader((tmp_path / "sweep.csv").read_text().splitlines()))
    assert [float(row["loss"]) for row in table] == [row["loss"] for row in result.rows]
    frame = result.to_frame()
    assert list(frame.columns)[:5] == ["learning_rate", "blocks", "seed", "ended", "step"]
    assert read_sweep(tmp_path).as_dict() == result.sweep.as_dict()
    assert [row["runs"] for row in result.summarise()] == [2, 2, 2, 2]


def test_finished_runs_are_kept_and_values_may_be_added(inline: Any, tmp_path: Path) -> None:
    first = inline()
    run_small(tmp_path)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("model.safetensors")}
    again = inline()
    notes: list[str] = []
    wider = {**GRID, "blocks": [1, 2, 3]}
    result = sweep("linear-regression", wider, tmp_path, notice=notes.append, **SMALL)
    assert (len(first.folders), len(again.folders), len(result.rows)) == (4, 2, 6)
    assert notes == ["4 of 6 runs are finished already and kept"]
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())
    with pytest.raises(FileError, match="d is 2 there, 3 here"):
        run_small(tmp_path, d=3)
    with pytest.raises(FileError, match="is a sweep over learning_rate, blocks: pass the same"):
        sweep("linear-regression", {"heads": [1]}, tmp_path, **SMALL)


def test_what_a_lost_worker_ran_is_run_again(inline: Any, tmp_path: Path) -> None:
    inline()
    whole = run_small(tmp_path / "whole")
    notes: list[str] = []
    engine = inline(deaths=2)
    found = run_small(tmp_path / "lost", notice=notes.append)
    assert len(engine.folders) == 6
    assert found.rows == whole.rows
    assert sum("a worker died, it will run again" in note for note in notes) == 2
    inline(deaths=100)
    failed = run_small(tmp_path / "hopeless")
    assert not failed.rows
    assert set(failed.failures.values()) == {"its workers died (is there enough memory?)"}
    inline(lost=True)
    with pytest.raises(InputError, match="the cluster is gone; finished runs are stored"):
        run_small(tmp_path / "gone")


def test_divergence_is_a_row_and_is_not_tried_again(inline: Any, tmp_path: Path) -> None:
    inline()
    grid = {"learning_rate": [1e30, 0.01]}
    options = {**SMALL, "clip": None}
    result = sweep("linear-regression", grid, tmp_path, **options)
    assert [row["ended"] for row in result.rows] == ["diverged", "steps"]
    assert result.best is not None
    assert result.best["learning_rate"] == 0.01
    engine = inline()
    assert sweep("linear-regression", grid, tmp_path, **options).rows == result.rows
    assert not engine.folders


def sweep_in_child(folder: Path) -> None:
    sweeping.parse_engine = lambda *_, **__: InlineEngine  # pyright: ignore
    run_small(folder, steps=60)
    os._exit(0)


def test_a_sweep_killed_twice_ends_with_the_table_of_one_never_killed(
    inline: Any, tmp_path: Path
) -> None:
    inline()
    run_small(tmp_path / "whole", steps=60)
    folder, context = tmp_path / "killed", multiprocessing.get_context("fork")
    for finished in (1, 3):
        process = context.Process(target=sweep_in_child, args=(folder,))
        process.start()
        while len(list(folder.rglob("model.safetensors"))) < finished and process.is_alive():
            time.sleep(0.002)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
    inline()
    run_small(folder, steps=60)
    tables = [(tmp_path / name / "sweep.csv").read_bytes() for name in ("whole", "killed")]
    assert tables[0] == tables[1]


def test_processes_and_a_dask_cluster_give_the_same_table(run: Any, tmp_path: Path) -> None:
    from distributed import LocalCluster

    words = [word for key, value in SMALL.items() for word in ("-s", f"{key}={value}")]
    words += ["--grid", "learning_rate=1e-2,1e-3", "--seeds", "2"]
    here = run("train", "linear-regression", *words, "--workers", "2", "-o", str(tmp_path / "a"))
    assert here.code == 0, here.err
    options: dict[str, Any] = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    options["dashboard_address"] = None
    with LocalCluster(protocol="tcp://", host="127.0.0.1", **options) as cluster:
        engine = f"dask:{cast(Any, cluster).scheduler_address}"
        there = run(
            "train", "linear-regression", *words, "--engine", engine, "-o", str(tmp_path / "b")
        )
    assert there.code == 0, there.err
    assert (tmp_path / "a" / "sweep.csv").read_bytes() == (
        tmp_path / "b" / "sweep.csv"
    ).read_bytes()
    assert "best run: " in there.out
    found = run("identify", str(tmp_path / "b"), "--prompts", "16", "--steps", "3", "--json")
    assert found.code == 0, found.err
    assert [row["learning_rate"] for row in json.loads(found.out)["rows"]] == [0.01] * 2 + [
        0.001
    ] * 2
    drawn = run("plot", str(tmp_path / "b"), "-o", str(tmp_path / "b.svg"), "--json")
    assert {r["group"] for r in json.loads(drawn.out)["runs"]} == {
        "learning_rate=0.01",
        "learning_rate=0.001",
    }


def test_a_grid_that_makes_no_sense_is_one_line(run: Any, tmp_path: Path) -> None:
    for words, message in (
        (["--grid", "blocks"], "expected key=value,value, got 'blocks'"),
        (["--grid", "blcks=1"], "did you mean 'blocks'?"),
        (["--grid", "blocks=1,x"], "blocks must be a whole number, got 'x'"),
        (["--grid", "blocks=1,1"], "the grid has a value of blocks twice"),
        (["--grid", "blocks=1", "--grid", "blocks=2"], "blocks is repeated"),
        (["--grid", "blocks=1,0"], "blocks must be at least 1, got 0"),
        (["--grid", "blocks=1", "-s", "blocks=2"], "blocks is set and in the grid"),
        (["--workers", "2"], "--workers and --engine apply to sweeps"),
        (["--grid", "blocks=1", "--engine", "dusk"], "engine must be local or dask:ADDRESS"),
    ):
        refused = run("train", "linear-regression", *words, "-o", str(tmp_path / "no"))
        assert refused.code == 2, words
        assert message in refused.err
        assert refused.err.count("\n") == 1
    assert not (tmp_path / "no").exists()
    message = json.loads(train_run("linear-regression", {}, 0, str(tmp_path / "a" / "b" / "c")))
    assert "does not see" in message["error"]
    assert len(name_point({"growth": [1, 2], "name": "x/y"})) == 16
    with pytest.raises(InputError, match="a sweep has 1 to"):
        Sweep(tmp_path, "linear-regression", {}, {}, [])


def test_a_file_of_a_sweep_imports_nothing(run: Any, tmp_path: Path) -> None:
    code, trace, folder = tmp_path / "own.py", tmp_path / "trace", tmp_path / "sweep"
    code.write_text(f"open({str(trace)!r}, 'w').close()\nready = None\n")
    folder.mkdir()
    about = {"recipe": f"{code}:ready", "settings": {}, "grid": {"blocks": [1]}, "seeds": [0]}
    (folder / "sweep.json").write_text(json.dumps(about))
    (folder / "blocks=1" / "seed-0").mkdir(parents=True)
    refused = run("identify", str(folder))
    assert refused.code == 2
    assert f"a user-defined recipe: pass --definition {code}:ready" in refused.err
    with pytest.raises(FileError, match=r"recipe is .* there"):
        sweep("linear-regression", {"blocks": [1]}, folder, **SMALL)
    assert not trace.exists()


def test_other_values_and_seeds_do_not_drop_earlier_runs(inline: Any, tmp_path: Path) -> None:
    inline()
    sweep("linear-regression", {"blocks": [1]}, tmp_path, **SMALL)
    engine = inline()
    result = sweep("linear-regression", {"blocks": [2]}, tmp_path, seed=1, **SMALL)
    assert len(engine.folders) == 1, "combinations that nobody asked for are not run"
    assert [(row["blocks"], row["seed"]) for row in result.rows] == [(1, 0), (2, 1)]
    table = list(csv.DictReader((tmp_path / "sweep.csv").read_text().splitlines()))
    assert [row["blocks"] for row in table] == ["1", "2"]
    found = read_sweep(tmp_path)
    assert (found.grid, found.seeds) == ({"blocks": [1, 2]}, [0, 1])


def test_a_damaged_file_of_a_sweep_is_named(tmp_path: Path) -> None:
    good = {"recipe": "linear-regression", "settings": {}, "grid": {"blocks": [1]}, "seeds": [0]}
    for bad, message in (
        ({"grid": {"blocks": 3}}, "its values of 'blocks' must be a list, got 3"),
        ({"grid": {"blocks": []}}, "the grid has no values of blocks"),
        ({"seeds": ["../x"]}, "its seeds must be whole numbers"),
        ({"recipe": None}, "its recipe must be of type str"),
        ({"grid": {str(k): list(range(100)) for k in range(50)}}, "a sweep has 1 to"),
    ):
        (tmp_path / "sweep.json").write_text(json.dumps({**good, **bad}))
        with pytest.raises(FileError, match=f"sweep.json is damaged: {message}"):
            read_sweep(tmp_path)


def test_a_busy_folder_is_waited_for_and_is_no_death(
    inline: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(sweeping.time, "sleep", waited.append)
    engine, notes = inline(deaths=2), list[str]()
    with open_folder(tmp_path / "blocks=1" / "seed-0", False, notes.append):
        result = sweep("linear-regression", {"blocks": [1]}, tmp_path, **SMALL)
    (reason,) = result.failures.values()
    assert "another training is in progress" in reason
    assert len(engine.folders) == 2 + sweeping.MAX_BUSY
    assert waited.count(sweeping.SECONDS_WHEN_BUSY) == sweeping.MAX_BUSY


def test_options_that_a_sweep_would_ignore_are_refused(run: Any, tmp_path: Path) -> None:
    for words, message in (
        (["--resume"], "--resume and --tensorboard apply to single runs"),
        (["--tensorboard"], "--resume and --tensorboard apply to single runs"),
        (["--threads", "2"], "leave --threads out"),
    ):
        place = ["-o", str(tmp_path / "no"), "--results", str(tmp_path / "results")]
        refused = run("train", "linear-regression", "--grid", "blocks=1", *words, *place)
        assert refused.code == 2
        assert message in refused.err
    assert not list(tmp_path.iterdir()), "not even a note"
    (tmp_path / "sweep.json").write_text("{}")
    for words in ([str(tmp_path)], ["linear-regression", "-o", str(tmp_path)]):
        refused = run("train", *words, "--resume")
        assert refused.code == 2
        assert f"{tmp_path} contains a sweep; to continue it, repeat the command" in refused.err
    refused = run("identify", str(tmp_path), "-s", "d=2")
    assert refused.code == 2
    assert "--problem, -s, --figure, --inside and --discriminate take one run" in refused.err


def test_a_recipe_of_ones_own_is_given_to_read_its_sweep(inline: Any, tmp_path: Path) -> None:
    inline()
    base = "from innerloop.recipes.linear_regression import LinearRegressionRecipe as Base"
    (tmp_path / "own.py").write_text(f"{base}\nclass Mine(Base): pass\n")
    name, folder = f"{tmp_path / 'own.py'}:Mine", tmp_path / "sweep"
    result = sweep(name, {"blocks": [1]}, folder, **SMALL)
    assert result.rows
    assert SweepResult.read(read_sweep(folder, name)).rows == result.rows
    assert sweep(name, {"blocks": [1]}, folder, **SMALL).rows == result.rows
