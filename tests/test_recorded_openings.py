"""Runs store the results of their first steps; every recorded run still starts in this way."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import resealed
import torch
from test_resealed_runs import CASES, Stop, find, stop

from innerloop.claims import recorded
from innerloop.claims.evidence import Check, Evidence, Part
from innerloop.claims.liu2025.contest import count_trainings
from innerloop.claims.loading import load_claims
from innerloop.claims.yang2025.networks import merge_trainings
from innerloop.errors import FileError, InputError
from innerloop.jsonfiles import read_object
from innerloop.ledger.code import digest_weights
from innerloop.recipes.base import Recipe, load, replay, train, train_seeds
from innerloop.recipes.linear_attention import LinearAttentionRecipe
from innerloop.recipes.linear_regression import LinearRegressionRecipe
from innerloop.recipes.small_transformer import SmallTransformerRecipe
from innerloop.registry import make_member
from innerloop.training.linear_attention import SampledLoss
from innerloop.training.objective import SquaredError
from innerloop.training.opening import Opening, digest_batch, is_opening

ROOT = Path(__file__).parent.parent
MODEL, CHECKPOINT = "model.safetensors", "checkpoint.safetensors"
GROWING = {
    **SmallTransformerRecipe.small,
    "steps": 6,
    "warmup": 0,
    "growth": [2.0],
    "start": "random",
}


@pytest.fixture(scope="module")
def record() -> Any:
    """Import the tool that records runs."""
    spec = importlib.util.spec_from_file_location("record", ROOT / "tools" / "record.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["record"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("recipe", "settings"), [*CASES, (SmallTransformerRecipe, GROWING)])
def test_a_run_stores_its_first_five_steps_also_if_it_was_resumed(
    recipe: Any, settings: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(Stop):
        train(recipe, folder=tmp_path, every=0, progress=stop, seed=3, **settings)
    train(recipe, folder=tmp_path, resume=True, seed=3, **settings)
    made, _, about = load(tmp_path / MODEL)
    opening = Opening.from_dict(about["opening"])
    assert len(opening.losses) == 5
    assert opening == replay(made, 3), "evaluations and a stop change nothing"
    assert replay(made, 4).batch != opening.batch


def test_a_short_run_has_a_short_opening(tmp_path: Path) -> None:
    settings = {**CASES[0][1], "steps": 2}
    train(LinearRegressionRecipe, folder=tmp_path, **settings)
    assert len(load(tmp_path / MODEL)[2]["opening"]["losses"]) == 2
    assert len(replay(LinearRegressionRecipe(**settings)).losses) == 2


def test_files_without_an_opening_load_and_invalid_openings_fail(tmp_path: Path) -> None:
    recipe, settings = CASES[0]
    with pytest.raises(Stop):
        train(recipe, folder=tmp_path, every=0, progress=stop, **settings)
    metadata, tensors = resealed.read_parts(tmp_path / CHECKPOINT)
    state = json.loads(metadata["state"])
    false, old = json.loads(metadata["state"]), json.loads(metadata["state"])
    find(false, "opening", "losses")["list"].pop()
    old["items"] = [pair for pair in state["items"] if pair[0] != "opening"]
    resealed.reseal(tmp_path / CHECKPOINT, {**metadata, "state": json.dumps(false)}, tensors)
    with pytest.raises(FileError, match="its opening is not valid for this run"):
        train(recipe, folder=tmp_path, resume=True, **settings)
    resealed.reseal(tmp_path / CHECKPOINT, {**metadata, "state": json.dumps(old)}, tensors)
    train(recipe, folder=tmp_path, resume=True, **settings)
    about = load(tmp_path / MODEL)[2]
    assert "opening" not in about, "nobody knows it"
    metadata, tensors = resealed.read_parts(tmp_path / MODEL)
    changed = json.dumps({**about, "opening": {"losses": ["x"], "batch": ""}})
    resealed.reseal(tmp_path / MODEL, {**metadata, "about": changed}, tensors)
    with pytest.raises(FileError, match="its opening is not valid for this run"):
        load(tmp_path / MODEL)


class Pair(NamedTuple):
    one: Any
    other: Any


@dataclass
class Named:
    one: Any
    other: Any


def test_the_digest_of_a_batch_depends_on_values_shapes_types_and_order() -> None:
    x, y = torch.arange(6.0), torch.ones(2)
    batches = [
        *(Pair(x, y), Pair(y, x), Pair(x.reshape(2, 3), y), Pair(x.double(), y), Pair(x, None)),
        *(Pair(x + 2**-20, y), {"one": x, "other": y}),
    ]
    digests = [digest_batch(batch) for batch in batches]
    assert len(set(digests)) == len(digests)
    assert digest_batch({"other": y, "one": x}) == digests[-1]
    assert digest_batch(Named(x, y)) == digests[0]
    assert is_opening(Opening((1.0,), digests[0]).as_dict())


def test_openings_agree_up_to_rounding() -> None:
    one = Opening((1.0, 2.0), "a" * 64)
    assert one.describe_difference(Opening((1.0, 2.00001), "a" * 64)) == ""
    assert "step 1 is 2 here, 2.0001 there" in one.describe_difference(
        Opening((1.0, 2.0001), "a" * 64)
    )
    five = Opening((1.0,) * 5, "a" * 64)
    for step, allowed in enumerate((1e-5, 1e-5, 1e-5, 1e-4, 1e-4)):
        for factor in (0.9, 1.1):
            losses = [1.0] * 5
            losses[step] += factor * allowed
            found = five.describe_difference(Opening(tuple(losses), "a" * 64))
            assert found.startswith(f"the loss of step {step}" if factor > 1 else "")
            assert bool(found) == (factor > 1)
    assert "first batch" in one.describe_difference(Opening((1.0, 2.0), "b" * 64))
    assert "2 losses here, 1 there" in one.describe_difference(Opening((1.0,), "a" * 64))


def list_recorded() -> list[dict[str, Any]]:
    """List the descriptions of all recorded runs, but further ones of what draws long games."""
    folders = ("regression", "sparse", "unlabelled", "decisions")
    found = [path for each in folders for path in sorted((ROOT / "results" / each).glob("*.json"))]
    slow = ("bernoulli-seed", "decided-seed", "distilled-")
    return [read_object(path) for path in found if not path.name.startswith(slow)]


@pytest.mark.slow
def test_every_recorded_run_starts_as_recorded() -> None:
    """Drift of a recipe, a problem, a model, a loss or the loop is found on the day it happens."""
    found, again = list_recorded(), {}
    for about in found:
        recipe = make_member("recipes", Recipe, about["recipe"], about["settings"])
        difference = replay(recipe, about["seed"]).describe_difference(
            Opening.from_dict(about["opening"])
        )
        if difference:
            again[about["command"]] = difference
    assert not again
    assert len(found) >= 22


@pytest.mark.parametrize("change", ["loss", "batch"])
def test_a_change_of_loss_or_batches_is_detected(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = LinearRegressionRecipe(**CASES[0][1])
    before = replay(recipe)
    plain_loss, plain_draw = SquaredError.loss, SquaredError.draw

    def loss(self: Any, *given: Any) -> Any:
        return plain_loss(self, *given) * 1.0001

    def draw(self: Any, generator: Any) -> Any:
        torch.rand(1, generator=generator)
        return plain_draw(self, generator)

    monkeypatch.setattr(
        SquaredError, change.replace("batch", "draw"), {"loss": loss}.get(change, draw)
    )
    assert replay(recipe).describe_difference(before)


def test_a_recorded_run_has_its_opening_and_loads_from_its_folder(
    record: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {**CASES[2][1], "steps": 5}
    results = tmp_path / "results"
    (results / "kind").mkdir(parents=True)
    monkeypatch.setattr(recorded, "RESULTS", results)
    monkeypatch.setenv("INNERLOOP_RESULTS", str(tmp_path / "own"))
    train(LinearAttentionRecipe, folder=tmp_path / "run", seed=1, **settings)
    about = record.record(tmp_path / "run", results / "kind" / "model-seed-1", weights=False)
    assert read_object(results / "kind" / "model-seed-1.json") == about
    assert not list(results.rglob("*.safetensors"))
    place = tmp_path / "own" / "kind" / "model-seed-1"
    with pytest.raises(
        FileError, match=r"the recorded weights kind/model-seed-1.* make them with"
    ) as e:
        recorded.load_recorded("kind", "model-seed-1")
    assert str(e.value).endswith(f"{about['command']} -o {place}")
    named = {"machine": "model-seed-1"}
    described = digest_weights(named)
    assert described
    train_seeds(LinearAttentionRecipe(**settings), [1], place)  # as the command does
    found = recorded.load_recorded("kind", "model-seed-1")
    assert (found.seed, found.step) == (1, 5)
    (place / "seed-1" / MODEL).write_bytes((tmp_path / "run" / MODEL).read_bytes())
    assert digest_weights(named) == described, "the same weights"
    record.record(tmp_path / "run", results / "kind" / "model-seed-1")
    assert digest_weights(named) == described
    assert recorded.name_seeds("model", 2) == ["model", "model-seed-1"]


def test_trainings_of_one_network_decide_if_they_agree() -> None:
    def judge(*outcomes: bool | None) -> Evidence:
        found = [
            Evidence(
                parts=[
                    Part(printed=make_check(passed), trainings=1),
                    Part(printed=make_check(True)),
                ],
                numbers={"error": 0.5},
                table=[{"layer": 1}],
            )
            for passed in outcomes
        ]
        return merge_trainings(found)

    def make_check(passed: bool | None) -> Check:
        example = "one" if passed is False else ""
        return Check(statement="it learns", passed=passed, summary="so", counterexample=example)

    assert judge(True).marks == ["one training"]
    assert judge(True, True, True).label == "holds"
    assert judge(False, False, False).verdict == "fails"
    assert judge(False, False, False).parts[0].printed.counterexample == "one"
    assert judge(True, True, False).verdict == "undecided"
    assert judge(True, True, None).verdict == "undecided"
    merged = judge(True, False)
    assert merged.marks == ["2 trainings"]
    assert [part.trainings for part in merged.parts] == [2, None]
    assert merged.parts[0].printed.summary == "seed 0: holds, so\nseed 1: fails, so"
    assert merged.numbers == {"error, seed 0": 0.5, "error, seed 1": 0.5}
    assert merged.table == [{"seed": 0, "layer": 1}, {"seed": 1, "layer": 1}]


def test_one_training_in_several_cells_counts_once() -> None:
    cells = [{"seeds": {"Small TF": k, "GPT-2": 0}} for k in range(3)]
    assert count_trainings(cells, "Small TF", "LISTA-VM") == 3
    assert count_trainings(cells, "GPT-2", "Small TF") == 1
    assert count_trainings([{}, {}], "GPT-2") == 2, "trained where the cell was"


@pytest.mark.parametrize("id", ["fu.best-match", "fu.convergence", "fu.ill-conditioned", "fu.lstm"])
def test_three_trainings_are_named_at_full(id: str) -> None:
    (quick,), (full,) = (
        load_claims()[f"yang2025.{id}"].presets[preset] for preset in ("quick", "full")
    )
    assert len(quick["machines"]) == 1
    assert len(full["machines"]) == 3
    assert full["machines"][0] == quick["machines"][0]


def test_another_training_in_the_folder_of_a_recorded_one_is_an_error(
    record: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {**CASES[2][1], "steps": 5}
    results = tmp_path / "results"
    (results / "kind").mkdir(parents=True)
    monkeypatch.setattr(recorded, "RESULTS", results)
    monkeypatch.setenv("INNERLOOP_RESULTS", str(tmp_path))
    train(LinearAttentionRecipe, folder=tmp_path / "run", seed=1, **settings)
    record.record(tmp_path / "run", results / "kind" / "model", weights=False)
    train(LinearAttentionRecipe, folder=tmp_path / "kind" / "model", seed=2, **settings)
    with pytest.raises(FileError, match="another training than kind/model"):
        recorded.load_recorded("kind", "model")


@pytest.mark.parametrize("stored", [True, False])
def test_a_run_of_other_code_is_not_recorded(
    stored: bool, record: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(LinearAttentionRecipe, folder=tmp_path / "run", **CASES[2][1])
    if not stored:
        metadata, tensors = resealed.read_parts(tmp_path / "run" / MODEL)
        about = {k: v for k, v in json.loads(metadata["about"]).items() if k != "opening"}
        resealed.reseal(tmp_path / "run" / MODEL, {**metadata, "about": json.dumps(about)}, tensors)
    plain = SampledLoss.loss_at
    monkeypatch.setattr(SampledLoss, "loss_at", lambda *given: plain(*given) * 1.001)
    with pytest.raises(InputError, match="is not what this code trains: the loss"):
        record.record(tmp_path / "run", tmp_path / "model")
