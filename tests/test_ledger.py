"""Runs of claims as they really happen: killed, damaged, crowded, out of disk, on a cluster.

The claims are toys. What a run leaves is compared byte for byte, times aside, with what a run
leaves that nothing happened to.
"""

from __future__ import annotations

import functools
import json
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
from pathlib import Path
from typing import Any

import psutil
import pytest
import toys

import innerloop
from innerloop.claims import recorded
from innerloop.claims.base import Preset
from innerloop.errors import InputError
from innerloop.files import write_atomically
from innerloop.ledger import code, engines
from innerloop.ledger import run as running
from innerloop.ledger import store as storing
from innerloop.ledger.engines import Engine, Processes
from innerloop.ledger.run import Outcome, Run
from innerloop.ledger.store import Store

HERE = Path(__file__).parent
TOYS = ["toy.one", "toy.two", "toy.three"]


@dataclass
class Ledger:
    """Runs of the toys in one folder, and what they said on the way."""

    folder: Path
    said: list[str] = field(default_factory=list)

    def check(
        self,
        ids: Sequence[str] = TOYS,
        *,
        workers: int = 2,
        engine: Callable[[], Engine] | None = None,
        preset: Preset = "quick",
        **rest: Any,
    ) -> list[Outcome]:
        store = Store(self.folder, self.said.append)
        start = engine or (lambda: Processes(workers))
        self.run = Run(store, start, notice=self.said.append, **rest)
        return self.run.check(ids, preset)

    def started(self, *words: str) -> subprocess.Popen[str]:
        """The command line, in a process of its own."""
        command = [sys.executable, str(HERE / "toy_command.py"), "check", *words, "--json"]
        command += ["--results", str(self.folder)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(autouse=True)
def toy_claims(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "run" not in request.fixturenames:
        monkeypatch.setattr(running, "claims", lambda: toys.CLAIMS)


@pytest.fixture(scope="module", autouse=True)
def notes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where toys leave notes; known before the first worker starts."""
    folder = tmp_path_factory.mktemp("notes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOYS", str(folder))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("PYTHONPATH", f"{HERE}{os.pathsep}{HERE.parent}")
        yield folder


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "cells")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, notes: Path) -> Ledger:
    """A run that nothing happened to, with one worker."""
    ledger = Ledger(tmp_path_factory.mktemp("undisturbed"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "claims", lambda: toys.CLAIMS)
        found = ledger.check(workers=1)
    assert [outcome.verdict for outcome in found] == ["holds"] * 3
    assert not ledger.said
    return ledger


def contents(cells: Path) -> dict[str, Any]:
    """Every file of a folder, times aside; each is whole, and nothing else lies about."""
    found = {}
    for path in sorted(path for path in cells.rglob("*") if path.is_file()):
        told = json.loads(path.read_text("utf-8"))["content"]
        del told["made"], told["seconds"]
        found[str(path.relative_to(cells))] = told
    return found


def finished(cells: Path) -> int:
    """How many cells are stored, while others may be being written."""
    return sum(1 for _ in cells.rglob("*.json"))


def gone(processes: list[psutil.Process], patience: float = 10.0) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=patience)
    return not [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Those it started that still run; none once it has ended, which may be at any moment."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def until(condition: Any, patience: float = 60.0) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def test_the_same_numbers_with_any_number_of_workers(undisturbed: Ledger, ledger: Ledger) -> None:
    ledger.check(workers=3)
    assert contents(ledger.folder) == contents(undisturbed.folder)
    assert len(contents(ledger.folder)) == 8
    ledger.check(["toy.one"], seed=1)
    values = {told["found"]["numbers"]["value"] for told in of("toy.one", ledger)}
    assert len(values) == 2, "another seed, other numbers"


def of(claim: str, ledger: Ledger) -> list[dict[str, Any]]:
    found = contents(ledger.folder).values()
    return [told for told in found if told["cell"]["claim"] == claim]


def test_a_cell_says_how_it_was_made(undisturbed: Ledger) -> None:
    (told,) = of("toy.one", undisturbed)
    assert told["cell"] == {
        "claim": "toy.one",
        "preset": "quick",
        "seed": 0,
        "settings": {"pause": 0.1},
    }
    assert told["command"] == "innerloop check toy.one --preset quick --fresh"
    assert {"innerloop", "torch", "numpy", "python"} <= told["versions"].keys()


def test_killed_at_any_moment_nothing_finished_is_lost(undisturbed: Ledger, ledger: Ledger) -> None:
    """Killed four times at random moments; what was finished stays, and the end is the same."""
    chance = random.Random(0)
    whole, seen = contents(undisturbed.folder), dict[str, Any]()
    for _ in range(4):
        process = ledger.started("toy", "--workers", "2")
        before = len(seen)
        until(lambda: len(family(process)) > 2 or process.poll() is not None)  # noqa: B023
        if before < 6:
            time.sleep(chance.uniform(0.0, 0.6))
        workers = family(process)
        process.kill()
        process.communicate()
        assert gone(workers), "workers were left behind"
        for path in ledger.folder.rglob(".innerloop-*"):
            path.unlink()  # half-written, under a name that nobody reads
        now = contents(ledger.folder)
        assert seen.items() <= now.items(), "a finished cell was lost or changed"
        assert now.items() <= whole.items()
        seen = now
    ledger.check()
    assert contents(ledger.folder) == whole


def test_a_rerun_does_only_what_is_missing_or_changed(ledger: Ledger) -> None:
    ledger.check()
    files: dict[Path, int] = {}

    def rewritten(**rest: Any) -> list[str]:
        ledger.check(**rest)
        now = {path: path.stat().st_mtime_ns for path in ledger.folder.rglob("*.json")}
        changed = sorted(path.parent.name for path in now if now[path] != files.get(path))
        files.update(now)
        return changed

    everything = ["toy.one", *["toy.three"] * 6, "toy.two"]
    assert rewritten() == everything, "all are new to this test"
    assert not rewritten()
    next(path for path in files if path.parent.name == "toy.two").unlink()
    assert rewritten() == ["toy.two"]
    older = next(path for path in files if path.parent.name == "toy.three")
    told = json.loads(older.read_text("utf-8"))
    told["content"]["code"] = "that of last year"
    told["sha256"] = storing._digest(told["content"])
    write_atomically(older, json.dumps(told).encode())
    assert rewritten() == ["toy.three"]
    assert not ledger.said, "a change is no damage"
    assert rewritten(fresh=True) == everything
    assert rewritten(preset="full") == everything
    assert {path.relative_to(ledger.folder).parts[0] for path in files} == {"quick", "full"}


def test_a_fuller_preset_is_taken_where_it_is_stored(ledger: Ledger) -> None:
    ledger.check(["toy.one"], preset="full")
    found = ledger.run.check(TOYS, "quick", fuller=True)
    assert [outcome.preset for outcome in found] == ["full", "quick", "quick"]
    found = ledger.run.check(TOYS, "quick")
    assert {outcome.preset for outcome in found} == {"quick"}


def waiting(notes: Path) -> int:
    """The process of the toy that sleeps, once it does."""
    log = notes / "pids"
    until(lambda: log.exists() and log.read_text().endswith("\n"))
    return int(log.read_text().split()[0])


@pytest.fixture
def sleeper(notes: Path) -> Iterator[Path]:
    """A toy that sleeps the first time, and not when it runs again."""
    for name in ("pids", "go", "deaths"):
        (notes / name).unlink(missing_ok=True)
    yield notes
    (notes / "go").unlink(missing_ok=True)


def killed_once(notes: Path) -> None:
    pid = waiting(notes)
    (notes / "go").touch()
    os.kill(pid, signal.SIGKILL)


def test_a_worker_that_is_killed_is_replaced(ledger: Ledger, sleeper: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        kill = pool.submit(killed_once, sleeper)
        found = ledger.check(["slow.sleeps", *TOYS])
        kill.result()
    assert ledger.said == ["a worker died while it ran slow.sleeps: it will run again"]
    assert {outcome.verdict for outcome in found} == {"holds"}


def test_an_idle_worker_that_died_is_replaced() -> None:
    engine = Processes(1)
    try:
        work = (toys.__name__, "toy.one", {"pause": 0.0}, 0)
        engine.submit(*work).result()
        (pid,) = engine._pools[0]._processes  # pyright: ignore
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
    assert contents(ledger.folder) == contents(undisturbed.folder), "what breaks leaves no file"


def test_other_code_on_a_worker_is_refused(ledger: Ledger, monkeypatch) -> None:
    monkeypatch.setattr(running, "package", lambda: "ours")
    (found,) = ledger.check(["toy.one"])
    assert "another version of innerloop" in found.error
    assert not contents(ledger.folder)


def test_the_command_line_ends_as_documented(undisturbed: Ledger, ledger: Ledger) -> None:
    process = ledger.started("toy", "bad.raises")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "bad.raises broke: RuntimeError: this check is broken" in err
    assert "these checks broke: bad.raises" in err
    assert [outcome["verdict"] for outcome in json.loads(out)].count("holds") == 3
    assert contents(ledger.folder) == contents(undisturbed.folder)


def test_an_interrupt_stops_and_says_how_to_go_on(ledger: Ledger, sleeper: Path) -> None:
    process = ledger.started("slow", "--workers", "1")
    waiting(sleeper)
    workers = family(process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "what is finished is stored, the same command goes on" in err
    assert "Traceback" not in err
    assert gone(workers)


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied", "swapped", "folder"])
def test_a_damaged_cell_is_made_again(undisturbed: Ledger, ledger: Ledger, damage: str) -> None:
    shutil.copytree(undisturbed.folder, ledger.folder)
    quick = ledger.folder / "quick"
    one, two = (next((quick / f"toy.{name}").iterdir()) for name in ("one", "two"))
    text = one.read_text("utf-8")
    at = text.index(".", text.index('"value": ')) + 1
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
    assert any(f"{one.name} is damaged and will be made again" in text for text in ledger.said)
    assert {outcome.verdict for outcome in found} == {"holds"}
    if damage == "folder":
        assert len(ledger.run.unwritten) == 1
    else:
        assert contents(ledger.folder) == contents(undisturbed.folder)


def test_two_runs_in_one_folder(undisturbed: Ledger, ledger: Ledger) -> None:
    process = ledger.started("toy", "--workers", "1")
    until(lambda: finished(ledger.folder) or process.poll() is not None)
    found = ledger.check(workers=1)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert [o["evidence"]["numbers"] for o in json.loads(out)] == [
        dict(outcome.evidence.numbers) for outcome in found if outcome.evidence
    ]
    assert contents(ledger.folder) == contents(undisturbed.folder)


@pytest.fixture
def full_disk() -> Iterator[None]:
    """As on a full disk, a write of more than a few bytes fails."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def told_though_not_kept(undisturbed: Ledger, ledger: Ledger) -> None:
    found = ledger.check()
    assert [said for said in ledger.said if "cannot write" in said] == ledger.said
    assert len(ledger.said) == 1, "said once, not for every cell"
    assert len(ledger.run.unwritten) == 8
    (one,) = of("toy.one", undisturbed)
    assert found[0].evidence
    assert found[0].evidence.numbers == one["found"]["numbers"]


def test_a_full_disk(undisturbed: Ledger, ledger: Ledger, full_disk: None) -> None:
    told_though_not_kept(undisturbed, ledger)
    assert not [path for path in ledger.folder.rglob("*") if path.is_file()]


def test_a_read_only_disk(undisturbed: Ledger) -> None:
    told_though_not_kept(undisturbed, Ledger(Path("/proc/sys/cells")))


def test_results_that_cannot_be_kept_end_with_2(run, monkeypatch) -> None:
    found = run("check", "ahn2023.lemma-2", "--results", "/proc/sys/cells", "--workers", "1")
    assert found.code == 2
    assert "ahn2023.lemma-2   holds" in found.out
    assert "1 results could not be kept" in found.err


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
    """A Dask cluster of two processes."""
    from dask import config
    from distributed import LocalCluster

    with (
        config.set({"distributed.scheduler.allowed-failures": 1}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
    ):
        yield lambda: engines.Dask(cluster.scheduler_address)  # pyright: ignore


def test_a_cluster_gives_the_same_and_survives_kills(
    undisturbed: Ledger, ledger: Ledger, cluster: Callable[[], Engine]
) -> None:
    address = cluster()._client.scheduler.address  # pyright: ignore
    for least in (1, 4):
        process = ledger.started("toy", "--engine", f"dask:{address}")
        until(lambda: finished(ledger.folder) >= least or process.poll() is not None)  # noqa: B023
        process.kill()
        process.communicate()
        for path in ledger.folder.rglob(".innerloop-*"):
            path.unlink()
        assert contents(ledger.folder).items() <= contents(undisturbed.folder).items()
    ledger.check(engine=cluster)
    assert contents(ledger.folder) == contents(undisturbed.folder)


def test_a_cluster_that_loses_a_worker_goes_on(
    ledger: Ledger, cluster: Callable[[], Engine], sleeper: Path
) -> None:
    with ThreadPoolExecutor(1) as pool:
        kill = pool.submit(killed_once, sleeper)
        found = ledger.check(["slow.sleeps", *TOYS], engine=cluster)
        kill.result()
    assert {outcome.verdict for outcome in found} == {"holds"}


def test_a_cell_that_kills_the_workers_of_a_cluster_is_given_up(
    undisturbed: Ledger, ledger: Ledger, cluster: Callable[[], Engine], sleeper: Path
) -> None:
    found = ledger.check(["bad.kills", *TOYS], engine=cluster)
    assert "its worker died" in found[0].error
    assert [outcome.state for outcome in found] == ["broken"] + ["checked"] * 3
    assert contents(ledger.folder) == contents(undisturbed.folder)


def test_a_cluster_that_is_not_there(monkeypatch) -> None:
    monkeypatch.setattr(engines, "PATIENCE", 0.5)
    with pytest.raises(InputError, match=r"no Dask scheduler answers at 'tcp://127\.0\.0\.1:9'"):
        engines.Dask("tcp://127.0.0.1:9")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--engine", "dusk"], "engine must be local or dask:ADDRESS, got 'dusk'"),
        (["--engine", "dask:"], "engine must be local or dask:ADDRESS, got 'dask:'"),
        (["--engine", "dask:x", "--workers", "2"], "a Dask cluster has its own workers"),
        (["--workers", "0"], "workers must be at least 1, got 0"),
        (["--preset", "ful"], "no preset called 'ful'; did you mean 'full'?"),
        (["--seed", "-1"], "seed must be at least 0, got -1"),
        (["--results", "README.md"], "cannot store results in README.md: it is not a folder"),
        (["ahn2023.lema-2"], "did you mean 'ahn2023.lemma-2'?"),
    ],
)
def test_a_users_mistake_is_one_line(run, words: list[str], told: str, monkeypatch) -> None:
    monkeypatch.chdir(HERE.parent)
    found = run("check", *words)
    assert found.code == 2
    assert told in found.err
    assert len(found.err.strip().splitlines()) == 1
    assert not found.out


def test_claims_without_a_check_are_told(run, tmp_path: Path) -> None:
    found = run("check", "yang2025.he.real", "--results", str(tmp_path), "--json")
    assert found.code == 0
    (told,) = json.loads(found.out)
    assert told["verdict"] == "not yet checked"
    keys = {"id", "source", "kind", "verdict", "preset", "seconds", "printed", "corrected"}
    assert keys | {"summary"} <= told.keys()
    assert told["statement"]


def test_recorded_weights_that_a_cell_names_count_as_code_does(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Other weights of that name: the cell is made again. Others, or elsewhere: it is not."""

    def made_by() -> str:
        ledger.check(["named.weights"])
        (path,) = (ledger.folder / "quick" / "named.weights").glob("*.json")
        return json.loads(path.read_bytes())["content"]["code"]

    def digest() -> str:
        return code.decided("toys", toys.WEIGHTS)

    assert made_by() == digest()
    monkeypatch.setattr(recorded, "RESULTS", tmp_path / "results")
    folder = tmp_path / "results" / "kind"
    folder.mkdir(parents=True)
    none = digest()
    (folder / "toy-weights.safetensors").write_bytes(b"some")
    some = digest()
    (folder / "other.safetensors").write_bytes(b"others")
    (folder / "toy-weights.json").write_bytes(b"{}")
    assert digest() == some != none
    (folder / "toy-weights.safetensors").write_bytes(b"more")
    assert digest() not in (some, none)
    # A worker looks for weights elsewhere: let it find what is here.
    monkeypatch.setattr(running, "weights", lambda settings: "")
    assert made_by() == digest()
    (folder / "toy-weights.safetensors").unlink()
    assert made_by() == digest() == none


def test_weights_are_found_however_deep_they_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(recorded, "RESULTS", tmp_path)
    (tmp_path / "kind").mkdir()
    for name in ("one", "two"):
        (tmp_path / "kind" / f"{name}.safetensors").write_bytes(b"the same")
    found = [code.weights(at) for at in ({"a": "one"}, {"a": ["x", {"b": "one"}]}, {"a": ["two"]})]
    assert found[0] == found[1] != found[2], "by name, too"
    assert code.weights({"a": ["x", 3, None]}) == ""


def test_other_weights_on_a_worker_are_refused(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "weights", lambda settings: "those of last year")
    (outcome,) = ledger.check(["toy.one"])
    assert "recorded weights" in outcome.error


def test_the_code_that_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a claim's file imports counts, directly or not; comments and docstrings do not."""
    root = Path(innerloop.__file__).parent
    copy = tmp_path / "innerloop"
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns("__pycache__"))
    module = "innerloop.claims.ahn2023.lemma_2"

    caches = (code.fingerprint, code._parsed, code._path)
    for cached in caches:
        cached.cache_clear()
    monkeypatch.setattr(code, "ROOT", copy)
    plain = code._parsed.__wrapped__

    @functools.cache
    def parsed(module: str, changed: int) -> tuple[str, list[str]]:
        return plain(module)

    def of(module: str) -> tuple[str, list[str]]:
        """Parsed again only where the file changed: the copy is large."""
        path = code._path(module)
        return parsed(module, path.stat().st_mtime_ns if path else 0)

    monkeypatch.setattr(code, "_parsed", of)

    def digest(*modules: str) -> list[str]:
        code.fingerprint.cache_clear()
        return [code.fingerprint(module) for module in modules]

    through = "innerloop.constructions.certificate"
    before = digest(module, through)

    def changed(path: str, old: str, new: str) -> list[bool]:
        file = copy / path
        text = file.read_text("utf-8")
        assert old in text
        file.write_text(text.replace(old, new, 1), "utf-8")
        try:
            now = digest(module, through)
        finally:
            file.write_text(text, "utf-8")
        return [one != other for one, other in zip(now, before, strict=True)]

    own = "claims/ahn2023/lemma_2.py"
    assert changed(own, "# Steps small", "# Steps quite small") == [False, False]
    assert changed(own, "One step as", "A step as") == [False, False]
    assert changed(own, "2 * d + 3", "2 * d + 4") == [True, False]
    assert changed("claims/evidence.py", "MOST_ROWS = 5000", "MOST_ROWS = 1") == [True, False]
    assert changed("errors.py", "MOST_NAMES = 40", "MOST_NAMES = 1") == [True, True], "through base"
    assert changed("algorithms/newton.py", "return 2 *", "return 3 *") == [False, True], (
        "the registry reaches every member"
    )
    assert changed("transformer/head.py", "import torch", "import torch  # so") == [False, False]
    for cached in caches:
        cached.cache_clear()
