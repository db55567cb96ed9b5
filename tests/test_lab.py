"""The lab's server: scenes answer with the package's own numbers, and bad requests are refused."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import io
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
import torch
from anyio import CapacityLimiter
from conftest import CommandResult
from scipy.special import softmax
from sklearn.cluster import KMeans
from sklearn.linear_model import LinearRegression
from starlette.testclient import TestClient

import innerloop
from innerloop.algorithms.ista import ISTA
from innerloop.algorithms.lasso import Lasso
from innerloop.claims.recorded import load_recorded
from innerloop.errors import FileError, InputError
from innerloop.lab.builds import get_build
from innerloop.lab.pattern import compute_pattern
from innerloop.lab.recording import SHOWN, measure_scales, predict_steps, record
from innerloop.lab.scene import load_scenes
from innerloop.lab.scenes import bandits, line_fit, sparse_recovery
from innerloop.lab.scenes.sparse_recovery import make_problem
from innerloop.lab.scenes.trained_network import attend
from innerloop.lab.scenes.trained_network import make_problem as draw_regression
from innerloop.lab.server import MAX_BODY, STATIC, SupersededError, Turns, Work, make_app
from innerloop.lab.serving import make_server, open_socket
from innerloop.lab.table import parse_table
from innerloop.playing.player import TransformerPolicy
from innerloop.policies.rollout import Draws, play
from innerloop.policies.uniform import UniformPolicy

POINTS = [[-1.5, -0.9], [-0.5, 0.3], [0.2, 0.1], [1.1, 1.4], [2.0, 1.9]]
CLOUDS = [
    *([-1.6, -0.8], [-1.2, -1.1], [-1.9, -0.5], [-1.4, -0.4]),
    *([1.5, -0.7], [1.9, -0.3], [1.2, -0.9], [1.6, -1.2]),
    *([0.2, 1.1], [0.5, 1.4], [-0.1, 1.6]),
]
STARTS = [[-0.4, -0.2], [0.3, -0.3], [0.1, 0.4]]
SPREAD = [[round(0.2 * k - 1.9, 3), round(0.1 * k - 0.9 + 0.4 * (-1) ** k, 3)] for k in range(20)]
TRUTH = [0.0] * 3 + [1.3] + [0.0] * 4 + [-0.9] + [0.0] * 5 + [0.7] + [0.0] * 5
CSV = "a,b,word,c\n1,2,x,3\n2,1,y,5\n3,5,z,6\n4,3,x,9\n5,8,y,9.5\n"
REQUESTS: dict[str, dict[str, Any]] = {
    "line-fit": {"points": POINTS},
    "clusters": {"points": CLOUDS, "starts": STARTS},
    "pca": {"points": SPREAD, "starts": [[-1.3, 1.2], [1.9, -0.3]]},
    "sparse-recovery": {"truth": TRUTH, "seed": 1, "noise": 0.1},
    "bandits": {"weights": [0.9, 0.5], "seed": 4, "noise": 0.2},
    "trained-network": {"seed": 1},
    "break-it": {"factor": 1.2, "weight": 60},
    "your-data": {"text": CSV, "target": "c", "features": ["a", "b"], "steps": 20},
}
"""A request of each scene that the tests of all of them use."""


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    """The server; it waits for answers however busy the machine is, so that errors have codes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("innerloop.lab.server.PATIENCE", 100.0)
        with TestClient(make_app(), base_url="http://127.0.0.1:8324") as client:
            yield client


def ask(client: TestClient, name: str, **values: Any) -> dict[str, Any]:
    """Ask a scene, as the page does, and return its answer."""
    response = client.post(f"/run/{name}", json={"values": values})
    assert response.status_code == 200, response.text
    return json.loads(response.text.strip().splitlines()[-1])


def refuse(client: TestClient, name: str, **values: Any) -> str:
    """Ask a scene for what it must refuse, and return the message."""
    response = client.post(f"/run/{name}", json={"values": values})
    assert response.status_code == 422, response.text
    return response.json()["mistake"]


@pytest.fixture(scope="module")
def answers(client: TestClient) -> Callable[[str], dict[str, Any]]:
    """The answer of each scene to its request, computed once."""
    known: dict[str, dict[str, Any]] = {}

    def answer(name: str) -> dict[str, Any]:
        if name not in known:
            known[name] = ask(client, name, **REQUESTS[name])
        return known[name]

    return answer


Answers = Callable[[str], dict[str, Any]]


def read_floats(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype="<f4")


def test_every_scene_has_a_request_here_and_a_drawing() -> None:
    assert set(REQUESTS) == set(load_scenes())
    for name in REQUESTS:
        assert (STATIC / "scenes" / f"{name}.js").is_file()


@pytest.mark.parametrize("name", REQUESTS)
def test_an_answer_has_the_parts_that_the_page_draws(answers: Answers, name: str) -> None:
    answer = answers(name)
    frames = len(answer["frames"])
    assert frames > 1
    for frame in answer["frames"]:
        assert frame["label"]
        assert frame["note"]
    assert all(len(line["values"]) <= frames for line in answer["error"]["series"])
    kinds = [line["kind"] for line in answer["error"]["series"]]
    assert {"transformer", "reference"} <= set(kinds)
    registers = answer["registers"]
    places = sum(row["size"] for row in registers["rows"])
    recorded = 1 if "visible" in registers else frames
    assert read_floats(registers["data"]).size == recorded * places * len(registers["tokens"])
    for head in answer["attention"]["heads"]:
        assert len(base64.b64decode(head["data"])) == head["rows"] * head["columns"]
    assert isinstance(answer["certificate"]["line"], str)
    assert "innerloop" in answer["python"]


def copy_build(name: str, *, instances: int, **parameters: Any) -> Any:
    """Build as a program asks; what its scene has built is copied, which takes less time."""
    return copy.deepcopy(get_build(name, instances=instances, **parameters))


def run_program(text: str) -> list[Any]:
    """Run a program that the page shows; return what it prints after the number of each line."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(text, {"__name__": "program"})
    return [json.loads(line.partition(" ")[2]) for line in out.getvalue().splitlines()]


PRINTED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "line-fit": lambda answer: answer["picture"]["lines"],
    "clusters": lambda answer: answer["picture"]["means"],
    "pca": lambda answer: answer["picture"]["vectors"],
    "sparse-recovery": lambda answer: answer["picture"]["methods"][0]["values"],
    "bandits": lambda answer: answer["error"]["series"][0]["values"][1:],
    "trained-network": lambda answer: answer["picture"]["predictions"],
    "break-it": lambda answer: answer["error"]["series"][0]["values"][1:],
}
"""What the program of a scene prints, a line for each frame, as the answer has it."""


@pytest.mark.parametrize("name", PRINTED)
def test_a_program_prints_the_numbers_of_its_scene(
    answers: Answers, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = answers(name)
    monkeypatch.setattr("innerloop.certification.building.build", copy_build)
    found = run_program(answer["python"])
    np.testing.assert_allclose(found, PRINTED[name](answer), rtol=1e-9, atol=1e-11)


DIFFERENCE = re.compile(r"differ by at most ([\d.e+-]+)\.(?: |$)")


@pytest.mark.parametrize("name", sorted(set(REQUESTS) - {"trained-network", "break-it"}))
def test_what_is_shown_of_the_transformer_is_its_own(
    client: TestClient, answers: Answers, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spoiled weights must show: a scene that drew the algorithm twice would not notice them."""
    (difference,) = DIFFERENCE.findall(answers(name)["certificate"]["here"])
    assert float(difference) < 0.01

    def spoil(name: str, progress: Any = None, **parameters: Any) -> Any:
        built = copy.deepcopy(get_build(name, **parameters))
        with torch.no_grad():
            for block in built.transformer.blocks():
                if block.attention is not None:
                    block.attention.value.mul_(1.2)
        return built

    module = type(load_scenes()[name]).__module__
    monkeypatch.setattr(f"{module}.get_build", spoil)
    answer = ask(client, name, **REQUESTS[name])
    (difference,) = DIFFERENCE.findall(answer["certificate"]["here"])
    assert float(difference) > 0.01


@pytest.mark.parametrize("name", ["newton", "lloyd", "lista-vm", "pca"])
def test_a_pattern_times_values_is_what_attention_adds(name: str) -> None:
    """The pattern drawn is the one that acts: linear, softmax, ReLU; every mask and factor."""
    sizes: dict[str, dict[str, Any]] = {
        "lista-vm": {"d": 3},
        "pca": {"d": 2, "n": 5, "steps": 2},
        "newton": {"d": 2},
    }
    built = get_build(name, instances=2, **sizes.get(name, {"d": 2, "steps": 2}))
    distribution = built.construction.distributions()[0]
    problem = distribution.sample(generator=torch.Generator().manual_seed(1))
    trace = built.trace(problem)
    context = built.construction.context_length(problem) or trace.streams[0].shape[-2] - 1
    checked = set()
    blocks = [block for _, block in built.transformer._schedule()]
    for stream, block in zip(trace.streams, blocks, strict=False):
        attention = block.attention
        if attention is None:
            continue
        keys = stream[:context] if attention.mask == "context" else stream
        update = (compute_pattern(attention, stream, context) @ (keys @ attention.value.mT)).sum(0)
        expected = attention(stream, context)[..., attention.targets]
        torch.testing.assert_close(stream[..., attention.targets] + update, expected)
        checked.add((attention.kind, attention.mask, attention.normalisation))
    assert checked


# Line fit


def test_the_lines_are_the_transformers_and_end_at_least_squares(answers: Answers) -> None:
    answer = answers("line-fit")
    x, y = np.array(POINTS).T
    slope, intercept = np.polyfit(x, y, 1)
    np.testing.assert_allclose(answer["picture"]["best"], [intercept, slope], atol=1e-12)
    np.testing.assert_allclose(answer["picture"]["lines"][-1], [intercept, slope], atol=1e-8)
    rows = np.stack([np.ones(5), x], axis=1)
    assert answer["picture"]["kappa"] == pytest.approx(np.linalg.cond(rows.T @ rows))
    ours, reference, _ = (line["values"] for line in answer["error"]["series"])
    np.testing.assert_allclose(ours, reference, atol=1e-13)
    assert answer["certificate"]["holds"]


def test_gradient_descent_takes_its_steps_by_hand(client: TestClient) -> None:
    """An oracle of three lines in NumPy."""
    answer = ask(client, "line-fit", points=POINTS, algorithm="looped-gradient-descent", rate=0.2)
    x, y = np.stack([np.ones(5), np.array(POINTS)[:, 0]], axis=1), np.array(POINTS)[:, 1]
    line = np.zeros(2)
    for found in answer["picture"]["lines"]:
        np.testing.assert_allclose(found, line, atol=1e-12)
        line = line - 0.2 * x.T @ (x @ line - y) / 5


@pytest.mark.parametrize("x", [0.0, 1.0, 2.5])
def test_points_with_one_x_are_answered(client: TestClient, x: float) -> None:
    """The condition number is infinite, which JSON cannot hold."""
    answer = ask(client, "line-fit", points=[[x, 1.0], [x, -0.5], [x, 2.0]])
    assert answer["picture"]["kappa"] is None
    intercept, slope = answer["picture"]["best"]
    assert intercept + slope * x == pytest.approx(2.5 / 3)


# Clusters


def test_the_means_are_those_of_scikit_learn(answers: Answers) -> None:
    """From the same starts: an oracle that somebody else wrote."""
    answer = answers("clusters")
    other = KMeans(3, init=np.array(STARTS), n_init=1, tol=0.0).fit(np.array(CLOUDS))
    np.testing.assert_allclose(answer["picture"]["means"][-1], other.cluster_centers_, atol=1e-9)
    shares = np.array(answer["picture"]["shares"][-1])
    assert (shares.argmax(-1) == other.labels_).all()
    costs, expected = (line["values"] for line in answer["error"]["series"])
    np.testing.assert_allclose(costs, expected, atol=1e-12)
    assert costs[-1] == pytest.approx(other.inertia_ / len(CLOUDS))


def test_em_takes_its_steps_by_hand(client: TestClient) -> None:
    answer = ask(client, "clusters", points=CLOUDS, starts=STARTS, algorithm="em", sigma=0.6)
    x, means = np.array(CLOUDS), np.array(STARTS)
    for found in answer["picture"]["means"]:
        np.testing.assert_allclose(found, means, atol=1e-5)
        shares = softmax(-((x[:, None] - means) ** 2).sum(-1) / (2 * 0.6**2), axis=1)
        means = shares.T @ x / shares.sum(0)[:, None]
    surprise = answer["error"]["series"][0]["values"]
    assert all(b <= a + 1e-6 for a, b in pairwise(surprise)), "EM never falls back"


# PCA


def test_directions_end_at_the_eigenvectors(answers: Answers) -> None:
    picture = answers("pca")["picture"]
    _, vectors = np.linalg.eigh(np.cov(np.array(SPREAD).T, bias=True) + outer_mean(SPREAD))
    for found, axis in zip(picture["vectors"][-1], vectors.T[::-1], strict=True):
        assert abs(np.dot(found, axis)) == pytest.approx(1, abs=2e-2)
    first, last = (np.array(picture["matrices"][k]) for k in (0, -1))
    assert np.linalg.norm(last) < 0.1 * np.linalg.norm(first), "both components are taken out"


def outer_mean(points: list[list[float]]) -> np.ndarray:
    """What a covariance without centring has in addition."""
    mean = np.mean(points, axis=0)
    return np.outer(mean, mean)


# Sparse recovery


def test_the_methods_are_the_packages_own(answers: Answers) -> None:
    answer = answers("sparse-recovery")
    methods = {each["name"]: np.array(each["values"]) for each in answer["picture"]["methods"]}
    problem = make_problem(TRUTH, 0.1, 1)
    penalty = torch.tensor(0.2, dtype=torch.float64)
    np.testing.assert_allclose(methods["lasso"][0], Lasso(penalty).init(problem), atol=1e-6)
    steps = torch.stack(list(ISTA(penalty).states(problem, 12)))
    np.testing.assert_allclose(methods["ISTA"], steps, atol=1e-12)
    run = load_recorded("sparse", "small-transformer")
    layers = run.recipe.predict_layers(run.model, problem.to(torch.float32)).detach()
    ours = methods["trained Small TF"] @ problem.x_query[0].numpy()
    np.testing.assert_allclose(ours, layers[:, 0], atol=1e-4)
    learned = cast(Any, load_recorded("sparse", "lista-vm").model)
    iterates = learned.iterates(problem.x.float()[None], problem.y.float()[None])
    mine = methods["LISTA-VM transformer"][1:]
    np.testing.assert_allclose(mine, iterates[:, 0].detach(), atol=1e-4)


def test_without_recorded_weights_the_scene_says_so_and_shows_the_rest(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a wheel, which has neither the Small TF nor the learned matrices."""

    def fail(folder: str, name: str) -> None:
        raise FileError("not here")

    monkeypatch.setattr(sparse_recovery, "load_recorded", fail)
    for name in ("load_learned", "load_trained"):
        monkeypatch.setattr(sparse_recovery, name, getattr(sparse_recovery, name).__wrapped__)
    answer = ask(client, "sparse-recovery", truth=TRUTH, seed=1)
    methods = {each["name"]: each["values"] for each in answer["picture"]["methods"]}
    assert set(methods) == {"LISTA-VM transformer", "ISTA", "FISTA", "lasso"}
    assert "Small TF is not here" in answer["certificate"]["here"]
    found = run_program(answer["python"])
    np.testing.assert_allclose(found, methods["LISTA-VM transformer"], atol=1e-12)


# Bandits


@pytest.mark.parametrize("policy", ["soft-lin-ucb", "thompson-sampling"])
def test_the_transformer_and_its_policy_have_the_same_luck(
    client: TestClient, answers: Answers, policy: str
) -> None:
    request = {**REQUESTS["bandits"], "policy": policy}
    answer = answers("bandits") if policy == "soft-lin-ucb" else ask(client, "bandits", **request)
    picture = answer["picture"]
    actions, expected = picture["actions"], picture["policy_actions"]
    ours, reference, uniform = (line["values"] for line in answer["error"]["series"])
    same = next((t for t in range(20) if actions[t] != expected[t]), 20)
    assert same >= 10, "they part only where their odds are nearly equal"
    np.testing.assert_allclose(ours[: same + 1], reference[: same + 1])
    means = np.array(picture["features"]) @ np.array(picture["weights"])
    regret = means.max(-1) - means[np.arange(20), actions]
    np.testing.assert_allclose(np.diff(ours), regret, atol=1e-12)
    assert uniform[-1] > ours[-1]


@pytest.mark.parametrize("policy", ["soft-lin-ucb", "thompson-sampling"])
def test_a_game_that_is_reviewed_is_the_game_that_is_played(policy: str) -> None:
    """Both where the transformer would choose as its policy, and where it would not."""
    built = get_build(policy, **bandits.choose())
    environment = bandits.make_environment(built, [0.9, 0.55], 0.2, seed=4)
    games, recording = bandits.play_games(built, environment, seed=4)
    player = TransformerPolicy.from_built(built)
    draws = Draws.sample(player, environment, bandits.TURNS, 4)
    played, shown = play(player, environment, draws), games["transformer"]
    assert torch.equal(shown.history.actions, played.history.actions)
    torch.testing.assert_close(shown.probabilities, played.probabilities, rtol=1e-9, atol=1e-12)
    assert torch.equal(shown.regret, played.regret)
    assert len(recording.streams[-1]) == 2 * bandits.TURNS
    other = play(UniformPolicy(), environment, draws)
    reviewed = bandits.review_game(built, other, draws)[0]
    assert not torch.equal(bandits.choose_actions(reviewed, draws), other.history.actions)


def test_answers_of_a_recorded_pass_are_those_of_the_transformer() -> None:
    points = [*POINTS, [-2.0, 2.5]]
    problem = line_fit.make_problem(points)
    for name in line_fit.NAMES:
        built = get_build(name, **line_fit.choose(name, 0.3))
        found = predict_steps(built, problem, record(built, problem))
        assert torch.equal(found, torch.stack(list(built.predictions(problem))))
    built = get_build("newton", **line_fit.choose("newton", 0.3))
    far = line_fit.make_problem([[300.0 * x, y] for x, y in points])
    with pytest.raises(InputError, match="diverged"):
        predict_steps(built, far, record(built, far))


def test_the_scale_of_a_pattern_is_a_quantile_of_what_is_not_0() -> None:
    patterns = torch.randn(5, 7, 9, dtype=torch.float64).relu()
    patterns[3] = 0.0
    patterns[4, :, 1:] = 0.0
    expected = [
        float(sizes.quantile(SHOWN)) if len(sizes := each[each != 0]) else 0.0 for each in patterns
    ]
    np.testing.assert_allclose(measure_scales(patterns), expected, rtol=1e-12)


def test_the_estimate_is_that_of_ridge_regression(answers: Answers) -> None:
    picture = answers("bandits")["picture"]
    features, actions = np.array(picture["features"]), picture["actions"]
    rewards = np.array(picture["rewards"])
    rows = features[np.arange(20), actions]
    for t in (5, 19):
        gram = rows[:t].T @ rows[:t] + np.eye(2)
        expected = np.linalg.solve(gram, rows[:t].T @ rewards[:t])
        np.testing.assert_allclose(picture["estimates"][t], expected, atol=0.02)


# A trained network


def test_predictions_and_patterns_are_the_networks_own(answers: Answers) -> None:
    answer = answers("trained-network")
    run = load_recorded("regression", "gpt2")
    problem, _ = draw_regression(run, {}, 1)
    batch = problem.map_tensors(lambda tensor: tensor[None])
    with torch.no_grad():
        prefixes = cast(Any, run.recipe).predict_prefixes(run.model, batch)
        layers = run.recipe.predict_layers(run.model, batch)
    np.testing.assert_allclose(answer["picture"]["predictions"][-1], prefixes[0], atol=1e-5)
    last = [row[-1] for row in answer["picture"]["predictions"]]
    np.testing.assert_allclose(last, layers[:, 0, 0], atol=1e-5)
    block = cast(Any, run.model).network.h[2]
    stream = torch.randn(21, 64)
    with torch.no_grad():
        value = block.attn.c_attn(block.ln_1(stream)).split(64, dim=-1)[2]
        heads = attend(block, stream) @ value.unflatten(-1, (4, -1)).transpose(0, 1)
        mixed = block.attn.c_proj(heads.transpose(0, 1).flatten(-2))
        expected = block.attn(block.ln_1(stream)[None])[0][0]
    torch.testing.assert_close(mixed, expected, atol=1e-5, rtol=1e-4)


def test_a_dragged_label_changes_what_comes_after_it_alone(
    client: TestClient, answers: Answers
) -> None:
    before = answers("trained-network")["picture"]
    labels = [*before["labels"]]
    labels[4] += 1.5
    after = ask(client, "trained-network", seed=1, labels=labels)["picture"]
    change = np.abs(np.array(after["predictions"][-1]) - before["predictions"][-1])
    assert change[:5].max() < 1e-5 < change[5:].max()


def test_what_identify_says_is_shown(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"algorithms": ["ridge"], "prompts": 8}
    monkeypatch.setattr("innerloop.lab.scenes.trained_network.OPTIONS", options)
    monkeypatch.setattr("innerloop.lab.scenes.trained_network._verdicts", [])
    found = ask(client, "trained-network", seed=1, identify=True)["picture"]["verdicts"]
    expected = innerloop.identify(load_recorded("regression", "gpt2"), **options).as_dict()
    assert [each["does"] for each in found[:-1]] == [each["does"] for each in expected["layers"]]
    assert found[-1]["does"] == expected["verdict"]


# Break it


def test_a_broken_weight_is_found_at_its_step(client: TestClient, answers: Answers) -> None:
    answer = answers("break-it")
    weights, layers = answer["picture"]["weights"], answer["picture"]["layers"]
    broken = layers[weights[60]["layer"] - 1]
    assert not answer["certificate"]["holds"]
    assert f"first in {broken}, register m" in answer["certificate"]["line"]
    assert answer["picture"]["broken"] == [f"step {k}" == broken for k in range(1, 9)]
    step = answer["picture"]["broken"].index(True) + 1
    assert answer["picture"]["lines"][:step] == answer["picture"]["intact"][:step]
    assert answer["picture"]["lines"][step] != answer["picture"]["intact"][step]
    intact = ask(client, "break-it", factor=1.0, weight=60)
    assert intact["certificate"]["holds"]
    assert intact["picture"]["lines"] == intact["picture"]["intact"]


def test_every_weight_matters(client: TestClient) -> None:
    """Each square of the smaller transformer, changed, breaks its own step and no other."""
    name = "preconditioned-gradient-descent"
    weights = ask(client, "break-it", algorithm=name)["picture"]["weights"]
    assert len(weights) == 40
    for i in range(0, 40, 7):
        picture = ask(client, "break-it", algorithm=name, weight=i, factor=-0.5)["picture"]
        assert picture["broken"] == [k == weights[i]["layer"] for k in range(1, 9)]


# Your data


def test_a_table_is_fitted_as_scikit_learn_does(answers: Answers) -> None:
    answer = answers("your-data")
    rows = np.array([[1, 2], [2, 1], [3, 5], [4, 3], [5, 8]], dtype=float)
    y = np.array([3, 5, 6, 9, 9.5])
    expected = LinearRegression().fit(rows, y).predict(rows)
    np.testing.assert_allclose(answer["picture"]["predicted"][-1], expected, atol=1e-6)
    assert answer["table"]["numeric"] == ["a", "b", "c"]
    found = run_program(answer["python"])
    scaled = (rows - rows.mean(0)) / rows.std(0)
    predicted = y.mean() + y.std() * np.array(found) @ scaled.T
    np.testing.assert_allclose(predicted, answer["picture"]["predicted"], atol=1e-6)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "text must be the text of a CSV file, got nothing"),
        ({"text": ""}, "the file is empty"),
        ({"text": "a\n1\n2\n3\n"}, "a table needs 2 to 50 columns, got 1"),
        ({"text": "a,a\n1,2\n3,4\n5,6\n"}, "the header has the column 'a' twice"),
        ({"text": "a,b\n1,2\n3\n5,6\n"}, "row 2 has 1 cells, expected 2"),
        ({"text": "a,b\n1,2\n"}, "the file must have at least 3 rows of numbers, got 1"),
        ({"text": "a,b\nx,2\n3,4\n5,6\n"}, "two columns of numbers are needed, got 1: column "),
        (
            {"text": CSV, "target": "word", "features": ["a"]},
            "column 'word' must hold numbers, row ",
        ),
        ({"text": CSV, "target": "d"}, "no column called 'd'; did you mean"),
        ({"text": CSV, "target": "a", "features": ["a"]}, "a column is chosen twice"),
        ({"text": CSV, "target": "a", "features": []}, "features must have 1 to 5 entries, got 0"),
        ({"text": "a,b\n1,2\n1,4\n1,6\n"}, "column 'a' has the same number in every row"),
        ({"text": "a,b\n1,\n3,4\n5,6\n"}, "two columns of numbers are needed, got 1: column 'b'"),
        ({"text": "a,b\n1,nan\n3,4\n5,6\n", "target": "b"}, "column 'b' has nan in row 1"),
        ({"text": "a,b\n1,2\n3,1e200\n5,6\n"}, "numbers this large cannot be scaled: use other"),
        ({"text": "a,b\n.1,2\n.1,4\n.1,6\n"}, "column 'a' has the same number in every row"),
        ({"text": "a,b\n1e-170,2\n0,4\n0,6\n"}, "numbers this close cannot be scaled: use other"),
        ({"text": "a,b\n1e308,2\n1e308,4\n5,6\n"}, "numbers this large cannot be scaled"),
        ({"text": "\0\0"}, "expected a text file"),
        ({"text": "1," * 600_000}, "a file may have 1,000,000 characters"),
    ],
)
def test_bad_tables_are_refused_by_row_and_column(
    client: TestClient, values: dict[str, Any], message: str
) -> None:
    assert refuse(client, "your-data", **values).startswith(message)


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ("\ufeffx;y\r\n1;2\r\n2;3\r\n3;5\r\n", ["x", "y"], 3),
        ("1\t2\n2\t3\n3\t5\n\n", ["column 1", "column 2"], 3),
        ('"a, b",c\n1,2\n2,3\n4,4\n' + "1,2\n" * 300, ["a, b", "c"], 303),
    ],
)
def test_tables_of_many_kinds_are_read(text: str, names: list[str], rows: int) -> None:
    table = parse_table(text)
    assert table.names == names
    assert table.total == rows
    assert len(table.rows) == min(rows, 200)
    assert table.numeric() == names


# Requests that are wrong


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "points must be a list, got nothing"),
        ({"points": POINTS[:1]}, "points must have 2 to 30 entries, got 1"),
        ({"points": POINTS * 100}, "points must have 2 to 30 entries, got 500"),
        ({"points": [[0, "1"], [1, 2]]}, "points, entry 1 must be a number, got '1'"),
        ({"points": [[0, 1], [1, 2, 3]]}, "points, entry 2 must have 2 to 2 entries, got 3"),
        ({"points": [[0, 1], [1, True]]}, "points, entry 2 must be a number, got True"),
        ({"points": [[0, 1], [9, 9]]}, "points, entry 2: coordinates must be within ±3, got 9, 9"),
        ({"points": POINTS, "rate": 7}, "rate must be between 0.05 and 0.6, got 7"),
        ({"points": POINTS, "algorithm": "newtom"}, "no algorithm called 'newtom'; did you mean"),
        ({"points": POINTS, "algorithm": 3}, "algorithm must be a word, got 3"),
    ],
)
def test_wrong_values_are_refused_by_name(
    client: TestClient, values: dict[str, Any], message: str
) -> None:
    assert refuse(client, "line-fit", **values).startswith(message)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-1e999", "1e7", "1" + 400 * "0"])
def test_numbers_that_are_not_finite_are_refused(client: TestClient, number: str) -> None:
    body = f'{{"values": {{"points": [[0, {number}], [1, 2]]}}}}'
    response = client.post(
        "/run/line-fit", content=body, headers={"content-type": "application/json"}
    )
    assert response.status_code == 422
    assert "entry 1 must be between" in response.json()["mistake"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", 400, "it is not JSON"),
        (b"[]", 400, "its JSON is a list, expected an object"),
        (b'{"values": 1}', 400, "values must be an object"),
        (b'{"turn": "1"}', 400, "tab must be a short text"),
        (b"[" * 5000 + b"]" * 5000, 400, "its JSON is nested deeper"),
        (b" " * (MAX_BODY + 1), 413, "a request may have"),
        (b"\xff\xfe", 400, "it is not JSON"),
    ],
)
def test_bodies_that_are_no_request_are_refused(
    client: TestClient, body: bytes, status: int, message: str
) -> None:
    response = client.post(
        "/run/line-fit", content=body, headers={"content-type": "application/json"}
    )
    assert response.status_code == status
    assert response.json()["mistake"].startswith(message)


def test_other_hosts_pages_and_paths_are_refused(client: TestClient) -> None:
    foreign = client.get("/scenes", headers={"host": "innerloop.example:8324"})
    assert foreign.status_code == 421
    assert client.get("/", headers={"host": "127.0.0.1.evil.example"}).status_code == 421
    assert client.get("/scenes", headers={"host": "localhost:1"}).status_code == 200
    other = client.post("/run/line-fit", json={}, headers={"origin": "http://evil.example"})
    assert other.status_code == 403
    plain = client.post("/run/line-fit", content=b"{}", headers={"content-type": "text/plain"})
    assert plain.status_code == 415
    assert client.post("/run/nothing", json={}).status_code == 404
    assert client.get("/run/line-fit").status_code == 405
    assert client.get("/static/../server.py").status_code == 404
    assert client.get("/static/%2e%2e/server.py").status_code == 404


def test_every_answer_carries_the_policy_and_nothing_is_loaded_from_elsewhere(
    client: TestClient,
) -> None:
    for path in ("/", "/scenes", "/static/lab.js", "/nowhere"):
        policy = client.get(path).headers["content-security-policy"]
        assert policy.startswith("default-src 'self'")
        assert "unsafe" not in policy
    for file in STATIC.rglob("*"):
        if file.suffix in (".html", ".js", ".css"):
            text = file.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
            assert "://" not in text, file
            assert "innerHTML" not in text, file
            assert " style=" not in text, file


# Requests under way


def test_the_latest_request_of_a_page_wins() -> None:
    turns = Turns()
    first, other = Work(turns, "a", 1), Work(turns, "b", 1)
    first.report(0.5)
    Work(turns, "a", 2)
    with pytest.raises(SupersededError):
        first.report(0.6)
    other.report(0.5)
    other.gone = True
    with pytest.raises(SupersededError):
        other.report(0.6)


def test_a_slow_answer_tells_its_progress_and_stops_when_superseded(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, begun = threading.Event(), threading.Event()

    def run(values: Any, progress: Any) -> dict[str, Any]:
        progress(0.5, "thinking")
        begun.set()
        go.wait(10)
        progress(0.9)
        return {"late": True}

    monkeypatch.setattr(load_scenes()["line-fit"], "run", run, raising=False)
    monkeypatch.setattr("innerloop.lab.server.PATIENCE", 0.0)
    monkeypatch.setattr("innerloop.lab.server.BEAT", 0.01)
    texts: list[str] = []

    def post() -> None:
        body = {"tab": "slow", "turn": 1, "values": {}}
        texts.append(client.post("/run/line-fit", json=body).text)

    thread = threading.Thread(target=post)
    thread.start()
    begun.wait(10)
    time.sleep(0.05)
    client.app.state.turns.begin("slow", 2)  # pyright: ignore
    go.set()
    thread.join()
    lines = [json.loads(line) for line in texts[0].splitlines()]
    assert {"progress": 0.5, "doing": "thinking"} in lines
    assert lines[-1] == {"superseded": True}


def test_superseded_requests_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that wait for a free thread stop at their turn, and the page itself never waits."""
    runs: list[int] = []
    monkeypatch.setattr(
        load_scenes()["line-fit"],
        "run",
        lambda values, progress: runs.append(values["turn"]) or {},
        raising=False,
    )
    monkeypatch.setattr("innerloop.lab.server.PATIENCE", 100.0)
    app, free = make_app(), threading.Event()
    app.state.limiter = CapacityLimiter(1)

    async def occupy() -> None:
        async with app.state.limiter:
            while not free.is_set():
                await asyncio.sleep(0.01)

    with TestClient(app, base_url="http://127.0.0.1:8324") as client:
        threads = [
            threading.Thread(
                target=client.post,
                args=("/run/line-fit",),
                kwargs={"json": {"tab": "t", "turn": turn, "values": {"turn": turn}}},
            )
            for turn in range(12)
        ]
        task = client.portal.start_task_soon(occupy)  # pyright: ignore
        for thread in threads:
            thread.start()
            time.sleep(0.02)
        assert client.get("/").status_code == 200
        free.set()
        task.result()
        for thread in threads:
            thread.join()
    assert runs == [11]


def test_an_answer_that_is_not_finite_is_a_mistake_in_one_line(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = load_scenes()["line-fit"]
    found = {"error": float("nan")}
    monkeypatch.setattr(scene, "run", lambda values, progress: found, raising=False)
    response = client.post("/run/line-fit", json={"values": {}})
    assert response.status_code == 500
    assert response.json()["mistake"].startswith("the scene line-fit failed: ")
    assert len(capsys.readouterr().err.splitlines()) == 1


# Connections


@contextlib.contextmanager
def serve(monkeypatch: pytest.MonkeyPatch, seconds: float) -> Iterator[int]:
    """Serve the lab at a local port; a request must arrive within this number of seconds."""
    monkeypatch.setattr("innerloop.lab.serving.MAX_HEADER_SECONDS", seconds)
    monkeypatch.setattr("innerloop.lab.server.MAX_BODY_SECONDS", seconds)
    with open_socket(0) as listener:
        server = make_server()
        sockets = {"sockets": [listener]}
        thread = threading.Thread(target=server.run, kwargs=sockets, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(10)


POST = b"POST /run/line-fit HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"", b""),
        (b"GET / HT", b""),
        (POST, b""),
        (POST + b"content-length: 99\r\n\r\n{", b"HTTP/1.1 408"),
    ],
)
def test_a_request_that_does_not_arrive_is_ended(
    sent: bytes, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(monkeypatch, 0.2) as port:
        with connect(port) as connection:
            connection.sendall(sent)
            received = read_all(connection)
        assert received.startswith(answer)
        assert bool(received) == bool(answer)
        with connect(port) as connection:
            connection.sendall(b"GET /nowhere HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 404")
            connection.sendall(sent or b"G")
            assert answer in read_all(connection), "a second request does not arrive either"


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=3.0)


def read_all(connection: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            received += part
    return received


def test_a_client_that_disconnects_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with serve(monkeypatch, 5.0) as port:
        for _ in range(3):
            with connect(port) as connection:
                connection.sendall(POST + b"content-length: 99\r\n\r\n{")
                time.sleep(0.05)
        time.sleep(0.1)
    assert "".join(capfd.readouterr()) == ""


# The command


def test_a_port_that_is_taken_is_one_line(run: Callable[..., CommandResult]) -> None:
    with open_socket(0) as taken:
        assert taken.getsockname()[0] == "127.0.0.1"
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port} cannot be used"):
            open_socket(port)
        code, out, err = run("lab", "--no-browser", "--port", str(port))
    assert code == 2
    assert not out
    assert err.startswith(f"innerloop: port {port} cannot be used")
    assert len(err.splitlines()) == 1


def test_missing_libraries_are_one_line(
    run: Callable[..., CommandResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, _, err = run("lab")
    assert code == 2
    assert err == ("innerloop: the lab needs starlette and uvicorn: pip install 'innerloop[lab]'\n")
