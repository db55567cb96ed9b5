"""Damaged runs and cells are reported with the reason, and do not affect others."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import toys

from innerloop import sealed
from innerloop.claims.evidence import Check, Evidence, Part
from innerloop.claims.figures import draw_lines
from innerloop.ledger import checking
from innerloop.ledger.code import collect_dependencies
from innerloop.ledger.fieldtypes import check_types
from innerloop.ledger.run import Run
from innerloop.ledger.store import Cell, Store, finish_cell
from innerloop.ledger.store import _compute_digest as digest_content
from innerloop.recipes.base import FORMAT, VERSION, train
from innerloop.recipes.runs import load_finished_runs, note_run
from innerloop.report.escaping import clean
from innerloop.report.page import draw_charts, draw_figure, render_page
from innerloop.surveys import survey
from innerloop.surveys.data import ReportData

DEEP = "[" * 50_000 + "]" * 50_000


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one finished run."""
    folder = tmp_path_factory.mktemp("whole")
    train("linear-attention", folder=folder / "good", d=2, batch=20, steps=8, evaluate_every=2)
    return folder


@pytest.fixture
def runs(whole: Path, tmp_path: Path) -> Path:
    """A folder with that run, and a copy to be damaged."""
    shutil.copytree(whole, tmp_path / "runs")
    shutil.copytree(whole / "good", tmp_path / "runs" / "bad")
    return tmp_path / "runs"


def load_both(runs: Path) -> tuple[list[str], dict[str, str]]:
    """Load runs: the folders of whole ones, and the reasons of damaged ones."""
    damaged: dict[str, str] = {}
    found = list(load_finished_runs(runs, damaged.__setitem__))
    draw(found, damaged)
    return [run["folder"] for run in found], damaged


def draw(found: list[dict[str, Any]], damaged: dict[str, str]) -> str:
    """Draw a page with these runs and nothing else."""
    rows = [{"folder": place, "reason": reason} for place, reason in damaged.items()]
    tables: dict[str, Any] = {"outcomes": [], "certificates": [], "convergence": [], "regret": []}
    texts: dict[str, Any] = {
        "convergence_setting": "",
        "regret_setting": "",
        "command": "",
        "made": "",
    }
    data = ReportData(**tables, **texts, runs=found, seconds=0.0, damaged=rows)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("plot_step_deviations", "plot_error_against_layers", "plot_regret"):
            patch.setattr(f"innerloop.report.page.{name}", lambda rows: PLAIN_CHART)
        return render_page(data, draw_charts(data))


class PlainChart:
    def to_dict(self) -> dict[str, Any]:
        return {"data": {"values": []}}


PLAIN_CHART = PlainChart()


def test_intact_runs_are_not_damaged(runs: Path) -> None:
    assert load_both(runs) == (["bad", "good"], {})


HEAD = "step,learning_rate,seconds,loss\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "cut short"),
        (HEAD, "no rows"),
        (HEAD + "0,1,1", "cut short"),
        (HEAD + "0,1,1\n", "a row has 3 fields, expected 4"),
        (HEAD + "0,1,1,x\n", "could not convert"),
        (HEAD + "0,1,1,nan\n", "no finite step and loss"),
        (HEAD + "0,1,1,1e999\n", "no finite step and loss"),
        (HEAD + "2,1,1,1\n1,1,1,1\n", "step 1 comes after step 2"),
        ("a,b\n1,2\n", "expected columns with step and loss"),
        ("step,loss,loss\n1,2,3\n", "each once"),
        (HEAD + "\0,1,1,1\n", "line contains NUL|could not convert"),
        (HEAD + '"' + "9" * 200_000 + "\n", "field larger"),
        (HEAD + "0,1,1,1\n", "do not match their SHA-256"),
    ],
)
def test_a_damaged_history_is_reported(runs: Path, text: str, reason: str) -> None:
    (runs / "bad" / "history.csv").write_text(text)
    found, damaged = load_both(runs)
    assert found == ["good"]
    assert re.search(reason, damaged["bad"]), damaged


def test_a_history_cut_at_the_end_of_a_line_is_noticed_without_its_sum(runs: Path) -> None:
    """Runs of earlier versions have no sum of their history."""
    reseal(runs / "bad", lambda about: about.pop("history_sha256"))
    assert load_both(runs) == (["bad", "good"], {})
    path = runs / "bad" / "history.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert "the run at step 8" in load_both(runs)[1]["bad"]


def reseal(folder: Path, change: Any) -> None:
    """Change a run's description as somebody would who computes the sum again."""
    path = folder / "model.safetensors"
    metadata, tensors = sealed.read(path, format=FORMAT, version=VERSION)
    about = json.loads(metadata["about"])
    result = change(about)
    text = result if isinstance(result, str) and result.startswith(("[", "{")) else None
    sealed.write(
        path, tensors, {"about": text or json.dumps(about)}, format=FORMAT, version=VERSION
    )


@pytest.mark.parametrize("value", [None, 3, "x", [1], {"a": {"b": [1]}}, True, 1e400, 10**400])
@pytest.mark.parametrize("name", ["recipe", "command", "seconds", "final", "settings", "step"])
def test_a_description_with_wrong_types_is_reported(runs: Path, name: str, value: Any) -> None:
    inner = name == "step"
    if (name in ("recipe", "command") and value == "x") or (name == "seconds" and value == 3):
        return
    if name == "settings" and isinstance(value, dict):
        return
    reseal(runs / "bad", lambda about: (about["final"] if inner else about).update({name: value}))
    found, damaged = load_both(runs)
    assert found == ["good"]
    assert damaged["bad"]


def test_foreign_files_notes_and_nested_json_are_reported(runs: Path) -> None:
    model = runs / "bad" / "model.safetensors"
    reseal(runs / "bad", lambda about: DEEP)
    note_run(runs, runs.parent / "away")
    (note,) = (runs / "elsewhere").iterdir()
    note.write_text(DEEP)
    found, damaged = load_both(runs)
    assert found == ["good"]
    assert "nested deeper" in damaged["bad"]
    assert "nested deeper" in damaged[f"elsewhere/{note.name}"]
    for content in (b"", b"\x08\0\0\0\0\0\0\0{}      ", os.urandom(99), b"PK\3\4"):
        model.write_bytes(content)
        assert load_both(runs)[1]["bad"]
    model.unlink()
    model.mkdir()
    assert load_both(runs)[0] == ["good"]


def test_random_damage_is_reported_or_harmless(runs: Path, whole: Path) -> None:
    """Files are cut, flipped, swapped or repeated: the damage is reported or has no effect."""
    chance = random.Random(0)
    good = {p.name: p.read_bytes() for p in (whole / "good").iterdir()}
    names = ("history.csv", "model.safetensors")
    (expected,) = load_finished_runs(whole)
    for _ in range(150):
        name = chance.choice(names)
        data = bytearray(good[name])
        kind = chance.choice(("cut", "flip", "swap", "repeat"))
        at = chance.randrange(len(data))
        if kind == "cut":
            del data[at:]
        elif kind == "flip":
            data[at] ^= 1 << chance.randrange(8)
        elif kind == "swap":
            data = bytearray(good[names[1 - names.index(name)]])
        else:
            data[at:at] = data[at : at + 40]
        for each in names:
            (runs / "bad" / each).write_bytes(data if each == name else good[each])
        damaged: dict[str, str] = {}
        found = list(load_finished_runs(runs, damaged.__setitem__))
        assert len(found) + len(damaged) == 2
        for run in found:
            assert {**run, "folder": "good"} == expected, (name, kind, at)


def test_file_names_that_are_not_utf_8_are_escaped(runs: Path, whole: Path) -> None:
    odd = Path(os.fsdecode(b"bad-\xff"))
    (runs / "bad").rename(runs / odd)
    shutil.copytree(whole / "good", runs.parent / odd)
    note_run(runs, runs.parent / odd)
    damaged: dict[str, str] = {}
    found = list(load_finished_runs(runs, damaged.__setitem__))
    places = {run["folder"] for run in found} | damaged.keys()
    assert places == {str(odd), "good", str(runs.parent / odd)}
    assert clean(str(odd)) in draw(found, damaged).encode().decode()


def test_the_report_lists_damaged_runs(
    run, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "select_claims", lambda words: [])
    monkeypatch.setattr(checking, "load_claims", dict)
    for name in ("build_certificates", "measure_convergence", "measure_regret"):
        monkeypatch.setattr(survey, name, lambda _: iter(()))
    for name in ("plot_step_deviations", "plot_error_against_layers", "plot_regret"):
        monkeypatch.setattr(f"innerloop.report.page.{name}", lambda rows: PLAIN_CHART)
    (runs / "bad" / "history.csv").write_text("step,loss\n")
    path = tmp_path / "report.html"
    found = run("report", "-o", str(path), "--runs", str(runs), "--json")
    assert found.code == 0
    (damaged,) = json.loads(found.out)["damaged"]
    assert damaged["folder"] == "bad"
    assert "history.csv is damaged: it has no rows" in damaged["reason"]
    assert len(found.err.splitlines()) == 1
    assert "the run in 'bad' is left out of the report" in found.err
    text = path.read_text("utf-8")
    assert "it has no rows: it was cut short" in text
    assert "<td>good<small>" in text


CELL = Cell("toy.one", "quick", 0, {"pause": 0.1})


def write_cell(store: Store, change: Any) -> Path:
    """Store a whole cell, then change its content and compute its sum again."""
    evidence = Evidence(parts=[Part(printed=Check(statement="a", passed=True, summary="b"))])
    code = collect_dependencies(toys.CLAIMS["toy.one"].location, [], CELL.settings)
    store.write(CELL, finish_cell(evidence.as_dict(), 1.0, code))
    path = store.path(CELL)
    file = json.loads(path.read_text("utf-8"))
    change(file["content"])
    file["sha256"] = digest_content(file["content"])
    path.write_text(json.dumps(file), "utf-8")
    return path


@pytest.mark.parametrize("value", [None, -1, "x", [1], {"a": 1}, True, 10**400])
@pytest.mark.parametrize("name", ["seconds", "made", "versions", "code", "cell"])
def test_a_cell_with_wrong_types_is_computed_again(tmp_path: Path, name: str, value: Any) -> None:
    messages: list[str] = []
    store = Store(tmp_path, messages.append)
    write_cell(store, lambda content: content.update({name: value}))
    found = store.read(CELL)
    if isinstance(value, str) and name in ("made", "code"):
        assert found is not None
        return
    assert found is None
    assert len(messages) == 1
    assert "is damaged and will be made again" in messages[0]


def test_a_cell_of_another_version_names_the_command_that_repeats_it(tmp_path: Path) -> None:
    """Its sum is right, but its evidence has what this version does not know."""
    store = Store(tmp_path, print)
    write_cell(store, lambda content: content["found"]["parts"][0]["printed"].update(mood="good"))

    def refuse() -> Any:
        raise AssertionError("nothing is left to run")

    (outcome,) = Run(store, refuse, claims=toys.CLAIMS).check(["toy.one"], "quick")
    assert outcome.state == "broken"
    assert "'mood'" in outcome.error
    assert "run `innerloop check toy.one --preset quick --fresh` to make it again" in outcome.error


def test_a_deeply_nested_cell_is_computed_again(tmp_path: Path) -> None:
    messages: list[str] = []
    store = Store(tmp_path, messages.append)
    path = write_cell(store, lambda content: None)
    assert store.read(CELL) is not None
    path.write_text(DEEP)
    assert store.read(CELL) is None
    assert "nested deeper than 100 levels" in messages[0]


@pytest.mark.parametrize("value", [3, None, ["x"], {"deep": [1]}])
def test_evidence_with_wrong_types_is_an_error(value: Any) -> None:
    check = Check(statement="a", passed=True, summary="b")
    evidence = Evidence(parts=[Part(printed=check)])
    object.__setattr__(check, "statement", value)  # as a file may have it, and a constructor not
    with pytest.raises(TypeError, match=r"parts\[0\]\.printed\.statement must be str"):
        check_types(evidence, Evidence, "its evidence")


def test_evidence_of_claims_has_the_declared_types() -> None:
    part = Part(printed=Check(statement="a", passed=None, summary=""))
    evidence = Evidence(parts=[part], numbers={"n": 3, "x": 0.5, "none": None, "yes": True})
    check_types(evidence, Evidence, "it")
    check_types(Evidence.from_dict(asdict(evidence)), Evidence, "it")


def test_a_figure_whose_numbers_are_text_is_shown_as_damaged() -> None:
    rows = [{"step": k, "loss": 1.0 / (1 + k), "method": "newton"} for k in range(3)]
    figure = asdict(draw_lines("a figure", rows, "step: step", "loss: loss", by="method"))
    assert draw_figure(figure).rows == rows
    figure["rows"][1]["step"] = "no number"
    damaged = draw_figure(figure)
    assert not damaged.rows
    title = damaged.spec["title"]["text"]
    assert title[:2] == ["a figure", "is damaged and cannot be drawn:"]
    assert "no number" in title[2]
