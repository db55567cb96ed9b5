"""The figure of a verdict shows what was found inside, where that was asked for."""

from __future__ import annotations

import json
from pathlib import Path


def test_the_figure_shows_what_is_inside(run, tmp_path: Path) -> None:
    file, figure = tmp_path / "weights.safetensors", tmp_path / "figure.svg"
    assert run("build", "newton", "-s", "d=2", "-s", "steps=2", "-o", str(file)).code == 0
    words = ["identify", str(file), "--candidate", "newton", "--prompts", "16"]
    plain = run(*words, "--figure", str(figure))
    assert plain.code == 0
    assert "intervention" not in figure.read_text("utf-8")
    looked = run(*words, "--inside", "--discriminate", "--figure", str(figure))
    assert looked.code == 0
    assert "answers, state and intervention agree at every layer" in looked.out
    assert "no candidates tie" in looked.out
    drawn = figure.read_text("utf-8")
    assert "intervention" in drawn
    assert "random directions" in drawn
    told = json.loads(run(*words, "--inside", "--json").out)["inside"]
    assert [layer["intervention"]["effect"] > 0.99 for layer in told["layers"]] == [True, True]
