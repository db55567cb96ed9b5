"""The attacks find what they look for, and a sample of each finds nothing in the package."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import strategies as st

from innerloop.errors import InputError

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tools.torture import runner  # noqa: E402
from tools.torture.__main__ import end_by_signal  # noqa: E402
from tools.torture.attack import Attack, Defect, Unavailable, Verdict, refuse_or  # noqa: E402
from tools.torture.corruption import damage_bytes, damage_tree  # noqa: E402
from tools.torture.drawing import draw  # noqa: E402
from tools.torture.hostile import PAYLOADS, Outline, check_page  # noqa: E402
from tools.torture.isolation import call_in_child  # noqa: E402
from tools.torture.killing import Killer  # noqa: E402
from tools.torture.runner import load_attacks, run_attack  # noqa: E402
from tools.torture.table import read_finished, read_others, simplify_defect, write_record  # noqa: E402

SEED = 16
"""The seed of the sample."""


def test_a_sample_of_every_attack_finds_no_defect(tmp_path: Path) -> None:
    """In a process of its own, where nothing checks types that a user's process does not check."""
    record = tmp_path / "torture.json"
    command = [sys.executable, "-m", "tools.torture", "--sample", "--seed", str(SEED)]
    done = subprocess.run(
        [*command, "--workers", "1", "-o", str(record)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    rows = {row["attack"]: row for row in json.loads(record.read_bytes())["table"]}
    assert rows.keys() == {name for name, attack in load_attacks().items() if attack.sample}
    kinds = {name: row["kinds"] for name, row in rows.items() if row["kinds"]}
    assert not kinds, json.dumps(kinds, indent=2)
    assert done.returncode == 0, done.stderr


def do_anything(prepared: str, chance: random.Random, folder: Path) -> Verdict:
    """Survive, refuse, and fail in every way, by the number that `prepare` counts in a file."""
    count = Path(prepared, "count")
    number = int(count.read_text()) if count.exists() else 0
    count.write_text(str(number + 1))

    def refuse(message: str) -> Verdict:
        raise InputError(message)

    if number == 1:
        return refuse_or(lambda: refuse("expected one, got another"))
    if number == 2:
        return refuse_or(lambda: refuse("line\nby line"))
    if number == 3:
        raise KeyError("a bug")
    if number == 4:
        os.kill(os.getpid(), signal.SIGSEGV)
    if number == 5:
        time.sleep(60)
    if number == 6:
        raise Defect("found")
    return "survived"


def test_whatever_a_try_does_is_counted_and_the_next_is_made() -> None:
    attack = Attack("toy", 9, str, do_anything, seconds=1.0)
    row = run_attack(attack, range(9), 0).as_dict()
    assert [row[name] for name in ("tries", "survived", "refused", "defects")] == [9, 3, 1, 5]
    found = {kind["defect"] for kind in row["kinds"]}
    assert found == {
        "an error of several lines: line …",
        "KeyError do_anything: 'a bug'",
        "the process died of SIGSEGV",
        "hangs: more than 1 s",
        "found",
    }
    repeats = {kind["repeat"][0] for kind in row["kinds"]}
    assert "python -m tools.torture --only toy --seed 0 --first 3" in repeats


def test_what_is_not_there_is_left_out_and_said() -> None:
    def prepare(folder: Path) -> None:
        raise Unavailable("no browser")

    row = run_attack(Attack("toy", 1, prepare, do_anything), range(1), 0).as_dict()
    assert row["skipped"] == "no browser"
    assert row["tries"] == 0


def test_folders_of_killed_attacks_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of a running attack stays, and so does one that is not an attack's."""
    monkeypatch.setattr(runner, "find_scratch", lambda: str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", ""]) as killed:
        killed.wait()
    names = [f"torture-{killed.pid}-a", f"torture-{os.getpid()}-b", "torture-c", "torture-d-e"]
    for name in names:
        (tmp_path / name).mkdir()
    runner.remove_left_overs()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])


def test_temporary_files_of_a_try_are_removed() -> None:
    def leave(prepared: str, chance: random.Random, folder: Path) -> Verdict:
        raise Defect(tempfile.mkdtemp())

    row = run_attack(Attack("toy", 1, str, leave), range(1), 0)
    ((name,),) = (kind.values() for kind in row.defects.values())
    assert not Path(name).exists()
    assert "torture-" in name


def test_a_run_that_is_terminated_ends_its_lanes_and_removes_its_folder(tmp_path: Path) -> None:
    """Otherwise, a try that hangs would outlive the run."""

    def prepare(folder: Path) -> Path:
        (tmp_path / "prepared").write_text(str(folder))
        return tmp_path / "lane"

    def hang(lane: Path, chance: random.Random, folder: Path) -> Verdict:
        lane.write_text(str(os.getpid()))
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(60)
        return "survived"

    def run() -> None:
        signal.signal(signal.SIGTERM, end_by_signal)
        os.chdir(tmp_path)
        run_attack(Attack("toy", 1, prepare, hang), range(1), 0)

    assert call_in_child(run, 20.0) == 99
    assert (tmp_path / "error").read_text().startswith("SystemExit")
    assert not runner.is_running(int((tmp_path / "lane").read_text()))
    assert not Path((tmp_path / "prepared").read_text()).exists()


def test_a_try_depends_on_the_seed_and_its_number_alone() -> None:
    def draw(prepared: None, chance: random.Random, folder: Path) -> Verdict:
        raise Defect(f"{chance.random()}")

    attack = Attack("toy", 4, lambda folder: None, draw)

    def list_draws(numbers: range, seed: int, workers: int) -> dict[int, str]:
        row = run_attack(attack, numbers, seed, workers=workers)
        return {n: text for kind in row.defects.values() for n, text in kind.items()}

    whole = list_draws(range(4), 3, 2)
    assert len(set(whole.values())) == 4
    assert list_draws(range(2, 4), 3, 1) == {k: whole[k] for k in (2, 3)}
    assert set(list_draws(range(4), 4, 1).values()).isdisjoint(whole.values())


def test_every_value_of_a_strategy_is_drawn_and_a_draw_repeats() -> None:
    """The simplest value is drawn too, although Hypothesis tries it first."""
    assert {draw(st.booleans(), random.Random(k)) for k in range(20)} == {False, True}
    assert {draw(st.sampled_from("abc"), random.Random(k)) for k in range(30)} == {"a", "b", "c"}
    assert draw(st.just(3), random.Random(0)) == 3
    lists = st.lists(st.floats()).filter(bool).map(repr)
    first, second = ([draw(lists, random.Random(k)) for k in range(9)] for _ in range(2))
    assert first == second
    assert len(set(first)) > 6


def test_a_kill_comes_at_the_operation_that_was_chosen(tmp_path: Path) -> None:
    from innerloop.files import write_atomically

    path, data = tmp_path / "file", b"0123456789" * 10

    def write(target: int | None) -> None:
        killer = Killer(tmp_path, target)
        killer.install()
        write_atomically(path, data)
        (tmp_path.parent / f"{tmp_path.name}-count").write_text(str(killer.count))

    assert call_in_child(lambda: write(None), 10.0) == 0
    count = int((tmp_path.parent / f"{tmp_path.name}-count").read_text())
    assert count >= 5
    states = set()
    for target in range(1, count + 1):
        path.write_bytes(b"old")
        assert call_in_child(lambda target=target: write(target), 10.0) == -signal.SIGKILL
        assert path.read_bytes() in (b"old", data)
        for other in tmp_path.iterdir():
            states.add((other.name == "file", len(other.read_bytes())))
            if other != path:
                other.unlink()
    assert {(False, 0), (False, 50), (False, 100), (True, 3)} <= states


def test_damage_changes_what_it_damages() -> None:
    data, tree = bytes(range(200)), {"a": [1, {"b": "text"}], "c": 2.5}
    chance = random.Random(0)
    damaged = [damage_bytes(data, chance) for _ in range(200)]
    assert sum(each != data for each in damaged) > 180
    assert len(set(damaged)) > 150
    texts = {repr(damage_tree(tree, chance)) for _ in range(200)}
    assert len(texts) > 80
    assert tree == {"a": [1, {"b": "text"}], "c": 2.5}


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ('<p><img src="x"></p><script>f("a")</script>', "element or attribute"),
        ('<p onclick="tortured()">a</p><script>f("a")</script>', "element or attribute"),
        ('<p>a</p><script>f("a")</script><script>g()</script>', "became a script"),
        ('<p>a</p><a href="javascript:x"></a><script>f("a")</script>', "became a link"),
        ('<p>a</p><script>f("a");tortured();("")</script>', "became code"),
        ('<p>a</p><script>f("<b>tortured")</script>', "could end it"),
    ],
)
def test_a_string_that_became_more_than_text_is_found(page: str, says: str) -> None:
    harmless = Outline('<p>a</p><a href="#a"></a><script>f("a")</script>')
    check_page('<p>&lt;tortured&gt;</p><script>f("\\u003ctortured")</script>', harmless)
    with pytest.raises(Defect, match=says):
        check_page(page, harmless)


def test_an_unescaped_payload_is_found_in_text_or_in_a_script() -> None:
    """Each payload breaks out of one of the places that a careless page would put it into."""
    places = ("<p>{}</p>", '<p title="{}"></p>', "<p title='{}'></p>", '<script>f("{}")</script>')
    places += (
        "<a href='{}'></a>",
        "<title>{}</title>",
        "<style>{}</style>",
        "<textarea>{}</textarea>",
    )
    caught = 0
    for payload in PAYLOADS:
        for place in places:
            try:
                check_page(place.replace("{}", payload), Outline(place.replace("{}", "a")))
            except Defect:
                caught += 1
                break
    assert caught >= 20


def test_defects_that_differ_in_data_alone_are_one_kind(tmp_path: Path) -> None:
    one = "ValueError in innerloop/x.py read: could not convert 'a'"
    assert simplify_defect(one) == simplify_defect(one.replace("'a'", "'b' at 3"))
    assert simplify_defect("lost step 3") == simplify_defect("lost step 4")
    assert simplify_defect("lost step 3") != simplify_defect("lost row 3")
    write_record(tmp_path / "r" / "t.json", [], {"seed": 3}, "make torture")
    record = json.loads((tmp_path / "r" / "t.json").read_bytes())
    assert record["settings"] == {"seed": 3}
    assert {"command", "versions", "machine", "seconds", "table"} <= record.keys()


def test_a_stopped_run_keeps_what_had_no_defect(tmp_path: Path) -> None:
    """An attack with a defect is repeated, and so is one of another seed or number of tries."""
    path = tmp_path / "t.json"
    row = {"attack": "kills", "tries": 5, "defects": 0, "seconds": 1.5}
    found = {**row, "attack": "pages", "defects": 1}
    skipped = {**row, "attack": "browser", "tries": 0, "skipped": "no browser"}
    write_record(path, [row, found, skipped], {"seed": 3}, "make torture")
    assert read_finished(path, 3) == {("kills", 5): row}
    assert read_finished(path, 4) == {}
    assert read_others(path, {"pages"}) == ([skipped, row], {"seed": 3}, "make torture")
    assert read_finished(tmp_path / "none.json", 3) == {}
