"""Runs of claims as they really happen: killed, damaged, crowded, out of disk, on a cluster.

The claims are toys. What a run leaves is compared byte for byte, times aside, with what a run
leaves that nothing happened to.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import psutil
import pytest
import toys
from forked import ForkedCommand

import innerloop
from innerloop.claims import loading, recorded
from innerloop.claims.base import Preset
from innerloop.claims.loading import load_claim_entries
from innerloop.errors import InputError
from innerloop.files import write_atomically
from innerloop.ledger import checking, code, engines
from innerloop.ledger import run as running
from innerloop.ledger import store as storing
from innerloop.ledger.engines import Engine, ProcessEngine
from innerloop.ledger.run import Outcome, Run
from innerloop.ledger.store import Store

HERE = Path(__file__).parent
TOYS = ["toy.one", "toy.two", "toy.three"]


@dataclass
class Ledger:
    """Runs of the toy claims in one folder, and the messages that they sent."""

    folder: Path
    messages: list[str] = field(default_factory=list)

    def check(
        self,
        ids: Sequence[str] = TOYS,
        *,
        workers: int = 2,
        engine: Callable[[], Engine] | None = None,
        preset: Preset = "quick",
        fuller: bool = False,
        **rest: Any,
    ) -> list[Outcome]:
        store = Store(self.folder, self.messages.append)
        start = engine or (lambda: ProcessEngine(workers))
        self.run = Run(store, start, notice=self.messages.append, **rest)
        return self.run.check(ids, preset, fuller=fuller)

    def fork_command(self, *words: str) -> ForkedCommand:
        """Start the command line in a fork of this process, which has imported all it needs."""
        words = ("check", *words, "--json", "--results", str(self.folder.parent))
        return ForkedCommand(self.folder.parent / "printed", use_toys, *words)

    def start_command(self, *words: str) -> subprocess.Popen[str]:
        """Start the command line in a new process, as a shell does."""
        command = [sys.executable, str(HERE / "toy_command.py"), "check", *words, "--json"]
        command += ["--results", str(self.folder.parent)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def use_toys() -> None:
    """Let the command line find the toys for claims."""
    for module in (loading, checking, running):
        setattr(module, "load_claims", lambda: toys.CLAIMS)  # noqa: B010


@pytest.fixture(autouse=True)
def toy_claims(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "run" not in request.fixturenames:
        monkeypatch.setattr(running, "load_claims", lambda: toys.CLAIMS)


@pytest.fixture(scope="module", autouse=True)
def worker_environment() -> Iterator[None]:
    """Let workers find the toys, and give each one thread."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("PYTHONPATH", f"{HERE}{os.pathsep}{HERE.parent}")
        yield


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "cells")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, notes: Path) -> Ledger:
    """Run the toys with one worker and without any disturbance."""
    ledger = Ledger(tmp_path_factory.mktemp("undisturbed") / "cells")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "load_claims", lambda: toys.CLAIMS)
        found = ledger.check(workers=1)
    assert [outcome.verdict for outcome in found] == ["holds"] * 3
    assert not ledger.messages
    return ledger


def read_cells(cells: Path) -> dict[str, Any]:
    """Read every file of a folder as a cell, without its times; a file that is none fails."""
    found = {}
    for path in sorted(path for path in cells.rglob("*") if path.is_file()):
        content = json.loads(path.read_text("utf-8"))["content"]
        del content["made"], content["seconds"]
        found[str(path.relative_to(cells))] = content
    return found


def count_cells(cells: Path) -> int:
    """Count the stored cells, while others may be being written."""
    return sum(1 for _ in cells.rglob("*.json"))


def have_ended(processes: list[psutil.Process], patience: float = 10.0) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=patience)
    return not [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def list_descendants(process: subprocess.Popen[str] | ForkedCommand) -> list[psutil.Process]:
    """List the descendants of a process that still run; none once it has ended."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def wait_until(condition: Any, patience: float = 60.0, pause: float = 0.02) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(pause)


def test_the_same_numbers_with_any_number_of_workers(undisturbed: Ledger, ledger: Ledger) -> None:
    ledger.check(workers=3)
    assert read_cells(ledger.folder) == read_cells(undisturbed.folder)
    assert len(read_cells(ledger.folder)) == 8
    ledger.check(["toy.one"], seed=1)
    values = {content["found"]["numbers"]["value"] for content in select_cells("toy.one", ledger)}
    assert len(values) == 2, "another seed, other numbers"


def select_cells(claim: str, ledger: Ledger) -> list[dict[str, Any]]:
    found = read_cells(ledger.folder).values()
    return [content for content in found if content["cell"]["claim"] == claim]


def test_a_cell_says_how_it_was_made(undisturbed: Ledger) -> None:
    (content,) = select_cells("toy.one", undisturbed)
    assert content["cell"] == {
        "claim": "toy.one",
        "preset": "quick",
        "seed": 0,
        "settings": {"pause": 0.1},
    }
    assert content["command"] == "innerloop check toy.one --preset quick --fresh"
    assert {"innerloop", "torch", "numpy", "python"} <= content["versions"].keys()


def test_killed_at_any_moment_nothing_finished_is_lost(undisturbed: Ledger, ledger: Ledger) -> None:
    """Killed four times at random moments; what was finished stays, and the end is the same."""
    chance = random.Random(0)
    whole, seen = read_cells(undisturbed.folder), dict[str, Any]()
    for _ in range(4):
        process = ledger.fork_command("toy", "--workers", "2")
        before = len(seen)
        wait_until(
            lambda: len(list_descendants(process)) > 2 or process.poll() is not None,  # noqa: B023
            pause=0.2,  # to look through all processes takes time itself
        )
        if before < 6:
            time.sleep(chance.uniform(0.0, 0.6))
        workers = list_descendants(process)
        process.kill()
        process.communicate()
        assert have_ended(workers), "workers were left behind"
        for path in ledger.folder.rglob(".innerloop-*"):
            path.unlink()  # half-written, under a name that nobody reads
        now = read_cells(ledger.folder)
        assert seen.items() <= now.items(), "a finished cell was lost or changed"
        assert now.items() <= whole.items()
        seen = now
    ledger.check()
    assert read_cells(ledger.folder) == whole


def test_a_rerun_does_only_what_is_missing_or_changed(ledger: Ledger) -> None:
    ledger.check()
    files: dict[Path, int] = {}

    def list_rewritten(**rest: Any) -> list[str]:
        ledger.check(**rest)
        now = {path: path.stat().st_mtime_ns for path in ledger.folder.rglob("*.json")}
        changed = sorted(path.parent.name for path in now if now[path] != files.get(path))
        files.update(now)
        return changed

    everything = ["toy.one", *["toy.three"] * 6, "toy.two"]
    assert list_rewritten() == everything, "all are new to this test"
    assert not list_rewritten()
    next(path for path in files if path.parent.name == "toy.two").unlink()
    assert list_rewritten() == ["toy.two"]
    older = next(path for path in files if path.parent.name == "toy.three")
    file = json.loads(older.read_text("utf-8"))
    file["content"]["code"] = "that of last year"
    file["sha256"] = storing._compute_digest(file["content"])
    write_atomically(older, json.dumps(file).encode())
    assert list_rewritten() == ["toy.three"]
    assert ledger.messages == [
        "1 stored results are stale, 1 of them are run again now: all code changed"
    ]
    assert list_rewritten(fresh=True) == everything
    assert list_rewritten(preset="full") == everything
    assert {path.relative_to(ledger.folder).parts[0] for path in files} == {"quick", "full"}


def test_a_fuller_preset_is_taken_where_it_is_stored(ledger: Ledger) -> None:
    ledger.check(["toy.one"], preset="full")
    found = ledger.run.check(TOYS, "quick", fuller=True)
    assert [outcome.preset for outcome in found] == ["full", "quick", "quick"]
    found = ledger.run.check(TOYS, "quick")
    assert {outcome.preset for outcome in found} == {"quick"}


def wait_for_sleeper(notes: Path) -> int:
    """Wait until the sleeping toy runs, and return the id of its process."""
    log = notes / "pids"
    wait_until(lambda: log.exists() and log.read_text().endswith("\n"))
    return int(log.read_text().split()[0])


@pytest.fixture
def sleeper(notes: Path) -> Iterator[Path]:
    """Let the sleeping toy sleep the first time, and not when it runs again."""
    for name in ("pids", "go", "deaths"):
        (notes / name).unlink(missing_ok=True)
    yield notes
    (notes / "go").unlink(missing_ok=True)


def kill_sleeper(notes: Path) -> None:
    pid = wait_for_sleeper(notes)
    (notes / "go").touch()
    os.kill(pid, signal.SIGKILL)


def test_a_worker_that_is_killed_is_replaced(ledger: Ledger, sleeper: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        kill = pool.submit(kill_sleeper, sleeper)
        found = ledger.check(["slow.sleeps", *TOYS])
        kill.result()
    assert ledger.messages == ["a worker died while it ran slow.sleeps: it will run again"]
    assert {outcome.verdict for outcome in found} == {"holds"}


def test_an_idle_worker_that_died_is_replaced() -> None:
    engine = ProcessEngine(1)
    try:
        work = (toys.__name__, "toy.one", {"pause": 0.0}, 0)
        engine.submit(*work).result()
        (pid,) = [worker.process.pid for worker in engine._all]
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.5)
        assert "found" in json.loads(engine.submit(*work).result())
    finally:
        engine.close()


def test_what_breaks_is_told_and_the_rest_goes_on(
    undisturbed: Ledger, ledger: Ledger, sleeper: Path
) -> None:
    bad = ["bad.raises", "bad.nan", "bad.kills"]
    found = ledger.check([*bad, *TOYS])
    assert [outcome.state for outcome in found] == ["broken"] * 3 + ["checked"] * 3
    errors = {outcome.id: outcome.error for outcome in found}
    assert "RuntimeError: this check is broken" in errors["bad.raises"]
    assert "say in words" in errors["bad.nan"]
    assert "its worker died 3 times or more" in errors["bad.kills"]
    assert (sleeper / "deaths").read_text() == "xxx"
    assert read_cells(ledger.folder) == read_cells(undisturbed.folder), "what breaks leaves no file"


def test_other_code_on_a_worker_is_refused(ledger: Ledger, monkeypatch) -> None:
    monkeypatch.setattr(running, "digest_package", lambda: "ours")
    (found,) = ledger.check(["toy.one"])
    assert "another version of innerloop" in found.error
    assert not read_cells(ledger.folder)


def test_the_command_line_ends_as_documented(undisturbed: Ledger, ledger: Ledger) -> None:
    process = ledger.start_command("toy", "bad.raises")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "bad.raises broke: RuntimeError: this check is broken" in err
    assert "these checks raised an error: bad.raises" in err
    assert [outcome["verdict"] for outcome in json.loads(out)].count("holds") == 3
    assert read_cells(ledger.folder) == read_cells(undisturbed.folder)


def test_an_interrupt_stops_and_says_how_to_go_on(ledger: Ledger, sleeper: Path) -> None:
    process = ledger.fork_command("slow", "--workers", "1")
    wait_for_sleeper(sleeper)
    workers = list_descendants(process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "finished results are stored; run the same command to continue" in err
    assert "Traceback" not in err
    assert have_ended(workers)


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied", "swapped", "folder"])
def test_a_damaged_cell_is_made_again(undisturbed: Ledger, ledger: Ledger, damage: str) -> None:
    shutil.copytree(undisturbed.folder, ledger.folder)
    quick = ledger.folder / "quick"
    one, two = (next((quick / f"toy.{name}").iterdir()) for name in ("one", "two"))
    text = one.read_text("utf-8")
    at = text.index(".", text.index('"value":')) + 1
    damaged = {
        "cut": text[: len(text) // 2],
        "flipped": text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :],
        "emptied": "",
        "swapped": two.read_text("utf-8"),
    }
    if damage == "folder":
        one.unlink()
        one.mkdir()
    else:
        one.write_text(damaged[damage], "utf-8")
    found = ledger.check()
    assert any(f"{one.name} is damaged and will be made again" in text for text in ledger.messages)
    assert {outcome.verdict for outcome in found} == {"holds"}
    if damage == "folder":
        assert len(ledger.run.write_errors) == 1
    else:
        assert read_cells(ledger.folder) == read_cells(undisturbed.folder)


def test_two_runs_in_one_folder(undisturbed: Ledger, ledger: Ledger) -> None:
    process = ledger.fork_command("toy", "--workers", "1")
    wait_until(lambda: count_cells(ledger.folder) or process.poll() is not None)
    found = ledger.check(workers=1)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert {o["id"]: o["evidence"]["numbers"] for o in json.loads(out)} == {
        outcome.id: dict(outcome.evidence.numbers) for outcome in found if outcome.evidence
    }
    assert read_cells(ledger.folder) == read_cells(undisturbed.folder)


@pytest.fixture
def full_disk() -> Iterator[None]:
    """Make every write of more than a few bytes fail, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def assert_reported_though_not_stored(undisturbed: Ledger, ledger: Ledger) -> None:
    found = ledger.check()
    assert [message for message in ledger.messages if "cannot write" in message] == ledger.messages
    assert len(ledger.messages) == 1, "said once, not for every cell"
    assert len(ledger.run.write_errors) == 8
    (one,) = select_cells("toy.one", undisturbed)
    assert found[0].evidence
    assert found[0].evidence.numbers == one["found"]["numbers"]


def test_a_full_disk(undisturbed: Ledger, ledger: Ledger, full_disk: None) -> None:
    assert_reported_though_not_stored(undisturbed, ledger)
    assert not [path for path in ledger.folder.rglob("*") if path.is_file()]


def test_a_read_only_disk(undisturbed: Ledger) -> None:
    assert_reported_though_not_stored(undisturbed, Ledger(Path("/proc/sys/cells")))


def test_results_that_cannot_be_kept_end_with_2(run, monkeypatch) -> None:
    place = ("--results", "/proc/sys/cells")
    found = run("check", "ahn2023.lemma-2", *place, "--workers", "1", "--fresh")
    assert found.code == 2
    assert "ahn2023.lemma-2   holds" in found.out
    assert "1 results could not be stored" in found.err


def test_what_a_killed_run_left_half_written_is_removed(ledger: Ledger) -> None:
    folder = ledger.folder / "quick" / "toy.one"
    folder.mkdir(parents=True)
    old, new = folder / ".innerloop-old", folder / ".innerloop-new"
    old.write_text("{")
    os.utime(old, (0, 0))
    new.write_text("{")
    ledger.check(["toy.one"])
    assert not old.exists()
    assert new.exists(), "another run may be writing it"


@pytest.fixture(scope="module")
def cluster(notes: Path) -> Iterator[Callable[[], Engine]]:
    """Start a Dask cluster of two processes, forked from one that has imported what they need."""
    from dask import config
    from distributed import LocalCluster, utils

    settings = {
        "distributed.scheduler.allowed-failures": 1,
        "distributed.worker.multiprocessing-method": "forkserver",
    }
    forkserver._forkserver._stop()  # pyright: ignore[reportAttributeAccessIssue]
    imported = ["distributed", "torch", "innerloop.ledger.work", "toys"]
    multiprocessing.get_context("forkserver").set_forkserver_preload(imported)
    with pytest.MonkeyPatch.context() as patch, config.set(settings):
        patch.setattr(utils, "_forkserver_preload_set", True)  # else Dask chooses what to import
        with LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        ) as cluster:
            yield lambda: engines.DaskEngine(cluster.scheduler_address)  # pyright: ignore


def test_a_cluster_gives_the_same_and_survives_kills(
    undisturbed: Ledger, ledger: Ledger, cluster: Callable[[], Engine]
) -> None:
    address = cluster()._client.scheduler.address  # pyright: ignore
    for least in (1, 4):
        process = ledger.start_command("toy", "--engine", f"dask:{address}")
        wait_until(lambda: count_cells(ledger.folder) >= least or process.poll() is not None)  # noqa: B023
        process.kill()
        process.communicate()
        for path in ledger.folder.rglob(".innerloop-*"):
            path.unlink()
        assert read_cells(ledger.folder).items() <= read_cells(undisturbed.folder).items()
    ledger.check(engine=cluster)
    assert read_cells(ledger.folder) == read_cells(undisturbed.folder)


def test_a_cluster_that_loses_a_worker_goes_on(
    ledger: Ledger, cluster: Callable[[], Engine], sleeper: Path
) -> None:
    with ThreadPoolExecutor(1) as pool:
        kill = pool.submit(kill_sleeper, sleeper)
        found = ledger.check(["slow.sleeps", *TOYS], engine=cluster)
        kill.result()
    assert {outcome.verdict for outcome in found} == {"holds"}


def test_a_cell_that_kills_the_workers_of_a_cluster_is_given_up(
    undisturbed: Ledger, ledger: Ledger, cluster: Callable[[], Engine], sleeper: Path
) -> None:
    found = ledger.check(["bad.kills", *TOYS], engine=cluster)
    assert "its worker died" in found[0].error
    assert [outcome.state for outcome in found] == ["broken"] + ["checked"] * 3
    assert read_cells(ledger.folder) == read_cells(undisturbed.folder)


def test_a_cluster_that_is_not_there(monkeypatch) -> None:
    monkeypatch.setattr(engines, "DASK_TIMEOUT", 0.5)
    with pytest.raises(InputError, match=r"no Dask scheduler answers at 'tcp://127\.0\.0\.1:9'"):
        engines.DaskEngine("tcp://127.0.0.1:9")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--engine", "dusk"], "engine must be local or dask:ADDRESS, got 'dusk'"),
        (["--engine", "dask:"], "engine must be local or dask:ADDRESS, got 'dask:'"),
        (["--engine", "dask:x", "--workers", "2"], "a Dask cluster has its own workers"),
        (["--workers", "0"], "workers must be at least 1 and at most 1024, got 0"),
        (["--workers", "1000000000"], "at least 1 and at most 1024, got 1000000000"),
        (["--preset", "ful"], "no preset called 'ful'; did you mean 'full'?"),
        (["--seed", "-1"], "seed must be at least 0 and below 2^32"),
        (["--results", "README.md"], "cannot store results in README.md: it is not a folder"),
        (["ahn2023.lema-2"], "did you mean 'ahn2023.lemma-2'?"),
    ],
)
def test_a_users_mistake_is_one_line(run, words: list[str], message: str, monkeypatch) -> None:
    monkeypatch.chdir(HERE.parent)
    found = run("check", *words)
    assert found.code == 2
    assert message in found.err
    assert len(found.err.strip().splitlines()) == 1
    assert not found.out


def test_claims_without_a_check_are_told(run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delitem(load_claim_entries(), "yang2025.lin.theorem-6")
    found = run("check", "yang2025.lin.theorem-6", "--results", str(tmp_path), "--json")
    assert found.code == 0
    (content,) = json.loads(found.out)
    assert content["verdict"] == "not yet checked"
    keys = {"id", "source", "kind", "verdict", "preset", "seconds", "printed", "corrected"}
    assert keys | {"summary"} <= content.keys()
    assert content["statement"]


def test_recorded_weights_that_a_cell_names_count_as_code_does(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Other weights of that name make the cell stale; other files, or elsewhere, do not."""
    location = "toys"

    def read_recorded_code() -> dict[str, str]:
        ledger.check(["named.weights"])
        (path,) = (ledger.folder / "quick" / "named.weights").glob("*.json")
        return json.loads(path.read_bytes())["content"]["code"]

    def list_changes() -> list[str]:
        return code.find_changes(before, location, toys.WEIGHTS)

    without = read_recorded_code()
    assert code.WEIGHTS not in without
    monkeypatch.setattr(recorded, "RESULTS", tmp_path / "results")
    folder = tmp_path / "results" / "kind"
    folder.mkdir(parents=True)
    (folder / "toy-weights.safetensors").write_bytes(b"some")
    before = code.collect_dependencies(location, [], toys.WEIGHTS)
    assert before == {**without, code.WEIGHTS: before[code.WEIGHTS]}
    assert not list_changes()
    (folder / "other.safetensors").write_bytes(b"others")
    (folder / "toy-weights.json").write_bytes(b"{}")
    assert not list_changes()
    (folder / "toy-weights.safetensors").write_bytes(b"more")
    assert list_changes() == [code.WEIGHTS]
    (folder / "toy-weights.safetensors").unlink()
    assert list_changes() == [code.WEIGHTS]


def test_a_file_of_claims_is_the_same_from_every_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "here").mkdir()
    path = tmp_path / "here" / "mine.py"
    path.write_text("import beside\n")
    (tmp_path / "here" / "beside.py").write_text("x = 1\n")
    monkeypatch.chdir(path.parent)
    before = code.collect_dependencies("mine.py", [], {})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("another = True\n")
    for name in ("here/mine.py", str(path)):
        assert code.find_changes(before, name, {}) == []
    assert code.find_changes(before, "mine.py", {}) == ["beside", "mine.py"]
    code._parse_module.cache_clear()
    path.write_text("import beside, math\n")
    assert code.find_changes(before, "here/mine.py", {}) == ["mine.py"]


def test_weights_are_found_however_deep_they_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(recorded, "RESULTS", tmp_path)
    (tmp_path / "kind").mkdir()
    for name in ("one", "two"):
        (tmp_path / "kind" / f"{name}.safetensors").write_bytes(b"the same")
    found = [
        code.digest_weights(at) for at in ({"a": "one"}, {"a": ["x", {"b": "one"}]}, {"a": ["two"]})
    ]
    assert found[0] == found[1] != found[2], "by name, too"
    assert code.digest_weights({"a": ["x", 3, None]}) == ""


def test_other_weights_on_a_worker_are_refused(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "digest_weights", lambda settings: "those of last year")
    (outcome,) = ledger.check(["toy.one"])
    assert "recorded weights" in outcome.error


@pytest.fixture(scope="module")
def copy_of_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the package, once: what a test changes in it, it mends."""
    copy = tmp_path_factory.mktemp("copied") / "innerloop"
    root = Path(innerloop.__file__).parent
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@functools.cache
def parse_once(parse: Any, path: Path, changed: int) -> tuple[str, list[str]]:
    """Parse a module again only where its file changed: the copy is large."""
    return parse.__wrapped__(path)


@pytest.fixture
def copied_package(copy_of_package: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Take digests from the copy of the package, to be edited."""
    parse = code._parse_module
    monkeypatch.setattr(code, "ROOT", copy_of_package)
    monkeypatch.setattr(
        code, "_parse_module", lambda path: parse_once(parse, path, path.stat().st_mtime_ns)
    )
    return copy_of_package


def edit(file: Path, old: str, new: str) -> Callable[[], int]:
    """Replace a text in a file, and return the function that undoes it."""
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), "utf-8")
    return lambda: file.write_text(text, "utf-8")


NEWTON = "constructions.newton"


@pytest.mark.parametrize(
    ("path", "old", "new", "stale"),
    [
        ("claims/ahn2023/lemma_2.py", "# Steps small", "# Steps quite small", []),
        ("claims/ahn2023/lemma_2.py", "2 * d + 3", "2 * d + 4", ["claims.ahn2023.lemma_2"]),
        ("claims/figures.py", "MAX_ROWS = 5000", "MAX_ROWS = 1", ["claims.figures"]),
        ("errors.py", "import difflib", "import difflib as d", ["errors"]),
        ("transformer/head.py", "import torch", "import torch  # so", []),
        (
            "constructions/newton.py",
            "import torch\n",
            "import torch as t\n",
            ["constructions.newton"],
        ),
        ("algorithms/newton.py", "return 2 *", "return 3 *", ["algorithms.newton"]),
        ("policies/ucb.py", "import", "import os\nimport", []),
        ("constructions/ucb_vi.py", "import", "import os\nimport", []),
    ],
)
def test_the_code_that_counts(
    copied_package: Path, path: str, old: str, new: str, stale: list[str]
) -> None:
    """Imports and looked-up members count, directly or not; comments and other members do not."""
    module, lookups = "innerloop.claims.ahn2023.lemma_2", ["innerloop.constructions.newton"]
    before = code.collect_dependencies(module, lookups, {})
    undo = edit(copied_package / path, old, new)
    assert code.find_changes(before, module, {}) == [f"innerloop.{name}" for name in stale]
    undo()
    assert not code.find_changes(before, module, {})


def test_a_lookup_of_all_members_depends_on_all(copied_package: Path) -> None:
    """What compares with every algorithm is stale when one is added, changed or removed."""
    module = "innerloop.claims.ahn2023.lemma_2"
    before = code.collect_dependencies(module, ["algorithms *"], {})
    undo = edit(copied_package / "algorithms" / "fista.py", "import", "import os\nimport")
    assert code.find_changes(before, module, {}) == ["innerloop.algorithms.fista"]
    (copied_package / "algorithms" / "fista.py").unlink()
    assert "innerloop.algorithms.fista" in code.find_changes(before, module, {})
    undo()
    assert not code.find_changes(before, module, {})


def test_a_stale_result_is_shown_as_stale_with_what_changed(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A larger preset's result of other code is neither used nor dropped without a word."""
    ledger.check(["toy.one"], preset="full")
    (outcome,) = ledger.check(["toy.one"], fuller=True)
    assert (outcome.preset, outcome.stale) == ("full", None)
    (path,) = (ledger.folder / "full" / "toy.one").glob("*.json")
    file = json.loads(path.read_bytes())
    file["content"]["code"]["innerloop.claims.evidence"] = "another"
    file["sha256"] = storing._compute_digest(file["content"])
    path.write_text(json.dumps(file))
    (outcome,) = ledger.check(["toy.one"], fuller=True)
    assert (outcome.preset, outcome.verdict) == ("quick", "holds")
    assert outcome.stale is not None
    assert outcome.stale.changed == ("innerloop.claims.evidence",)
    assert (outcome.stale.preset, outcome.stale.verdict) == ("full", "holds")
    assert outcome.as_dict()["stale"]["changed"] == ("innerloop.claims.evidence",)
    assert ledger.messages[-1] == "1 stored results are stale: innerloop.claims.evidence changed"


def test_a_file_of_the_first_format_is_stale_not_damaged(ledger: Ledger) -> None:
    ledger.check(["toy.one"])
    (path,) = (ledger.folder / "quick" / "toy.one").glob("*.json")
    file = json.loads(path.read_bytes())
    file["version"], file["content"]["code"] = 1, "0" * 64
    file["sha256"] = storing._compute_digest(file["content"])
    path.write_text(json.dumps(file))
    (outcome,) = ledger.check(["toy.one"])
    assert outcome.stale is None, "it was run again"
    assert ledger.messages == [
        "1 stored results are stale, 1 of them are run again now: all code changed"
    ]
    assert json.loads(path.read_bytes())["version"] == 3


def test_what_a_machine_lacks_is_not_a_broken_check(ledger: Ledger) -> None:
    (outcome,) = ledger.check(["needs.library"])
    assert (outcome.state, outcome.verdict) == ("unavailable", "unavailable")
    assert outcome.error == "this needs the library moonlight"


def test_dollars_around_mathematics_decide_nothing(tmp_path: Path) -> None:
    """Marking a text keeps what is stored; another text, or another number, does not."""

    def digest(text: str) -> str:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.py"
        path.write_text(text, "utf-8")
        return code.collect_dependencies(str(path), [], {})[str(path)]

    plain = digest('a = f"{n} = {m}, b"\nb = "x ≤ 1"\n')
    assert digest('a = f"${n} = {m}$, $b$"\nb = "$x ≤ 1$"\n') == plain
    assert digest('a = f"{n} = {m}, c"\nb = "x ≤ 1"\n') != plain
    assert digest('a = f"{n} = {m}, b"\nb = "x ≤ 2"\n') != plain
