"""Pictures of programs: heads told apart, the author's names, whole lines, PNG and SVG."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from innerloop.constructions.base import Construction
from innerloop.language import Data, State, dot, mean, piecewise, program, relu
from innerloop.language.columns import Column, describe_program
from innerloop.language.construction import ProgramConstruction
from innerloop.language.diagram import WIDTH, draw_program
from innerloop.registry import load_members


def list_kinds() -> dict[str, Any]:
    return {
        name: kind
        for group in ("programs", "constructions")
        for name, kind in load_members(group, Construction).items()
        if issubclass(kind, ProgramConstruction)
    }


def describe(name: str, **settings: Any) -> list[Column]:
    return describe_program(list_kinds()[name].from_values(settings))[1]


def test_heads_of_one_purpose_share_a_stroke_that_tells_score_from_value() -> None:
    (step, _) = describe("heavy-ball")
    head, units = step.strokes
    assert (head.kind, head.number, head.label) == ("head", 1, "×1")
    assert head.marks == {
        **{"w": {"query"}, "x": {"key", "value"}, "y": {"key"}},
        **{"one": {"query"}, "v": {"write"}},
    }
    assert units.marks["w"] == {"write"}
    assert "read" in units.marks["v"]


def test_groups_of_heads_have_their_numbers() -> None:
    last = describe("network-gradient-descent")[5]
    heads = [stroke for stroke in last.strokes if stroke.kind == "head"]
    assert sorted(stroke.number for stroke in heads) == [2, 6, 8]
    written = {name for s in heads for name, roles in s.marks.items() if "write" in roles}
    assert written == {"V1", "V2", "V3"}
    assert sum(stroke.number for stroke in heads) == 16


@pytest.mark.parametrize("name", list_kinds())
def test_pictures_fit_the_page_and_have_names_and_lines(name: str) -> None:
    made = list_kinds()[name].from_values({})
    _, columns = describe_program(made)
    assert not [each for column in columns for each in column.list_names() if "line " in each]
    assert all(column.lines for column in columns), "each block runs a line, the read-out too"
    svg = draw_program(made)
    root = ElementTree.fromstring(svg)
    assert float(root.attrib["width"]) <= WIDTH
    drawn = re.sub(r"\s", "", "".join(t.text or "" for t in root.iter() if t.tag.endswith("text")))
    for column in columns:
        for line in column.lines:
            assert re.sub(r"\s", "", line) in drawn, "wrapped, not cut"


def test_variables_of_python_name_temporaries() -> None:
    names = {name for column in describe("soft-k-means") for name in column.list_names()}
    assert {"fit", "entropy", "middle", "share", "near", "level", "square"} <= names
    parts = {n for column in describe("approximate-message-passing") for n in column.list_names()}
    assert {"theta: mean(…)", "theta: piecewise(…)", "moved: total(…)"} <= parts


def test_temporaries_live_from_their_writer_to_the_one_that_clears_them() -> None:
    first, second, third, fourth, *_ = describe("soft-k-means")
    assert first.alive == {"square": (0, None)}
    assert second.alive["square"] == (None, 1)
    assert third.alive["level"] == (None, None)
    assert fourth.alive["level"][1] is not None
    assert "square" not in third.alive


@program(x=Data("d"), y=Data(), w=State("d", shared=True), z=State())
def reuse(me: Any) -> None:
    """A place is cleared and given away by one MLP."""
    me.first = mean(lambda j: dot(me.w, j.x) * j.y)
    me.second = relu(me.first)
    me.third = piecewise(me.second, lambda s: s * s, [0.0, 1.0, 2.0])
    me.z = me.third


def test_a_place_that_is_given_away_has_both_names() -> None:
    made = reuse(d=2, n=3, steps=1)
    blocks = made.compiled.steps[0].blocks
    names = {name for c in describe_program(made)[1] for name in c.list_names()}
    assert {"first", "second"} <= names
    assert blocks[0].new_labels, "the first MLP leaves something of its own"
    (step, *_) = describe_program(made)[1]
    marks = [stroke.marks for stroke in step.strokes if stroke.kind == "unit"]
    assert any(each.get("second") == {"write"} for each in marks)
    assert any("clear" in each.get("first", ()) for each in marks)


def test_figures_have_the_format_of_their_name(run: Any, tmp_path: Path) -> None:
    few = ["-s", "d=2", "-s", "steps=1"]
    for command in ("show", "compile"):
        name = "program/heavy-ball" if command == "show" else "heavy-ball"
        more = ["--instances", "2"] if command == "compile" else []
        picture, drawing = tmp_path / f"{command}.png", tmp_path / f"{command}.svg"
        for path in (picture, drawing):
            made = run(command, name, *few, *more, "--figure", str(path))
            assert made.code == 0, made.err
            assert f"diagram written to {path}" in made.out
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert drawing.read_bytes().startswith(b"<svg")
        refused = run(command, name, *few, *more, "--figure", str(tmp_path / "x.pdf"))
        assert refused.code == 2
        assert "must end in .png or .svg, got 'x.pdf'" in refused.err
    none = run("show", "construction/format-conversion", "--figure", str(tmp_path / "y.svg"))
    assert none.code == 2
    assert "only programs and constructions that are programs have one" in none.err
