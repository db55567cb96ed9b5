"""Training: a run that is stopped and resumed ends with the same weights, bit for bit."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import multiprocessing
import os
import random
import resource
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import Tensor, nn

from innerloop.constructions.base import Construction
from innerloop.constructions.preconditioned_gradient_descent import (
    PreconditionedGradientDescentConstruction,
)
from innerloop.errors import FileError, InputError
from innerloop.recipes.base import Recipe, format_command, load, train
from innerloop.recipes.runs import load_finished_runs
from innerloop.registry import load_members
from innerloop.results import find_results
from innerloop.testing import check_recipe
from innerloop.training import checkpoint
from innerloop.training.history import format_csv
from innerloop.training.loop import DivergedError, Training, fit
from innerloop.training.objective import SquaredError
from innerloop.training.settings import Settings
from innerloop.training.start import perturb

SMALL: dict[str, Any] = {"d": 2, "n": 4, "blocks": 2, "batch": 8, "steps": 30, "evaluate_every": 10}


class QuadraticLoss:
    """A small objective: (w − b)ᵀ C (w − b) / 2, where b is 1 plus normal noise."""

    curvature = torch.tensor([[3.0, 1.0], [1.0, 2.0]], dtype=torch.float64)

    def __init__(self, noise: float = 0.1) -> None:
        self.noise = noise

    def draw(self, generator: torch.Generator) -> Tensor:
        return 1 + self.noise * torch.randn(2, generator=generator, dtype=torch.float64)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        away = model(batch)
        return away @ self.curvature @ away / 2

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"loss": float(self.loss(model, torch.ones(2, dtype=torch.float64)))}


class PointModel(nn.Module):
    """A model with two weights, and dropout so that the global generator matters."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(2, dtype=torch.float64))
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: Tensor) -> Tensor:
        return self.dropout(self.w - batch)


def drop_seconds(history: list[dict[str, float]]) -> list[dict[str, float]]:
    """The history without its times, which differ from run to run."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in history]


def get_weights(model: nn.Module) -> dict[str, Tensor]:
    return dict(model.state_dict())


def assert_same(one: nn.Module, other: nn.Module) -> None:
    for name, weight in get_weights(one).items():
        assert torch.equal(weight, get_weights(other)[name]), name


OPTIMISERS = [
    {"optimizer": "adam", "beta1": 0.8, "weight_decay": 0.01},
    {"optimizer": "adamw", "schedule": "cosine", "warmup": 3},
    {"optimizer": "sgd", "momentum": 0.9, "schedule": "halving", "period": 7, "clip_each": 0.5},
    {"optimizer": "lbfgs", "redraw": 0},
    {"optimizer": "adam", "redraw": 4, "schedule": "linear", "clip": 0.1},
]


@pytest.mark.parametrize("options", OPTIMISERS)
def test_a_run_stopped_after_every_step_ends_like_an_uninterrupted_one(
    options: dict[str, Any], tmp_path: Path
) -> None:
    """Every step starts from a new model and the checkpoint file, as a new process would."""
    settings = Settings(steps=12, learning_rate=0.05, evaluate_every=5, **options)
    whole = fit(Training(PointModel(0.3), QuadraticLoss(), settings, seed=3))
    path = tmp_path / "checkpoint.safetensors"
    part = None
    for _ in range(12):
        part = Training(PointModel(0.3), QuadraticLoss(), settings, seed=3)
        with checkpoint.isolate_random_states(part.seed):
            if path.exists():
                part.restore(checkpoint.read(path)[1])
            part.advance()
            checkpoint.write(path, {}, part.capture_state())
    assert part is not None
    assert part.stop_reason == "steps"
    assert_same(whole.model, part.model)
    assert drop_seconds(whole.history) == drop_seconds(part.history)
    assert [row["step"] for row in whole.history] == [0, 5, 10, 12]
    other = fit(Training(PointModel(0.3), QuadraticLoss(), settings, seed=4))
    assert not torch.equal(get_weights(other.model)["w"], get_weights(whole.model)["w"])


@pytest.mark.parametrize(("redraw", "distinct"), [(1, 8), (4, 2), (3, 3), (0, 1)])
def test_batches_are_redrawn_at_the_given_period_and_follow_from_the_seed(
    redraw: int, distinct: int
) -> None:
    def record_batches(seed: int) -> list[tuple[float, ...]]:
        batches = list[tuple[float, ...]]()

        class RecordingLoss(QuadraticLoss):
            def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
                batches.append(tuple(batch.tolist()))
                return super().loss(model, batch)

            def evaluate(self, model: nn.Module) -> dict[str, float]:
                return {"loss": 1.0}

        fit(Training(PointModel(), RecordingLoss(), Settings(steps=8, redraw=redraw), seed))
        return batches

    recorded = record_batches(0)
    assert len(recorded) == 8
    assert len(set(recorded)) == distinct
    period = redraw or 8
    assert all(recorded[k] == recorded[k - k % period] for k in range(8)), (
        "equal batches follow each other"
    )
    assert recorded == record_batches(0)
    assert not set(recorded) & set(record_batches(1))


def test_the_callers_generators_are_left_alone() -> None:
    """Python's generator is checked separately: the type checker of the tests draws from it."""

    def draw_after_seeding() -> tuple[float, float]:
        torch.manual_seed(7)
        np.random.seed(7)
        return float(torch.rand(1)), np.random.rand()

    before = draw_after_seeding()
    torch.manual_seed(7)
    np.random.seed(7)
    fit(Training(PointModel(0.5), QuadraticLoss(), Settings(steps=3, evaluate_every=3)))
    assert (float(torch.rand(1)), np.random.rand()) == before
    state = random.getstate()
    with checkpoint.isolate_random_states(1):
        number = random.random()
    assert random.getstate() == state
    with checkpoint.isolate_random_states(1):
        assert random.random() == number


@pytest.mark.parametrize("options", OPTIMISERS)
def test_every_optimiser_finds_what_scipy_finds(options: dict[str, Any]) -> None:
    relevant = {k: v for k, v in options.items() if k in ("optimizer", "momentum", "redraw")}
    rate = 0.5 if options["optimizer"] == "lbfgs" else 0.1
    settings = Settings(steps=300, learning_rate=rate, schedule="linear", **relevant)
    found = fit(Training(PointModel(), QuadraticLoss(noise=0.0), settings))
    C = QuadraticLoss.curvature.numpy()
    best = scipy.optimize.minimize(lambda w: (w - 1) @ C @ (w - 1) / 2, np.zeros(2), tol=1e-12)
    np.testing.assert_allclose(get_weights(found.model)["w"].numpy(), best.x, atol=1e-3)


def test_schedules_of_the_learning_rate() -> None:
    def compute_rates(**options: Any) -> list[float]:
        settings = Settings(steps=8, learning_rate=2.0, **options)
        return [settings.learning_rate_at(k) for k in range(8)]

    assert compute_rates() == [2.0] * 8
    assert compute_rates(schedule="halving", period=3) == [2, 2, 2, 1, 1, 1, 0.5, 0.5]
    np.testing.assert_allclose(compute_rates(schedule="linear"), 2 - np.arange(8) / 4)
    np.testing.assert_allclose(
        compute_rates(schedule="cosine"), 1 + np.cos(np.pi * np.arange(8) / 8)
    )
    np.testing.assert_allclose(compute_rates(warmup=3), [0.5, 1.0, 1.5, *[2.0] * 5])


def test_gradients_are_clipped_per_matrix_or_in_total() -> None:
    original = [torch.randn(2, 3, 3), torch.randn(4)]
    model = nn.ParameterList([nn.Parameter(torch.zeros_like(gradient)) for gradient in original])
    gradients = [gradient.clone() for gradient in original]
    for weight, gradient in zip(model, gradients, strict=True):
        weight.grad = gradient
    norm = Settings(clip_each=0.5).clip_gradients(model)
    np.testing.assert_allclose(norm, np.linalg.norm(np.concatenate([g.ravel() for g in original])))
    for k in range(2):
        expected = original[0][k].numpy() * min(1, 0.5 / np.linalg.norm(original[0][k]))
        np.testing.assert_allclose(gradients[0][k], expected, rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(gradients[1]), 0.5, rtol=1e-6)
    Settings(clip=0.1).clip_gradients(model)
    total = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))
    np.testing.assert_allclose(total, 0.1, rtol=1e-4)


def test_training_stops_early_at_its_target_or_out_of_patience() -> None:
    convergent = Training(
        PointModel(), QuadraticLoss(0.0), Settings(steps=500, learning_rate=0.1, target=1e-3)
    )
    assert fit(convergent).stop_reason == "target"
    assert convergent.step < 500
    assert convergent.history[-1]["loss"] <= 1e-3
    noisy = Settings(steps=400, learning_rate=0.3, optimizer="sgd", evaluate_every=1, patience=3)
    stopped = fit(Training(PointModel(), QuadraticLoss(5.0), noisy))
    assert stopped.stop_reason == "patience"
    losses = [row["loss"] for row in stopped.history]
    assert min(losses[-3:]) > min(losses)
    assert len(losses) - 1 - int(np.argmin(losses)) == 3


def test_divergence_is_reported_before_it_reaches_the_weights(tmp_path: Path) -> None:
    settings = Settings(steps=3000, learning_rate=10.0, optimizer="sgd", evaluate_every=3000)
    training = Training(PointModel(), QuadraticLoss(), settings)
    with pytest.raises(DivergedError, match=r"diverged at step \d+: .*learning_rate=1\)"):
        fit(training, path=tmp_path / "c.safetensors", every=0)
    _, state = checkpoint.read(tmp_path / "c.safetensors")
    assert bool(torch.isfinite(state["model"]["w"]).all()), "the last good state is kept"
    assert 0 < state["step"] < 3000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"optimizer": "adam", "momentum": 0.5}, "adam does not use momentum: leave it out"),
        ({"optimizer": "lbfgs", "redraw": 0, "clip": 1.0}, "lbfgs does not use clip"),
        ({"optimizer": "sgd", "beta1": 0.5}, "sgd does not use beta1"),
        ({"optimizer": "lbfgs"}, "L-BFGS needs the same batch in all steps: set redraw=0"),
        ({"schedule": "halving"}, "halving needs a period"),
        ({"period": 3}, "other schedules have none"),
        ({"steps": 5, "warmup": 5}, "warmup must be shorter than steps=5, got 5"),
        ({"learning_rate": math.nan}, "learning_rate must be finite, got nan"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Settings(**options)


def test_a_model_without_weights_is_refused() -> None:
    with pytest.raises(InputError, match="no weights to train"):
        Training(nn.Identity(), QuadraticLoss(), Settings())


def test_packing_and_unpacking_a_tree_changes_nothing() -> None:
    tree = {"a": [1, (2.5, None)], 3: {"b": torch.arange(3), "c": []}, "d": (True, "x")}
    tensors: dict[str, Tensor] = {}
    again = checkpoint.unpack(json.loads(json.dumps(checkpoint.pack(tree, tensors))), tensors)
    assert torch.equal(again[3].pop("b"), tree[3].pop("b"))
    assert again == tree


def test_the_history_is_a_table(tmp_path: Path) -> None:
    trained = train("linear-regression", folder=tmp_path / "run", **SMALL)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "run" / "history.csv").read_text())))
    assert [row["step"] for row in rows] == ["0", "10", "20", "30"]
    assert [float(row["loss"]) for row in rows] == [row["loss"] for row in trained.history]
    assert format_csv(trained.history).count("\n") == 5


@pytest.mark.parametrize("name", sorted(load_members("recipes", Recipe)))
def test_every_recipe_trains_saves_and_loads(name: str) -> None:
    check_recipe(load_members("recipes", Recipe)[name])


def test_a_model_file_holds_the_command_that_reproduces_it(tmp_path: Path) -> None:
    trained = train("linear-regression", seed=1, folder=tmp_path / "run", **SMALL)
    recipe, model, about = load(tmp_path / "run" / "model.safetensors")
    assert about["command"] == format_command(trained.recipe, 1)
    fresh = recipe.build_model(torch.Generator().manual_seed(1))
    assert any(not torch.equal(w, get_weights(fresh)[k]) for k, w in get_weights(model).items())


@pytest.mark.parametrize("name", sorted(load_members("constructions", Construction)))
def test_dense_weights_compute_the_same(name: str) -> None:
    least = {"d": 2, "n": 3, "steps": 1}
    small = {"ucb-vi": least, "packed-ucb-vi": least}
    construction = load_members("constructions", Construction)[name].from_values(
        small.get(name, {})
    )
    (distribution, *_) = construction.distributions()
    problem = distribution.sample(2, generator=torch.Generator().manual_seed(0))
    dense = construction.transformer.to_dense()
    prompt, context = construction.prompt(problem), construction.context_length(problem)
    with torch.no_grad():
        expected = construction.transformer(prompt, context)
        found = dense(prompt, context)
    scale = float(expected.abs().max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * max(1.0, scale))
    assert all(w.requires_grad for w in dense.parameters())
    perturb(dense, 0.1, torch.Generator().manual_seed(1))
    assert not np.allclose(dense(prompt, context).detach(), expected, atol=1e-9 * max(1.0, scale))


def test_training_starts_from_or_near_a_construction() -> None:
    built = PreconditionedGradientDescentConstruction(
        d=2, n=4, steps=2, preconditioners="identity", step_size=0.5
    )
    starts = {}
    for start in ("construction", "near"):
        trained = train("linear-regression", start=start, **{**SMALL, "steps": 1})
        starts[start] = trained.history[0]["loss"]
    objective = SquaredError(
        trained.recipe.build_distribution(),
        8,
        lambda model, p: built.decode(p, built.transformer.float()(built.prompt(p))),
    )
    assert starts["construction"] == pytest.approx(
        objective.evaluate(built.transformer)["loss"], rel=1e-6
    )
    assert starts["near"] != starts["construction"]


LONG: dict[str, Any] = {**SMALL, "steps": 300, "evaluate_every": 50}


def train_in_child(folder: Path, every: float, channel: Any) -> None:
    """Train or resume, send the progress, and exit with 0, or with 130 if interrupted."""
    resume = (folder / "checkpoint.safetensors").exists()
    with contextlib.suppress(KeyboardInterrupt):
        train(
            "linear-regression",
            seed=1,
            folder=folder,
            resume=resume,
            every=every,
            progress=lambda share, doing="": channel.send(share),
            **LONG,
        )
        os._exit(0)
    os._exit(130)


def start_training(folder: Path, every: float, steps: int) -> tuple[Any, Any]:
    """Start a process that trains; return it and its pipe after it has done `steps` steps."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=train_in_child, args=(folder, every, sender))
    process.start()
    sender.close()
    with contextlib.suppress(EOFError):
        for _ in range(steps):
            receiver.recv()
    return process, receiver


def test_killed_at_random_moments_it_ends_with_the_same_weights(tmp_path: Path) -> None:
    """Checkpoints are written after every step, so most kills hit one being written."""
    whole = train("linear-regression", seed=1, folder=tmp_path / "whole", **LONG)
    rng, run, last_step = random.Random(1), tmp_path / "run", 0
    for _ in range(6):
        process, receiver = start_training(run, 0.0, rng.randrange(5, 40))
        time.sleep(rng.uniform(0, 0.01))
        process.kill()
        process.join()
        receiver.close()
        assert process.exitcode == -signal.SIGKILL
        step = checkpoint.read(run / "checkpoint.safetensors")[1]["step"]
        assert last_step < step < LONG["steps"]
        last_step = step
    trained = train("linear-regression", seed=1, folder=run, resume=True, **LONG)
    _, model, about = load(run / "model.safetensors")
    assert_same(model, whole.model)
    assert drop_seconds(trained.history) == drop_seconds(whole.history)
    assert about["final"] == trained.history[-1]
    assert not list(run.glob(".innerloop-*")), "what killed writes left is gone"


def test_an_interrupt_saves_a_checkpoint(tmp_path: Path) -> None:
    process, receiver = start_training(tmp_path / "run", 1000.0, 20)
    os.kill(process.pid, signal.SIGINT)
    process.join()
    receiver.close()
    assert process.exitcode == 130
    _, state = checkpoint.read(tmp_path / "run" / "checkpoint.safetensors")
    assert 20 <= state["step"] < LONG["steps"]


@pytest.fixture
def command_line(run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    words = [f"-s{key}={value}" for key, value in SMALL.items()]
    return lambda *rest: run("train", "linear-regression", *words, *rest)


def test_the_command_line_trains_and_resumes(command_line, tmp_path: Path) -> None:
    result = command_line("--seeds", "2", "--json")
    assert result.code == 0, result.err
    runs = json.loads(result.out)
    assert [r["seed"] for r in runs] == [0, 1]
    assert runs[0]["final"]["loss"] != runs[1]["final"]["loss"]
    folder = Path(runs[0]["folder"])
    assert folder.parent.parent == find_results() / "runs"
    resumed = command_line("--seeds", "3", "--resume")
    assert resumed.code == 0, resumed.err
    assert f"written to {folder.parent}" in resumed.out
    assert (folder.parent / "seed-2" / "model.safetensors").exists()
    refused = command_line()
    assert refused.code == 2
    assert "already contains a run: continue it with --resume" in refused.err


def test_a_users_mistake_is_one_line(command_line, run, tmp_path: Path) -> None:
    cases = {
        ("train", "linear-regresion"): "did you mean 'linear-regression'?",
        ("train", "linear-regression", "-s", "d=0"): "d must be at least 1, got 0",
        ("train", "linear-regression", "-s", "n=0"): "n must be at least 1, got 0",
        ("train", "linear-regression", "-s", "blcks=2"): "did you mean 'blocks'?",
        ("train", "linear-regression", "--seeds", "0"): "seeds must be at least 1, got 0",
        ("train", "linear-regression", "--seed", "-1"): "seed must be at least 0 and below",
        ("train", "linear-regression", "-s", "noise=0.1"): "start=random does not use noise",
        ("train", "linear-regression", "-s", "heads=2", "-s", "start=near"): "with one head",
    }
    for words, message in cases.items():
        result = run(*words)
        assert result.code == 2, words
        assert message in result.err
        assert result.err.count("\n") == 1
    diverged = command_line("-s", "learning_rate=1e30", "-s", "clip=none", "-o", "wild")
    assert diverged.code == 2
    assert "training diverged at step" in diverged.err
    assert Path("wild/seed-0/history.csv").exists()
    assert command_line("-o", "mine").code == 0
    different = run("train", "linear-regression", "-s", "d=3", "-o", "mine", "--resume")
    assert different.code == 2
    assert "belongs to another training" in different.err
    assert "d is 2 there, 3 here" in different.err
    Path("file").write_text("")
    assert "cannot train into file/seed-0: it is not a folder" in command_line("-o", "file").err


def test_a_damaged_checkpoint_is_refused(command_line, tmp_path: Path) -> None:
    assert command_line("-o", "mine").code == 0
    path = Path("mine/seed-0/checkpoint.safetensors")
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data))
    result = command_line("-o", "mine", "--resume")
    assert result.code == 2
    assert "is damaged" in result.err


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """Failed checkpoints give a notice, the last good one stays, and the run ends in an error."""
    path, messages = tmp_path / "c.safetensors", list[str]()
    settings = Settings(steps=40, learning_rate=0.01, evaluate_every=40)
    training = Training(PointModel(), QuadraticLoss(), settings)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def limit_file_size(share: float, doing: str = "") -> None:
        if training.step == 10:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))

    try:
        with pytest.raises(FileError, match="cannot write"):
            fit(training, path=path, every=0, progress=limit_file_size, notice=messages.append)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert len(messages) == 29 or len(messages) == 30
    assert "training continues" in messages[0]
    _, state = checkpoint.read(path)
    assert state["step"] in (9, 10)
    again = fit(Training(PointModel(), QuadraticLoss(), settings), path=path, every=1000)
    assert_same(again.model, training.model)


@pytest.mark.parametrize("name", ["linear-attention", "looped-attention", "full-linear-attention"])
def test_the_loss_on_gram_matrices_is_that_of_the_answers_on_tokens(name: str) -> None:
    """Mean squared errors of the answers on tokens equal the objective, for a general Σ."""
    recipe = load_members("recipes", Recipe)[name].from_values(
        {"d": 2, "n": 5, "covariance": [[2.0, 0.6], [0.6, 0.5]], "batch": 20_000}
    )
    model = recipe.build_model(torch.Generator().manual_seed(0))
    evaluation = recipe.build_objective().evaluate(model)
    problem = recipe.build_distribution().sample(40_000, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        answers = recipe.predict_layers(model, problem)
    assert len(answers) == {"looped-attention": 4, "linear-attention": 3}.get(name, 1)
    errors = (answers[-1] - problem.targets).square()
    spread = float(errors.std()) / len(errors) ** 0.5 + evaluation["standard error"]
    assert abs(float(errors.mean()) - evaluation["loss"]) < 4 * spread
    assert spread < 0.03 * evaluation["loss"]


def test_bad_covariances_are_named(run) -> None:
    for covariance, message in (
        ("[[1,1],[1,1]]", "covariance must be positive definite"),
        ("[[1,2],[0,1]]", "covariance must be symmetric"),
        ("[[1]]", "covariance must be 2×2"),
    ):
        result = run("train", "linear-attention", "-s", "d=2", "-s", f"covariance={covariance}")
        assert result.code == 2
        assert message in result.err


def test_finished_runs_are_found_for_the_report(tmp_path: Path) -> None:
    trained = train("linear-regression", seed=2, folder=tmp_path / "a" / "seed-2", **SMALL)
    (run,) = load_finished_runs(tmp_path)
    assert run["folder"] == "a/seed-2"
    assert run["recipe"] == "linear-regression"
    assert run["history"] == trained.history
    words = run["command"].split()
    assert words[:3] == ["innerloop", "train", "linear-regression"]
    assert "d=2" in words
    assert words[-2:] == ["--seed", "2"]


def test_a_trained_model_is_identified(run, tmp_path: Path) -> None:
    """A model that starts at gradient descent and does not move is identified as that."""
    folder = tmp_path / "run"
    settings = {**SMALL, "n": 8, "steps": 1, "learning_rate": 0.0, "start": "construction"}
    train("linear-regression", folder=folder, **settings)
    for path in (folder, folder / "model.safetensors"):
        result = run("identify", str(path), "--steps", "4", "--prompts", "64", "--json")
        assert result.code == 0, result.err
        report = json.loads(result.out)
        assert report["verdict"] == "gradient-descent"
        assert [(layer["layer"], layer["step"]) for layer in report["layers"]] == [(1, 1), (2, 2)]
    assert "contains no finished run" in run("identify", str(tmp_path)).err
    assert "there is no such file" in run("identify", str(tmp_path / "nowhere")).err
