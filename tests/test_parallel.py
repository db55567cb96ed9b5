"""Several processes train one model: their weights are those of one process, up to rounding."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from innerloop.errors import InputError
from innerloop.recipes.base import Recipe, load, train
from innerloop.registry import load_members
from innerloop.training import checkpoint
from innerloop.training.parallel import Group, LostProcessError, find_share, take_instances

SMALL: dict[str, Any] = {"d": 2, "n": 4, "batch": 9, "steps": 6, "evaluate_every": 2}
PLAIN = {**SMALL, "blocks": 1, "schedule": "constant"}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "adam": ("linear-regression", PLAIN),
    "moving": ("linear-attention", {**SMALL, "moving": True}),
    "lbfgs": (
        "linear-attention",
        {**SMALL, "optimizer": "lbfgs", "redraw": 0, "clip": None, "steps": 3},
    ),
    "games": ("bernoulli-bandits", {**{"pool": 12, "batch": 5, "warmup": 0}, "steps": 3}),
}
LONG = {**PLAIN, "steps": 100_000, "evaluate_every": 1000}


def list_settings(case: str) -> tuple[str, dict[str, Any]]:
    name, settings = CASES[case]
    return name, {**load_members("recipes", Recipe)[name].small, **settings}


def work(rank: int, port: int, root: Path, channel: Any) -> None:
    """Train every case together with the other process, then a long run until it is lost."""
    about = {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in about.items()})
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for case in CASES:
        name, settings = list_settings(case)
        train(name, seed=1, folder=root / case, **settings)
    half = {**PLAIN, "steps": 4}
    again: dict[str, Any] = {"resume": True, "notice": lambda text: None}
    train("linear-regression", seed=1, folder=root / "one", **again, **half)
    train("linear-regression", seed=1, folder=root / "half", **half)
    try:
        train("linear-regression", seed=rank, **half)
    except InputError as error:
        channel.send(f"ready: {error}")
    try:
        options: dict[str, Any] = {"every": 0, "folder": root / "long", **LONG}
        train("linear-regression", seed=1, **options)
    except LostProcessError as error:
        channel.send(str(error))
    os._exit(0)


def find_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What two processes trained; at last one of them is killed, and the other says so."""
    root = tmp_path_factory.mktemp("parallel")
    train("linear-regression", seed=1, folder=root / "one", **{**PLAIN, "steps": 2})
    for case in CASES:
        name, settings = list_settings(case)
        train(name, seed=1, folder=root / f"single-{case}", **settings)
    context, port = multiprocessing.get_context("fork"), find_port()
    pipes = [context.Pipe(duplex=False) for _ in range(2)]
    started = [
        context.Process(target=work, args=(rank, port, root, pipes[rank][1])) for rank in range(2)
    ]
    for process in started:
        process.start()
    said = []
    for receiver, sender in pipes:
        sender.close()
        said.append(receiver.recv())
    assert all("ready: the 2 processes that were started together must" in each for each in said)
    path = root / "long" / "checkpoint.safetensors"
    while not (path.exists() and checkpoint.read(path)[1]["step"] > 2):
        time.sleep(0.05)
    os.kill(started[1].pid or 0, signal.SIGKILL)
    (root / "said").write_text(pipes[0][0].recv())
    for process in started:
        process.join()
    return root


def assert_close(one: Path, other: Path, tolerance: float) -> None:
    first, second = (load(path / "model.safetensors")[1].state_dict() for path in (one, other))
    for name, weight in first.items():
        torch.testing.assert_close(weight, second[name], rtol=tolerance, atol=tolerance, msg=name)


@pytest.mark.parametrize("case", CASES)
def test_two_processes_give_the_weights_of_one(root: Path, case: str) -> None:
    float64 = CASES[case][0] == "linear-attention"
    assert_close(root / case, root / f"single-{case}", 1e-6 if float64 else 1e-4)
    about = load(root / case / "model.safetensors")[2]
    assert about["environments"][0]["processes"] == 2
    first, second = (
        load(root / name / "model.safetensors")[2]["opening"] for name in (case, f"single-{case}")
    )
    assert first["batch"] == second["batch"], "both draw the one batch"
    names = {"run.json", "checkpoint.safetensors", "history.csv", "model.safetensors", ".lock"}
    assert {path.name for path in (root / case).iterdir()} == names


def test_runs_go_on_with_another_number_of_processes(root: Path, tmp_path: Path) -> None:
    train("linear-regression", seed=1, folder=tmp_path, **{**PLAIN, "steps": 4})
    assert_close(root / "one", tmp_path, 1e-4)  # two processes went on with what one began
    notes: list[str] = []
    options: dict[str, Any] = {"resume": True, "notice": notes.append, "steps": 6}
    train("linear-regression", seed=1, folder=root / "half", **options)
    assert "processes 2 then, 1 now" in notes[0]
    assert_close(root / "half", root / "single-adam", 1e-4)


def test_a_process_that_is_killed_ends_the_other_with_a_line(root: Path) -> None:
    said = (root / "said").read_text()
    assert "another of the 2 processes of this training has ended: process 0 stops" in said
    step = checkpoint.read(root / "long" / "checkpoint.safetensors")[1]["step"]
    assert step > 2
    seen: list[int] = []

    class Stop(Exception):
        pass

    def stop(share: float, doing: str = "") -> None:
        seen.append(round(share * LONG["steps"]))
        raise Stop

    options: dict[str, Any] = {"resume": True, "progress": stop, "notice": lambda text: None}
    with pytest.raises(Stop):
        train("linear-regression", seed=1, folder=root / "long", **options)
    assert seen == [step + 1]


@pytest.mark.parametrize("name", sorted(load_members("recipes", Recipe)))
def test_the_shares_of_every_recipe_make_up_its_loss(name: str) -> None:
    kind = load_members("recipes", Recipe)[name]
    made = kind.from_values({**kind.small, "batch": 5})
    objective = made.build_objective()
    model = made.build_model(torch.Generator().manual_seed(1))
    batch = objective.draw(torch.Generator().manual_seed(2))
    shares = [Group(rank, 3).take_share(objective, batch) for rank in range(3)]
    with torch.no_grad():
        whole = float(objective.loss(model, batch))
        parts = sum(weight * float(objective.loss(model, share)) for share, weight in shares)
    assert parts == pytest.approx(whole, rel=1e-5)


def test_what_cannot_be_shared_is_refused() -> None:
    assert [find_share(5, rank, 3) for rank in range(3)] == [(0, 1), (1, 3), (3, 5)]
    with pytest.raises(InputError, match="2 instances cannot be shared by 3 processes"):
        find_share(2, 0, 3)
    with pytest.raises(InputError, match="a batch of type NoneType cannot be shared"):
        take_instances(None, 0, 2)
    assert json.dumps(Group().share_result(lambda: {"a": 1})) == '{"a": 1}'


def test_a_sweep_is_not_started_by_several_processes(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "x", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    refused = run("train", "linear-regression", "--grid", "blocks=1,2")
    assert refused.code == 2
    assert "run it without torchrun" in refused.err
