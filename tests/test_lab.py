"""The lab's server: scenes answer with the package's own numbers, and bad requests are refused."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from conftest import CommandResult
from starlette.testclient import TestClient

from innerloop.errors import InputError
from innerloop.lab.builds import get_build
from innerloop.lab.pattern import compute_pattern
from innerloop.lab.scene import load_scenes
from innerloop.lab.server import MAX_BODY, STATIC, SupersededError, Turns, Work, make_app
from innerloop.lab.serving import open_socket

POINTS = [[-1.5, -0.9], [-0.5, 0.3], [0.2, 0.1], [1.1, 1.4], [2.0, 1.9]]
REQUESTS: dict[str, dict[str, Any]] = {
    "line-fit": {"points": POINTS},
}
"""A request of each scene that the tests of all of them use."""


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
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
    assert read_floats(registers["data"]).size == frames * places * len(registers["tokens"])
    for head in answer["attention"]["heads"]:
        assert len(base64.b64decode(head["data"])) == head["rows"] * head["columns"]
    assert isinstance(answer["certificate"]["line"], str)
    assert "innerloop" in answer["python"]


def run_program(text: str) -> list[Any]:
    """Run a program that the page shows; return what it prints after the number of each line."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(text, {"__name__": "program"})
    return [json.loads(line.partition(" ")[2]) for line in out.getvalue().splitlines()]


PRINTED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "line-fit": lambda answer: answer["picture"]["lines"],
}
"""What the program of a scene prints, a line for each frame, as the answer has it."""


@pytest.mark.parametrize("name", PRINTED)
def test_a_program_prints_the_numbers_of_its_scene(answers: Answers, name: str) -> None:
    answer = answers(name)
    found = run_program(answer["python"])
    np.testing.assert_allclose(found, PRINTED[name](answer), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["newton", "lloyd", "lista-vm", "pca"])
def test_a_pattern_times_values_is_what_attention_adds(name: str) -> None:
    """The pattern drawn is the one that acts: linear, softmax, ReLU; every mask and factor."""
    sizes = {"lista-vm": {"d": 3}, "pca": {"d": 2, "n": 5, "steps": 2}, "newton": {"d": 2}}
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
    slope, intercept = np.polyfit(*np.array(POINTS).T, 1)
    np.testing.assert_allclose(answer["picture"]["best"], [intercept, slope], atol=1e-12)
    np.testing.assert_allclose(answer["picture"]["lines"][-1], [intercept, slope], atol=1e-8)
    x = np.stack([np.ones(5), np.array(POINTS)[:, 0]], axis=1)
    assert answer["picture"]["kappa"] == pytest.approx(np.linalg.cond(x.T @ x))
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


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-1e999", "1e7"])
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
