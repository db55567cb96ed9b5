"""What a training runs under: threads, versions, code; settings and losses that make no sense."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import resealed
import torch
from torch import Tensor, nn

from innerloop.errors import InputError
from innerloop.recipes.base import load, train
from innerloop.recipes.linear_regression import LinearRegressionRecipe
from innerloop.training.loop import DivergedError, Training, fit
from innerloop.training.settings import Settings

SMALL: dict[str, Any] = {"d": 2, "n": 4, "blocks": 1, "batch": 8, "steps": 6, "evaluate_every": 2}


class Stop(Exception):
    """Raised by a progress callback to leave a training in the middle."""


def train_small(**options: Any) -> Any:
    return train(LinearRegressionRecipe, **{**SMALL, **options})


@pytest.fixture
def two_threads() -> Any:
    """A caller that uses two threads, as Python does on a machine with two cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_python_trains_with_one_thread_and_restores_the_callers() -> None:
    seen: list[int] = []

    def progress(share: float, doing: str = "") -> None:
        seen.append(torch.get_num_threads())

    train_small(progress=progress)
    assert set(seen) == {1}
    assert torch.get_num_threads() == 2
    train_small(progress=progress, threads=3)
    assert seen[-1] == 3
    assert torch.get_num_threads() == 2

    def fail(share: float, doing: str = "") -> None:
        raise Stop

    with pytest.raises(Stop):
        train_small(progress=fail, threads=3)
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("threads", [0, -1, 10**9])
def test_a_number_of_threads_that_makes_no_sense_is_refused(threads: int) -> None:
    with pytest.raises(InputError, match="threads must be"):
        train_small(threads=threads)


def stop_halfway(folder: Path, **options: Any) -> None:
    def stop(share: float, doing: str = "") -> None:
        if share >= 0.5:
            raise Stop

    with pytest.raises(Stop):
        train_small(folder=folder, every=0, progress=stop, **options)


def test_files_record_threads_versions_and_code(tmp_path: Path) -> None:
    train_small(folder=tmp_path, threads=2)
    _, _, about = load(tmp_path / "model.safetensors")
    assert about["threads"] == 2
    assert about["versions"]["torch"] == torch.__version__
    assert len(about["code"]) == 16
    assert about["command"].endswith("--seed 0 --threads 2")
    (only,) = about["environments"]
    names = ("threads", "device", "processes", "versions", "code")
    assert only == {"step": 0, **{name: about[name] for name in names}}
    metadata, _ = resealed.read_parts(tmp_path / "checkpoint.safetensors")
    assert json.loads(metadata["about"])["environments"] == about["environments"]


def test_going_on_under_other_threads_is_said_and_recorded(tmp_path: Path) -> None:
    stop_halfway(tmp_path)
    notes: list[str] = []
    train_small(folder=tmp_path, resume=True, threads=2, notice=notes.append)
    (note,) = notes
    assert "(threads 1 then, 2 now)" in note
    _, _, about = load(tmp_path / "model.safetensors")
    assert [(e["step"], e["threads"]) for e in about["environments"]] == [(0, 1), (2, 2)]
    train_small(folder=tmp_path, resume=True, threads=2, notice=notes.append)
    assert len(notes) == 1, "nothing has changed since"


def test_going_on_under_other_versions_or_code_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from innerloop.training import environment

    stop_halfway(tmp_path)
    versions = environment.collect_versions()
    monkeypatch.setattr(environment, "collect_versions", lambda: {**versions, "torch": "9.9"})
    monkeypatch.setattr(environment, "digest_code", lambda owner: "0" * 16)
    with pytest.warns(UserWarning, match=r"\(torch .* then, 9.9 now, other code\)"):
        train_small(folder=tmp_path, resume=True)


def test_a_checkpoint_without_a_record_goes_on_with_a_notice(tmp_path: Path) -> None:
    stop_halfway(tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    metadata, tensors = resealed.read_parts(path)
    about = json.loads(metadata["about"])
    del about["environments"]
    resealed.reseal(path, {**metadata, "about": json.dumps(about)}, tensors)
    notes: list[str] = []
    train_small(folder=tmp_path, resume=True, notice=notes.append)
    assert "none are recorded" in notes[0]


def test_the_code_of_ones_own_recipe_is_part_of_the_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from innerloop.locations import load_object
    from innerloop.provenance import digest_code

    path = tmp_path / "mine.py"
    line = "from innerloop.recipes.linear_regression import LinearRegressionRecipe as Base\n"
    path.write_text(f"{line}class Mine(Base): pass\n")
    mine = load_object(f"{path}:Mine")
    first = digest_code(mine)
    assert first not in (digest_code(LinearRegressionRecipe), "")
    path.write_text(f"{line}class Mine(Base): x = 1\n")
    assert digest_code(mine) != first


@pytest.mark.parametrize("seed", [2**31, 2**32 - 1])
def test_large_seeds_train(seed: int) -> None:
    assert train_small(seed=seed).seed == seed


@pytest.mark.parametrize("seed", [-1, 2**32, 2**64, 10**400])
def test_seeds_out_of_range_are_refused(seed: Any) -> None:
    with pytest.raises(InputError, match="seed must be"):
        train_small(seed=seed)


@pytest.mark.parametrize(
    "words",
    [
        ("--seed", str(2**32)),
        ("--seed", str(2**32 - 1), "--seeds", "2"),
        ("--seeds", str(10**17)),
        ("--threads", "0"),
        ("-s", "steps=100000000000000000"),
        ("-s", "beta1=1"),
        ("-s", "learning_rate=inf"),
        ("-s", "optimizer=sgd", "-s", "beta2=0.5"),
    ],
)
def test_what_cannot_be_trained_is_one_line_and_makes_no_folder(
    run: Any, tmp_path: Path, words: tuple[str, ...]
) -> None:
    result = run("train", "linear-regression", *words, "-o", str(tmp_path / "run"))
    assert result.code == 2
    assert result.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta1": 1.0}, "beta1 must be below 1, got 1.0"),
        ({"beta2": 1}, "beta2 must be below 1, got 1.0"),
        ({"steps": 10**17}, "steps must be at most 1000000000, got 100000000000000000"),
        ({"evaluate_every": 10**12}, "evaluate_every must be at most"),
        ({"learning_rate": 1e300}, r"learning_rate must be at most 1e\+38, got 1e\+300"),
        ({"weight_decay": 1e300}, "weight_decay must be at most"),
        ({"learning_rate": math.inf}, "learning_rate must be finite, got inf"),
    ],
)
def test_settings_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Settings(**options)


@pytest.mark.parametrize("every", [-1.0, math.nan, math.inf])
def test_a_time_between_checkpoints_that_makes_no_sense_is_refused(every: Any) -> None:
    with pytest.raises(InputError, match="every must be"):
        train_small(every=every)


class Steep:
    """A loss of w⁴ that a step too large sends far away, but not to infinity."""

    def draw(self, generator: torch.Generator) -> None: ...

    def loss(self, model: nn.Module, batch: None) -> Tensor:
        (w,) = model.parameters()
        return w.pow(4).sum()

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"loss": float(self.loss(model, None))}


@pytest.mark.parametrize(("rate", "diverges"), [(1e5, True), (0.01, False)])
def test_a_loss_that_is_finite_but_absurd_is_divergence(rate: float, diverges: bool) -> None:
    model = nn.ParameterList([nn.Parameter(torch.ones(1, dtype=torch.float64))])
    settings = Settings(steps=2, evaluate_every=1, optimizer="sgd", learning_rate=rate)
    training = Training(model, Steep(), settings)
    if not diverges:
        assert fit(training).stop_reason == "steps"
        return
    with pytest.raises(
        DivergedError,
        match=r"at step 2: .*at step 0 it was 1, the loss was 2.56e\+22 a step before",
    ):
        fit(training)


def test_a_start_near_a_solution_may_grow() -> None:
    """The loss at step 0 may be tiny: growing to an ordinary size is no divergence."""
    model = nn.ParameterList([nn.Parameter(torch.full((1,), 1e-3, dtype=torch.float64))])
    settings = Settings(steps=3, evaluate_every=1, learning_rate=1.0)
    losses = [row["loss"] for row in fit(Training(model, Steep(), settings)).history]
    assert max(losses) > 1e6 * losses[0]


def test_weights_that_are_not_finite_are_never_stored(tmp_path: Path) -> None:
    class Blind(Steep):
        """An objective that does not notice, as one that cuts errors off would not."""

        def loss(self, model: nn.Module, batch: None) -> Tensor:
            return super().loss(model, batch).clamp_max(1.0) + 9 * next(model.parameters()).sum()

        def evaluate(self, model: nn.Module) -> dict[str, float]:
            return {"loss": 1.0}

    model = nn.ParameterList([nn.Parameter(torch.ones(1))])
    settings = Settings(steps=2, evaluate_every=1, optimizer="sgd", learning_rate=1e38)
    with pytest.raises(DivergedError, match="the weight 0 is not finite"):
        fit(Training(model, Blind(), settings), path=tmp_path / "c", every=0)
    _, tensors = resealed.read_parts(tmp_path / "c")
    assert all(bool(torch.isfinite(t).all()) for t in tensors.values() if t.is_floating_point())
