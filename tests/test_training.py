"""Training that can be stopped anywhere: the same weights, bit for bit, as if it had not been."""

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
from innerloop.constructions.preconditioned_gradient_descent import LinearGradientDescent
from innerloop.errors import FileError, InputError
from innerloop.recipes.base import Recipe, command, load, train
from innerloop.recipes.runs import finished
from innerloop.registry import members
from innerloop.training import checkpoint
from innerloop.training.history import as_csv
from innerloop.training.loop import Diverged, Training, fit
from innerloop.training.objective import SquaredError
from innerloop.training.settings import Settings
from innerloop.training.start import perturb

SMALL: dict[str, Any] = {"d": 2, "n": 4, "blocks": 2, "batch": 8, "steps": 30, "evaluate_every": 10}


class Valley:
    """(w − drawn)ᵀ C (w − drawn) / 2 with a little luck in it: as small as objectives get."""

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


class Point(nn.Module):
    """A point, and dropout so that the global generator is part of the run."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(2, dtype=torch.float64))
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: Tensor) -> Tensor:
        return self.dropout(self.w - batch)


def told(history: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in history]


def weights(model: nn.Module) -> dict[str, Tensor]:
    return dict(model.state_dict())


def assert_same(one: nn.Module, other: nn.Module) -> None:
    for name, weight in weights(one).items():
        assert torch.equal(weight, weights(other)[name]), name


OPTIMISERS = [
    {"optimizer": "adam", "beta1": 0.8, "weight_decay": 0.01},
    {"optimizer": "adamw", "schedule": "cosine", "warmup": 3},
    {"optimizer": "sgd", "momentum": 0.9, "schedule": "halving", "period": 7, "clip_each": 0.5},
    {"optimizer": "lbfgs", "redraw": 0},
    {"optimizer": "adam", "redraw": 4, "schedule": "linear", "clip": 0.1},
]


@pytest.mark.parametrize("chosen", OPTIMISERS)
def test_a_run_that_was_stopped_anywhere_ends_as_one_that_was_not(
    chosen: dict[str, Any], tmp_path: Path
) -> None:
    """Every step is a new process in all but name: nothing survives but the file."""
    settings = Settings(steps=12, learning_rate=0.05, evaluate_every=5, **chosen)
    whole = fit(Training(Point(0.3), Valley(), settings, seed=3))
    path = tmp_path / "checkpoint.safetensors"
    part = None
    for _ in range(12):
        part = Training(Point(0.3), Valley(), settings, seed=3)
        with checkpoint.own_random_states(part.seed):
            if path.exists():
                part.restore(checkpoint.read(path)[1])
            part.advance()
            checkpoint.write(path, {}, part.state())
    assert part is not None
    assert part.ended == "steps"
    assert_same(whole.model, part.model)
    assert told(whole.history) == told(part.history)
    assert [row["step"] for row in whole.history] == [0, 5, 10, 12]
    other = fit(Training(Point(0.3), Valley(), settings, seed=4))
    assert not torch.equal(weights(other.model)["w"], weights(whole.model)["w"])


@pytest.mark.parametrize(("redraw", "distinct"), [(1, 8), (4, 2), (3, 3), (0, 1)])
def test_batches_are_redrawn_as_set_and_follow_from_the_seed(redraw: int, distinct: int) -> None:
    def batches(seed: int) -> list[tuple[float, ...]]:
        seen = list[tuple[float, ...]]()

        class Watched(Valley):
            def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
                seen.append(tuple(batch.tolist()))
                return super().loss(model, batch)

            def evaluate(self, model: nn.Module) -> dict[str, float]:
                return {"loss": 1.0}

        fit(Training(Point(), Watched(), Settings(steps=8, redraw=redraw), seed))
        return seen

    found = batches(0)
    assert len(found) == 8
    assert len(set(found)) == distinct
    every = redraw or 8
    assert all(found[k] == found[k - k % every] for k in range(8)), "in a row, not at random"
    assert found == batches(0)
    assert not set(found) & set(batches(1))


def test_the_callers_generators_are_left_alone() -> None:
    """Python's own is looked at apart: the checks of types in tests draw from it."""

    def drawn() -> tuple[float, float]:
        torch.manual_seed(7)
        np.random.seed(7)
        return float(torch.rand(1)), np.random.rand()

    before = drawn()
    torch.manual_seed(7)
    np.random.seed(7)
    fit(Training(Point(0.5), Valley(), Settings(steps=3, evaluate_every=3)))
    assert (float(torch.rand(1)), np.random.rand()) == before
    state = random.getstate()
    with checkpoint.own_random_states(1):
        one = random.random()
    assert random.getstate() == state
    with checkpoint.own_random_states(1):
        assert random.random() == one


@pytest.mark.parametrize("chosen", OPTIMISERS)
def test_every_optimiser_finds_what_scipy_finds(chosen: dict[str, Any]) -> None:
    kept = {k: v for k, v in chosen.items() if k in ("optimizer", "momentum", "redraw")}
    rate = 0.5 if chosen["optimizer"] == "lbfgs" else 0.1
    settings = Settings(steps=300, learning_rate=rate, schedule="linear", **kept)
    found = fit(Training(Point(), Valley(noise=0.0), settings))
    C = Valley.curvature.numpy()
    best = scipy.optimize.minimize(lambda w: (w - 1) @ C @ (w - 1) / 2, np.zeros(2), tol=1e-12)
    np.testing.assert_allclose(weights(found.model)["w"].numpy(), best.x, atol=1e-3)


def test_schedules() -> None:
    def rates(**chosen: Any) -> list[float]:
        settings = Settings(steps=8, learning_rate=2.0, **chosen)
        return [settings.rate(k) for k in range(8)]

    assert rates() == [2.0] * 8
    assert rates(schedule="halving", period=3) == [2, 2, 2, 1, 1, 1, 0.5, 0.5]
    np.testing.assert_allclose(rates(schedule="linear"), 2 - np.arange(8) / 4)
    np.testing.assert_allclose(rates(schedule="cosine"), 1 + np.cos(np.pi * np.arange(8) / 8))
    np.testing.assert_allclose(rates(warmup=3), [0.5, 1.0, 1.5, *[2.0] * 5])


def test_clipping_is_that_of_each_matrix_or_of_all() -> None:
    drawn = [torch.randn(2, 3, 3), torch.randn(4)]
    model = nn.ParameterList([nn.Parameter(torch.zeros_like(gradient)) for gradient in drawn])
    gradients = [gradient.clone() for gradient in drawn]
    for weight, gradient in zip(model, gradients, strict=True):
        weight.grad = gradient
    norm = Settings(clip_each=0.5).clipped(model)
    np.testing.assert_allclose(norm, np.linalg.norm(np.concatenate([g.ravel() for g in drawn])))
    for k in range(2):
        expected = drawn[0][k].numpy() * min(1, 0.5 / np.linalg.norm(drawn[0][k]))
        np.testing.assert_allclose(gradients[0][k], expected, rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(gradients[1]), 0.5, rtol=1e-6)
    Settings(clip=0.1).clipped(model)
    total = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))
    np.testing.assert_allclose(total, 0.1, rtol=1e-4)


def test_early_stops() -> None:
    calm = Training(Point(), Valley(0.0), Settings(steps=500, learning_rate=0.1, target=1e-3))
    assert fit(calm).ended == "target"
    assert calm.step < 500
    assert calm.history[-1]["loss"] <= 1e-3
    wild = Settings(steps=400, learning_rate=0.3, optimizer="sgd", evaluate_every=1, patience=3)
    stopped = fit(Training(Point(), Valley(5.0), wild))
    assert stopped.ended == "patience"
    losses = [row["loss"] for row in stopped.history]
    assert min(losses[-3:]) > min(losses)
    assert len(losses) - 1 - int(np.argmin(losses)) == 3


def test_divergence_is_told_before_it_reaches_the_weights(tmp_path: Path) -> None:
    settings = Settings(steps=3000, learning_rate=10.0, optimizer="sgd", evaluate_every=3000)
    lost = Training(Point(), Valley(), settings)
    with pytest.raises(Diverged, match=r"diverged at step \d+: .*learning_rate=1\)"):
        fit(lost, path=tmp_path / "c.safetensors", every=0)
    _, state = checkpoint.read(tmp_path / "c.safetensors")
    assert bool(torch.isfinite(state["model"]["w"]).all()), "the last good state is kept"
    assert 0 < state["step"] < 3000


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"optimizer": "adam", "momentum": 0.5}, "adam does not use momentum: leave it out"),
        ({"optimizer": "lbfgs", "redraw": 0, "clip": 1.0}, "lbfgs does not use clip"),
        ({"optimizer": "sgd", "beta1": 0.5}, "sgd does not use beta1"),
        ({"optimizer": "lbfgs"}, "L-BFGS needs one batch throughout: set redraw=0"),
        ({"schedule": "halving"}, "halving needs a period"),
        ({"period": 3}, "no other takes one"),
        ({"steps": 5, "warmup": 5}, "warmup must be shorter than steps=5, got 5"),
        ({"learning_rate": math.nan}, "learning_rate must be finite, got nan"),
    ],
)
def test_settings_that_make_no_sense(chosen: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Settings(**chosen)


def test_a_model_without_weights_to_train() -> None:
    with pytest.raises(InputError, match="no weights to train"):
        Training(nn.Identity(), Valley(), Settings())


def test_trees_come_back_as_they_were() -> None:
    tree = {"a": [1, (2.5, None)], 3: {"b": torch.arange(3), "c": []}, "d": (True, "x")}
    tensors: dict[str, Tensor] = {}
    again = checkpoint.unpacked(json.loads(json.dumps(checkpoint.packed(tree, tensors))), tensors)
    assert torch.equal(again[3].pop("b"), tree[3].pop("b"))
    assert again == tree


def test_the_history_is_a_table(tmp_path: Path) -> None:
    trained = train("linear-regression", folder=tmp_path / "run", **SMALL)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "run" / "history.csv").read_text())))
    assert [row["step"] for row in rows] == ["0", "10", "20", "30"]
    assert [float(row["loss"]) for row in rows] == [row["loss"] for row in trained.history]
    assert as_csv(trained.history).count("\n") == 5


@pytest.mark.parametrize("name", sorted(members("recipes", Recipe)))
def test_every_recipe_trains_saves_and_loads(name: str, tmp_path: Path) -> None:
    """Two steps of it: the file gives back model and recipe, and predictions layer by layer."""
    kind = members("recipes", Recipe)[name]
    steps = {"steps": 2, "evaluate_every": 1, **kind.small}
    steps |= {"warmup": 0} if "warmup" not in kind.small else {}
    trained = train(name, seed=1, folder=tmp_path / "run", **steps)
    assert all(math.isfinite(row["loss"]) for row in trained.history)
    recipe, model, about = load(tmp_path / "run" / "model.safetensors")
    assert recipe.values() == trained.recipe.values()
    assert_same(model, trained.model)
    assert about["final"] == trained.history[-1]
    assert about["command"] == command(about)
    problem = recipe.problems().sample(3, dtype=next(model.parameters()).dtype)
    with torch.no_grad():
        found = recipe.layers(model, problem)
    assert found.shape[1] == 3
    assert bool(torch.isfinite(found).all())
    fresh = recipe.model(torch.Generator().manual_seed(1))
    assert any(not torch.equal(w, weights(fresh)[k]) for k, w in weights(model).items())


@pytest.mark.parametrize("name", sorted(members("constructions", Construction)))
def test_dense_weights_compute_the_same(name: str) -> None:
    fewer = {"ucb-vi": {"d": 2, "n": 3, "steps": 1}}
    construction = members("constructions", Construction)[name].made(fewer.get(name, {}))
    (distribution, *_) = construction.distributions()
    problem = distribution.sample(2, generator=torch.Generator().manual_seed(0))
    dense = construction.transformer.dense()
    prompt, context = construction.prompt(problem), construction.context(problem)
    with torch.no_grad():
        expected = construction.transformer(prompt, context)
        found = dense(prompt, context)
    scale = float(expected.abs().max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * max(1.0, scale))
    assert all(w.requires_grad for w in dense.parameters())
    perturb(dense, 0.1, torch.Generator().manual_seed(1))
    assert not np.allclose(dense(prompt, context).detach(), expected, atol=1e-9 * max(1.0, scale))


def test_training_starts_from_or_near_a_construction() -> None:
    built = LinearGradientDescent(d=2, n=4, steps=2, preconditioners="identity", step_size=0.5)
    starts = {}
    for start in ("construction", "near"):
        trained = train("linear-regression", start=start, **{**SMALL, "steps": 1})
        starts[start] = trained.history[0]["loss"]
    objective = SquaredError(
        trained.recipe.problems(),
        8,
        lambda model, p: built.decode(p, built.transformer.float()(built.prompt(p))),
    )
    assert starts["construction"] == pytest.approx(
        objective.evaluate(built.transformer)["loss"], rel=1e-6
    )
    assert starts["near"] != starts["construction"]


LONG: dict[str, Any] = {**SMALL, "steps": 300, "evaluate_every": 50}


def run_in_a_child(folder: Path, every: float, told: Any) -> None:
    resume = (folder / "checkpoint.safetensors").exists()
    with contextlib.suppress(KeyboardInterrupt):
        train(
            "linear-regression",
            seed=1,
            folder=folder,
            resume=resume,
            every=every,
            progress=lambda share, doing: told.send(share),
            **LONG,
        )
        os._exit(0)
    os._exit(130)


def child(folder: Path, every: float, steps: int) -> tuple[Any, Any]:
    """A process that trains, once it has done so many steps."""
    context = multiprocessing.get_context("fork")
    hear, tell = context.Pipe(duplex=False)
    process = context.Process(target=run_in_a_child, args=(folder, every, tell))
    process.start()
    tell.close()
    with contextlib.suppress(EOFError):
        for _ in range(steps):
            hear.recv()
    return process, hear


def test_killed_at_random_moments_it_ends_with_the_same_weights(tmp_path: Path) -> None:
    """Real kills between a checkpoint for every step, most of them while one is being written."""
    whole = train("linear-regression", seed=1, folder=tmp_path / "whole", **LONG)
    chance, run, seen = random.Random(1), tmp_path / "run", 0
    for _ in range(6):
        process, hear = child(run, 0.0, chance.randrange(5, 40))
        time.sleep(chance.uniform(0, 0.01))
        process.kill()
        process.join()
        hear.close()
        assert process.exitcode == -signal.SIGKILL
        for path in run.glob(".innerloop-*"):
            path.unlink()  # half-written, under a name that nobody reads
        now = checkpoint.read(run / "checkpoint.safetensors")[1]["step"]
        assert seen < now < LONG["steps"]
        seen = now
    trained = train("linear-regression", seed=1, folder=run, resume=True, **LONG)
    _, model, about = load(run / "model.safetensors")
    assert_same(model, whole.model)
    assert told(trained.history) == told(whole.history)
    assert about["final"] == trained.history[-1]


def test_an_interrupt_saves_and_the_run_goes_on(tmp_path: Path) -> None:
    process, hear = child(tmp_path / "run", 1000.0, 20)
    os.kill(process.pid, signal.SIGINT)
    process.join()
    hear.close()
    assert process.exitcode == 130
    _, state = checkpoint.read(tmp_path / "run" / "checkpoint.safetensors")
    assert 20 <= state["step"] < LONG["steps"]


@pytest.fixture
def command_line(run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    words = [f"-s{key}={value}" for key, value in SMALL.items()]
    return lambda *rest: run("train", "linear-regression", *words, *rest)


def test_the_command_line_trains_and_resumes(command_line, tmp_path: Path) -> None:
    found = command_line("--seeds", "2", "--json")
    assert found.code == 0, found.err
    runs = json.loads(found.out)
    assert [r["seed"] for r in runs] == [0, 1]
    assert runs[0]["final"]["loss"] != runs[1]["final"]["loss"]
    folder = Path(runs[0]["folder"])
    assert folder.parent.parent == Path("results/runs")
    again = command_line("--seeds", "3", "--resume")
    assert again.code == 0, again.err
    assert f"written to {folder.parent}" in again.out
    assert (folder.parent / "seed-2" / "model.safetensors").exists()
    refused = command_line()
    assert refused.code == 2
    assert "holds a run already: --resume goes on with it" in refused.err


def test_a_users_mistake_is_one_line(command_line, run, tmp_path: Path) -> None:
    cases = {
        ("train", "linear-regresion"): "did you mean 'linear-regression'?",
        ("train", "linear-regression", "-s", "d=0"): "d must be at least 1, got 0",
        ("train", "linear-regression", "-s", "n=0"): "n must be at least 1, got 0",
        ("train", "linear-regression", "-s", "blcks=2"): "did you mean 'blocks'?",
        ("train", "linear-regression", "--seeds", "0"): "seeds must be at least 1, got 0",
        ("train", "linear-regression", "--seed", "-1"): "seed must be at least 0, got -1",
        ("train", "linear-regression", "--resume"): "there is no run to resume",
        ("train", "linear-regression", "-s", "noise=0.1"): "start=random does not use noise",
        ("train", "linear-regression", "-s", "heads=2", "-s", "start=near"): "with one head",
    }
    for words, said in cases.items():
        found = run(*words)
        assert found.code == 2, words
        assert said in found.err
        assert found.err.count("\n") == 1
    wild = command_line("-s", "learning_rate=1e30", "-s", "clip=none", "-o", "wild")
    assert wild.code == 2
    assert "training diverged at step" in wild.err
    assert Path("wild/seed-0/history.csv").exists()
    assert command_line("-o", "mine").code == 0
    other = run("train", "linear-regression", "-s", "d=3", "-o", "mine", "--resume")
    assert other.code == 2
    assert "is of another training" in other.err
    assert "d is 2 there, 3 here" in other.err
    Path("file").write_text("")
    assert "cannot make file/seed-0: Not a directory" in command_line("-o", "file").err


def test_a_damaged_checkpoint_is_refused(command_line, tmp_path: Path) -> None:
    assert command_line("-o", "mine").code == 0
    path = Path("mine/seed-0/checkpoint.safetensors")
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data))
    found = command_line("-o", "mine", "--resume")
    assert found.code == 2
    assert "is damaged" in found.err


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """Checkpoints that do not fit are told of; the last good one stays, and the end is an error."""
    path, said = tmp_path / "c.safetensors", list[str]()
    settings = Settings(steps=40, learning_rate=0.01, evaluate_every=40)
    training = Training(Point(), Valley(), settings)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def fill(share: float, doing: str) -> None:
        if training.step == 10:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))

    try:
        with pytest.raises(FileError, match="cannot write"):
            fit(training, path=path, every=0, progress=fill, notice=said.append)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert len(said) == 29 or len(said) == 30
    assert "training goes on" in said[0]
    _, state = checkpoint.read(path)
    assert state["step"] in (9, 10)
    again = fit(Training(Point(), Valley(), settings), path=path, every=1000)
    assert_same(again.model, training.model)


@pytest.mark.parametrize("name", ["linear-attention", "looped-attention", "full-linear-attention"])
def test_the_loss_on_gram_matrices_is_that_of_the_answers(name: str) -> None:
    """What the layers answer on tokens, squared, is what the objective says, Σ and all."""
    recipe = members("recipes", Recipe)[name].made(
        {"d": 2, "n": 5, "covariance": [[2.0, 0.6], [0.6, 0.5]], "batch": 20_000}
    )
    model = recipe.model(torch.Generator().manual_seed(0))
    said = recipe.objective().evaluate(model)
    problem = recipe.problems().sample(40_000, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        answers = recipe.layers(model, problem)
    assert len(answers) == {"looped-attention": 4, "linear-attention": 3}.get(name, 1)
    errors = (answers[-1] - problem.targets).square()
    spread = float(errors.std()) / len(errors) ** 0.5 + said["standard error"]
    assert abs(float(errors.mean()) - said["loss"]) < 4 * spread
    assert spread < 0.03 * said["loss"]


def test_bad_covariances_are_said(run) -> None:
    for given, said in (
        ("[[1,1],[1,1]]", "covariance must be positive definite"),
        ("[[1,2],[0,1]]", "covariance must be symmetric"),
        ("[[1]]", "covariance must be 2×2"),
    ):
        found = run("train", "linear-attention", "-s", "d=2", "-s", f"covariance={given}")
        assert found.code == 2
        assert said in found.err


def test_finished_runs_are_found_for_the_report(tmp_path: Path) -> None:
    trained = train("linear-regression", seed=2, folder=tmp_path / "a" / "seed-2", **SMALL)
    (told_of,) = finished(tmp_path)
    assert told_of["folder"] == "a/seed-2"
    assert told_of["recipe"] == "linear-regression"
    assert told_of["history"] == trained.history
    words = told_of["command"].split()
    assert words[:3] == ["innerloop", "train", "linear-regression"]
    assert "d=2" in words
    assert words[-2:] == ["--seed", "2"]


def test_a_trained_model_is_identified(run, tmp_path: Path) -> None:
    """Started at gradient descent and not moved from there, that is what it is found to run."""
    folder = tmp_path / "run"
    still = {**SMALL, "n": 8, "steps": 1, "learning_rate": 0.0, "start": "construction"}
    train("linear-regression", folder=folder, **still)
    for path in (folder, folder / "model.safetensors"):
        found = run("identify", str(path), "--steps", "4", "--prompts", "64", "--json")
        assert found.code == 0, found.err
        told_of = json.loads(found.out)
        assert told_of["verdict"] == "gradient-descent"
        assert [(layer["layer"], layer["step"]) for layer in told_of["layers"]] == [(1, 1), (2, 2)]
    assert "there is no such file" in run("identify", str(tmp_path)).err
