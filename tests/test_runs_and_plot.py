"""`innerloop runs` and `innerloop plot`: what is there, in which state, and its curves."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from test_resuming_runs import SMALL, begin

from innerloop.errors import FileError
from innerloop.recipes.base import train
from innerloop.recipes.linear_regression import LinearRegressionRecipe
from innerloop.recipes.listing import describe_folder, load_curves
from innerloop.report.curves import plot_runs
from innerloop.training.loop import DivergedError


def train_small(folder: Path, **options: Any) -> Any:
    return train(LinearRegressionRecipe, folder=folder, **{**SMALL, **options})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Results with a finished, a stopped, a diverged and a damaged run."""
    root = tmp_path / "results" / "runs"
    train_small(root / "done" / "seed-0")
    begin(root / "half" / "seed-1", seed=1)
    with pytest.raises(DivergedError):
        train_small(root / "wild", learning_rate=1e30, clip=None)
    (root / "bad").mkdir()
    (root / "bad" / "run.json").write_text("{}")
    return root


def test_runs_are_listed_in_their_states(run: Any, root: Path) -> None:
    found = {each["folder"]: each for each in json.loads(run("runs", "--json").out)}
    states = {name: each["state"] for name, each in found.items()}
    assert states == {
        "done/seed-0": "finished",
        "half/seed-1": "stopped",
        "wild": "diverged",
        "bad": "damaged",
    }
    assert (found["half/seed-1"]["step"], found["half/seed-1"]["steps"]) == (2, 6)
    assert found["done/seed-0"]["loss"] == pytest.approx(found["done/seed-0"]["loss"])
    assert found["wild"]["remark"].startswith("training diverged at step")
    shown = run("runs").out
    assert re.search(r"half/seed-1 +linear-regression +stopped +2 of 6 +\d", shown)
    assert "bad: it does not contain the name of a recipe" in shown
    (root / "done" / "seed-0" / "run.json").unlink()  # as an older version left it
    (root / "half" / "seed-1" / "run.json").unlink()
    assert describe_folder(root / "done" / "seed-0")["state"] == "finished"
    assert describe_folder(root / "half" / "seed-1")["state"] == "stopped"


def test_a_run_under_way_is_running_and_asking_does_not_stop_it(run: Any, tmp_path: Path) -> None:
    states: list[str] = []

    def look(share: float, doing: str = "") -> None:
        states.append(describe_folder(tmp_path / "run")["state"])

    train_small(tmp_path / "run", progress=look)
    assert set(states) == {"running"}
    assert describe_folder(tmp_path / "run")["state"] == "finished"
    assert "no runs in" in run("runs", "--results", str(tmp_path / "none")).out


def test_several_runs_are_one_figure(
    run: Any, root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    train_small(root / "more" / "seed-0", learning_rate=0.01)
    train_small(root / "more" / "seed-1", learning_rate=0.01, seed=1)
    monkeypatch.chdir(tmp_path)
    places = [str(root / name) for name in ("done", "half", "more")]
    found = run("plot", *places, "-o", "curves.png", "--json")
    assert found.code == 0, found.err
    about = json.loads(found.out)
    names = ["done/seed-0", "half/seed-1", "more/seed-0", "more/seed-1"]
    assert [each["name"] for each in about["runs"]] == names
    groups = [each["group"] for each in about["runs"]]
    assert groups == ["learning_rate=0.003"] * 2 + ["learning_rate=0.01"] * 2
    losses = {each["name"]: each["history"][-1]["loss"] for each in about["runs"]}
    assert about["best"] == min(losses, key=lambda name: losses[name])
    assert Path("curves.png").read_bytes().startswith(b"\x89PNG")
    page = run("plot", places[0], "-o", "one.html")
    assert page.code == 0
    assert "done/seed-0" in Path("one.html").read_text()
    for words, message in (
        (["nowhere"], "nowhere contains no run: it does not exist"),
        ([str(tmp_path / "results" / "runs" / "bad")], "no history.csv in it"),
        ([places[0], "-o", "a.gif"], "must end in .html, .png, .svg"),
        ([places[0], "--measure", "los"], "did you mean 'loss'?"),
    ):
        refused = run("plot", *words)
        assert refused.code == 2
        assert message in refused.err
        assert refused.err.count("\n") == 1


def test_a_figure_has_every_number_of_its_runs(tmp_path: Path) -> None:
    trained = train("linear-attention", folder=tmp_path, d=2, n=4, batch=16, steps=4)
    (one,) = load_curves([tmp_path])
    spec = plot_runs([one]).to_dict()
    drawn = [row for row in spec["data"]["values"] if "m0" in row]
    assert [row["m0"] for row in drawn] == [row["loss"] for row in trained.history]
    titles = [panel["encoding"]["y"]["title"] for panel in spec["concat"]]
    assert titles[:3] == ["loss", "standard error", "dist A0 whitened"]
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "history.csv").write_text("step,loss")
    with pytest.raises(FileError, match="was cut short"):
        load_curves([tmp_path])
