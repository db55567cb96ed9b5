"""Programs on the command line of `identify`, and among the names that errors suggest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import innerloop
from innerloop.errors import InputError
from innerloop.identification.identification import as_model
from innerloop.programs.heavy_ball import heavy_ball

PROGRAM = """from innerloop.language import Data, State, dot, mean, program


@program(x=Data("d"), y=Data(), w=State("d", shared=True), v=State("d", shared=True))
def ball(me, eta=0.1, beta=0.5):
    me.v = beta * me.v - eta * mean(lambda j: (dot(me.w, j.x) - j.y) * j.x)
    me.w = me.w + me.v
"""
FEW = ("--prompts", "32", "--steps", "8", "--json")


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("step.py").write_text(PROGRAM)
    return "step.py:ball"


def test_a_program_is_built_and_identified(step: str, run: Any) -> None:
    sizes = ("-s", "d=2", "-s", "n=8", "-s", "steps=3", "-s", "beta=0.25")
    only = ("--candidate", "gradient-descent", "--candidate", "heavy-ball")
    found = json.loads(run("identify", step, *sizes, *only, *FEW).out)
    assert found["verdict"] == "heavy-ball"
    assert (found["problem"]["d"], found["problem"]["n"], len(found["layers"])) == (2, 8, 3)


def test_a_program_is_a_candidate_by_its_own_name(step: str, run: Any) -> None:
    sizes = ("-s", "d=2", "-s", "n=8", "-s", "steps=3")
    found = json.loads(run("identify", "heavy-ball", *sizes, "--candidate", step, *FEW).out)
    assert found["verdict"] == step


def test_programs_are_given_as_they_are_in_python() -> None:
    made = heavy_ball(d=2, n=8, steps=2)
    for candidate in (heavy_ball, made, made.algorithm):
        found = innerloop.identify(made, algorithms=[candidate], prompts=32, steps=8)
        assert found.verdict == "heavy-ball"
    assert as_model(heavy_ball).distribution() is not None


def test_names_of_programs_are_suggested() -> None:
    for run in (innerloop.compile, innerloop.exact):
        with pytest.raises(InputError, match=r"no program called 'hevy-ball'.*mean 'heavy-ball'"):
            run("hevy-ball")
    with pytest.raises(InputError, match="did you mean 'heavy-ball'"):
        innerloop.build("hevy-ball")
    with pytest.raises(InputError, match="is written by hand"):
        innerloop.compile("format-conversion")


def test_a_model_that_is_neither_file_nor_name(run: Any) -> None:
    assert "did you mean 'heavy-ball'" in run("identify", "hevy-ball").err
    assert "there is no such file" in run("identify", "nowhere/at/all").err
