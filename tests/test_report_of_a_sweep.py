"""`innerloop report SWEEP`: one table, one figure, the best run named, whatever the files hold."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from innerloop.recipes.sweep_survey import survey_sweep
from innerloop.recipes.sweeps import Sweep, name_point
from innerloop.report.sweep import MAX_POINTS, plot_sweep, render_sweep

SMALL: dict[str, Any] = {"d": 2, "n": 4, "batch": 8, "steps": 4, "evaluate_every": 2}
GRID: dict[str, list[Any]] = {"learning_rate": [0.01, 0.001]}
ATTACK = "<img src=x onerror=ran()>\"'></script><script>ran()</script> \x1b[2J \udcff $policy"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of four runs, as `train --grid` leaves it."""
    from innerloop.recipes.base import train

    folder = tmp_path_factory.mktemp("sweep")
    plan = Sweep(folder, "linear-regression", SMALL, GRID, [0, 1]).write()
    for run in plan.runs:
        train("linear-regression", seed=run.seed, folder=run.folder, **SMALL, **run.point)
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    import shutil

    return Path(shutil.copytree(trained, tmp_path / "sweep"))


def list_rows(page: str) -> list[str]:
    return re.findall("<tr.*?</tr>", page.partition("<tbody>")[2], re.DOTALL)


def test_the_page_has_a_row_per_run_and_names_the_best(run: Any, folder: Path) -> None:
    place = folder.parent / "page.html"
    told = json.loads(run("report", str(folder), "-o", str(place), "--json").out)
    losses = {r["folder"]: r["loss"] for r in told["runs"]}
    assert told["best"] == min(losses, key=lambda name: losses[name])
    assert len(losses) == 4
    page = place.read_text("utf-8")
    rows = list_rows(page)
    assert len(rows) == 4
    for row, each in zip(rows, told["runs"], strict=True):
        assert f">{each['loss']:.4g}</td>" in row
        assert ('class="best"' in row) == (each["folder"] == told["best"])
    (best,) = (each for each in told["runs"] if each["folder"] == told["best"])
    title = f"learning_rate={best['point']['learning_rate']}, seed {best['seed']}"
    assert f"<h1>Best run: {title}</h1>" in page
    assert page.count("<svg") == 1
    assert "<script" not in page
    said = run("report", str(folder), "-o", str(place))
    assert f"best run: {folder / told['best']}, loss {best['loss']:.4g}" in said.out


def test_damaged_runs_are_shown_as_damaged_and_cost_no_other(run: Any, folder: Path) -> None:
    first, second = (folder / name_point({"learning_rate": rate}) for rate in (0.01, 0.001))
    (first / "seed-0" / "model.safetensors").write_bytes(b"not a file of weights")
    (first / "seed-1" / "run.json").write_text(ATTACK, "utf-8", "surrogatepass")
    history = second / "seed-0" / "history.csv"
    history.write_text(history.read_text() + f"{ATTACK},1\n", "utf-8", "surrogatepass")
    place = folder.parent / "page.html"
    said = run("report", str(folder), "-o", str(place))
    assert said.code == 0
    assert f"best run: {second / 'seed-1'}" in said.out
    page = place.read_text("utf-8")
    rows = list_rows(page)
    assert [">damaged<" in row for row in rows] == [True, True, True, False]
    assert "1 finished" in page
    assert "3 damaged" in page
    assert "<img" not in page
    found = run("identify", str(folder), "--prompts", "8", "--steps", "2", "--json")
    assert found.code == 0
    assert found.err.count("innerloop: the run in ") == 3
    assert [row["seed"] for row in json.loads(found.out)["rows"]] == [1]


def test_a_sweep_of_which_nothing_is_finished_says_so(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, "linear-regression", SMALL, GRID, [0])
    survey = survey_sweep(sweep)
    assert [run["state"] for run in survey["runs"]] == ["not begun"] * 2
    page = render_sweep(survey, "a command")
    assert "No run is finished" in page
    assert "2 not begun" in page
    assert "<svg" not in page


def make_survey(count: int, text: str = "") -> dict[str, Any]:
    """A survey of finished runs whose texts all hold something that could do harm."""
    runs = [
        {
            **{"point": {f"name{text}": f"{k}{text}"}, "seed": 0, "folder": f"{k}{text}"},
            **{"state": "finished", "remark": text, "step": 2, "loss": 1.0 + k},
            "measures": {f"measure{text}": 1.0},
            "history": [{"step": 0, "loss": 2.0 + k}, {"step": 2, "loss": 1.0 + k}],
        }
        for k in range(count)
    ]
    about = {"recipe": f"recipe{text}", "settings": {f"setting{text}": text}, "seeds": [0]}
    grid = {f"name{text}": [run["point"][f"name{text}"] for run in runs]}
    return {**about, "grid": grid, "folder": text, "runs": runs, "best": runs[0]["folder"]}


def test_hostile_text_is_shown_and_never_run() -> None:
    page = render_sweep(make_survey(2, ATTACK), ATTACK)
    assert "<script" not in page
    assert "<img" not in page
    assert "script-src ;" in page
    assert "onerror=ran()" in page, "it is shown"
    page.encode("utf-8")
    assert page.count("<svg") == 1


def test_the_figure_of_many_combinations_draws_the_best() -> None:
    survey = make_survey(MAX_POINTS + 5)
    page = render_sweep(survey, "a command")
    assert f"the {MAX_POINTS} best of {MAX_POINTS + 5}" in page
    assert len(list_rows(page)) == MAX_POINTS + 5
    spec = plot_sweep(survey["runs"], ["name=0", "name=3"], "3").to_dict()
    ends = spec["hconcat"][1]["data"]["values"]
    assert [(row["run"], row["loss"]) for row in ends] == [("0", 1.0), ("3", 4.0)]


def test_what_cannot_be_reported_is_one_line(run: Any, folder: Path, tmp_path: Path) -> None:
    for words, message in (
        ([str(tmp_path / "none")], "none: it is not a folder"),
        ([str(tmp_path)], "it contains no sweep.json"),
        ([str(folder), "--preset", "full"], "--preset applies to the report on all claims"),
        ([str(folder), "--workers", "2"], "--workers applies to the report on all claims"),
        ([str(folder), "-o", str(tmp_path / "no" / "page.html")], "there is no folder"),
        (["--definition", "x.py:y"], "--definition applies to a sweep"),
    ):
        refused = run("report", *words)
        assert refused.code == 2, words
        assert message in refused.err
        assert refused.err.count("\n") == 1
    (folder / "sweep.json").write_text("[]")
    assert "sweep.json is damaged" in run("report", str(folder)).err
