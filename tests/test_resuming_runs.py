"""Resumed runs: settings come from the run, the number of steps and the history can grow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import resealed
import torch
from torch import Tensor, nn

from innerloop import terminal
from innerloop.errors import FileError, InputError
from innerloop.recipes.base import format_command, load, train
from innerloop.recipes.linear_regression import LinearRegressionRecipe
from innerloop.recipes.listing import describe_folder
from innerloop.training import history as histories
from innerloop.training.history import digest_history, format_csv, read_history
from innerloop.training.loop import DivergedError, Training, fit
from innerloop.training.settings import Settings

SMALL: dict[str, Any] = {"d": 2, "n": 4, "blocks": 1, "batch": 8, "steps": 6, "evaluate_every": 2}


class Stop(Exception):
    """Raised by a progress callback to leave a training in the middle."""


def stop_at(share: float) -> Callable[..., None]:
    def stop(done: float, doing: str = "") -> None:
        if done >= share:
            raise Stop

    return stop


def begin(folder: Path, share: float = 0.5, **options: Any) -> None:
    """Train a small run until it has done a share of its steps, then leave it."""
    with pytest.raises(Stop):
        train(
            LinearRegressionRecipe,
            folder=folder,
            every=0,
            progress=stop_at(share),
            **{**SMALL, **options},
        )


def assert_same_weights(one: nn.Module, other: nn.Module) -> None:
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, other.state_dict()[name]), name


def test_resume_uses_the_settings_of_the_run(tmp_path: Path) -> None:
    begin(tmp_path / "run")
    whole = train(LinearRegressionRecipe, **SMALL)
    again = train("linear-regression", folder=tmp_path / "run", resume=True)
    assert again.recipe.values() == whole.recipe.values()
    assert_same_weights(whole.model, again.model)
    others: list[dict[str, Any]] = [{"d": 3}, {"learning_rate": 0.1}, {"batch": 9}]
    for settings in others:
        ((name, value),) = settings.items()
        there = again.recipe.values()[name]
        with pytest.raises(FileError, match=f"{name} is {there} there, {value} here"):
            train("linear-regression", folder=tmp_path / "run", resume=True, **settings)


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_resume_accepts_more_steps(tmp_path: Path, schedule: str) -> None:
    """Ended or not; with a constant rate it ends as one that was begun with as many."""
    settings = {**SMALL, "steps": 5, "schedule": schedule}
    train(LinearRegressionRecipe, folder=tmp_path, **settings)
    notes: list[str] = []
    options: dict[str, Any] = {"folder": tmp_path, "resume": True, "notice": notes.append}
    with pytest.raises(Stop):
        train("linear-regression", steps=9, every=0, progress=stop_at(0.75), **options)
    longer = train("linear-regression", steps=12, **options)
    assert [note.partition("safetensors ")[2] for note in notes] == [
        "continues to 9 steps; 5 were planned",
        "continues to 12 steps; 9 were planned",
    ]
    table = read_history(tmp_path / "history.csv", digest_history(longer.history))
    said = [(row["step"], row.get("steps")) for row in table]
    assert said == [
        *((0, None), (2, None), (4, None), (5, None)),
        *((6, 9), (8, 12), (10, 12), (12, 12)),
    ]
    _, _, about = load(tmp_path / "model.safetensors")
    assert about["settings"]["steps"] == 12
    assert about["extensions"] == [[5, 5], [6, 9]]
    assert "steps=12" in about["command"]
    if schedule == "constant":
        whole = train(LinearRegressionRecipe, **{**settings, "steps": 12})
        assert_same_weights(whole.model, longer.model)
    assert train("linear-regression", **options).step == 12, "nothing is left to do"
    with pytest.raises(FileError, match="number of steps can be increased, not reduced"):
        train("linear-regression", steps=11, **options)


def test_invalid_extensions_are_an_error(tmp_path: Path) -> None:
    train(LinearRegressionRecipe, folder=tmp_path, **SMALL)
    metadata, tensors = resealed.read_parts(tmp_path / "checkpoint.safetensors")
    for extensions in ([[7, 7]], [[6, 6]], [[2, 1]], [[0, 5], [6, 5]], [["a", 1]], 3):
        state = json.loads(metadata["state"])
        state["items"].append(["extensions", _pack(extensions)])
        changed = {**metadata, "state": json.dumps(state)}
        resealed.reseal(tmp_path / "checkpoint.safetensors", changed, tensors)
        with pytest.raises(FileError, match="does not contain a state of this training"):
            train("linear-regression", folder=tmp_path, resume=True)


def _pack(value: Any) -> Any:
    return {"list": [_pack(each) for each in value]} if isinstance(value, list) else value


def test_the_history_matches_the_checkpoint(tmp_path: Path) -> None:
    table, seen = tmp_path / "history.csv", list[list[float]]()

    def look(share: float, doing: str = "") -> None:
        seen.append([row["step"] for row in read_history(table)])

    trained = train(LinearRegressionRecipe, folder=tmp_path, progress=look, **SMALL)
    assert seen == [[0], [0, 2], [0, 2], [0, 2, 4], [0, 2, 4], [0, 2, 4, 6]]
    assert table.read_text() == format_csv(trained.history)
    begin(tmp_path / "late", 0.9, evaluate_every=1)
    late = tmp_path / "late" / "history.csv"
    whole = late.read_bytes()
    late.write_bytes(whole + whole.splitlines()[-1][:9])  # killed within a line
    assert [row["step"] for row in read_history(late, growing=True)] == [0, 1, 2, 3, 4, 5, 6]
    with pytest.raises(FileError, match="cut short"):
        read_history(late)
    again = train("linear-regression", folder=tmp_path / "late", resume=True)
    assert late.read_text() == format_csv(again.history), "rows since the checkpoint are made anew"


def test_an_unwritable_history_does_not_stop_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, notes = histories.write_history, list[str]()
    fails = [True, True, False]

    def write(path: Path, history: list[Any]) -> None:
        if fails.pop(0) if fails else False:
            raise FileError("no space left")
        real(path, history)

    monkeypatch.setattr(histories, "write_history", write)
    trained = train(LinearRegressionRecipe, folder=tmp_path, notice=notes.append, **SMALL)
    assert notes == ["the history is written only at the end: no space left"]
    assert (tmp_path / "history.csv").read_text() == format_csv(trained.history)


def test_settings_are_stored_in_a_readable_file(tmp_path: Path) -> None:
    begin(tmp_path)
    about = json.loads((tmp_path / "run.json").read_text())
    assert about["recipe"] == "linear-regression"
    assert about["settings"]["batch"] == 8
    assert about["command"].startswith("innerloop train linear-regression -s steps=6")
    assert (about["ended"], about["seed"], about["threads"]) == (None, 0, 1)
    train("linear-regression", folder=tmp_path, resume=True)
    assert json.loads((tmp_path / "run.json").read_text())["ended"] == "steps"


class Parabola:
    """A loss of w², which a step too large lets grow by any factor; 1 of predicting nothing."""

    def __init__(self, blank: float = 1.0) -> None:
        self.blank = blank

    def draw(self, generator: torch.Generator) -> None: ...

    def loss(self, model: nn.Module, batch: None) -> Tensor:
        (w,) = model.parameters()
        return w.square().sum()

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"loss": float(self.loss(model, None))}

    def compute_blank_loss(self, model: nn.Module) -> float:
        return self.blank


def train_parabola(factor: float, start: float, blank: float, steps: int = 1) -> Training:
    """Multiply w by a factor in every step."""
    model = nn.ParameterList([nn.Parameter(torch.tensor([start], dtype=torch.float64))])
    rate = (1 + factor) / 2
    settings = Settings(steps=steps, evaluate_every=1, optimizer="sgd", learning_rate=rate)
    return Training(model, Parabola(blank), settings)


@pytest.mark.parametrize(
    ("factor", "start", "blank", "diverges"),
    [
        (31.0, 1.0, 1.0, False),  # 961 times
        (32.0, 1.0, 1.0, True),  # 1024 times
        (32.0, 0.1, 0.01, True),
        (32.0, 0.1, 1.0, False),  # no more than ten times what predicting nothing gives
        (1e20, 10.0, 1.0, True),
    ],
)
def test_a_thousandfold_loss_counts_as_divergence(
    factor: float, start: float, blank: float, diverges: bool
) -> None:
    training = train_parabola(factor, start, blank, steps=2)
    if diverges:
        with pytest.raises(DivergedError, match="diverged at step 2: the loss is"):
            fit(training)
    else:
        assert fit(training).stop_reason == "steps"


def test_a_heavy_tail_does_not_count_as_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ahn et al.'s expected loss is dominated by prompts that no batch has."""
    losses = iter([1.0, 1e9, 1e9, 1e9])
    monkeypatch.setattr(Parabola, "evaluate", lambda self, model: {"loss": next(losses)})
    assert fit(train_parabola(0.5, 1.0, 1.0, steps=3)).stop_reason == "steps"


def test_a_run_that_learned_nothing_is_reported() -> None:
    stuck = fit(train_parabola(1.0, 1.0, 1.0, steps=3))
    assert stuck.describe_plateau().startswith("it learned nothing: its loss is 1, that of pred")
    assert not fit(train_parabola(0.5, 1.0, 1.0, steps=3)).describe_plateau()
    assert not fit(train_parabola(0.5, 4.0, 1.0, steps=3)).describe_plateau()


def test_the_command_resumes_without_settings(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [word for key, value in SMALL.items() for word in ("-s", f"{key}={value}")]
    begin(Path("mine/seed-3"), 0.5, seed=3, learning_rate=0.0, scale=0.0)
    found = run("train", "mine", "--resume")
    assert found.code == 0, found.err
    assert "seed 3: it learned nothing: its loss is" in found.out
    begun = run("train", "linear-regression", *words, "--json")
    (one,) = json.loads(begun.out)
    folder = Path(one["folder"]).parent
    assert json.loads((folder / "seed-0" / "run.json").read_text())["ended"] == "steps"
    longer = run("train", "linear-regression", "--resume", "-s", "steps=8", "--json")
    assert longer.code == 0, longer.err
    (other,) = json.loads(longer.out)
    assert (other["folder"], other["steps"]) == (one["folder"], 8)
    assert "continues to 8 steps; 6 were planned" in longer.err
    begin(folder.parent / "a" / "seed-0")
    begin(folder.parent / "b" / "seed-1", seed=1, learning_rate=0.5)
    unclear = run("train", "linear-regression", "--resume")
    assert unclear.code == 2
    assert "2 runs of linear-regression match: resume one by its folder" in unclear.err
    chosen = run("train", "linear-regression", "--resume", "-s", "learning_rate=0.5", "--json")
    assert [each["seed"] for each in json.loads(chosen.out)] == [1]
    wrong = run("train", str(folder.parent / "a"), "--resume", "-s", "d=3")
    assert wrong.code == 2
    assert "d is 2 there, 3 here" in wrong.err


def test_more_steps_keep_the_settings_of_the_run(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default warmup of this recipe is longer than the steps that the run is given."""
    monkeypatch.chdir(tmp_path)
    sizes = {"d": 2, "n": 3, "batch": 4, "blocks": 1, "heads": 1, "warmup": 0, "sparsity": 1}
    words = [word for key, value in sizes.items() for word in ("-s", f"{key}={value}")]
    begun = run("train", "small-transformer", *words, "-s", "steps=2", "--json")
    assert begun.code == 0, begun.err
    (one,) = json.loads(begun.out)
    for steps, name in ((3, "small-transformer"), (4, str(Path(one["folder"]).parent))):
        longer = run("train", name, "--resume", "-s", f"steps={steps}", "--json")
        assert longer.code == 0, longer.err
        (other,) = json.loads(longer.out)
        assert (other["folder"], other["steps"]) == (one["folder"], steps)
    refused = run("train", "small-transformer", "--resume", "-s", "steps=5", "-s", "d=3")
    assert refused.code == 2
    assert "warmup must be shorter than steps=5, got 200" in refused.err, "no such run: a new one"


def test_resuming_an_own_recipe_needs_its_name(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = "from innerloop.recipes.linear_regression import LinearRegressionRecipe as Base\n"
    Path("own.py").write_text(f"{line}class Mine(Base): pass\nready = Mine(d=2, n=3, batch=4)\n")
    first = run("train", "own.py:ready", "-s", "steps=2", "-o", "mine", "--json")
    assert first.code == 0, first.err
    refused = run("train", "mine", "--resume")
    assert refused.code == 2
    assert "own.py:Mine -o mine --resume" in refused.err
    again = run("train", "own.py:Mine", "-o", "mine", "--resume", "-s", "steps=3", "--json")
    (one,) = json.loads(again.out)
    assert (one["steps"], one["settings"]["d"], one["settings"]["batch"]) == (3, 2, 4)


def test_progress_prints_lines_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: clock[0])
    with terminal.progress_bar("training") as progress:
        for k in range(1, 9):
            clock[0] += 20
            progress(k / 10, f"step {k}, loss 0.5")
    assert capsys.readouterr().err.splitlines() == [
        "innerloop: training 20%, step 2, loss 0.5, 3 min left",
        "innerloop: training 30%, step 3, loss 0.5, 2 min left",
        "innerloop: training 50%, step 5, loss 0.5, 100 s left",
        "innerloop: training 60%, step 6, loss 0.5, 80 s left",
        "innerloop: training 80%, step 8, loss 0.5, 40 s left",
    ]


def test_resume_accepts_the_folder_of_one_seed(run: Any, tmp_path: Path) -> None:
    begin(tmp_path / "mine" / "seed-3", seed=3)
    begin(tmp_path / "mine" / "seed-4", seed=4)
    place = str(tmp_path / "mine" / "seed-3")
    for words in (["--seed", "4"], ["--seeds", "2"]):
        refused = run("train", place, "--resume", *words)
        assert refused.code == 2
        assert "the run with seed 3: leave --seed and --seeds out" in refused.err
    for words in ([place], ["linear-regression", "-o", place]):
        found = run("train", *words, "--resume", "--json")
        assert found.code == 0, found.err
        (one,) = json.loads(found.out)
        assert (one["folder"], one["seed"], one["steps"]) == (place, 3, 6)
    assert not (tmp_path / "mine" / "seed-4" / "model.safetensors").exists()
    begin(tmp_path / "other")
    refused = run("train", str(tmp_path / "other"), "--resume")
    assert refused.code == 2
    assert "is not named by its seed: continue it in Python" in refused.err


def test_an_extended_run_is_not_finished(tmp_path: Path) -> None:
    folder = tmp_path / "seed-0"
    train(LinearRegressionRecipe, folder=folder, **SMALL)
    again = train("linear-regression", folder=folder, resume=True)
    assert (again.step, describe_folder(folder)["state"]) == (6, "finished")
    options: dict[str, Any] = {"folder": folder, "resume": True, "notice": lambda text: None}
    with pytest.raises(Stop):
        train("linear-regression", steps=12, progress=stop_at(0.6), **options)
    assert describe_folder(folder)["state"] == "stopped"
    assert not (folder / "model.safetensors").exists()
    assert train("linear-regression", **options).step == 12
    assert describe_folder(folder)["state"] == "finished"


def test_ignored_settings_are_an_error() -> None:
    with pytest.raises(InputError, match="draws=numpy needs n at least d=5, got n=4"):
        train("linear-attention", draws="numpy", d=5, n=4)
    with pytest.raises(InputError, match="tensorboard needs a folder"):
        train("linear-regression", tensorboard=True, **SMALL)


def test_the_recorded_command_starts_several_processes() -> None:
    recipe = LinearRegressionRecipe(**SMALL)
    alone = format_command(recipe, 1, {"processes": 1})
    assert format_command(recipe, 1, {"processes": 2}) == f"torchrun --nproc-per-node 2 -m {alone}"
